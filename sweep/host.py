"""The browser of a sweep: launched when needed, killed when it hangs, launched again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from playwright.async_api import BrowserContext
from playwright.async_api import Error as PlaywrightError

from sweep.errors import EnvironmentProblem

RELAUNCH_WAITS_S = (0.5, 2.0, 5.0)
"""Once a browser has run here, one that does not start is tried again after these pauses."""

log = logging.getLogger(__name__)


class RunningBrowser(Protocol):
    """What `browser.launch` returns."""

    @property
    def context(self) -> BrowserContext: ...
    @property
    def version(self) -> str: ...
    async def close(self) -> None: ...
    async def kill(self) -> None: ...


@dataclass
class BrowserHost:
    """Holds at most one browser. `launch` makes one; nothing here knows how."""

    launch: Callable[[], Any]
    """Coroutine function that returns a RunningBrowser."""
    recover: Callable[[], Awaitable[None]] | None = None
    """Called before a launch is tried again: what launches may itself have died."""
    launches: int = 0
    _running: RunningBrowser | None = None
    _gone: list[Callable[[], None]] = field(default_factory=list)
    _dead: list[RunningBrowser] = field(default_factory=list)
    """Browsers that ended by themselves and may have left processes and files."""
    _hopeless: EnvironmentProblem | None = None
    """Why no browser could be started again, in the end: nobody else need try."""

    @property
    def running(self) -> RunningBrowser | None:
        """The browser, where one runs."""
        return self._running

    @property
    def version(self) -> str | None:
        """Version of the running browser; None before the first launch."""
        return self._running.version if self._running else None

    async def context(self) -> BrowserContext:
        """The browser's context; launches a browser when there is none.

        Raises:
            EnvironmentProblem: the browser cannot be started.
        """
        if self._hopeless is not None:
            raise self._hopeless
        if self._running is None:
            await self._bury()
            running = await self._launch()
            self.launches += 1
            self._running = running
            running.context.on("close", lambda _: self._vanished(running))
        return self._running.context

    async def _launch(self) -> RunningBrowser:
        waits = iter(RELAUNCH_WAITS_S if self.launches else ())
        while True:
            try:
                running: RunningBrowser = await self.launch()
            except EnvironmentProblem as problem:
                wait = next(waits, None)
                if wait is None:
                    if self.launches:
                        self._hopeless = problem
                    raise
                log.warning("the browser does not start, trying again: %s", problem)
                await asyncio.sleep(wait)
                if self.recover is not None:
                    await self.recover()
            else:
                return running

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Calls back once when the running browser ends, for whatever reason."""
        self._gone.append(callback)

    def _vanished(self, running: RunningBrowser) -> None:
        if self._running is not running:
            return
        self._running = None
        self._dead.append(running)
        self._announce()

    async def _bury(self) -> None:
        """Waits until nothing is left of browsers that ended by themselves."""
        dead, self._dead = self._dead, []
        for running in dead:
            await running.close()

    def _announce(self) -> None:
        callbacks, self._gone = self._gone, []
        for callback in callbacks:
            callback()

    async def kill(self) -> None:
        """Kills the browser's process tree; the next `context()` launches a new one."""
        running, self._running = self._running, None
        if running is not None:
            await running.kill()
        self._announce()

    async def close(self) -> None:
        """Ends the browser in an orderly way, or kills it if that fails."""
        running, self._running = self._running, None
        self._gone.clear()
        await self._bury()
        if running is None:
            return
        try:
            await running.close()
        except (PlaywrightError, TimeoutError):
            await running.kill()


@contextlib.asynccontextmanager
async def browser_host(
    launch: Callable[[], Any], recover: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[BrowserHost]:
    """A host whose browser is gone when the context ends."""
    host = BrowserHost(launch, recover)
    try:
        yield host
    finally:
        await host.close()

"""The Playwright driver, a process of its own: started when needed, started again after it died."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Playwright, async_playwright

from sweep.errors import EnvironmentProblem

STOP_TIMEOUT_S = 10.0

log = logging.getLogger(__name__)


@dataclass
class Driver:
    """Holds at most one driver process. Made by `browser_driver`."""

    starts: int = 0
    _playwright: Playwright | None = None

    async def playwright(self) -> Playwright:
        """The running driver; starts one when there is none.

        Raises:
            EnvironmentProblem: it cannot be started.
        """
        if self._playwright is None:
            try:
                self._playwright = await async_playwright().start()
            # The driver's own start raises whatever the process gave (OSError, bare Exception).
            except Exception as error:
                raise EnvironmentProblem(
                    f"The browser driver does not start: {error}. Reinstall it with "
                    "`pip install --force-reinstall playwright`."
                ) from error
            self.starts += 1
        return self._playwright

    async def stop(self) -> None:
        """Ends the driver; the next `playwright()` starts another."""
        playwright, self._playwright = self._playwright, None
        if playwright is None:
            return
        # A driver that was killed cannot be stopped in an orderly way.
        with contextlib.suppress(PlaywrightError, TimeoutError, OSError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await playwright.stop()


@contextlib.asynccontextmanager
async def browser_driver() -> AsyncIterator[Driver]:
    """A driver whose process is gone when the context ends."""
    driver = Driver()
    try:
        yield driver
    finally:
        await driver.stop()

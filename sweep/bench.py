"""The bench: everything that is set up once and shared by all jobs of a sweep."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from sweep.browser import BrowserChoice, LaunchedBrowser, launch, launch_plan
from sweep.browser_remote import (
    RemoteBrowser,
    RemoteFacts,
    connect,
    remote_facts,
    remote_flags,
)
from sweep.conditions import ConditionsWatch
from sweep.config import Backend, SweepConfig
from sweep.driver import browser_driver
from sweep.env import Environment, HostFacts, build_environment, host_facts
from sweep.gate import MeasuringGate
from sweep.host import BrowserHost, browser_host
from sweep.protocol import Measurement
from sweep.reference import DesktopWorker, desktop_worker
from sweep.runtime import CoreFiles
from sweep.server import PageServer, serve_pages
from sweep.session import PageSession

log = logging.getLogger(__name__)


@dataclass
class Bench:
    """A browser, a server, a page per backend, and the desktop reference, ready to measure."""

    config: SweepConfig
    core: CoreFiles
    server: PageServer
    host: BrowserHost
    desktop: DesktopWorker | None
    machine: HostFacts
    browser_name: str
    headed: bool
    flags: tuple[str, ...]
    sandbox: bool
    machine_label: str
    gate: MeasuringGate
    """Held alone by timed runs, shared by everything that runs beside them."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the one job that the browser works on; what comes before and after needs it not."""
    watch: ConditionsWatch = field(default_factory=ConditionsWatch)
    init_script: str | None = None
    """Runs in every page before anything else: faults are injected with it, in tests only."""
    _sessions: dict[Backend, PageSession] = field(default_factory=dict)
    _browser_version: str = ""

    def session(self, backend: Backend) -> PageSession:
        """The page of a backend; the same one for as long as it stays usable."""
        if backend not in self._sessions:
            self._sessions[backend] = PageSession(
                self.host,
                self.server,
                self.server.add_core(self.core),
                self.server.wasm_directory(self.core.version),
                self.config.leg,
                self.config.timeouts,
                gate=self.gate,
                init_script=self.init_script,
            )
        return self._sessions[backend]

    async def probe(self) -> Measurement:
        """What runtime and adapter are here, without a model."""
        return await self.session("webgpu_mldrift").probe()

    async def recycle(self, backend: Backend) -> None:
        """Makes the backend's next job start in a fresh page (or context, or browser)."""
        if self.config.isolation in ("context", "browser"):
            await self.host.close()
        elif backend in self._sessions:
            await self._sessions[backend].close()

    def environment(self, measurement: Measurement) -> Environment:
        """The `env` block of one measurement."""
        # A browser that died has told its version before.
        self._browser_version = self.host.version or self._browser_version
        return build_environment(
            runtime=measurement.runtime,
            host=self.machine,
            browser=self.browser_name,
            browser_version=self._browser_version or "unknown",
            headless=not self.headed,
            flags=self.flags,
            sandbox=self.sandbox,
            core_version=self.core.version,
            machine_label=self.machine_label,
            leg=self.config.leg.name,
            precision=self.config.leg.precision,
        )


@contextlib.asynccontextmanager
async def open_bench(
    config: SweepConfig,
    core: CoreFiles,
    browser: BrowserChoice | None,
    *,
    machine_label: str,
    headed: bool = False,
    gate: MeasuringGate | None = None,
    init_script: str | None = None,
    endpoint: str | None = None,
    far_executable: Path | None = None,
) -> AsyncIterator[Bench]:
    """Sets the bench up, and leaves no process and no file behind.

    `endpoint`: of a Playwright server whose browser is used, on whatever machine that runs;
    `browser` is then not. `far_executable`: a browser's path on that machine.

    Raises:
        EnvironmentProblem: the server, the driver or the browser cannot be started.
    """
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(serve_pages())
        driver = await stack.enter_async_context(browser_driver())
        plan = launch_plan(webgpu=config.leg.webgpu)

        far_flags = remote_flags(webgpu=plan.webgpu)

        async def launch_one() -> LaunchedBrowser | RemoteBrowser:
            playwright = await driver.playwright()
            if endpoint is not None:
                return await connect(
                    playwright,
                    endpoint,
                    far_flags,
                    webgpu=plan.webgpu,
                    headed=headed,
                    executable=far_executable,
                )
            assert browser is not None
            return await launch(playwright, browser, plan, headed=headed, only_origin=server.origin)

        await driver.playwright()
        host = await stack.enter_async_context(browser_host(launch_one, driver.stop))
        desktop = (
            await stack.enter_async_context(desktop_worker()) if config.desktop_reference else None
        )
        far: RemoteFacts | None = None
        if endpoint is not None:
            await host.context()
            assert isinstance(host.running, RemoteBrowser)
            far = await remote_facts(host.running, server.add_core(core), far_flags)
            if far.missing:
                log.warning(
                    "the server at %s did not pass on: %s (start it with --unsafe)",
                    endpoint,
                    " ".join(far.missing),
                )
        yield Bench(
            config=config,
            core=core,
            server=server,
            host=host,
            desktop=desktop,
            machine=far.host if far else host_facts(),
            browser_name=far.browser if far else browser.name if browser else "unknown",
            headed=not far.headless if far else headed,
            flags=far.flags if far else plan.flags,
            sandbox=far.sandbox if far else plan.sandbox,
            watch=ConditionsWatch(remote=far is not None),
            machine_label=machine_label,
            gate=gate or MeasuringGate(),
            init_script=init_script,
        )

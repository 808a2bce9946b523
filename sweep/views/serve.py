"""The dashboard on the loopback, rebuilt when the records change."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from aiohttp import web

from sweep.errors import EnvironmentProblem, SweepError
from sweep.runtime import CoreFiles
from sweep.scratch import scratch_prefix
from sweep.views.site import SiteReport, build_site

log = logging.getLogger(__name__)

HEADERS = {
    # A fine clock and threads for the page that checks a model.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

Rebuilt = Callable[[SiteReport | SweepError], None]


def fingerprint(root: Path) -> str:
    """A digest that changes when any record below `root` is added, changed or removed.

    By name, size and modification time: reading them all would cost more than a rebuild.
    """
    digest = hashlib.sha256()
    for directory, names, files in os.walk(root):
        names.sort()
        for name in sorted(files):
            if name.endswith(".json") and not name.startswith("."):
                path = os.path.join(directory, name)  # noqa: PTH118  # 100,000 of them per poll
                with suppress(OSError):
                    facts = os.stat(path)  # noqa: PTH116
                    digest.update(f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


@asynccontextmanager
async def serve_site(
    data: Path,
    *,
    port: int = 0,
    title: str,
    triage_root: Path | None = None,
    core: CoreFiles | None = None,
    on_rebuilt: Rebuilt = lambda _: None,
    interval: float = 1.0,
) -> AsyncIterator[str]:
    """Serve the dashboard of `data` on 127.0.0.1 and yield its address; it ends with the block.

    `port` 0 lets the system choose. The site is built into a temporary directory, first before
    this yields, then whenever the records have changed (looked at every `interval` seconds, less
    often where looking takes long). `on_rebuilt` learns of each rebuild or of why it failed: the
    site before it then stays.

    Raises what `build_site` raises, and EnvironmentProblem when the port is taken.
    """
    with tempfile.TemporaryDirectory(prefix=scratch_prefix()) as name:
        site = Path(name) / "site"

        def build() -> SiteReport:
            return build_site(data, site, title=title, triage_root=triage_root, core=core)

        before = await asyncio.to_thread(fingerprint, data)
        on_rebuilt(await asyncio.to_thread(build))
        app = web.Application(middlewares=[_guard])
        app.router.add_get("/", _index(site))
        app.router.add_static("/", site)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        watcher: asyncio.Task[None] | None = None
        try:
            try:
                tcp = web.TCPSite(runner, "127.0.0.1", port)
                await tcp.start()
            except OSError as error:
                raise EnvironmentProblem(
                    f"port {port} on 127.0.0.1 cannot be used: {error.strerror or error}. "
                    "Name another with --port, or leave it out"
                ) from error
            watcher = asyncio.create_task(_watch(data, before, build, on_rebuilt, interval))
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
        finally:
            if watcher is not None:
                watcher.cancel()
                with suppress(asyncio.CancelledError):
                    await watcher
            await runner.cleanup()


async def _watch(
    data: Path, before: str, build: Callable[[], SiteReport], on_rebuilt: Rebuilt, interval: float
) -> None:
    while True:
        began = time.monotonic()
        now = await asyncio.to_thread(fingerprint, data)
        if now != before:
            before = now
            try:
                on_rebuilt(await asyncio.to_thread(build))
            except SweepError as error:
                on_rebuilt(error)
        # Looking must not become the machine's main occupation: it may be measuring.
        await asyncio.sleep(max(interval, 10 * (time.monotonic() - began)))


def _index(site: Path) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def index(request: web.Request) -> web.StreamResponse:
        return web.FileResponse(site / "index.html")

    return index


@web.middleware
async def _guard(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    # Another Host name means DNS rebinding: some page out there reading local data.
    host = request.host.rsplit(":", 1)[0]
    if host not in ("127.0.0.1", "localhost"):
        raise web.HTTPForbidden(text="This server answers only as 127.0.0.1 or localhost.")
    if request.method not in ("GET", "HEAD"):
        raise web.HTTPMethodNotAllowed(request.method, ("GET", "HEAD"))
    response = await handler(request)
    for name, value in HEADERS.items():
        response.headers[name] = value
    return response

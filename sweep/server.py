"""The loopback server of a sweep: the page, the runtime and model bytes out, tensor bytes in.

It binds 127.0.0.1 on a port the system picks, answers only under a random per-session token and
only to its own Host name, and serves nothing but a fixed list of files and the blobs that the
driver has registered. Every page is cross-origin isolated (COOP/COEP), which gives a fine clock and
threads, and its Content-Security-Policy allows no other origin.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import secrets
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from aiohttp import web

from sweep.errors import EnvironmentProblem
from sweep.paths import resource_dir
from sweep.scratch import scratch_prefix

HARNESS_FILES = ("harness.js", "runtime_adapter.js", "gpu_watch.js", "transport.js", "base64.js")

CHUNK = 2**20
"""Bytes written at a time: the largest piece of a tensor that the server itself holds."""

CONTENT_TYPES = {
    ".js": "text/javascript",
    ".wasm": "application/wasm",
    ".html": "text/html",
    ".map": "application/json",
}

FOR_EVER = "public, max-age=31536000, immutable"
"""URLs hold the session's token or a key drawn once, so a cached body can never be a stale one."""

SHUTDOWN_TIMEOUT_S = 2.0
"""At the end nobody has a right to an answer any more: the browsers are gone."""

ISOLATION_HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class CoreDirs(Protocol):
    """Where one release lies: what `runtime.ensure_core` returns."""

    @property
    def version(self) -> str: ...
    @property
    def core_dir(self) -> Path: ...
    @property
    def wasm_utils_dir(self) -> Path: ...


@dataclass(frozen=True)
class _Blob:
    content: Path | memoryview
    cache: str
    """Its `Cache-Control`."""


@dataclass
class _Upload:
    path: Path
    limit: int


@dataclass
class PageServer:
    """A running server. Made by `serve_pages`; use its methods from the same event loop."""

    origin: str
    token: str
    scratch: Path
    """Directory of received tensors and registered bytes; gone when the server ends."""
    storage_problem: OSError | None = None
    """Why an upload could not be stored; None when all could."""
    _cores: dict[str, CoreDirs] = field(default_factory=dict)
    _blobs: dict[str, _Blob] = field(default_factory=dict)
    _uploads: dict[str, _Upload] = field(default_factory=dict)

    @property
    def base(self) -> str:
        """URL prefix of everything served."""
        return f"{self.origin}/{self.token}"

    def add_core(self, core: CoreDirs) -> str:
        """Serves a release; returns the URL of its harness page."""
        self._cores[core.version] = core
        return f"{self.base}/page/{core.version}/index.html"

    def wasm_directory(self, version: str) -> str:
        """URL directory that `loadLiteRt` takes for a release."""
        return f"{self.base}/core/{version}/wasm/"

    def add_blob(self, content: Path | bytes | memoryview, *, kept: bool = False) -> str:
        """Registers bytes (not copied), or a file, for pages to fetch; returns the URL.

        `kept`: the browser may keep them, so that several pages of it fetch them once.
        """
        key = secrets.token_urlsafe(12)
        content = content if isinstance(content, Path) else memoryview(content)
        self._blobs[key] = _Blob(content, FOR_EVER if kept else "no-store")
        return f"{self.base}/blob/{key}"

    @contextlib.contextmanager
    def offer(self, content: Path | bytes | memoryview, *, kept: bool = False) -> Iterator[str]:
        """The same for as long as the context lasts; yields the URL."""
        url = self.add_blob(content, kept=kept)
        try:
            yield url
        finally:
            self.forget(url)

    def expect_upload(self, path: Path, nbytes: int) -> str:
        """Allows one POST of exactly `nbytes` bytes, stored at `path`; returns the URL."""
        key = secrets.token_urlsafe(12)
        self._uploads[key] = _Upload(path, nbytes)
        return f"{self.base}/upload/{key}"

    def forget(self, url: str) -> None:
        """Withdraws a blob or an upload that was not used."""
        key = url.rsplit("/", 1)[-1]
        self._blobs.pop(key, None)
        self._uploads.pop(key, None)

    async def _page(self, request: web.Request) -> web.StreamResponse:
        version, name = request.match_info["version"], request.match_info["name"]
        if version not in self._cores:
            raise web.HTTPNotFound
        if name != "index.html":
            if name not in HARNESS_FILES:
                raise web.HTTPNotFound
            return await _file(resource_dir("web_harness") / name)
        import_map = json.dumps(
            {
                "imports": {
                    "@litertjs/core": f"{self.base}/core/{version}/dist/index.js",
                    "@litertjs/wasm-utils": f"{self.base}/wasm-utils/{version}/dist/index.js",
                }
            },
            sort_keys=True,
        )
        template = (resource_dir("web_harness") / "index.html").read_text("utf-8")
        digest = base64.b64encode(hashlib.sha256(import_map.encode()).digest()).decode()
        policy = (
            "default-src 'none'; "
            # The runtime's glue code builds its bindings with `new Function`.
            f"script-src 'self' 'unsafe-eval' 'wasm-unsafe-eval' 'sha256-{digest}'; "
            "connect-src 'self'; worker-src 'self' blob:; base-uri 'none'; form-action 'none'"
        )
        return web.Response(
            text=template.replace("{{IMPORT_MAP}}", import_map),
            content_type="text/html",
            headers={"Content-Security-Policy": policy, "Cache-Control": "no-store"},
        )

    async def _package(self, request: web.Request) -> web.StreamResponse:
        core = self._cores.get(request.match_info["version"])
        if core is None:
            raise web.HTTPNotFound
        kind = request.match_info["kind"]
        root = core.core_dir if kind == "core" else core.wasm_utils_dir
        folder, name = request.match_info["folder"], request.match_info["name"]
        path = root / folder / name
        try:
            inside = path.resolve().is_relative_to(root.resolve()) and path.is_file()
        except ValueError:  # a NUL in the name
            inside = False
        if not inside:
            raise web.HTTPNotFound
        return await _file(path)

    async def _blob(self, request: web.Request) -> web.StreamResponse:
        blob = self._blobs.get(request.match_info["key"])
        if blob is None:
            raise web.HTTPNotFound
        content = blob.content
        headers = {"Content-Type": "application/octet-stream", "Cache-Control": blob.cache}
        if isinstance(content, Path):
            return web.FileResponse(content, headers=headers)
        response = web.StreamResponse(headers={**headers, **ISOLATION_HEADERS})
        response.content_length = content.nbytes
        await response.prepare(request)
        for start in range(0, content.nbytes, CHUNK):
            await response.write(content[start : start + CHUNK])
        return response

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        upload = self._uploads.pop(request.match_info["key"], None)
        if upload is None:
            raise web.HTTPNotFound
        # A length that is announced and wrong is refused before anything is read.
        if request.content_length not in (None, upload.limit):
            raise web.HTTPBadRequest(text=f"expected {upload.limit} bytes")
        partial = upload.path.with_suffix(".part")
        try:
            received = await _receive(request, partial, upload.limit)
            if received == upload.limit:
                partial.rename(upload.path)
                return web.Response(status=204)
        except ConnectionError:
            raise
        except OSError as error:
            # The disk's doing, not the page's: the driver has to know.
            self.storage_problem = error
            raise web.HTTPInsufficientStorage(text="cannot be stored") from error
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
        raise web.HTTPBadRequest(text=f"expected {upload.limit} bytes")


async def _receive(request: web.Request, path: Path, limit: int) -> int:
    """Stores a body, up to a little more than `limit` bytes of it; how many bytes came."""
    received = 0
    with path.open("wb") as out:
        async for chunk in request.content.iter_any():
            received += len(chunk)
            if received > limit:
                break
            out.write(chunk)
    return received


async def _file(path: Path) -> web.StreamResponse:
    return web.FileResponse(
        path,
        headers={
            "Content-Type": CONTENT_TYPES.get(path.suffix, "application/octet-stream"),
            "Cache-Control": FOR_EVER,
        },
    )


@contextlib.asynccontextmanager
async def serve_pages(port: int = 0) -> AsyncIterator[PageServer]:
    """Runs the server for as long as the context lasts.

    Raises:
        EnvironmentProblem: the loopback interface or the port cannot be bound.
    """
    token = secrets.token_urlsafe(24)
    with tempfile.TemporaryDirectory(prefix=scratch_prefix()) as scratch:
        server = PageServer(origin="", token=token, scratch=Path(scratch))
        # The largest single upload is checked against its own announced size.
        app = web.Application(client_max_size=2**63, middlewares=[_guard(server)])
        prefix = f"/{token}"
        app.router.add_get(f"{prefix}/page/{{version}}/{{name}}", server._page)
        app.router.add_get(
            f"{prefix}/{{kind:core|wasm-utils}}/{{version}}/{{folder:dist|wasm}}/{{name}}",
            server._package,
        )
        app.router.add_get(f"{prefix}/blob/{{key}}", server._blob)
        app.router.add_post(f"{prefix}/upload/{{key}}", server._upload)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", port)
            try:
                await site.start()
            except OSError as error:
                raise EnvironmentProblem(
                    f"The measuring server could not listen on 127.0.0.1:{port}: "
                    f"{error.strerror or error}. Give another port, or 0 to let the system choose."
                ) from error
            bound = runner.addresses[0][1]
            server.origin = f"http://127.0.0.1:{bound}"
            yield server
        finally:
            await asyncio.shield(runner.cleanup())


def _guard(server: PageServer):  # type: ignore[no-untyped-def]  # aiohttp's middleware type
    @web.middleware
    async def guard(request: web.Request, handler):  # type: ignore[no-untyped-def]
        # A foreign page can reach loopback under another name (DNS rebinding): only ours counts.
        if request.headers.get("Host") != server.origin.removeprefix("http://"):
            raise web.HTTPForbidden(text="wrong host")
        given = request.path.split("/", 2)[1] if request.path.count("/") > 1 else ""
        if not secrets.compare_digest(given.encode(), server.token.encode()):
            raise web.HTTPForbidden(text="wrong token")
        response = await handler(request)
        response.headers.update(ISOLATION_HEADERS)
        return response

    return guard

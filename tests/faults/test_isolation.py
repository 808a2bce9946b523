"""A hostile page, release or model reaches nothing but the server it was loaded from."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page, async_playwright

from sweep.browser import BrowserChoice, launch, launch_plan
from sweep.runtime import CoreFiles
from tests.faults.conftest import PASSED, at_step, rig, statuses

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("scratch")]


@pytest.fixture
def elsewhere() -> Iterator[tuple[int, list[str]]]:
    """Another server of this machine, all interfaces, and what reached it."""
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            self.send_response(200)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Cross-Origin-Resource-Policy", "cross-origin")
            self.end_headers()
            self.wfile.write(b"reached")

        do_POST = do_CONNECT = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("0.0.0.0", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], seen
        server.shutdown()


def own_address() -> str:
    """An address of this machine that is not loopback, so that an IP literal has a destination."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


ATTEMPTS: dict[str, str] = {
    "fetch": "fetch(u).then(() => 'reached', e => 'failed')",
    "no-cors": "fetch(u, {mode: 'no-cors'}).then(() => 'reached', e => 'failed')",
    "post": "fetch(u, {method: 'POST', mode: 'no-cors', body: 'x'})"
    ".then(() => 'reached', e => 'failed')",
    "beacon": "(navigator.sendBeacon(u, 'x'), new Promise(r => setTimeout(r, 300, 'failed')))",
    "image": "new Promise(r => {const i = new Image(); i.onload = i.onerror = () => r('failed');"
    " i.src = u})",
    "script": "new Promise(r => {const s = document.createElement('script');"
    " s.onload = () => r('reached'); s.onerror = () => r('failed');"
    " s.src = u; document.head.append(s)})",
    "websocket": "new Promise(r => {const w = new WebSocket(u.replace('http', 'ws'));"
    " w.onopen = () => r('reached'); w.onerror = () => r('failed')})",
    "frame": "new Promise(r => {const f = document.createElement('iframe'); f.src = u;"
    " document.body.append(f); setTimeout(r, 300, 'failed')})",
    "worker": 'new Promise(r => {const b = new Blob([\'fetch("\' + u + \'", {mode: "no-cors"})'
    ".then(() => postMessage(1), () => postMessage(0))']);"
    " const w = new Worker(URL.createObjectURL(b)); w.onerror = () => r('failed');"
    " w.onmessage = e => r(e.data ? 'reached' : 'failed')})",
}


async def attempts(page: Page, url: str) -> dict[str, str]:
    found = {}
    for name, script in ATTEMPTS.items():
        wrapped = f"u => {{ try {{ return {script} }} catch (e) {{ return 'failed' }} }}"
        found[name] = await page.evaluate(wrapped, f"{url}/{name}")
    return found


async def test_no_way_leads_out_of_the_page(
    core: CoreFiles,
    browser: BrowserChoice,
    tmp_path: Path,
    elsewhere: tuple[int, list[str]],
) -> None:
    port, seen = elsewhere
    targets = [f"http://127.0.0.1:{port}", f"http://localhost:{port}", "http://example.com",
               f"http://{own_address()}:{port}", f"http://[::ffff:7f00:1]:{port}"]  # fmt: skip
    async with rig(core, browser, tmp_path) as made:
        url = made.bench.server.add_core(core)
        context = await made.bench.host.context()
        for with_csp in (True, False):
            page = await context.new_page()
            # Also where the policy does not bind: as if a page could shake it off.
            await page.goto(url if with_csp else f"{made.bench.server.base}/none")
            for target in targets:
                assert await attempts(page, target) == dict.fromkeys(ATTEMPTS, "failed"), target
        for target in [*targets, "https://example.com", "ftp://127.0.0.1"]:
            page = await context.new_page()
            with pytest.raises(PlaywrightError):
                await page.goto(target + "/navigation", timeout=10_000)
        page = await context.new_page()
        await page.goto(url)
        for target in (f"http://127.0.0.1:{port}/self", "file:///etc/passwd"):
            await page.evaluate("u => { try { location.href = u } catch {} }", target)
            await page.wait_for_timeout(300)
            with contextlib.suppress(PlaywrightError):
                assert "root:" not in await page.content()
            page = await context.new_page()
            await page.goto(url)
        assert seen == []
        # And what is allowed still works: the server itself.
        assert await page.evaluate("fetch(location.href).then(r => r.status)") == 200


async def test_the_other_server_is_there_and_a_browser_without_the_lock_reaches_it(
    browser: BrowserChoice, elsewhere: tuple[int, list[str]]
) -> None:
    """The test above would see a way out if there were one."""
    port, seen = elsewhere
    async with async_playwright() as playwright:
        launched = await launch(playwright, browser, launch_plan())
        try:
            page = await launched.context.new_page()
            await page.goto(f"http://127.0.0.1:{port}/")
            found = await attempts(page, f"http://127.0.0.1:{port}")
        finally:
            await launched.close()
    assert found["fetch"] == found["no-cors"] == found["post"] == found["script"] == "reached"
    assert {f"/{name}" for name in ATTEMPTS} <= set(seen)


async def test_a_page_that_navigates_away_and_opens_windows_spoils_only_its_own_run(
    core: CoreFiles, browser: BrowserChoice, tmp_path: Path
) -> None:
    fault = """
      for (let i = 0; i < 5; i++) window.open('about:blank');
      location.href = 'http://example.com/';
      await new Promise(() => {});
    """
    async with rig(core, browser, tmp_path, at_step("firstRun", fault)) as made:
        _, records = await made.sweep()
        pages = (await made.bench.host.context()).pages
        assert len(pages) <= 3
    assert statuses(records["before"]) == statuses(records["after"]) == PASSED
    assert records["victim"].results[0].status == "run_failed"


async def test_the_server_answers_nobody_else(core: CoreFiles, tmp_path: Path) -> None:
    from sweep.server import serve_pages

    async with serve_pages() as server, aiohttp.ClientSession() as client:
        page = server.add_core(core)
        blob = server.add_blob(b"model bytes")
        upload = server.expect_upload(tmp_path / "out.bin", 8)
        host = server.origin.removeprefix("http://")
        port = host.rpartition(":")[2]

        async def status(method: str, url: str, **more: Any) -> int:
            async with client.request(method, url, allow_redirects=False, **more) as answer:
                return answer.status

        assert await status("GET", page) == 200
        assert await status("GET", blob) == 200
        # Token on every route, and not as a mere prefix.
        for url in (page, blob, upload):
            assert await status("GET", url.replace(server.token, "x" * len(server.token))) == 403
            assert await status("GET", url.replace(server.token, server.token + "x")) == 403
            assert await status("GET", url.replace(server.token + "/", "")) == 403
        assert await status("GET", server.origin + "/") == 403
        assert await status("GET", server.base + "/") == 404
        # DNS rebinding: our address under another name.
        for name in (
            f"evil.example:{port}",
            f"localhost:{port}",
            "127.0.0.1",
            f"127.0.0.1:{port}1",
        ):
            assert await status("GET", page, headers={"Host": name}) == 403, name
        # Methods.
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            assert await status(method, page) == 405, method
            assert await status(method, blob) == 405, method
        for method in ("GET", "PUT", "DELETE", "OPTIONS"):
            assert await status(method, upload) == 405, method
        # Sizes: neither more nor less than announced, and once.
        for body in (b"123456789", b"1234567", b"", bytes(1 << 20)):
            url = server.expect_upload(tmp_path / "sized.bin", 8)
            assert await status("POST", url, data=body) == 400
            assert await status("POST", url, data=b"12345678") == 404
        assert not list(tmp_path.glob("sized*"))
        assert await status("POST", upload, data=b"12345678") == 204
        assert await status("POST", upload, data=b"87654321") == 404
        assert (tmp_path / "out.bin").read_bytes() == b"12345678"
        # A length that lies, without a body to match it, is refused before anything is read.
        url = server.expect_upload(tmp_path / "sized.bin", 8)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        path = url.removeprefix(server.origin)
        writer.write(f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 99999999999\r\n\r\n"
                     .encode())  # fmt: skip
        assert b" 400 " in await reader.readline()
        writer.close()


TRAVERSALS = (
    "../../../../../../etc/passwd", "..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/package.json",
    "..%5c..%5cpackage.json", "....//....//etc/passwd", "/etc/passwd", "%2fetc%2fpasswd",
    "index.js%00.html", "index.js/../../package.json", "link.js",
)  # fmt: skip


async def test_no_path_leads_out_of_what_is_served(core: CoreFiles, tmp_path: Path) -> None:
    import shutil

    from yarl import URL

    from sweep.server import serve_pages

    secret = tmp_path / "secret.js"
    secret.write_text("secret")
    copy = tmp_path / "core"
    (copy / "dist").mkdir(parents=True)
    shutil.copy(core.core_dir / "dist" / "index.js", copy / "dist")
    (copy / "dist" / "link.js").symlink_to(secret)  # from an archive with a symlink
    (copy / "package.json").write_text("{}")
    served = core.model_copy(update={"core_dir": copy})
    async with serve_pages() as server, aiohttp.ClientSession() as client:
        server.add_core(served)
        for route in ("core", "wasm-utils"):
            prefix = f"{server.base}/{route}/{core.version}/dist/"
            for path in TRAVERSALS:
                async with client.get(URL(prefix + path, encoded=True)) as answer:
                    assert answer.status in (400, 403, 404), path
                    assert b"secret" not in await answer.read()
        for path in TRAVERSALS:
            async with client.get(
                URL(f"{server.base}/page/{core.version}/{path}", encoded=True)
            ) as answer:
                assert answer.status in (400, 403, 404), path

"""How tensors leave the page: several mechanisms side by side, at 1, 16 and 128 MB.

    python -m benchmarks.bench_transport [--megabytes 1 16 128] [--rounds 3]

The one that is used is the page's own `postBytes`, into the sweep's own server. `loopback client`
is a plain HTTP client posting the same bytes to the same server, the least that HTTP can cost.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import http.client
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import WSMsgType, web
from playwright.async_api import Page, async_playwright

from benchmarks.common import opened, show_environment, spread
from benchmarks.naive import launch_plain
from sweep.server import PageServer

MB = 2**20
JSON_LIMIT_MB = 16
RAW_LIMIT_MB = 64

_FILL = """(size) => {
  const bytes = new Uint8Array(size);
  for (let i = 0; i < size; i += 65536) {
    crypto.getRandomValues(bytes.subarray(i, Math.min(i + 65536, size)));
  }
  // As floats, which is what outputs are: random exponents would make the JSON longer.
  globalThis.floats = new Float32Array(size / 4);
  for (let i = 0; i < floats.length; i++) floats[i] = (bytes[4 * i] - 128) / (bytes[4 * i + 1] + 1);
  globalThis.payload = new Uint8Array(floats.buffer);
}"""

_POST = """async (url) => {
  const {postBytes} = await import(new URL('transport.js', location.href));
  await postBytes(url, payload);
}"""
_RAW = "async (url) => { await fetch(url, {method: 'POST', body: payload, cache: 'no-store'}); }"
_BASE64 = """() => {
  let text = '';
  for (let i = 0; i < payload.length; i += 32766) {
    text += btoa(String.fromCharCode(...payload.subarray(i, i + 32766)));
  }
  return text;
}"""
_SOCKET = """(url) => new Promise((resolve, reject) => {
  const socket = new WebSocket(url);
  socket.onerror = () => reject(new Error('socket failed'));
  socket.onopen = () => {
    const step = 1 << 20;
    for (let i = 0; i < payload.length; i += step) socket.send(payload.subarray(i, i + step));
    socket.send('end');
  };
  socket.onmessage = () => { socket.close(); resolve(); };
})"""


@contextlib.asynccontextmanager
async def socket_server() -> AsyncIterator[str]:
    """Counts the bytes of each connection and answers once the sender says it is done."""

    async def handle(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0, compress=False)
        await socket.prepare(request)
        total = 0
        async for message in socket:
            if message.type == WSMsgType.BINARY:
                total += len(message.data)
            else:
                await socket.send_str(str(total))
        return socket

    app = web.Application()
    app.router.add_get("/", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"ws://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


def post_plainly(url: str, body: bytes) -> None:
    """One POST by the standard library's client."""
    parts = urlsplit(url)
    assert parts.hostname
    connection = http.client.HTTPConnection(parts.hostname, parts.port)
    connection.request("POST", parts.path, body)
    assert connection.getresponse().status == 204
    connection.close()


async def measure(page: Page, server: PageServer, socket: str, size: int, rounds: int) -> None:
    await page.evaluate(_FILL, size)
    body = base64.b64decode(await page.evaluate(_BASE64)) if size <= 64 * MB else bytes(size)
    target = server.scratch / "received.bin"

    def upload() -> str:
        return server.expect_upload(target, size)

    async def plain() -> None:
        await asyncio.to_thread(post_plainly, upload(), body)

    async def as_base64() -> None:
        base64.b64decode(await page.evaluate(_BASE64))

    works: dict[str, Callable[[], Awaitable[object]]] = {
        "loopback client": plain,
        "Blob POST (used)": lambda: page.evaluate(_POST, upload()),
        "WebSocket": lambda: page.evaluate(_SOCKET, socket),
        "base64, evaluate": as_base64,
    }
    if size <= RAW_LIMIT_MB * MB:
        works["typed array POST"] = lambda: page.evaluate(_RAW, upload())
    if size <= JSON_LIMIT_MB * MB:
        works["JSON array, evaluate"] = lambda: page.evaluate("Array.from(floats)")
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(rounds):
        for name, work in works.items():
            if turn and times[name][0] > 5:
                continue  # once is enough for the slow ones
            began = time.perf_counter()
            await work()
            times[name].append(time.perf_counter() - began)
    used = statistics.median(times["Blob POST (used)"])
    print(f"{size // MB} MB")
    for name, values in times.items():
        relative = statistics.median(values) / used
        print(f"  {name:22} {spread([v * 1000 for v in values])} ms = {relative:.2f} × the used")
    client = used / statistics.median(times["loopback client"])
    print(f"(c) used / loopback client = {client:.2f} (goal: ≤ 2)")
    if "JSON array, evaluate" in times:
        ratio = statistics.median(times["JSON array, evaluate"]) / used
        print(f"(c) JSON array / used = {ratio:.0f} (goal at 16 MB: ≥ 50)", flush=True)


async def run(megabytes: list[int], rounds: int) -> None:
    async with opened(desktop_reference=False) as bench, async_playwright() as playwright:
        browser = await launch_plain(playwright)
        context = await browser.new_context(bypass_csp=True)  # for the socket's other port
        page = await context.new_page()
        await page.goto(bench.server.add_core(bench.core))
        async with socket_server() as socket:
            for size in megabytes:
                await measure(page, bench.server, socket, size * MB, rounds)
        await browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[1, 16, 128])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    show_environment()
    asyncio.run(run(options.megabytes, options.rounds))


if __name__ == "__main__":
    main()

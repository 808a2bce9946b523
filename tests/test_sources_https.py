"""Downloads by URL, against a real server on loopback that misbehaves in every way we know."""

from __future__ import annotations

import asyncio
import hashlib
import random
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web
from yarl import URL

from sweep.errors import SourceError
from sweep.sources import FetchedModel, FetchOptions, ModelCache, fetch_model, parse_source
from sweep.sources.addresses import PrivateAddressError, PublicResolver, check_url, is_public

MODEL = b"\x1c\x00\x00\x00TFL3" + random.Random(1).randbytes(300_000)
SHA = hashlib.sha256(MODEL).hexdigest()
OPTIONS = FetchOptions(
    allow_insecure=True, allow_private=True, retry_wait=0.01, attempts=3, stall_timeout=0.3
)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """One URL with a handler that a test sets, and the requests it saw."""

    def __init__(self) -> None:
        self.url = ""
        self.handler: Handler | None = None
        self.requests: list[dict[str, str]] = []

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append({name.title(): value for name, value in request.headers.items()})
        assert self.handler is not None
        return await self.handler(request)  # type: ignore[arg-type]

    def ranges(self) -> list[str | None]:
        return [request.get("Range") for request in self.requests]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    runner = web.ServerRunner(web.Server(made.handle), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/m.tflite"
    yield made
    await runner.cleanup()


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ModelCache]:
    with ModelCache(tmp_path / "cache") as made:
        yield made


async def fetch(
    server: Server, cache: ModelCache, sha256: str | None = None, options: FetchOptions = OPTIONS
) -> FetchedModel:
    source = parse_source(server.url, Path(), allow_insecure=True)
    return await fetch_model(source, sha256=sha256, cache=cache, options=options)


def body(content: bytes = MODEL, status: int = 200, **headers: str) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(body=content, status=status, headers=named)

    return handler


def flaky(cut: int, etags: list[str], contents: list[bytes], stall: bool = False) -> Handler:
    """Serves ranges properly, but breaks the first response off after `cut` bytes."""
    count = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal count
        content, etag = contents[min(count, len(contents) - 1)], etags[min(count, len(etags) - 1)]
        count += 1
        start = 0
        response = web.StreamResponse(headers={"ETag": etag})
        if "Range" in request.headers and request.headers.get("If-Range") == etag:
            start = int(request.headers["Range"].removeprefix("bytes=").rstrip("-"))
            response.set_status(206)
            response.headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        response.content_length = len(content) - start
        await response.prepare(request)
        if count == 1:
            await response.write(content[start : start + cut])
            # Long enough for what was sent to arrive, or to count as a stall.
            await asyncio.sleep(1 if stall else 0.05)
            assert request.transport is not None
            request.transport.abort()
            return response
        await response.write(content[start:])
        return response

    return handler


async def test_a_file_is_fetched_once_and_then_served_from_the_cache(
    server: Server, cache: ModelCache
) -> None:
    server.handler = body()
    got = await fetch(server, cache, SHA)
    assert (got.path.read_bytes(), got.sha256, got.bytes) == (MODEL, SHA, len(MODEL))
    assert got.resolved == server.url
    assert (await fetch(server, cache, SHA)).path == got.path
    assert len(server.requests) == 1
    assert server.requests[0]["Accept-Encoding"] == "identity"
    offline = OPTIONS.model_copy(update={"offline": True})
    assert (await fetch(server, cache, None, offline)).sha256 == SHA
    assert list(cache.partial.iterdir()) == []


async def test_a_damaged_cache_file_is_fetched_again(server: Server, cache: ModelCache) -> None:
    server.handler = body()
    path = (await fetch(server, cache, SHA)).path
    path.chmod(0o644)
    path.write_bytes(MODEL[:-1] + b"\x00")
    assert (await fetch(server, cache, SHA)).path.read_bytes() == MODEL
    assert len(server.requests) == 2


async def test_without_a_checksum_the_server_is_asked_whether_it_changed(
    server: Server, cache: ModelCache
) -> None:
    server.handler = body(ETag='"1"')
    await fetch(server, cache)
    server.handler = body(b"", 304)
    assert (await fetch(server, cache)).sha256 == SHA
    assert server.requests[1]["If-None-Match"] == '"1"'
    newer = MODEL + b"more"
    server.handler = body(newer, ETag='"2"')
    assert (await fetch(server, cache)).path.read_bytes() == newer


@pytest.mark.parametrize("stall", [False, True])
async def test_a_reset_or_stalled_download_goes_on_where_it_broke_off(
    server: Server, cache: ModelCache, stall: bool
) -> None:
    server.handler = flaky(100_000, ['"a"'], [MODEL], stall)
    assert (await fetch(server, cache, SHA)).path.read_bytes() == MODEL
    assert server.ranges() == [None, "bytes=100000-"]


async def test_a_file_that_changed_meanwhile_is_not_stitched_together(
    server: Server, cache: ModelCache
) -> None:
    newer = MODEL[:8] + bytes(200_000)
    server.handler = flaky(100_000, ['"a"', '"b"'], [MODEL, newer])
    assert (await fetch(server, cache)).path.read_bytes() == newer
    assert server.ranges() == [None, "bytes=100000-"]


async def test_a_wrong_joint_is_downloaded_once_more_as_a_whole(
    server: Server, cache: ModelCache
) -> None:
    older = MODEL[:8] + bytes(len(MODEL) - 8)  # the server claims that it is the same file
    server.handler = flaky(100_000, ['"a"'], [older, MODEL])
    assert (await fetch(server, cache, SHA)).path.read_bytes() == MODEL
    assert server.ranges() == [None, "bytes=100000-", None]


async def test_a_later_run_goes_on_and_weak_etags_do_not(server: Server, cache: ModelCache) -> None:
    for etag, second in (('"a"', "bytes=100000-"), ('W/"a"', None)):
        server.requests.clear()
        server.handler = flaky(100_000, [etag], [MODEL])
        once = OPTIONS.model_copy(update={"attempts": 1})
        with pytest.raises(SourceError, match="broke off"):
            await fetch(server, cache, SHA, once)
        assert (await fetch(server, cache, SHA, once)).path.read_bytes() == MODEL
        assert server.ranges() == [None, second]
        cache.remove(SHA)


async def test_busy_servers_are_asked_again(server: Server, cache: ModelCache) -> None:
    answers = [body(b"", 503), body(b"", 429, Retry_After="0"), body()]

    async def handler(request: web.Request) -> web.StreamResponse:
        return await answers.pop(0)(request)

    server.handler = handler
    assert (await fetch(server, cache)).sha256 == SHA


async def test_a_server_that_stays_busy_is_given_up(server: Server, cache: ModelCache) -> None:
    server.handler = body(b"", 503)
    with pytest.raises(SourceError, match=r"answered 503 .* \(tried 3 times\)"):
        await fetch(server, cache)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n<!DOCTYPE html><html>Log in</html>", "an HTML or XML page"),
        (b"", "an empty file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (b"PK\x03\x04" + bytes(40), "a zip archive"),
        (b"\x00" * 40, "no TFL3 identifier"),
    ],
)
async def test_what_is_not_a_model_is_refused(
    server: Server, cache: ModelCache, content: bytes, message: str
) -> None:
    server.handler = body(content)
    with pytest.raises(SourceError, match=message) as caught:
        await fetch(server, cache)
    assert caught.value.failure_class == "fetch_failed"
    assert (cache.size(), list(cache.partial.iterdir())) == (0, [])


async def test_a_wrong_checksum_is_said_with_both_and_nothing_is_kept(
    server: Server, cache: ModelCache
) -> None:
    server.handler = body(b"<html>")
    with pytest.raises(SourceError) as caught:
        await fetch(server, cache, SHA)
    assert caught.value.failure_class == "checksum_mismatch"
    assert SHA in str(caught.value)
    assert hashlib.sha256(b"<html>").hexdigest() in str(caught.value)
    assert "an HTML or XML page" in str(caught.value)
    assert (cache.size(), list(cache.partial.iterdir())) == (0, [])


async def test_a_truncated_body_is_not_taken(server: Server, cache: ModelCache) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(MODEL))})
        await response.prepare(request)
        await response.write(MODEL[:1000])
        assert request.transport is not None
        request.transport.close()
        return response

    server.handler = handler
    with pytest.raises(SourceError, match=r"broke off|ended after 1000 of"):
        await fetch(server, cache)


async def test_permanent_answers_are_not_retried(server: Server, cache: ModelCache) -> None:
    server.handler = body(b"no", 404)
    with pytest.raises(SourceError, match="answered 404 Not Found"):
        await fetch(server, cache)
    assert len(server.requests) == 1


async def test_sizes_are_bounded_by_claim_and_by_count(server: Server, cache: ModelCache) -> None:
    small = OPTIONS.model_copy(update={"max_bytes": 1000})
    server.handler = body()
    with pytest.raises(SourceError, match=f"{len(MODEL)} bytes; the limit is 1000"):
        await fetch(server, cache, None, small)

    async def chunked(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(MODEL[:100])
        return response

    server.handler = chunked
    with pytest.raises(SourceError, match="more than 1000 bytes came"):
        await fetch(server, cache, None, small)
    assert list(cache.partial.iterdir()) == []


async def test_the_total_time_is_bounded(server: Server, cache: ModelCache) -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(b"x")
            await asyncio.sleep(0.05)
        return response

    server.handler = drip
    with pytest.raises(SourceError, match=r"not finished after 0\.5 s"):
        await fetch(server, cache, None, OPTIONS.model_copy(update={"total_timeout": 0.5}))


async def test_a_full_disk_is_said_before_the_download(
    server: Server, cache: ModelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.handler = body()
    usage = shutil.disk_usage(cache.root)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(SourceError, match=r"could not write .*No space left.*Free some space"):
        await fetch(server, cache)


async def test_a_disk_that_fills_up_is_survived(server: Server, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "none", str(disk)]
    done = await asyncio.to_thread(subprocess.run, mount, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount a small tmpfs: {done.stderr.decode().strip()}")
    try:

        async def unsized(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(MODEL)
            return response

        server.handler = unsized
        with ModelCache(disk) as cache:
            with pytest.raises(SourceError, match=rf"could not write {disk}.*No space left"):
                await fetch(server, cache)
            assert list(cache.partial.iterdir()) == []
    finally:
        await asyncio.to_thread(subprocess.run, ["umount", str(disk)], check=True)


@pytest.mark.parametrize(
    "target",
    [
        "file:///etc/passwd",
        "http://127.0.0.1:1/x",
        "http://localhost/x",
        "http://169.254.169.254/latest/meta-data",
        "http://metadata.google.internal/x",
        "http://10.0.0.1/x",
        "http://2130706433/x",
        "http://[::ffff:127.0.0.1]/x",
        "http://[fd00::1]/x",
    ],
)
async def test_redirects_into_the_machine_or_its_network_are_refused(
    server: Server, cache: ModelCache, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    # The proxy of the environment stands in for the internet: any public name leads to our server.
    monkeypatch.setenv("http_proxy", str(URL(server.url).origin()))
    server.handler = body(b"", 302, Location=target)
    source = parse_source("http://models.example/m.tflite", Path(), allow_insecure=True)
    options = OPTIONS.model_copy(update={"allow_private": False})
    with pytest.raises(SourceError, match="which is refused"):
        await fetch_model(source, sha256=None, cache=cache, options=options)
    assert len(server.requests) == 1


async def test_redirects_elsewhere_are_followed_and_loops_end(
    server: Server, cache: ModelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", str(URL(server.url).origin()))
    options = OPTIONS.model_copy(update={"allow_private": False})
    source = parse_source("http://models.example/m.tflite", Path(), allow_insecure=True)

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.headers["Host"] == "models.example":
            return web.Response(status=302, headers={"Location": "http://cdn.example/signed?t=1"})
        return web.Response(body=MODEL)

    server.handler = handler
    got = await fetch_model(source, sha256=None, cache=cache, options=options)
    assert (got.sha256, got.resolved) == (SHA, "http://models.example/m.tflite")
    server.handler = body(b"", 302, Location="/m.tflite")
    with pytest.raises(SourceError, match="more than 10 redirects"):
        await fetch_model(source, sha256=None, cache=cache, options=options)


def test_https_is_never_left_for_http() -> None:
    with pytest.raises(SourceError, match="only https is followed"):
        check_url(URL("http://example.org/x"), "s", allow_insecure=False, allow_private=True)
    check_url(URL("https://example.org/x"), "s", allow_insecure=False, allow_private=False)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:4700::1111", True),
        ("127.0.0.1", False),
        ("0.0.0.0", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("fe80::1%eth0", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
    ],
)
def test_public_addresses(address: str, public: bool) -> None:
    assert is_public(address) is public


async def test_a_name_that_resolves_to_a_private_address_is_refused() -> None:
    resolver = PublicResolver()
    with pytest.raises(PrivateAddressError, match="localhost is"):
        await resolver.resolve("localhost", 80, socket.AF_INET)
    trusted = PublicResolver(frozenset({"localhost"}))
    assert (await trusted.resolve("localhost", 80, socket.AF_INET))[0]["host"] == "127.0.0.1"

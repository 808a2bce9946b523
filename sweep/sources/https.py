"""Download one URL: streamed to a `.part` file, resumed after a break, bounded in every way."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

import aiohttp
from pydantic import ValidationError
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type
from yarl import URL

from sweep.config import Frozen
from sweep.errors import SourceError
from sweep.sources.addresses import (
    REMEDY,
    PrivateAddressError,
    PublicResolver,
    check_url,
    proxy_hosts,
    shown,
)
from sweep.sources.checks import CHUNK, storage_error
from sweep.sources.options import FetchOptions

_MAX_REDIRECTS = 10
_MAX_WAIT_SECONDS = 60.0
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_CONTENT_RANGE = re.compile(r"^bytes (\d+)-(\d+)/(\d+|\*)$")


class Downloaded(Frozen):
    """A whole body on disk, and what identifies it."""

    path: Path
    resolved: str
    """The URL the body came from, without credentials and query."""
    etag: str | None
    last_modified: str | None
    resumed: bool
    """True where a part of it came from an earlier attempt."""


class NotModified(Exception):  # noqa: N818  # an answer, not a failure
    """The server says that the copy we have is still the current one."""


class _Transient(Exception):  # noqa: N818
    """Worth another try."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


class _Part(Frozen):
    """What the bytes in a `.part` file are a part of."""

    url: str
    etag: str | None = None
    last_modified: str | None = None
    total: int | None = None

    @property
    def validator(self) -> str | None:
        """For `If-Range`: only a strong ETag or a date tells that the rest will fit."""
        if self.etag is not None and not self.etag.startswith("W/"):
            return self.etag
        return self.last_modified


async def download(
    url: str,
    part: Path,
    options: FetchOptions,
    *,
    source: str,
    etag: str | None = None,
    last_modified: str | None = None,
) -> Downloaded:
    """Download `url` to `part`, going on where an earlier attempt ended if the server can.

    Args:
        url: where to begin; redirects are followed, each checked.
        part: file that grows; facts about it are kept beside it as `<part>.json`.
        options: bounds and permissions.
        source: what messages call it.
        etag: of the copy we have, to be told whether it is still current.
        last_modified: likewise.

    Raises:
        SourceError: with where it failed and what to do.
        NotModified: the copy we have is current.
    """
    start = URL(url)
    check_url(
        start,
        source,
        allow_insecure=options.allow_insecure,
        allow_private=options.allow_private,
    )
    conditional = {}
    if etag:
        conditional["If-None-Match"] = etag
    elif last_modified:
        conditional["If-Modified-Since"] = last_modified
    try:
        async with asyncio.timeout(options.total_timeout), _session(options) as session:
            return await _with_retries(session, start, part, options, source, conditional)
    except TimeoutError:
        raise SourceError(
            f"{source}: not finished after {options.total_timeout:g} s. What came is kept; run "
            "again to go on."
        ) from None


@contextlib.asynccontextmanager
async def _session(options: FetchOptions) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(
        resolver=None if options.allow_private else PublicResolver(await proxy_hosts())
    )
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=options.connect_timeout, sock_read=options.stall_timeout
    )
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=timeout,
        trust_env=True,
        auto_decompress=False,
        headers={"Accept-Encoding": "identity", "User-Agent": "litertjs-sweep"},
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:
        yield session


async def _with_retries(
    session: aiohttp.ClientSession,
    start: URL,
    part: Path,
    options: FetchOptions,
    source: str,
    conditional: dict[str, str],
) -> Downloaded:
    fruitless = 0
    last_size = -1

    def give_up(state: RetryCallState) -> bool:
        # An attempt that brought bytes is progress: only fruitless ones count.
        nonlocal fruitless, last_size
        size = _size(part)
        fruitless = 0 if size > last_size >= 0 else fruitless + 1
        last_size = size
        return fruitless >= options.attempts

    def wait(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, _Transient) and error.wait is not None:
            return min(error.wait, _MAX_WAIT_SECONDS)
        return min(options.retry_wait * 2.0 ** max(fruitless - 1, 0), _MAX_WAIT_SECONDS)

    try:
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(_Transient),
            stop=give_up,
            wait=wait,
            reraise=True,
        ):
            with attempt:
                return await _attempt(session, start, part, options, source, conditional)
    except _Transient as error:
        raise SourceError(
            f"{source}: {error} (tried {attempt.retry_state.attempt_number} times). "
            "Check the network; run again to go on from what came."
        ) from error
    raise AssertionError("retrying ends by returning or raising")


async def _attempt(
    session: aiohttp.ClientSession,
    start: URL,
    part: Path,
    options: FetchOptions,
    source: str,
    conditional: dict[str, str],
) -> Downloaded:
    have = _read_part(part, str(start))
    offset = _size(part) if have is not None else 0
    headers = dict(conditional)
    if have is not None and offset and have.validator is not None:
        headers = {"Range": f"bytes={offset}-", "If-Range": have.validator}
    else:
        offset = 0
    try:
        async with _open(session, start, headers, options, source) as response:
            return await _receive(response, start, part, offset, options, source)
    except PrivateAddressError as error:
        raise _refused(source, error) from error
    except aiohttp.ClientConnectorError as error:
        if isinstance(error.os_error, PrivateAddressError):
            raise _refused(source, error.os_error) from error
        if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
            raise SourceError(
                f"{source}: the certificate of {error.host} is not trusted ({error}). Behind an "
                "intercepting proxy, set SSL_CERT_FILE to its certificate."
            ) from error
        raise _Transient(f"cannot connect to {error.host}: {error.os_error.strerror}") from error
    except (aiohttp.ServerTimeoutError, TimeoutError) as error:
        raise _Transient(f"no data for {options.stall_timeout:g} s") from error
    except (
        aiohttp.ClientPayloadError,
        aiohttp.ClientOSError,
        aiohttp.ServerDisconnectedError,
    ) as e:
        raise _Transient(f"the connection broke off: {e or type(e).__name__}") from e
    except aiohttp.ClientError as error:
        raise SourceError(f"{source}: {type(error).__name__}: {error}. Check the URL.") from error


@contextlib.asynccontextmanager
async def _open(
    session: aiohttp.ClientSession,
    url: URL,
    headers: dict[str, str],
    options: FetchOptions,
    source: str,
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The response at the end of the redirects, every one of them checked."""
    for _ in range(_MAX_REDIRECTS + 1):
        async with session.get(url, headers=headers, allow_redirects=False) as response:
            if response.status not in (301, 302, 303, 307, 308):
                yield response
                return
            location = response.headers.get("Location", "")
        try:
            target = url.join(URL(location))
        except ValueError as error:
            raise SourceError(f"{source}: redirects to {location!r}, not a URL.") from error
        check_url(
            target,
            source,
            allow_insecure=options.allow_insecure,
            allow_private=options.allow_private,
        )
        url = target
    raise SourceError(f"{source}: more than {_MAX_REDIRECTS} redirects. Correct the URL.")


async def _receive(
    response: aiohttp.ClientResponse,
    start: URL,
    part: Path,
    offset: int,
    options: FetchOptions,
    source: str,
) -> Downloaded:
    status = response.status
    where = shown(response.url)
    if status == 304:
        raise NotModified
    if status == 416:
        have = _read_part(part, str(start))
        if have is not None and response.headers.get("Content-Range") == f"bytes */{offset}":
            return _done(part, have, response.url, resumed=True)  # it was whole already
        forget_part(part)
        raise _Transient("the server could not go on where the last attempt ended", wait=0)
    if status in _RETRIED:
        raise _Transient(f"{where} answered {status} {response.reason}", _retry_after(response))
    if status not in (200, 206):
        remedy = (
            "Accept its terms or log in, then download it by hand and give the local path."
            if status in (401, 403)
            else "Correct the source in the catalog."
        )
        raise SourceError(f"{source}: {where} answered {status} {response.reason}. {remedy}")
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise SourceError(
            f"{source}: {where} sends the file compressed although asked not to. Download it by "
            "hand and give the local path."
        )
    total: int | None
    if status == 206:
        found = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != offset:
            forget_part(part)
            raise _Transient("the server sent another part than it was asked for", wait=0)
        total = None if found[3] == "*" else int(found[3])
    else:
        offset = 0
        total = response.content_length
    if total is not None and total > options.max_bytes:
        raise SourceError(f"{source}: {total} bytes; the limit is {options.max_bytes}.")
    state = _Part(
        url=str(start),
        etag=response.headers.get("ETag"),
        last_modified=response.headers.get("Last-Modified"),
        total=total,
    )
    try:
        await asyncio.to_thread(_check_space, part, (total or 0) - offset)
        part.with_name(part.name + ".json").write_text(state.model_dump_json(), "utf-8")
        with part.open("r+b" if offset else "wb") as file:
            file.seek(offset)
            file.truncate()
            size = await _stream(response, file, offset, options, source)
    except SourceError:
        forget_part(part)
        raise
    except (aiohttp.ClientError, TimeoutError):  # OSErrors too, but of the connection
        raise
    except OSError as error:
        if isinstance(error, ConnectionError):
            raise _Transient(f"the connection broke off: {error}") from error
        forget_part(part)  # a full disk is not helped by half a model
        raise storage_error(error, part, source) from error
    if total is not None and size != total:
        raise _Transient(f"{where} ended after {size} of {total} bytes")
    return _done(part, state, response.url, resumed=offset > 0)


async def _stream(
    response: aiohttp.ClientResponse,
    file: BinaryIO,
    size: int,
    options: FetchOptions,
    source: str,
) -> int:
    buffer = bytearray()
    try:
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > options.max_bytes:
                raise SourceError(
                    f"{source}: more than {options.max_bytes} bytes came, which is the limit."
                )
            buffer += chunk
            if len(buffer) >= CHUNK:
                await asyncio.to_thread(file.write, bytes(buffer))
                buffer.clear()
    finally:
        # Also what came before the connection broke: the next attempt goes on from there.
        await asyncio.to_thread(file.write, bytes(buffer))
        await asyncio.to_thread(file.flush)
    return size


def _check_space(part: Path, needed: int) -> None:
    if needed > 0 and shutil.disk_usage(part.parent).free < needed:
        raise OSError(errno.ENOSPC, f"No space left on device ({needed} bytes more are needed)")


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdigit() else None


def _refused(source: str, error: OSError) -> SourceError:
    return SourceError(
        f"{source}: {error}, an address of this machine or its network, which is refused. {REMEDY}"
    )


def _done(part: Path, state: _Part, url: URL, *, resumed: bool) -> Downloaded:
    return Downloaded(
        path=part,
        resolved=shown(url),
        etag=state.etag,
        last_modified=state.last_modified,
        resumed=resumed,
    )


def _read_part(part: Path, url: str) -> _Part | None:
    try:
        state = _Part.model_validate_json(part.with_name(part.name + ".json").read_text("utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError):
        return None
    return state if state.url == url and part.is_file() else None


def forget_part(part: Path) -> None:
    """Remove a `.part` file and what is known of it."""
    for path in (part, part.with_name(part.name + ".json")):
        path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0

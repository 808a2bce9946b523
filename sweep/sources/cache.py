"""The model cache: files by SHA-256, shared by processes, bounded in size.

blobs/<sha256>          content, read-only
blobs/<sha256>.json     size and mtime it was verified at; its own mtime is the last use
sources/<key>.json      which blob a source gave, and the validators of its URL
partial/                downloads under way, on the same disk so that a rename finishes them
pins/<process>/<sha256> blobs in use by a live process: never evicted
locks/
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from filelock import AsyncFileLock, FileLock
from pydantic import ValidationError

from sweep.config import Frozen
from sweep.errors import SourceError
from sweep.paths import cache_dir
from sweep.sources.checks import hash_file
from sweep.sources.options import GIB

DEFAULT_MAX_BYTES = 20 * GIB
_STALE_PARTIAL_SECONDS = 7 * 86400
_FOREIGN_PIN_SECONDS = 86400
_SHA256 = re.compile(r"^[0-9a-f]{64}$")


class SourceNote(Frozen):
    """What a source gave when it was last fetched."""

    source: str
    sha256: str
    resolved: str
    etag: str | None = None
    last_modified: str | None = None


class _Verified(Frozen):
    size: int
    mtime_ns: int


class ModelCache:
    """Content-addressed files under one directory.

    Args:
        root: directory; default `models/` in the per-user cache, see `sweep.paths`.
        max_bytes: size bound; default `LITERTJS_SWEEP_CACHE_MAX_BYTES`, else 20 GiB. Files in
            use are kept even beyond it.

    Raises:
        SourceError: the directory cannot be made or written.
    """

    def __init__(self, root: Path | None = None, max_bytes: int | None = None) -> None:
        self.root = root if root is not None else _default_root()
        self.max_bytes = max_bytes if max_bytes is not None else _default_max_bytes()
        self.partial = self.root / "partial"
        self._blobs = self.root / "blobs"
        self._sources = self.root / "sources"
        self._locks = self.root / "locks"
        process = psutil.Process()
        host = re.sub(r"[^A-Za-z0-9]", "_", socket.gethostname())
        self._pins = self.root / "pins" / f"{host}-{process.pid}-{process.create_time():.2f}"
        try:
            for directory in (self._blobs, self._sources, self.partial, self._locks, self._pins):
                directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SourceError(
                f"the model cache {self.root} cannot be written: {error.strerror}. Make it "
                "writable, or set LITERTJS_SWEEP_CACHE to another directory."
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of every file this cache handed out: they may be evicted from now on."""
        shutil.rmtree(self._pins, ignore_errors=True)

    def lock(self, key: str) -> AsyncFileLock:
        """A lock that only one task of one process holds for `key` at a time."""
        return AsyncFileLock(self._locks / f"{_name(key)}.lock", thread_local=False)

    def partial_path(self, key: str) -> Path:
        """Where the download of `key` grows until it is whole."""
        return self.partial / f"{_name(key)}.part"

    def find(self, sha256: str) -> Path | None:
        """The file with this checksum, verified and kept from eviction, or None.

        Size and mtime are compared with those at the last verification; where they differ the
        whole file is hashed again, and a damaged one is removed.
        """
        assert _SHA256.match(sha256), sha256
        blob = self._blobs / sha256
        with self._guard():
            self._pin(sha256)
            try:
                found = blob.stat()
            except FileNotFoundError:
                return None
        stamp = self._stamp(sha256)
        if stamp != _Verified(size=found.st_size, mtime_ns=found.st_mtime_ns):
            if hash_file(blob)[0] != sha256:
                self.remove(sha256)
                return None
            self._write_stamp(sha256, found)
        with contextlib.suppress(OSError):
            os.utime(self._stamp_path(sha256))
        return blob

    def add(self, file: Path, sha256: str) -> Path:
        """Move a file, whose checksum the caller has just computed, into the cache.

        Raises:
            OSError: it could not be moved.
        """
        assert _SHA256.match(sha256), sha256
        blob = self._blobs / sha256
        with self._guard():
            self._pin(sha256)
            with file.open("rb") as written:
                os.fsync(written.fileno())
            file.chmod(0o444)
            file.replace(blob)
            self._write_stamp(sha256, blob.stat())
        self.evict()
        return blob

    def remove(self, sha256: str) -> None:
        """Forget one file."""
        for path in (self._blobs / sha256, self._stamp_path(sha256)):
            path.unlink(missing_ok=True)

    def note(self, source: str) -> SourceNote | None:
        """What this source gave last time; None if never fetched or the note is damaged."""
        try:
            text = (self._sources / f"{_name(source)}.json").read_text("utf-8")
            note = SourceNote.model_validate_json(text)
        except (OSError, UnicodeDecodeError, ValidationError):
            return None
        return note if note.source == source and _SHA256.match(note.sha256) else None

    def write_note(self, note: SourceNote) -> None:
        """Remember what a source gave. Raises OSError."""
        _write_atomically(self._sources / f"{_name(note.source)}.json", note.model_dump_json())

    def size(self) -> int:
        """Bytes of all cached files."""
        return sum(stat.st_size for _, stat in self._entries())

    def evict(self) -> list[str]:
        """Remove the least recently used files that nobody uses until the bound is met.

        Returns:
            The checksums that were removed, oldest first.
        """
        removed: list[str] = []
        with self._guard():
            self._drop_stale_partials()
            pinned = self._pinned()
            entries = self._entries()
            total = sum(stat.st_size for _, stat in entries)
            for sha256, stat in sorted(entries, key=lambda entry: self._last_use(*entry)):
                if total <= self.max_bytes:
                    break
                if sha256 in pinned:
                    continue
                self.remove(sha256)
                total -= stat.st_size
                removed.append(sha256)
        return removed

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        # Held for moments only: a file is pinned or evicted, never both.
        with FileLock(self._locks / "cache.lock", timeout=60):
            yield

    def _pin(self, sha256: str) -> None:
        self._pins.mkdir(parents=True, exist_ok=True)
        (self._pins / sha256).touch()

    def _pinned(self) -> set[str]:
        pinned: set[str] = set()
        for holder in (self.root / "pins").iterdir():
            if _alive(holder):
                pinned.update(entry.name for entry in holder.iterdir())
            else:
                shutil.rmtree(holder, ignore_errors=True)
        return pinned

    def _entries(self) -> list[tuple[str, os.stat_result]]:
        entries = []
        for path in self._blobs.iterdir():
            if _SHA256.match(path.name):
                with contextlib.suppress(FileNotFoundError):
                    entries.append((path.name, path.stat()))
        return entries

    def _last_use(self, sha256: str, stat: os.stat_result) -> float:
        try:
            return self._stamp_path(sha256).stat().st_mtime
        except OSError:
            return stat.st_mtime

    def _drop_stale_partials(self) -> None:
        limit = time.time() - _STALE_PARTIAL_SECONDS
        for path in self.partial.iterdir():
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < limit:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _stamp_path(self, sha256: str) -> Path:
        return self._blobs / f"{sha256}.json"

    def _stamp(self, sha256: str) -> _Verified | None:
        try:
            return _Verified.model_validate_json(self._stamp_path(sha256).read_text("utf-8"))
        except (OSError, UnicodeDecodeError, ValidationError):
            return None

    def _write_stamp(self, sha256: str, stat: os.stat_result) -> None:
        stamp = _Verified(size=stat.st_size, mtime_ns=stat.st_mtime_ns)
        with contextlib.suppress(OSError):  # without it the next look hashes the file again
            _write_atomically(self._stamp_path(sha256), stamp.model_dump_json())


def _default_root() -> Path:
    return cache_dir() / "models"


def _default_max_bytes() -> int:
    override = os.environ.get("LITERTJS_SWEEP_CACHE_MAX_BYTES")
    if not override:
        return DEFAULT_MAX_BYTES
    if not override.isascii() or not override.isdigit():
        raise SourceError(
            f"LITERTJS_SWEEP_CACHE_MAX_BYTES={override!r} is not a number of bytes; "
            f"set it to e.g. {DEFAULT_MAX_BYTES}, or unset it"
        )
    return int(override)


def _alive(holder: Path) -> bool:
    """Whether the process that a pin directory is named after still runs."""
    host, _, rest = holder.name.partition("-")
    pid, _, created = rest.partition("-")
    try:
        if host != re.sub(r"[^A-Za-z0-9]", "_", socket.gethostname()):
            # A shared disk: the process cannot be looked up from here.
            return time.time() - holder.stat().st_mtime < _FOREIGN_PIN_SECONDS
        return f"{psutil.Process(int(pid)).create_time():.2f}" == created
    except (psutil.Error, ValueError, OSError):
        return False


def _name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:40]


def _write_atomically(path: Path, text: str) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{time.monotonic_ns()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)

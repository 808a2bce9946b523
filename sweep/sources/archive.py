"""Take one file out of an npm tarball, a wheel or an sdist, without trusting the archive.

Only the member that was asked for is ever written, to a path that the caller chose. Links are
refused, sizes in headers are not believed, and unpacking stops at a bound.
"""

from __future__ import annotations

import gzip
import re
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Protocol, cast

from sweep.sources.checks import CHUNK

_MAX_MEMBERS = 200_000
_MAX_HEADER_READ = 1 << 20
"""tarfile reads an extended header whole, at the size it claims: refuse larger ones."""


_DAMAGE = (
    tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, struct.error, EOFError,
    # What the two modules also raise, by their headers' content:
    ValueError, LookupError, OverflowError, NotImplementedError, RuntimeError,
)  # fmt: skip


class ArchiveError(Exception):
    """An archive is broken or hostile, or lacks the member; the message says which."""


_BUNDLE = re.compile(r"(?P<bundle>.+?\.(?:task|zip))/(?P<inside>.+)")
"""A zip inside the package: MediaPipe ships models in `.task` bundles."""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def extract_member(
    archive: Path, member: str, target: Path, *, max_bytes: int, max_unpacked: int
) -> str:
    """Write one member of a `.tgz`, `.tar.gz`, `.whl` or `.zip` to `target`.

    Args:
        archive: the archive; its kind is told by its first bytes.
        member: path inside it, on into a `.task` or `.zip` bundle that lies there
            (`models/face.task/detector.tflite`). An exact match wins; else one below a single root
            directory (`package/` of npm, `name-version/` of an sdist), with or without it named.
        target: file to write; its directory also holds the unpacked tar for a moment.
        max_bytes: largest member.
        max_unpacked: largest unpacked tar.

    Returns:
        The name of the member that was taken.

    Raises:
        ArchiveError: what is wrong with the archive, or which models it holds instead.
        OSError: `target` could not be written.
    """
    bundle = _BUNDLE.match(member)
    if bundle is not None:
        inner = target.with_name(target.name + ".bundle")
        try:
            limits = {"max_bytes": max_bytes, "max_unpacked": max_unpacked}
            outer = extract_member(archive, bundle["bundle"], inner, **limits)
            name = extract_member(inner, bundle["inside"], target, **limits)
        finally:
            inner.unlink(missing_ok=True)
        return f"{outer}/{name}"
    with archive.open("rb") as file:
        head = file.read(4)
    try:
        if head.startswith(b"\x1f\x8b"):
            return _from_tar(archive, member, target, max_bytes, max_unpacked)
        # Bundles may have padding before their first entry.
        if zipfile.is_zipfile(archive):
            return _from_zip(archive, member, target, max_bytes)
    except _DAMAGE as error:
        raise ArchiveError(f"the archive is damaged: {error}") from error
    raise ArchiveError("the archive is neither a gzipped tar nor a zip")


def _from_tar(archive: Path, member: str, target: Path, max_bytes: int, max_unpacked: int) -> str:
    with tempfile.TemporaryFile(dir=target.parent) as unpacked:
        with gzip.open(archive, "rb") as packed:
            _copy(packed, unpacked, max_unpacked, "the archive")
        unpacked.seek(0)
        with tarfile.open(fileobj=cast("IO[bytes]", _CappedReads(unpacked)), mode="r:") as tar:
            members: dict[str, tarfile.TarInfo] = {}
            for count, info in enumerate(tar):
                if count >= _MAX_MEMBERS:
                    raise ArchiveError(f"the archive has more than {_MAX_MEMBERS} members")
                if info.isdir():
                    continue
                name = info.name.removeprefix("./")
                if name in members:
                    # Which of the two a client would take differs: refuse to guess.
                    raise ArchiveError(f"the archive holds {name!r} twice")
                members[name] = info
            name = _pick(members, member)
            info = members[name]
            if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.sparse is not None:
                raise ArchiveError(f"{name!r} is a link or special file in the archive")
            _check_size(name, info.size, max_bytes)
            data = tar.extractfile(info)
            assert data is not None, "regular members have data"
            with target.open("wb") as out:
                written = _copy(data, out, max_bytes, name)
            if written != info.size:
                raise ArchiveError(f"{name!r} ends after {written} of {info.size} bytes")
            return name


def _from_zip(archive: Path, member: str, target: Path, max_bytes: int) -> str:
    with zipfile.ZipFile(archive) as file:
        infos = [info for info in file.infolist() if not info.is_dir()]
        if len(infos) > _MAX_MEMBERS:
            raise ArchiveError(f"the archive has more than {_MAX_MEMBERS} members")
        members: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            if info.filename in members:
                raise ArchiveError(f"the archive holds {info.filename!r} twice")
            members[info.filename] = info
        name = _pick(members, member)
        info = members[name]
        mode = info.external_attr >> 16
        if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise ArchiveError(f"{name!r} is a link or special file in the archive")
        if info.flag_bits & 1:
            raise ArchiveError(f"{name!r} is encrypted")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ArchiveError(f"{name!r} has an unusual compression ({info.compress_type})")
        _check_size(name, info.file_size, max_bytes)
        with file.open(info) as data, target.open("wb") as out:
            _copy(data, out, max_bytes, name)
        return name


def _pick(names: Iterable[str], wanted: str) -> str:
    names = list(names)
    if wanted in names:
        return wanted
    rootless = {wanted, wanted.removeprefix("package/")}
    roots = {name.split("/", 1)[0] for name in names}
    if len(roots) == 1:
        for name in names:
            if name.partition("/")[2] in rootless:
                return name
    models = sorted(name for name in names if name.endswith(".tflite"))
    shown = ", ".join(models[:12]) + (f" and {len(models) - 12} more" if len(models) > 12 else "")
    raise ArchiveError(
        f"it has no {wanted!r}. " + (f"Models in it: {shown}." if models else "No .tflite in it.")
    )


def _check_size(name: str, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ArchiveError(f"{name!r} claims {size} bytes; the limit is {max_bytes}")


def _copy(source: _Readable, out: IO[bytes], limit: int, what: str) -> int:
    written = 0
    while chunk := source.read(CHUNK):
        written += len(chunk)
        if written > limit:
            raise ArchiveError(f"{what} unpacks to more than {limit} bytes (a bomb?)")
        out.write(chunk)
    return written


class _CappedReads:
    """A tar file whose headers cannot make us allocate more than a little at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.name = ""

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > max(_MAX_HEADER_READ, CHUNK):
            raise ArchiveError("the archive has a header of unreasonable size")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

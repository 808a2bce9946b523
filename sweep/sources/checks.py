"""Is this file what was asked for? Checksums, and a look at the first bytes."""

from __future__ import annotations

import errno
import hashlib
from pathlib import Path

from sweep.errors import SourceError

IDENTIFIER = b"TFL3"
"""File identifier of the TFLite flatbuffer schema, at byte offset 4."""

CHUNK = 1 << 20


def hash_file(path: Path) -> tuple[str, int]:
    """SHA-256 (64 lower-case hex digits) and size in bytes of a file."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size


def looks_like(path: Path) -> str | None:
    """None for a `.tflite` flatbuffer, otherwise what the file seems to be, for a message."""
    with path.open("rb") as file:
        head = file.read(512)
    if head[4:8] == IDENTIFIER:
        return None
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not head:
        return "an empty file"
    if text.startswith((b"<!doctype", b"<html", b"<head", b"<?xml", b"<!--")):
        return "an HTML or XML page"
    if text.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the file it points to"
    if text.startswith((b"{", b"[")):
        return "JSON text"
    if head.startswith(b"PK\x03\x04"):
        return "a zip archive (a .task bundle?)"
    if head.startswith(b"\x1f\x8b"):
        return "a gzip archive"
    return f"not a .tflite model (no TFL3 identifier; it begins with {head[:8].hex(' ')})"


def check_model(path: Path, actual: str, expected: str | None, source: str) -> None:
    """Raise SourceError unless the file has the expected checksum, or, with none given, is a model.

    With a matching checksum the content is not judged: it is the file that was asked for.
    """
    seen = looks_like(path)
    if expected is None:
        if seen is not None:
            raise SourceError(
                f"{source}: what came is {seen}. Open the source in a browser and correct it."
            )
    elif actual != expected:
        hint = f" What came is {seen}." if seen else ""
        raise SourceError(
            f"{source}: checksum mismatch: expected sha256 {expected}, got {actual}.{hint} "
            "If the file was meant to change, update sha256 in the catalog; otherwise do not "
            "trust it.",
            "checksum_mismatch",
        )


def storage_error(error: OSError, path: Path, source: str) -> SourceError:
    """A write that failed, said so that a person can act."""
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "Free some space, or set LITERTJS_SWEEP_CACHE to a directory on a larger disk."
    else:
        remedy = "Make the directory writable, or set LITERTJS_SWEEP_CACHE to another one."
    return SourceError(f"{source}: could not write {path}: {reason}. {remedy}")

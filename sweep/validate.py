"""Validation of record files: what `litertjs-sweep validate` reports, file by file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from sweep.config import Frozen
from sweep.errors import RecordError
from sweep.store import REPORTS_DIR, read_record


class FileCheck(Frozen):
    """One file: a valid record (`problem` is None), or why it is none."""

    path: Path
    schema_version: str | None
    """Of the file; None when it is not valid."""
    problem: str | None


def validate_paths(paths: Sequence[Path]) -> tuple[FileCheck, ...]:
    """Check files, and every `*.json` below directories (hidden ones aside), in order.

    In a directory a record must be named by its model id; a file given by itself may have any name.
    """
    return tuple(_check(file, named=file not in paths) for file in record_files(paths))


def record_files(paths: Sequence[Path]) -> tuple[Path, ...]:
    """The files themselves, and every `*.json` below directories, in order.

    Hidden files aside, and the release reports that a store holds beside its records.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += [p for p in sorted(path.rglob("*.json")) if _may_be_record(path, p)]
        else:
            files.append(path)
    return tuple(dict.fromkeys(files))


def _may_be_record(directory: Path, file: Path) -> bool:
    parts = file.relative_to(directory).parts
    return parts[0] != REPORTS_DIR and not any(part.startswith(".") for part in parts)


def _check(path: Path, *, named: bool) -> FileCheck:
    try:
        record = read_record(path)
        if named and record.model_id != path.stem:
            raise RecordError(f"{path}: model_id is {record.model_id!r}, not the file's name.")
    except RecordError as error:
        return FileCheck(path=path, schema_version=None, problem=str(error))
    # Of the file, not of the record: an imported one was written anew.
    version = json.loads(path.read_bytes())["schema_version"]
    return FileCheck(path=path, schema_version=version, problem=None)

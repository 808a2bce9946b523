"""The store: records as files under `data/sweep/<core version>/<date>/`, read and written safely.

Files are untrusted: whatever cannot be a record is named and skipped, never half believed.
A reader never sees half a record (write to a temporary file, fsync, rename).
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import shlex
import socket
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import filelock
import psutil
from pydantic import TypeAdapter, ValidationError

from sweep.config import Frozen
from sweep.errors import RecordError, StoreError, SweepError
from sweep.record import ModelId, Record
from sweep.record_v1 import RecordV1, read_v1

MAX_RECORD_BYTES = 64 * 2**20
"""A record with 100 outputs and full evidence stays far below; above it is not a record."""

TEMPORARY_PREFIX, TEMPORARY_SUFFIX = ".writing-", ".tmp"
"""Of files that become records, reports or notes when they are whole."""

DYING_S = 10.0
"""How long the lock of a process that was killed may outlast it."""

DEFAULT_LEG = "default"
REPORTS_DIR = "reports"
"""Directory of a store that holds the reports of its releases, and no records."""
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+-]{0,99}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_LEG = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
_SEMVER = re.compile(r"(\d{1,18})\.(\d{1,18})\.(\d{1,18})(?:-([0-9A-Za-z.-]+))?(?:\+.*)?")
_MODEL_ID: TypeAdapter[str] = TypeAdapter(ModelId)


class Sweep(Frozen):
    """One directory of records: a core version on a date in one leg."""

    core_version: str
    date: str
    leg: str
    path: Path
    model_ids: tuple[str, ...]
    """Sorted; from the file names."""


class StoredRecord(Frozen):
    """A readable record and where it lies."""

    path: Path
    record: Record


class BadFile(Frozen):
    """A file among the records that is not one, and why."""

    path: Path
    problem: str


class Holder(Frozen):
    """Who holds the lock of a data directory."""

    pid: int
    host: str
    start: str
    """UTC, ISO 8601."""
    command: str


def version_key(version: str) -> tuple[Any, ...]:
    """Sort key by SemVer 2.0.0 §11 precedence; whatever is no SemVer sorts first, by its text."""
    found = _SEMVER.fullmatch(version)
    if not found:
        return (0, version)
    major, minor, patch, pre = found.groups()
    release = (int(major), int(minor), int(patch))
    if pre is None:
        return (1, release, (1,), version)
    parts = tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in pre.split("."))
    return (1, release, (0, parts), version)


def leg_of(record: Record) -> str:
    """The leg a record was measured in; records that name none are of the default leg."""
    return record.config.leg.name if record.config.leg else DEFAULT_LEG


def record_path(
    root: Path, core_version: str, date: str, model_id: str, leg: str = DEFAULT_LEG
) -> Path:
    """`<root>/<core>/<date>[/<leg>]/<model_id>.json`; StoreError for a part that would escape."""
    for what, text, pattern in (
        ("core version", core_version, _VERSION),
        ("date", date, _DATE),
        ("leg", leg, _LEG),
    ):
        if not pattern.fullmatch(text) or ".." in text:
            raise StoreError(f"{what} {text!r} cannot name a directory of the store {root}.")
    try:
        _MODEL_ID.validate_python(model_id)
    except ValidationError:
        raise StoreError(
            f"model id {model_id!r} cannot name a record: use lower-case letters, digits, "
            "'.', '_' and '-', beginning with a letter or digit, 200 at most."
        ) from None
    directory = root / core_version / date
    path = (directory if leg == DEFAULT_LEG else directory / leg) / f"{model_id}.json"
    # A link inside the store may point out of it: what counts is where the file would really lie.
    if not path.resolve().is_relative_to(root.resolve()):
        raise StoreError(
            f"{path} lies outside the store {root} (a symbolic link leads out of it): "
            "remove the link."
        )
    return path


def dump_json(value: object) -> bytes:
    """Canonical JSON: sorted keys, 2-space indent, UTF-8, trailing newline, finite numbers only."""
    text = json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


def dump_record(record: Record) -> bytes:
    """The bytes of a record's file. Every field is present but absent `notes` and `v1_form`.

    Raises RecordError when it holds NaN or infinity, which JSON has not.
    """
    optional = {name for name in ("notes", "v1_form") if getattr(record, name) is None}
    try:
        return dump_json(record.model_dump(mode="python", exclude=optional))
    except ValueError as error:
        raise RecordError(
            f"the record of {record.model_id} cannot be written as JSON: {error}. "
            "A number that is not finite belongs in a count or a flag."
        ) from error


def write_record(root: Path, record: Record) -> Path:
    """Write one record atomically and return its path.

    Core version and date are those of its results, the leg that of its config. Raises StoreError
    when the place is not writable or holds a record of another environment, or no record at all.
    """
    first = record.results[0]
    path = record_path(
        root, first.env.litertjs_core_version, first.date, record.model_id, leg_of(record)
    )
    content = dump_record(record)
    if path.exists():
        _refuse_other_environment(path, record)
    write_atomic(path, content)
    return path


def write_atomic(path: Path, content: bytes) -> None:
    """Replace `path` by `content` so that a reader sees the old bytes or the new, never a mix."""
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(
            dir=path.parent, prefix=TEMPORARY_PREFIX, suffix=TEMPORARY_SUFFIX
        )
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        temporary = None
        _fsync_directory(path.parent)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}. Free space or choose a directory "
            "that can be written, then run again: what was written before stays."
        ) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()


def read_record(path: Path) -> Record:
    """Read a record of schema 2.0 or 1.0 (which is converted and classified).

    Raises RecordError, naming the file and the place in it, for anything else.
    """
    try:
        if not path.is_file():
            raise RecordError(f"{path}: no such file.")
        if path.stat().st_size > MAX_RECORD_BYTES:
            raise RecordError(
                f"{path}: larger than {MAX_RECORD_BYTES >> 20} MiB: this is not a record."
            )
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or error}.") from error
    try:
        return parse_record(data)
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from error


def parse_record(data: bytes) -> Record:
    """Parse the bytes of a record; RecordError (`location: message`) when it is not one."""
    version = _schema_version(data)
    try:
        # Strict: "yes" is no boolean and "3" no number, whoever wrote the file.
        if version == "2.0":
            return Record.model_validate_json(data, strict=True)
        if version == "1.0":
            return read_v1(RecordV1.model_validate_json(data, strict=True))
    except ValidationError as error:
        raise RecordError(explain(error)) from error
    raise RecordError(
        f"schema_version: {version!r:.40} is not known here (2.0 and 1.0 are). "
        "A newer litertjs-sweep may have written it: upgrade to read it."
    )


def explain(error: ValidationError, limit: int = 5) -> str:
    """A pydantic error for a person: `location: message`, the first few."""
    lines = [
        f"{'.'.join(str(part) for part in e['loc']) or 'record'}: {e['msg']}"
        for e in error.errors(include_url=False, include_input=False)
    ]
    more = f"; and {len(lines) - limit} more" if len(lines) > limit else ""
    return "; ".join(lines[:limit]) + more


def list_sweeps(root: Path) -> tuple[Sweep, ...]:
    """Every sweep in the store: by core version as a version, then date, then leg."""
    found: list[Sweep] = []
    for core in _directories(root, _VERSION):
        for day in _directories(core, _DATE):
            for leg, directory in [
                (DEFAULT_LEG, day),
                *((d.name, d) for d in _directories(day, _LEG)),
            ]:
                names = sorted(p.stem for p in _json_files(directory))
                if names:
                    found.append(
                        Sweep(
                            core_version=core.name,
                            date=day.name,
                            leg=leg,
                            path=directory,
                            model_ids=tuple(names),
                        )
                    )
    return tuple(sorted(found, key=lambda s: (version_key(s.core_version), s.date, s.leg)))


def iter_records(
    root: Path, core_versions: Collection[str] | None = None
) -> Iterator[StoredRecord | BadFile]:
    """Every record of the store in the order of `list_sweeps`; what is no record as BadFile.

    `core_versions`: only those of these core versions.

    A record whose content contradicts its place (core version, date, model id) is a BadFile: a
    view that believed the path would show a number beside the wrong environment.
    """
    for sweep in list_sweeps(root):
        if core_versions is not None and sweep.core_version not in core_versions:
            continue
        for model_id in sweep.model_ids:
            path = sweep.path / f"{model_id}.json"
            try:
                record = read_record(path)
                _check_place(record, sweep, model_id)
            except SweepError as error:
                yield BadFile(path=path, problem=str(error))
            else:
                yield StoredRecord(path=path, record=record)


def find_record(
    root: Path,
    model_id: str,
    *,
    core_version: str | None = None,
    date: str | None = None,
    leg: str = DEFAULT_LEG,
) -> StoredRecord:
    """The newest record of a model: of the newest core version that has one, the newest date.

    RecordError, saying which sweeps there are, when none fits.
    """
    sweeps = list_sweeps(root)
    fitting = [
        s
        for s in sweeps
        if model_id in s.model_ids
        and s.leg == leg
        and core_version in (None, s.core_version)
        and date in (None, s.date)
    ]
    if not fitting:
        asked = " ".join(part for part in (core_version, date) if part)
        have = [f"{s.core_version} {s.date} {s.leg}" for s in sweeps if model_id in s.model_ids]
        raise RecordError(
            f"{root} has no record of {model_id!r}{f' for {asked}' if asked else ''} in leg {leg}. "
            + (f"It has: {', '.join(have)}." if have else "Sweep the model first.")
        )
    path = fitting[-1].path / f"{model_id}.json"
    record = read_record(path)
    _check_place(record, fitting[-1], model_id)
    return StoredRecord(path=path, record=record)


@contextlib.contextmanager
def sweep_lock(root: Path) -> Iterator[None]:
    """Hold a data directory for one run; StoreError naming the holder when another has it.

    The lock is the operating system's: it goes with its process, so none is ever stale.
    """
    holder_file = root / ".sweep.lock.json"
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(root / ".sweep.lock", timeout=0)
        try:
            lock.acquire()
        except filelock.Timeout:
            if not _is_gone(holder_file):
                raise
            # Killed a moment ago: the system takes it down thread by thread, its files last.
            lock.acquire(timeout=DYING_S)
    except filelock.Timeout:
        raise StoreError(
            f"{root} is in use by {_read_holder(holder_file)}. Wait for it to end, "
            "or give this run another data directory."
        ) from None
    except OSError as error:
        raise StoreError(
            f"cannot lock {root}: {error.strerror or error}. Choose a directory you can write to."
        ) from error
    try:
        holder = Holder(
            pid=os.getpid(),
            host=socket.gethostname(),
            start=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            command=shlex.join(sys.argv)[:500],
        )
        write_atomic(holder_file, dump_json(holder.model_dump()))
        _remove_leftovers(root)
        yield
    finally:
        # Only the holder removes the note, and while it still holds the lock.
        with contextlib.suppress(OSError):
            holder_file.unlink()
        lock.release()


def _remove_leftovers(root: Path) -> None:
    """Removes temporary files of runs that were killed while writing. Called with the lock held."""
    for directory in (root, *_sweep_directories(root)):
        for path in directory.glob(f"{TEMPORARY_PREFIX}*{TEMPORARY_SUFFIX}"):
            with contextlib.suppress(OSError):
                path.unlink()


def _sweep_directories(root: Path) -> Iterator[Path]:
    """Those of `list_sweeps`, and those that have no record yet."""
    for core in _directories(root, _VERSION):
        for day in _directories(core, _DATE):
            yield day
            yield from _directories(day, _LEG)


def _is_gone(path: Path) -> bool:
    """Whether the note names a process of this machine that does not run any more."""
    try:
        holder = Holder.model_validate_json(path.read_bytes()[:10_000])
        if holder.host != socket.gethostname():
            return False
        return psutil.Process(holder.pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except (OSError, ValueError, psutil.Error):
        return False


def _read_holder(path: Path) -> str:
    try:
        holder = Holder.model_validate_json(path.read_bytes()[:10_000])
    except (OSError, ValueError):
        return "another run (it left no note of itself)"
    return f"process {holder.pid} on {holder.host}, running since {holder.start}: {holder.command}"


def _schema_version(data: bytes) -> object:
    """`schema_version` of a JSON object whose numbers are all finite; RecordError otherwise."""
    try:
        value = json.loads(data, parse_constant=_no_constant, parse_float=_finite, parse_int=_small)
    except RecursionError:
        raise RecordError("nested too deeply to be a record.") from None
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, numbers out of range
        raise RecordError(f"not JSON: {error}.") from None
    if not isinstance(value, dict) or "schema_version" not in value:
        raise RecordError("not a sweep record: it has no schema_version.")
    return value["schema_version"]


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text:.40} is beyond the range of a double")
    return number


def _small(text: str) -> int:
    # Read into a float field, a larger one would become infinity.
    if len(text) > 300:
        raise ValueError(f"{text:.40}… is too large")
    return int(text)


def _refuse_other_environment(path: Path, record: Record) -> None:
    try:
        old = read_record(path)
    except RecordError as error:
        raise StoreError(
            f"will not overwrite what cannot be read: {error} Move the file away and run again."
        ) from error
    differing = environment_conflict(old, record)
    if differing:
        raise StoreError(
            f"{path} holds a record of another environment ({differing}). Use another data "
            "directory for this environment, or move that record away."
        )


def environment_conflict(old: Record, new: Record) -> str:
    """How the environments of two records of one model differ too much to replace one another.

    Compares machine label, browser and, per backend, the adapter class; empty when they agree.
    """
    parts: list[str] = []
    for name in ("machine_label", "browser"):
        before = sorted({str(getattr(r.env, name)) for r in old.results})
        after = sorted({str(getattr(r.env, name)) for r in new.results})
        if before != after:
            parts.append(f"{name} {', '.join(before)}, now {', '.join(after)}")
    classes = {r.backend: r.env.adapter_class for r in old.results}
    for result in new.results:
        before_class, now_class = classes.get(result.backend), result.env.adapter_class
        if before_class and now_class and before_class != now_class:
            parts.append(f"adapter_class {before_class}, now {now_class}")
            break
    return "; ".join(parts)


def _check_place(record: Record, sweep: Sweep, model_id: str) -> None:
    path = sweep.path / f"{model_id}.json"
    if record.model_id != model_id:
        raise RecordError(f"{path}: model_id is {record.model_id!r}, the file is named {model_id}.")
    for result in record.results:
        if result.env.litertjs_core_version != sweep.core_version:
            raise RecordError(
                f"{path}: measured on core {result.env.litertjs_core_version}, "
                f"but lies under {sweep.core_version}."
            )
    # A run may pass midnight between two backends; one of them must be of the directory's day.
    dates = sorted({result.date for result in record.results})
    if sweep.date not in dates:
        raise RecordError(f"{path}: dated {', '.join(dates)}, but lies under {sweep.date}.")
    if leg_of(record) != sweep.leg:
        raise RecordError(f"{path}: of leg {leg_of(record)}, but lies under {sweep.leg}.")


def _directories(parent: Path, pattern: re.Pattern[str]) -> list[Path]:
    try:
        return sorted(p for p in parent.iterdir() if pattern.fullmatch(p.name) and p.is_dir())
    except OSError:
        return []


def _json_files(directory: Path) -> list[Path]:
    return [p for p in directory.glob("*.json") if not p.name.startswith(".")]


def _fsync_directory(directory: Path) -> None:
    """Make the rename durable, where the system can (Windows cannot open a directory)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

"""Which records a report is about."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sweep.errors import RecordError, UsageError
from sweep.record import Record
from sweep.store import BadFile, StoredRecord, Sweep, iter_records, list_sweeps, read_record
from sweep.validate import record_files


def select_records(data: Path, what: str | None) -> tuple[list[Record], list[str]]:
    """Records, and one message per file that is none.

    `what`: None (the newest core version's newest date, all legs), `VERSION` (its newest date),
    `VERSION@DATE`, or the path of a record or a directory of records. Raises UsageError when it
    names nothing.
    """
    if what is not None and Path(what).exists():
        return _from_path(Path(what))
    sweeps = list_sweeps(data)
    if not sweeps:
        raise UsageError(f"{data} holds no records: sweep something first, or name --data.")
    chosen = _chosen(sweeps, what)
    if not chosen:
        have = ", ".join(dict.fromkeys(f"{s.core_version}@{s.date}" for s in sweeps))
        raise UsageError(f"{what!r} is neither a path nor a sweep below {data}. It has: {have}.")
    places = {sweep.path for sweep in chosen}
    return _sorted_out(entry for entry in iter_records(data) if entry.path.parent in places)


def _chosen(sweeps: tuple[Sweep, ...], what: str | None) -> list[Sweep]:
    core, _, day = (what or "").partition("@")
    core = core or sweeps[-1].core_version
    of_core = [sweep for sweep in sweeps if sweep.core_version == core]
    day = day or max((sweep.date for sweep in of_core), default="")
    return [sweep for sweep in of_core if sweep.date == day]


def _from_path(path: Path) -> tuple[list[Record], list[str]]:
    records: list[Record] = []
    bad: list[str] = []
    for file in record_files([path]):
        try:
            records.append(read_record(file))
        except RecordError as error:
            bad.append(str(error))
    if not records and not bad:
        raise UsageError(f"{path} holds no records.")
    return records, bad


def _sorted_out(entries: Iterable[StoredRecord | BadFile]) -> tuple[list[Record], list[str]]:
    records: list[Record] = []
    bad: list[str] = []
    for entry in entries:
        if isinstance(entry, BadFile):
            bad.append(entry.problem)
        else:
            records.append(entry.record)
    return records, bad

"""What is compared: one side of a diff from a version, a date, a directory or a record file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sweep.config import Backend, Frozen
from sweep.env import COMPARABLE_FIELDS, Environment
from sweep.errors import RecordError, UsageError
from sweep.record import Record
from sweep.store import (
    BadFile,
    StoredRecord,
    Sweep,
    iter_records,
    leg_of,
    list_sweeps,
    read_record,
    version_key,
)
from sweep.validate import record_files

_AT = re.compile(r"(?P<version>[^@]+)@(?P<date>\d{4}-\d{2}-\d{2})")

NOT_REPORTED_BY_OLD_CORES = frozenset({"threads"})
"""Environment fields that a core may not tell: None on one side is then no difference."""
OF_THE_ADAPTER = frozenset({"webgpu_adapter", "adapter_class"})
"""Environment fields that do not concern the wasm backend."""


class Side(Frozen):
    """One side of a diff. A model may have several records: they are paired by environment."""

    label: str
    records: tuple[Record, ...]
    problems: tuple[str, ...] = ()
    """Files that were skipped, and why."""


def resolve_side(text: str, data_root: Path) -> Side:
    """Read the records that `text` names.

    `2.5.3` is every sweep of that core version below `data_root`, `2.5.3@2026-01-05` those of one
    date; otherwise a directory (a store, a sweep, any folder of records) or one record file.

    Raises:
        UsageError: it names nothing, or nothing that is a record.
    """
    sweeps = list_sweeps(data_root)
    found = _AT.fullmatch(text)
    version, date = (found["version"], found["date"]) if found else (text, None)
    chosen = {s.path for s in sweeps if s.core_version == version and date in (None, s.date)}
    if chosen:
        entries = [f for f in iter_records(data_root) if f.path.parent in chosen]
        return _side(text, entries)
    path = Path(text)
    if path.is_file():
        return Side(label=text, records=(read_record(path),))
    if path.is_dir():
        return _side(text, iter_records(path) if list_sweeps(path) else _loose(path))
    raise UsageError(
        f"{text!r} is neither a sweep in {data_root}, nor a directory, nor a record. "
        + _what_there_is(sweeps)
    )


def pair_records(
    old: Sequence[Record], new: Sequence[Record]
) -> Iterator[tuple[str, str, Record | None, Record | None]]:
    """(model id, leg, old record, new record) for every model and leg of either side, sorted.

    Of several records of one model and leg the pair with the most alike environments is taken,
    of those the newest. Where each side has one leg only, the two legs are held against each other.
    """
    legs_old, legs_new = {leg_of(r) for r in old}, {leg_of(r) for r in new}
    across = len(legs_old) == len(legs_new) == 1 and legs_old != legs_new
    name = f"{next(iter(legs_old))} → {next(iter(legs_new))}" if across else None
    before, after = _by_model(old, name), _by_model(new, name)
    for model_id, leg in sorted(before.keys() | after.keys()):
        olds, news = before.get((model_id, leg), []), after.get((model_id, leg), [])
        if not olds or not news:
            yield model_id, leg, olds[-1] if olds else None, news[-1] if news else None
            continue
        _, second, first = max(
            (
                (-len(_record_differences(a, b)), j, i)
                for i, a in enumerate(olds)
                for j, b in enumerate(news)
            )
        )
        yield model_id, leg, olds[first], news[second]


def environment_differences(
    old: Environment, new: Environment, backend: Backend
) -> tuple[str, ...]:
    """Fields in which two environments differ so that their numbers cannot be compared.

    As `field: old → new`. The core version is what is compared and not among them; for the wasm
    backend the adapter does not matter. A fact that only one side knows is a difference, but for
    those that old cores cannot tell.
    """
    found: list[str] = []
    for field in COMPARABLE_FIELDS:
        if backend == "wasm_xnnpack" and field in OF_THE_ADAPTER:
            continue
        before, after = getattr(old, field), getattr(new, field)
        if field in NOT_REPORTED_BY_OLD_CORES and None in (before, after):
            continue
        if before != after:
            found.append(f"{field}: {_shown(before)} → {_shown(after)}")
    return tuple(found)


def _shown(value: object) -> str:
    if value is None:
        return "not known"
    if isinstance(value, tuple):
        return " ".join(str(v) for v in value) or "none"
    names = [getattr(value, name, "") for name in ("vendor", "architecture")]
    return " ".join(n for n in names if n) or str(value)


def _record_differences(old: Record, new: Record) -> set[str]:
    results = {result.backend: result for result in new.results}
    return {
        difference
        for result in old.results
        if result.backend in results
        for difference in environment_differences(
            result.env, results[result.backend].env, result.backend
        )
    }


def _by_model(records: Iterable[Record], leg: str | None) -> dict[tuple[str, str], list[Record]]:
    """Records by model and leg, oldest first."""
    grouped: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        grouped[record.model_id, leg or leg_of(record)].append(record)
    for group in grouped.values():
        group.sort(
            key=lambda r: (version_key(r.results[0].env.litertjs_core_version), r.results[0].date)
        )
    return grouped


def _loose(directory: Path) -> Iterator[StoredRecord | BadFile]:
    """Every record below a directory that is not laid out as a store."""
    for path in record_files([directory]):
        try:
            yield StoredRecord(path=path, record=read_record(path))
        except RecordError as error:
            yield BadFile(path=path, problem=str(error))


def _side(label: str, found: Iterable[StoredRecord | BadFile]) -> Side:
    records: list[Record] = []
    problems: list[str] = []
    for one in found:
        if isinstance(one, BadFile):
            problems.append(one.problem)
        else:
            records.append(one.record)
    if not records:
        first = f" The first file: {problems[0]}" if problems else ""
        raise UsageError(f"{label} has no record that can be read.{first}")
    return Side(label=label, records=tuple(records), problems=tuple(problems))


def _what_there_is(sweeps: Sequence[Sweep]) -> str:
    if not sweeps:
        return "There are no sweeps there: give --data, or sweep first."
    names = dict.fromkeys(f"{s.core_version}@{s.date}" for s in sweeps)
    return f"There are: {', '.join(names)}."

"""The sweep: every model of a catalog, each written as soon as it is known."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sweep.bench import Bench
from sweep.catalog import CatalogEntry
from sweep.config import SweepConfig
from sweep.errors import EnvironmentProblem, RecordError, StoreError, SweepError
from sweep.measure import Desktop, measure_model, record_config, run_desktop
from sweep.packed import PackedRecords
from sweep.prepare import Prepared, Unprepared, prepare
from sweep.record import NOT_FETCHED, Record
from sweep.sources import FetchOptions, ModelCache
from sweep.store import leg_of, read_record, record_path, write_record

log = logging.getLogger(__name__)

NOT_MEASURED = NOT_FETCHED | {"init_failed", "backend_unavailable"}
"""Failure classes that say something of the sweep, not of the model."""

IN_HAND = 2
"""Models that one browser takes turns on: one is compared and written while another runs."""

AHEAD = 2
"""Models that may be ready and wait for a browser: their inputs and references take memory."""


@dataclass(frozen=True)
class Event:
    """Progress: a model began, was written, was there already, or has no record and why."""

    kind: Literal["start", "done", "skipped", "failed"]
    model_id: str
    index: int
    total: int
    record: Record | None = None
    path: Path | None = None
    problem: str | None = None
    """Of a failed model: what happened, for a person."""


@dataclass
class SweepOutcome:
    """What a sweep gave, in catalog order."""

    records: PackedRecords = field(default_factory=PackedRecords)
    paths: list[Path] = field(default_factory=list)
    skipped: int = 0
    stopped: bool = False
    """Asked to stop before the catalog's end."""
    failed: dict[str, str] = field(default_factory=dict)
    """Models without a (new) record in the store, and what happened."""


@dataclass(frozen=True)
class _Ready:
    """A model that waits for a browser."""

    index: int
    entry: CatalogEntry
    prepared: Prepared | Unprepared
    desktop: Desktop | None


async def sweep_models(
    benches: Sequence[Bench],
    entries: Sequence[CatalogEntry],
    base_dir: Path,
    *,
    date: str,
    out: Path | None,
    cache: ModelCache,
    fetch_options: FetchOptions,
    skip_existing: bool = False,
    on_event: Callable[[Event], None] = lambda _: None,
    stop: asyncio.Event | None = None,
    rescue: Path | None = None,
) -> SweepOutcome:
    """Sweeps the entries; writes each record as soon as it is known.

    While a browser works on one model, the next are fetched, inspected and run on the desktop
    reference, and the last is compared and written, except during timed runs, which have the
    machine alone.

    Args:
        benches: one browser each; more than one only for sweeps that do not time.
        out: root of the store; None keeps the records in memory only.
        skip_existing: leave models whose record of this date, leg and configuration is there.
        stop: when set, no further model is begun.
        rescue: another store, for records that could not be written to `out` until the end.

    A model that cannot be swept, or whose record cannot be written, is in `failed`; the sweep
    goes on. What could not be written is tried again after every later model and at the end.

    Raises:
        EnvironmentProblem: the browser cannot be started any more.
    """
    stop = stop or asyncio.Event()
    first = benches[0]
    packed = PackedRecords()
    found: dict[int, tuple[int, Path | None]] = {}
    outcome = SweepOutcome()
    waiting: asyncio.Queue[_Ready | None] = asyncio.Queue(maxsize=AHEAD)
    unwritten: dict[int, Record] = {}

    def tell(
        kind: Literal["start", "done", "skipped", "failed"],
        index: int,
        record: Record | None = None,
        path: Path | None = None,
        problem: str | None = None,
    ) -> None:
        model_id = entries[index].model_id
        _log(kind, model_id, record, problem)
        on_event(Event(kind, model_id, index, len(entries), record, path, problem))

    def keep(record: Record) -> int:
        packed.append(record)
        return len(packed) - 1

    def fail(index: int, problem: str) -> None:
        outcome.failed[entries[index].model_id] = problem
        tell("failed", index, problem=problem)

    async def write(bench: Bench, index: int, record: Record) -> None:
        # From here on it is not lost, though the sweep be stopped at once.
        unwritten[index] = record
        found[index] = keep(record), None
        async with bench.gate.working():
            write_waiting(index)

    def write_waiting(index: int) -> None:
        # A disk that was full may have room again.
        for each in sorted(unwritten):
            try:
                path = _write(out, unwritten[each])
            except StoreError as error:
                if each == index:
                    fail(index, str(error))
            else:
                done = unwritten.pop(each)
                found[each] = found[each][0], path
                outcome.failed.pop(done.model_id, None)
                tell("done", each, done, path)

    async def make_ready(index: int, entry: CatalogEntry) -> _Ready:
        async with first.gate.working():
            prepared = await prepare(entry, base_dir, first.config, cache, fetch_options)
        desktop = await run_desktop(first, prepared) if isinstance(prepared, Prepared) else None
        return _Ready(index, entry, prepared, desktop)

    async def get_ready() -> None:
        for index, entry in enumerate(entries):
            if stop.is_set():
                break
            try:
                there = None
                if skip_existing and out:
                    there = existing(
                        first.config, first.core.version, entry, date, out, first.machine_label
                    )
                if there is not None:
                    found[index] = keep(there[0]), there[1]
                    outcome.skipped += 1
                    tell("skipped", index, *there)
                    continue
                ready = await _unless(stop, make_ready(index, entry))
            except Exception as error:
                fail(index, _words(entry.model_id, error))
                continue
            if ready is not None:
                await waiting.put(ready)
        for _ in range(len(benches) * IN_HAND):
            await waiting.put(None)

    async def measure(bench: Bench) -> None:
        while (ready := await waiting.get()) is not None:
            if stop.is_set():
                continue
            tell("start", ready.index)
            try:
                record = await measure_model(bench, ready.prepared, date, ready.desktop)
            except EnvironmentProblem:
                raise
            except Exception as error:
                # Nothing is claimed of the model: it has no record, and is swept again next time.
                fail(ready.index, _words(ready.entry.model_id, error))
                continue
            if out and (better := _worth_more(out, record)):
                fail(
                    ready.index, f"{record.results[0].reason} The record of before stays: {better}"
                )
                continue
            await write(bench, ready.index, record)

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(get_ready())
            for _ in range(IN_HAND):
                for bench in benches:
                    group.create_task(measure(bench))
    except ExceptionGroup as errors:
        # One is enough for the user: the others are its consequences or its twins.
        raise errors.exceptions[0] from errors
    finally:
        for index, record in sorted(unwritten.items()):
            path, problem = _last_resort(out, rescue, record)
            found[index] = found[index][0], path
            if problem is None:
                outcome.failed.pop(record.model_id, None)
            else:
                outcome.failed[record.model_id] = problem
    for index in sorted(found):
        place, path = found[index]
        outcome.records.append(packed[place])
        if path:
            outcome.paths.append(path)
    outcome.stopped = any(
        index not in found and entry.model_id not in outcome.failed
        for index, entry in enumerate(entries)
    )
    return outcome


async def _unless(stop: asyncio.Event, work: Coroutine[None, None, _Ready]) -> _Ready | None:
    """What `work` gives; None when `stop` was set before: a download may take an hour."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.wait({working, stopping})


def _write(out: Path | None, record: Record) -> Path | None:
    return write_record(out, record) if out else None


def _last_resort(
    out: Path | None, rescue: Path | None, record: Record
) -> tuple[Path | None, str | None]:
    """Where a record that could not be written before lies in the end, and what is wrong still."""
    try:
        return _write(out, record), None
    except StoreError as error:
        problem = str(error)
    with contextlib.suppress(StoreError):
        if kept := _write(rescue, record):
            return None, f"{problem} The record is kept in {kept}: move it once there is room."
    return None, problem


def _words(model_id: str, error: Exception) -> str:
    """An error that one model met, for a person; the log has the traceback of an unforeseen one."""
    if isinstance(error, SweepError):
        return str(error)
    log.error("%s could not be swept", model_id, exc_info=error)
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return (
        f"{model_id} could not be swept: {said}. Nothing was recorded of it; the sweep went on. "
        "Run again with --skip-existing to try it again."
    )


def _log(kind: str, model_id: str, record: Record | None, problem: str | None) -> None:
    facts: dict[str, object] = {"event": kind, "model_id": model_id}
    if record is not None:
        facts["results"] = {result.backend: result.status for result in record.results}
    if problem is not None:
        facts["problem"] = problem
    log.info("%s %s", model_id, kind, extra={"facts": facts})


def _worth_more(out: Path, record: Record) -> Path | None:
    """A measured record in the place of one that only says that the model could not be fetched."""
    if not all(result.failure_class in NOT_FETCHED for result in record.results):
        return None
    env, date = record.results[0].env, record.results[0].date
    path = record_path(out, env.litertjs_core_version, date, record.model_id, leg_of(record))
    try:
        before = read_record(path)
    except RecordError:
        return None
    measured = any(result.failure_class not in NOT_FETCHED for result in before.results)
    return path if measured else None


def not_measured(record: Record) -> bool:
    """Whether some result says nothing of the model, because the sweep could not measure it."""
    return any(
        result.status == "unavailable" or result.failure_class in NOT_MEASURED
        for result in record.results
    )


def existing(
    config: SweepConfig,
    core_version: str,
    entry: CatalogEntry,
    date: str,
    out: Path,
    machine_label: str | None = None,
) -> tuple[Record, Path] | None:
    """A whole record of the same question: model, date, leg and configuration.

    `machine_label`: of that machine; None: of any.
    """
    path = record_path(out, core_version, date, entry.model_id, config.leg.name)
    if not path.is_file():
        return None
    try:
        record = read_record(path)
    except RecordError:
        return None
    if any(result.failure_class in NOT_FETCHED for result in record.results):
        return None
    labels = {result.env.machine_label for result in record.results}
    same = (
        record.config == record_config(config)
        and {result.backend for result in record.results} == set(entry.backends or config.backends)
        and (machine_label is None or labels == {machine_label})
    )
    return (record, path) if same else None

"""The sweep: every model of a catalog, each written as soon as it is known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sweep.bench import Bench
from sweep.catalog import CatalogEntry
from sweep.errors import RecordError
from sweep.measure import Desktop, measure_model, record_config, run_desktop
from sweep.prepare import Prepared, Unprepared, prepare
from sweep.record import Record
from sweep.sources import FetchOptions, ModelCache
from sweep.store import read_record, record_path, write_record

NOT_MEASURED = frozenset(
    {"fetch_failed", "checksum_mismatch", "init_failed", "backend_unavailable"}
)
"""Failure classes that say something of the sweep, not of the model."""


AHEAD = 2
"""Models that may be ready and wait for a browser: their inputs and references take memory."""


@dataclass(frozen=True)
class Event:
    """Progress: a model began, was written, or was there already."""

    kind: Literal["start", "done", "skipped"]
    model_id: str
    index: int
    total: int
    record: Record | None = None
    path: Path | None = None


@dataclass
class SweepOutcome:
    """What a sweep gave, in catalog order."""

    records: list[Record] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    skipped: int = 0
    stopped: bool = False
    """Asked to stop before the catalog's end."""


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
) -> SweepOutcome:
    """Sweeps the entries; writes each record as soon as it is known.

    While a browser works on one model, the next are fetched, inspected and run on the desktop
    reference, except during timed runs, which have the machine alone.

    Args:
        benches: one browser each; more than one only for sweeps that do not time.
        out: root of the store; None keeps the records in memory only.
        skip_existing: leave models whose record of this date, leg and configuration is there.
        stop: when set, no further model is begun.

    Raises:
        StoreError: a record could not be written; those before it are safe.
        EnvironmentProblem: the browser cannot be started.
    """
    stop = stop or asyncio.Event()
    first = benches[0]
    found: dict[int, tuple[Record, Path | None]] = {}
    outcome = SweepOutcome()
    waiting: asyncio.Queue[_Ready | None] = asyncio.Queue(maxsize=AHEAD)

    async def get_ready() -> None:
        for index, entry in enumerate(entries):
            if stop.is_set():
                break
            there = _existing(first, entry, date, out) if skip_existing and out else None
            if there is not None:
                found[index] = there
                outcome.skipped += 1
                on_event(Event("skipped", entry.model_id, index, len(entries), *there))
                continue
            async with first.gate.working():
                prepared = await prepare(entry, base_dir, first.config, cache, fetch_options)
            desktop = await run_desktop(first, prepared) if isinstance(prepared, Prepared) else None
            await waiting.put(_Ready(index, entry, prepared, desktop))
        for _ in benches:
            await waiting.put(None)

    async def measure(bench: Bench) -> None:
        while (ready := await waiting.get()) is not None:
            if stop.is_set():
                continue
            model_id = ready.entry.model_id
            on_event(Event("start", model_id, ready.index, len(entries)))
            record = await measure_model(bench, ready.prepared, date, ready.desktop)
            written = write_record(out, record) if out else None
            found[ready.index] = record, written
            on_event(Event("done", model_id, ready.index, len(entries), record, written))

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(get_ready())
            for bench in benches:
                group.create_task(measure(bench))
    except ExceptionGroup as errors:
        # One is enough for the user: the others are its consequences or its twins.
        raise errors.exceptions[0] from errors
    for index in sorted(found):
        record, path = found[index]
        outcome.records.append(record)
        if path:
            outcome.paths.append(path)
    outcome.stopped = len(found) < len(entries)
    return outcome


def not_measured(record: Record) -> bool:
    """Whether some result says nothing of the model, because the sweep could not measure it."""
    return any(
        result.status == "unavailable" or result.failure_class in NOT_MEASURED
        for result in record.results
    )


def _existing(
    bench: Bench, entry: CatalogEntry, date: str, out: Path
) -> tuple[Record, Path] | None:
    """A whole record of the same question: model, date, leg and configuration."""
    path = record_path(out, bench.core.version, date, entry.model_id, bench.config.leg.name)
    if not path.is_file():
        return None
    try:
        record = read_record(path)
    except RecordError:
        return None
    backends = set(entry.backends or bench.config.backends)
    same = (
        record.config == record_config(bench.config)
        and {result.backend for result in record.results} == backends
        and all(result.env.machine_label == bench.machine_label for result in record.results)
    )
    return (record, path) if same else None

"""The sweep: every model of a catalog, one after the other, each written as soon as it is known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sweep.bench import Bench
from sweep.catalog import CatalogEntry
from sweep.errors import RecordError
from sweep.measure import measure_model, record_config
from sweep.prepare import prepare
from sweep.record import Record
from sweep.sources import FetchOptions, ModelCache
from sweep.store import read_record, record_path, write_record

NOT_MEASURED = frozenset(
    {"fetch_failed", "checksum_mismatch", "init_failed", "backend_unavailable"}
)
"""Failure classes that say something of the sweep, not of the model."""


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


async def sweep_models(
    bench: Bench,
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
    """Sweeps the entries in order; writes each record before the next model begins.

    Args:
        out: root of the store; None keeps the records in memory only.
        skip_existing: leave models whose record of this date, leg and configuration is there.
        stop: when set, no further model is begun.

    Raises:
        StoreError: a record could not be written; those before it are safe.
        EnvironmentProblem: the browser cannot be started.
    """
    outcome = SweepOutcome()
    for index, entry in enumerate(entries):
        if stop is not None and stop.is_set():
            outcome.stopped = True
            break
        there = _existing(bench, entry, date, out) if skip_existing and out else None
        if there is not None:
            record, path = there
            outcome.records.append(record)
            outcome.paths.append(path)
            outcome.skipped += 1
            on_event(Event("skipped", entry.model_id, index, len(entries), record, path))
            continue
        on_event(Event("start", entry.model_id, index, len(entries)))
        prepared = await prepare(entry, base_dir, bench.config, cache, fetch_options)
        record = await measure_model(bench, prepared, date)
        written = write_record(out, record) if out else None
        outcome.records.append(record)
        if written:
            outcome.paths.append(written)
        on_event(Event("done", entry.model_id, index, len(entries), record, written))
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

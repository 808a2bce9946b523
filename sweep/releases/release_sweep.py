"""Sweeping releases: what the store lacks, oldest first, then each against the one before."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweep.bench import Bench, open_bench
from sweep.browser import BrowserChoice
from sweep.catalog import Catalog
from sweep.config import Leg, SweepConfig
from sweep.measure import measure_model
from sweep.orchestrate import Event, sweep_models
from sweep.paths import cache_dir
from sweep.prepare import prepare
from sweep.record import Record
from sweep.releases.confirm import Candidate, Confirmation, candidates, confirm
from sweep.releases.diff import SweepDiff, diff_sweeps
from sweep.releases.release_report import ReleaseReport, report_paths, write_report
from sweep.releases.watch import lacking
from sweep.runtime import ensure_core
from sweep.sources import FetchOptions, ModelCache
from sweep.store import StoredRecord, iter_records, leg_of
from sweep.sweeper import stop_on_signals


@dataclass(frozen=True)
class ReleaseSweepPlan:
    """What a release sweep is asked to do."""

    catalog: Catalog
    versions: tuple[str, ...]
    """Oldest first."""
    legs: tuple[Leg, ...]
    config: SweepConfig
    """Core version and leg are filled in per sweep."""
    out: Path
    date: str
    browser: BrowserChoice
    machine_label: str
    rounds: int = 2
    """Of the second look at changes for the worse; 0: none."""


@dataclass
class ReleaseSweepOutcome:
    """What was done: new records, and reports that were written."""

    measured: list[Record] = field(default_factory=list)
    reports: list[tuple[ReleaseReport, Path, Path]] = field(default_factory=list)
    stopped: bool = False


Say = Callable[[str], None]


async def sweep_releases(
    plan: ReleaseSweepPlan, on_event: Callable[[Event], None], say: Say
) -> ReleaseSweepOutcome:
    """Sweeps what is missing, compares, writes reports. Doing it twice does nothing new.

    The caller holds the store's lock. Records are written one by one: a killed run is taken up
    where it was, on whatever date.

    Raises:
        EnvironmentProblem: a release or the browser cannot be had.
        StoreError: a record or report cannot be written.
    """
    outcome = ReleaseSweepOutcome()
    with ModelCache() as cache, stop_on_signals() as stopping:
        stopping.begun = True
        for version in plan.versions:
            for leg in plan.legs:
                missing = lacking(
                    _records(plan.out), version, leg.name, plan.machine_label,
                    [entry.model_id for entry in plan.catalog.entries],
                )  # fmt: skip
                if not missing:
                    continue
                say(f"{version} [{leg.name}]: {len(missing)} models to sweep")
                entries = [e for e in plan.catalog.entries if e.model_id in missing]
                async with _bench(plan, version, leg) as bench:
                    swept = await sweep_models(
                        [bench],
                        entries,
                        plan.catalog.path.parent,
                        date=plan.date,
                        out=plan.out,
                        cache=cache,
                        fetch_options=FetchOptions.from_env(),
                        on_event=on_event,
                        stop=stopping.event,
                    )
                outcome.measured += swept.records
                if swept.stopped:
                    outcome.stopped = True
                    return outcome
        for old, new in zip(plan.versions, plan.versions[1:], strict=False):
            fresh = any(_version(record) in (old, new) for record in outcome.measured)
            if not fresh and report_paths(plan.out, old, new)[0].is_file():
                continue
            say(f"comparing {old} with {new}")
            report = await _report(plan, old, new, say)
            outcome.reports.append((report, *write_report(plan.out, report)))
    return outcome


async def _report(plan: ReleaseSweepPlan, old: str, new: str, say: Say) -> ReleaseReport:
    ids = {entry.model_id for entry in plan.catalog.entries}
    legs = {leg.name for leg in plan.legs}
    mine = [
        record
        for record in _records(plan.out)
        if record.model_id in ids
        and leg_of(record) in legs
        and record.results[0].env.machine_label == plan.machine_label
    ]
    diff = diff_sweeps(
        [record for record in mine if _version(record) == old],
        [record for record in mine if _version(record) == new],
        old_label=old,
        new_label=new,
    )
    confirmations = await _second_looks(plan, diff, old, new, say) if plan.rounds else ()
    return ReleaseReport(
        old=old,
        new=new,
        date=plan.date,
        machine_label=plan.machine_label,
        models=len({record.model_id for record in mine}),
        diff=diff,
        confirmations=confirmations,
    )


async def _second_looks(
    plan: ReleaseSweepPlan, diff: SweepDiff, old: str, new: str, say: Say
) -> tuple[Confirmation, ...]:
    """Per leg: both releases on the bench at once, measured in turn."""
    found = candidates(diff)
    confirmations: list[Confirmation] = []
    for leg in plan.legs:
        here = [candidate for candidate in found if candidate.leg == leg.name]
        if not here:
            continue
        models = {candidate.model_id for candidate in here}
        say(f"measuring {len(models)} models again on {old} and {new} [{leg.name}]")
        confirmations += await _confirm_leg(plan, leg, here, old, new)
    return tuple(confirmations)


async def _confirm_leg(
    plan: ReleaseSweepPlan, leg: Leg, found: Sequence[Candidate], old: str, new: str
) -> tuple[Confirmation, ...]:
    entries = {entry.model_id: entry for entry in plan.catalog.entries}
    async with contextlib.AsyncExitStack() as stack:
        cache = stack.enter_context(ModelCache())
        benches = {
            version: await stack.enter_async_context(_bench(plan, version, leg, fresh=True))
            for version in (old, new)
        }

        async def measure(version: str, model_id: str) -> Record:
            bench = benches[version]
            ready = await prepare(
                entries[model_id],
                plan.catalog.path.parent,
                bench.config,
                cache,
                FetchOptions.from_env(),
            )
            return await measure_model(bench, ready, plan.date)

        return await confirm(found, old, new, measure, rounds=plan.rounds)


@contextlib.asynccontextmanager
async def _bench(
    plan: ReleaseSweepPlan, version: str, leg: Leg, *, fresh: bool = False
) -> AsyncIterator[Bench]:
    core = await ensure_core(version, cache_dir())
    changes: dict[str, object] = {"core_version": core.version, "leg": leg}
    if fresh:
        changes["isolation"] = "page"
    config = plan.config.model_copy(update=changes)
    async with open_bench(config, core, plan.browser, machine_label=plan.machine_label) as bench:
        yield bench


def _records(root: Path) -> list[Record]:
    return [found.record for found in iter_records(root) if isinstance(found, StoredRecord)]


def _version(record: Record) -> str:
    return record.results[0].env.litertjs_core_version

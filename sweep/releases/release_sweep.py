"""Sweeping releases: what the store lacks, oldest first, then each against the one before."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweep.bench import Bench, open_bench
from sweep.browser import BrowserChoice
from sweep.catalog import Catalog, CatalogEntry
from sweep.config import Leg, SweepConfig
from sweep.errors import SourceError
from sweep.estimate import expected_seconds
from sweep.measure import Desktop, measure_model, run_desktop
from sweep.orchestrate import Event, SweepOutcome, sweep_models
from sweep.paths import cache_dir, data_dir
from sweep.prepare import Prepared, Unprepared, prepare
from sweep.record import NOT_FETCHED, Record
from sweep.releases.confirm import Candidate, Confirmation, candidates, confirm
from sweep.releases.release_report import (
    ReleaseReport,
    build_report,
    carried,
    read_report,
    report_paths,
    same_finding,
    version_of,
    write_report,
)
from sweep.releases.watch import find_gaps, pairs_to_compare
from sweep.runtime import ensure_core
from sweep.scratch import remove_stale
from sweep.sources import FetchOptions, ModelCache, fetch_model, parse_source
from sweep.state import SweepAbout, keep_state
from sweep.store import StoredRecord, iter_records, list_sweeps
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
    prereleases: bool = False
    """Whether the oldest version may be compared with a prerelease in the store."""


@dataclass(frozen=True)
class WrittenReport:
    """A report, and where it lies."""

    report: ReleaseReport
    as_json: Path
    as_markdown: Path


@dataclass
class ReleaseSweepOutcome:
    """What was done: new records, and reports that were written."""

    measured: int = 0
    """Records that were written."""
    not_measured: bool = False
    """One of them says that the machine could not do what it was to do."""
    reports: list[WrittenReport] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """`<model> on <version> [<leg>]` → why it has no (new) record."""
    stopped: bool = False


def was_not_measured(record: Record) -> bool:
    """Whether a record of a release sweep says that the machine could not do what it was to do.

    A leg that asks for something special (threads, JSPI off, no WebGPU) finds releases that do not
    offer it: that is a result, not a fault.
    """
    leg = record.config.leg
    special = leg is not None and (leg.threads or leg.jspi is not None or not leg.webgpu)
    return any(
        result.failure_class in NOT_FETCHED or (result.status == "unavailable" and not special)
        for result in record.results
    )


class _Stopped(Exception):  # noqa: N818  # never leaves this module
    """A second look was asked to end."""


async def sweep_releases(
    plan: ReleaseSweepPlan,
    on_event: Callable[[Event], None],
    say: Callable[[str], None],
    on_report: Callable[[WrittenReport], None] = lambda _: None,
) -> ReleaseSweepOutcome:
    """Sweeps what is missing, compares, writes reports. Doing it twice does nothing new.

    The caller holds the store's lock. Records are written one by one: a killed run is taken up
    where it was, on whatever date.

    Args:
        on_report: called with each report as soon as it is written.

    Raises:
        EnvironmentProblem: a release or the browser cannot be had.
        StoreError: a record or report cannot be written.
    """
    outcome = ReleaseSweepOutcome()
    await asyncio.to_thread(remove_stale)
    with ModelCache() as cache, stop_on_signals() as stopping:
        stopping.begun = True
        run = _Run(plan, cache, stopping.event, on_event, say)
        for version in plan.versions:
            records = _records(plan.out, [version])
            for leg in plan.legs:
                swept = None if stopping.event.is_set() else await run.sweep(records, version, leg)
                if swept is not None:
                    outcome.measured += len(swept.records)
                    outcome.not_measured |= any(map(was_not_measured, swept.records))
                    for model_id, problem in swept.failed.items():
                        outcome.failed[f"{model_id} on {version} [{leg.name}]"] = problem
                if stopping.event.is_set():
                    outcome.stopped = True
                    return outcome
        for old, new in pairs_to_compare(
            plan.versions, run.swept_versions(), prereleases=plan.prereleases
        ):
            try:
                written = await run.report(old, new)
            except _Stopped:
                outcome.stopped = True
                return outcome
            if written is not None:
                outcome.reports.append(written)
                on_report(written)
    return outcome


@dataclass
class _Run:
    """What one run of a release sweep needs everywhere."""

    plan: ReleaseSweepPlan
    cache: ModelCache
    stop: asyncio.Event
    on_event: Callable[[Event], None]
    say: Callable[[str], None]
    not_fetchable: set[str] = field(default_factory=set)

    async def sweep(self, records: Sequence[Record], version: str, leg: Leg) -> SweepOutcome | None:
        """Sweeps one release in one leg; None when nothing is missing in `records`."""
        plan = self.plan
        entries = await self._missing(records, version, leg)
        if not entries:
            return None
        self.say(f"{version} [{leg.name}]: {len(entries)} models to sweep")
        ids = tuple(entry.model_id for entry in entries)
        about = SweepAbout(core_version=version, date=plan.date, leg=leg.name)
        async with _bench(plan, version, leg) as bench:
            expected = await asyncio.to_thread(
                expected_seconds, plan.out, ids, plan.machine_label, bench.config
            )
            with keep_state(plan.out, about, ids, expected) as note:

                def tell(event: Event) -> None:
                    note(event)
                    self.on_event(event)

                return await sweep_models(
                    [bench],
                    entries,
                    plan.catalog.path.parent,
                    date=plan.date,
                    out=plan.out,
                    cache=self.cache,
                    fetch_options=FetchOptions.from_env(),
                    on_event=tell,
                    stop=self.stop,
                    rescue=data_dir() / "unwritten",
                )

    async def _missing(
        self, records: Sequence[Record], version: str, leg: Leg
    ) -> list[CatalogEntry]:
        """Entries to sweep. A model that could not be had before is only swept if it now can."""
        entries, machine = self.plan.catalog.entries, self.plan.machine_label
        backends = self.plan.config.backends
        gaps = find_gaps(records, version, leg.name, machine, entries, backends)
        chosen = []
        for entry in entries:
            if entry.model_id not in gaps.missing:
                continue
            if entry.model_id in gaps.not_fetched and not await self._can_be_had(entry):
                continue
            chosen.append(entry)
        return chosen

    async def _can_be_had(self, entry: CatalogEntry) -> bool:
        if entry.model_id in self.not_fetchable:
            return False
        try:
            source = parse_source(entry.source, self.plan.catalog.path.parent)
            await fetch_model(
                source, sha256=entry.sha256, cache=self.cache, options=FetchOptions.from_env()
            )
        except SourceError as error:
            self.say(f"{entry.model_id} still cannot be fetched: {error}")
            self.not_fetchable.add(entry.model_id)
            return False
        return True

    def swept_versions(self) -> list[str]:
        """Versions that the store has records of, on this machine."""
        versions = {sweep.core_version for sweep in list_sweeps(self.plan.out)}
        # The chosen ones are known; of the others only those with a record of this machine count.
        return [v for v in versions if v in self.plan.versions or self._is_mine(v)]

    def _is_mine(self, version: str) -> bool:
        return any(
            record.results[0].env.machine_label == self.plan.machine_label
            for record in _records(self.plan.out, [version])
        )

    async def report(self, old: str, new: str) -> WrittenReport | None:
        """Writes the report of one release; None when the one that is there says the same."""
        plan = self.plan
        records = _records(plan.out, [old, new])
        if not {old, new} <= {version_of(record) for record in records}:
            return None
        earlier = read_report(report_paths(plan.out, plan.machine_label, old, new)[0])

        def build(looked: Sequence[Confirmation]) -> ReleaseReport:
            return build_report(
                records, old, new, date=plan.date, machine_label=plan.machine_label,
                rounds=plan.rounds, looked=looked,
            )  # fmt: skip

        report = build(())
        looked = carried(earlier, report.diff) if earlier is not None else ()
        report = build(looked)
        pending = self._to_look_at(report)
        if not pending and earlier is not None and same_finding(report, earlier):
            return None
        self.say(f"comparing {old} with {new}")
        if pending:
            looked += await self._second_looks(pending, old, new)
            report = build(looked)
        return WrittenReport(report, *write_report(plan.out, report))

    def _to_look_at(self, report: ReleaseReport) -> list[Candidate]:
        """Changes for the worse, of what this run sweeps, that nobody looked at a second time."""
        if not self.plan.rounds:
            return []
        ids = {entry.model_id for entry in self.plan.catalog.entries}
        legs = {leg.name for leg in self.plan.legs}
        seen = {confirmation.candidate for confirmation in report.confirmations}
        return [
            candidate
            for candidate in candidates(report.diff)
            if candidate not in seen and candidate.model_id in ids and candidate.leg in legs
        ]

    async def _second_looks(
        self, found: Sequence[Candidate], old: str, new: str
    ) -> tuple[Confirmation, ...]:
        """Per leg: both releases on the bench at once, measured in turn."""
        confirmations: list[Confirmation] = []
        for leg in self.plan.legs:
            here = [candidate for candidate in found if candidate.leg == leg.name]
            if here:
                models = len({candidate.model_id for candidate in here})
                self.say(f"measuring {models} models again on {old} and {new} [{leg.name}]")
                async with contextlib.AsyncExitStack() as stack:
                    benches = {
                        version: await stack.enter_async_context(
                            _bench(self.plan, version, leg, fresh=True)
                        )
                        for version in (old, new)
                    }
                    looks = _Looks(self, benches)
                    confirmations += await confirm(
                        here, old, new, looks.measure, rounds=self.plan.rounds
                    )
        return tuple(confirmations)


@dataclass
class _Looks:
    """Measures models again; a model is made ready once for all rounds."""

    run: _Run
    benches: dict[str, Bench]
    model_id: str | None = None
    ready: Prepared | Unprepared | None = None
    desktop: Desktop | None = None

    async def measure(self, version: str, model_id: str) -> Record:
        """One measurement from a fresh page."""
        if self.run.stop.is_set():
            raise _Stopped
        bench, plan = self.benches[version], self.run.plan
        if self.ready is None or self.model_id != model_id:
            entry = next(e for e in plan.catalog.entries if e.model_id == model_id)
            self.ready = await prepare(
                entry, plan.catalog.path.parent, bench.config, self.run.cache,
                FetchOptions.from_env(),
            )  # fmt: skip
            self.desktop = (
                await run_desktop(bench, self.ready) if isinstance(self.ready, Prepared) else None
            )
            self.model_id = model_id
        return await measure_model(bench, self.ready, plan.date, self.desktop)


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


def _records(root: Path, versions: Sequence[str]) -> list[Record]:
    return [found.record for found in iter_records(root, versions)
            if isinstance(found, StoredRecord)]  # fmt: skip

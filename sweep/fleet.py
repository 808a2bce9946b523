"""A sweep over many machines, through a Dask scheduler: the side that asks.

Workers (`litertjs-sweep worker`, `sweep.fleet_worker`) advertise what they are as Dask resources.
One task is one model on all its backends, so that a webgpu output is only ever held against a wasm
output of the same machine and browser. A worker takes one task at a time; the tasks of a worker
that is lost are done again elsewhere from their start. Records come back here and are written here,
by one process, once.

Dask sends Python objects by pickle: whoever can reach the scheduler can run code on its workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from sweep import __version__
from sweep.catalog import CatalogEntry
from sweep.config import Backend, Frozen, SweepConfig
from sweep.errors import EnvironmentProblem, RecordError, SourceError, StoreError
from sweep.measure import record_config
from sweep.orchestrate import Event, SweepOutcome, existing
from sweep.packed import PackedRecords
from sweep.record import Record
from sweep.sources import parse_source
from sweep.sources.spec import PathSource
from sweep.store import parse_record, write_record

if TYPE_CHECKING:
    from distributed import Client

JOB = "job"
"""Resource of which a worker has one and a task needs one: one model at a time."""
CONNECT_TIMEOUT_S = 20.0
POLL_S = 2.0


class FleetTask(Frozen):
    """One model for a worker: everything but what it can fetch for itself."""

    config: SweepConfig
    entry: CatalogEntry
    date: str
    files: dict[str, bytes] = Field(default_factory=dict)
    """Local files that the entry names, by its own names for them."""


def resource_names(
    *,
    backends: Sequence[Backend],
    adapter_class: str | None,
    os: str,
    machine_label: str,
) -> tuple[str, ...]:
    """What a worker advertises. `version` is there so that no other version gets the tasks."""
    return (
        JOB,
        f"version={__version__}",
        *(f"backend={backend}" for backend in backends),
        f"adapter={adapter_class or 'unknown'}",
        f"os={os}",
        f"machine={machine_label}",
    )


def needs_of(config: SweepConfig, entry: CatalogEntry, needs: Sequence[str]) -> dict[str, float]:
    """The resources that a model's task takes; a worker without any of them never gets it."""
    backends = entry.backends or config.backends
    names = (JOB, f"version={__version__}", *(f"backend={name}" for name in backends), *needs)
    return dict.fromkeys(names, 1.0)


@contextlib.asynccontextmanager
async def connect(scheduler: str, timeout: float = CONNECT_TIMEOUT_S) -> AsyncIterator[Client]:  # noqa: ASYNC109
    """A client of the scheduler.

    Raises:
        EnvironmentProblem: Dask is not installed, or nothing answers at the address.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise EnvironmentProblem(
            "Sweeping through a scheduler needs Dask: pip install 'litertjs-sweep[fleet]'."
        ) from error
    try:
        client = await Client(  # type: ignore[no-untyped-call]
            scheduler, asynchronous=True, timeout=timeout, set_as_default=False
        )
    except (OSError, TimeoutError, ValueError) as error:
        raise EnvironmentProblem(
            f"No scheduler answers at {scheduler} ({error}). Start one with `dask scheduler`, "
            "and name it as it does, e.g. tcp://host:8786."
        ) from error
    try:
        yield client
    finally:
        await client.close()


async def sweep_fleet(
    client: Client,
    config: SweepConfig,
    entries: Sequence[CatalogEntry],
    base_dir: Path,
    *,
    out: Path | None,
    date: str,
    needs: Sequence[str] = (),
    skip_existing: bool = False,
    on_event: Callable[[Event], None] = lambda _: None,
    stop: asyncio.Event | None = None,
    patience: float = 60.0,
) -> SweepOutcome:
    """Sweeps the entries on the workers that fit; writes each record when it arrives.

    Args:
        config: names an exact core version, which every worker fetches for itself.
        needs: resources beyond version and backends, e.g. `adapter=hardware`, `os=macOS`.
        stop: when set, no further model is handed out.
        patience: seconds to wait where no worker fits, before what is left is given up.

    Raises:
        EnvironmentProblem: the scheduler is gone.
    """
    sweep = _FleetSweep(client, config, entries, base_dir, out, date, tuple(needs), on_event)
    if skip_existing and out:
        sweep.skip_existing(out)
    await sweep.run(stop or asyncio.Event(), patience)
    return sweep.outcome()


class _FleetSweep:
    """The state of one sweep: what waits, what is out, what came back."""

    def __init__(
        self,
        client: Client,
        config: SweepConfig,
        entries: Sequence[CatalogEntry],
        base_dir: Path,
        out: Path | None,
        date: str,
        needs: tuple[str, ...],
        on_event: Callable[[Event], None],
    ) -> None:
        self.client = client
        self.config = config
        self.entries = entries
        self.base_dir = base_dir
        self.out = out
        self.date = date
        self.needs = needs
        self.on_event = on_event
        self.waiting = list(range(len(entries)))
        self.running: dict[asyncio.Task[bytes], int] = {}
        self.found: dict[int, tuple[PackedRecords, Path | None]] = {}
        self.failed: dict[str, str] = {}
        self.skipped = 0
        self.run_id = uuid.uuid4().hex[:8]

    def skip_existing(self, out: Path) -> None:
        """Takes from the queue what has a record of the same question, of whatever machine."""
        for index in list(self.waiting):
            there = existing(
                self.config, self.config.core_version, self.entries[index], self.date, out
            )
            if there is not None:
                self.waiting.remove(index)
                self.found[index] = PackedRecords([there[0]]), there[1]
                self.skipped += 1
                self.tell("skipped", index, *there)

    async def run(self, stop: asyncio.Event, patience: float) -> None:
        """Hands out models as workers become free, until none is left."""
        alone_since: float | None = None
        try:
            while (self.waiting and not stop.is_set()) or self.running:
                workers = await self.workers()
                if not stop.is_set():
                    self.hand_out(workers)
                if any(self.fits(i, workers) for i in [*self.waiting, *self.running.values()]):
                    alone_since = None
                elif self.waiting or self.running:
                    alone_since = alone_since or time.monotonic()
                    if time.monotonic() - alone_since > patience:
                        self.give_up(workers)
                        break
                await self.collect()
        finally:
            for task in self.running:
                task.cancel()

    async def workers(self) -> dict[str, dict[str, Any]]:
        """The scheduler's workers by address."""
        try:
            scheduler: Any = self.client.scheduler
            identity = await scheduler.identity(n_workers=-1)
        except OSError as error:
            raise EnvironmentProblem(
                f"The scheduler is gone ({error}). Records that had arrived are written; run again "
                "with --skip-existing once it is back."
            ) from error
        return dict(identity["workers"])

    def hand_out(self, workers: Mapping[str, Mapping[str, Any]]) -> None:
        """Keeps as many models out as there are workers for them: none queues up, so that a sweep
        that is stopped ends with the models that are being measured."""
        out = [self.needed(index) for index in self.running.values()]
        for index in list(self.waiting):
            needed = self.needed(index)
            if out.count(needed) < len(self.fits(index, workers)):
                out.append(needed)
                self.submit(index)

    def needed(self, index: int) -> dict[str, float]:
        """The resources of a model's task."""
        return needs_of(self.config, self.entries[index], self.needs)

    def fits(self, index: int, workers: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Workers that may take a model."""
        needed = self.needed(index)
        return [
            address
            for address, about in workers.items()
            if all(about["resources"].get(name, 0) >= 1 for name in needed)
        ]

    def submit(self, index: int) -> None:
        """Hands a model out."""
        entry = self.entries[index]
        self.waiting.remove(index)
        try:
            files = local_files(entry, self.base_dir)
        except (OSError, SourceError) as error:
            self.fail(index, f"{entry.model_id}: its files cannot be sent to a worker: {error}")
            return
        task = FleetTask(config=self.config, entry=entry, date=self.date, files=files)
        from sweep.fleet_worker import run_task

        future = self.client.submit(
            run_task,
            task.model_dump(),
            key=f"litertjs-sweep-{self.run_id}-{index}-{entry.model_id}",
            resources=self.needed(index),
            pure=False,
        )
        self.running[asyncio.ensure_future(_result(future))] = index
        self.tell("start", index)

    async def collect(self) -> None:
        """Takes in what has come back, waiting a little for it."""
        if not self.running:
            await asyncio.sleep(POLL_S)
            return
        done, _ = await asyncio.wait(
            self.running, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            index = self.running.pop(task)
            try:
                self.take(index, task.result())
            except asyncio.CancelledError:
                raise EnvironmentProblem(
                    "The scheduler has dropped the sweep's tasks (it ended, or was restarted). "
                    "Records that had arrived are written; run again with --skip-existing."
                ) from None
            except Exception as error:  # whatever the worker raised, or Dask about it
                self.fail(index, f"{self.entries[index].model_id} has no record: {_said(error)}")

    def take(self, index: int, answer: bytes) -> None:
        """Checks a worker's record and writes it."""
        entry = self.entries[index]
        record = parse_record(answer)
        problem = self.problem_of(entry, record)
        if problem:
            raise RecordError(problem)
        path: Path | None = None
        if self.out:
            try:
                path = write_record(self.out, record)
            except StoreError as error:
                self.found[index] = PackedRecords([record]), None
                self.fail(index, str(error))
                return
        self.found[index] = PackedRecords([record]), path
        self.tell("done", index, record, path)

    def problem_of(self, entry: CatalogEntry, record: Record) -> str | None:
        """Why an answer is not the record that was asked for; None when it is."""
        wanted = set(entry.backends or self.config.backends)
        places = {
            (r.env.machine_label, r.env.browser_version, r.env.litertjs_core_version)
            for r in record.results
        }
        if record.model_id != entry.model_id or {r.backend for r in record.results} != wanted:
            return "the worker answered with the record of another job"
        if record.config != record_config(self.config):
            return "the worker measured with another configuration"
        if len(places) != 1 or {p[2] for p in places} != {self.config.core_version}:
            return f"the worker's results come from different environments: {sorted(places)}"
        return None

    def give_up(self, workers: Mapping[str, Mapping[str, Any]]) -> None:
        """Nobody can take what is left."""
        offers = "; ".join(
            " ".join(sorted(about["resources"])) or "(no worker of litertjs-sweep)"
            for about in workers.values()
        )
        for index in [*self.waiting, *self.running.values()]:
            needed = " ".join(sorted(self.needed(index)))
            self.fail(
                index,
                f"{self.entries[index].model_id}: no worker offers {needed}. "
                f"{len(workers)} workers are there{f', offering: {offers}' if offers else ''}. "
                "Start one with `litertjs-sweep worker`.",
            )

    def fail(self, index: int, problem: str) -> None:
        self.failed[self.entries[index].model_id] = problem
        self.tell("failed", index, problem=problem)

    def tell(
        self,
        kind: Any,
        index: int,
        record: Record | None = None,
        path: Path | None = None,
        problem: str | None = None,
    ) -> None:
        model_id = self.entries[index].model_id
        self.on_event(Event(kind, model_id, index, len(self.entries), record, path, problem))

    def outcome(self) -> SweepOutcome:
        """What came of it, in catalog order."""
        outcome = SweepOutcome(skipped=self.skipped, failed=self.failed)
        for index in sorted(self.found):
            (record,), path = self.found[index]
            outcome.records.append(record)
            if path:
                outcome.paths.append(path)
        outcome.stopped = any(
            index not in self.found and entry.model_id not in self.failed
            for index, entry in enumerate(self.entries)
        )
        return outcome


async def _result(future: Any) -> bytes:
    answer: bytes = await future
    return answer


def _said(error: Exception) -> str:
    if type(error).__name__ == "KilledWorker":
        return (
            "several workers were lost while they had it. Sweep it alone on a machine that can "
            "be spared, and look at the workers' own output."
        )
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def local_files(entry: CatalogEntry, base_dir: Path) -> dict[str, bytes]:
    """The contents of the files on this machine that an entry names, by the names it uses.

    Raises:
        SourceError, OSError: one cannot be read.
    """
    source = parse_source(entry.source, base_dir)
    names = {rule.file for rule in entry.inputs.values() if rule.file is not None}
    files = {name: (base_dir / name).read_bytes() for name in sorted(names)}
    if isinstance(source, PathSource):
        files[entry.source] = source.path.read_bytes()
    return files

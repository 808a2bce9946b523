"""A sweep over many machines: the side that measures, one model at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.bench import Bench, open_bench
from sweep.browser import BrowserChoice, find_browser
from sweep.catalog import CatalogEntry
from sweep.config import Backend, SweepConfig
from sweep.env import default_machine_label
from sweep.errors import EnvironmentProblem
from sweep.fleet import CONNECT_TIMEOUT_S, FleetTask, resource_names
from sweep.measure import measure_model
from sweep.paths import cache_dir
from sweep.prepare import prepare
from sweep.runtime import ensure_core
from sweep.scratch import scratch_prefix
from sweep.sources import FetchOptions, ModelCache
from sweep.store import dump_record

if TYPE_CHECKING:
    from distributed import Worker

log = logging.getLogger(__name__)

_ATTRIBUTE = "litertjs_sweep"
"""Where a Dask worker holds its measurer: tasks have no other way to it."""


class Measurer:
    """Keeps a bench open for as long as tasks ask for the same core and configuration."""

    def __init__(self, choice: BrowserChoice, machine_label: str, *, headed: bool) -> None:
        self._choice = choice
        self._label = machine_label
        self._headed = headed
        self._held = contextlib.AsyncExitStack()
        self._bench: Bench | None = None
        self._alone = asyncio.Lock()

    async def close(self) -> None:
        """Ends browser and server."""
        self._bench = None
        await self._held.aclose()

    async def bench(self, config: SweepConfig) -> Bench:
        """A bench of this configuration; another is closed first.

        Raises:
            EnvironmentProblem: no core package, or no browser.
        """
        if self._bench is None or self._bench.config != config:
            await self.close()
            self._held = contextlib.AsyncExitStack()
            core = await ensure_core(config.core_version, cache_dir())
            self._bench = await self._held.enter_async_context(
                open_bench(
                    config, core, self._choice, machine_label=self._label, headed=self._headed
                )
            )
        return self._bench

    async def capabilities(self) -> tuple[str, ...]:
        """What this machine advertises, found out by opening a page."""
        core = await ensure_core("latest", cache_dir())
        bench = await self.bench(SweepConfig(core_version=core.version, desktop_reference=False))
        probe = await bench.probe()
        if probe.error is not None:
            raise EnvironmentProblem(
                f"This machine cannot sweep: {probe.error.message}. Run `litertjs-sweep doctor`."
            )
        env = bench.environment(probe)
        backends: list[Backend] = ["wasm_xnnpack"]
        if env.adapter_class != "none":
            backends.append("webgpu_mldrift")
        return resource_names(
            backends=backends,
            adapter_class=env.adapter_class,
            os=env.os,
            machine_label=self._label,
        )

    async def measure(self, task: FleetTask) -> bytes:
        """The record of a task's model, as the bytes of its file.

        Raises:
            EnvironmentProblem: this machine cannot sweep any more.
        """
        async with self._alone:
            bench = await self.bench(task.config)
            with (
                tempfile.TemporaryDirectory(prefix=scratch_prefix()) as name,
                ModelCache() as cache,
            ):
                folder = Path(name)
                entry = await asyncio.to_thread(unpack, task, folder)
                prepared = await prepare(entry, folder, task.config, cache, FetchOptions.from_env())
                record = await measure_model(bench, prepared, task.date)
        return dump_record(record.model_copy(update={"source": task.entry.source}))


def unpack(task: FleetTask, folder: Path) -> CatalogEntry:
    """Writes a task's files under names of our own; the entry that names them so."""
    names: dict[str, str] = {}
    for number, (name, content) in enumerate(sorted(task.files.items())):
        # The suffix tells images from arrays; nothing else of a foreign name is used.
        suffix = "".join(c for c in Path(name).suffix if c.isalnum())[:10]
        names[name] = f"file-{number}.{suffix}"
        (folder / names[name]).write_bytes(content)
    entry = task.entry
    rules = {
        key: rule.model_copy(update={"file": names[rule.file]}) if rule.file else rule
        for key, rule in entry.inputs.items()
    }
    source = str(folder / names[entry.source]) if entry.source in names else entry.source
    return entry.model_copy(update={"source": source, "inputs": rules})


async def run_task(task: dict[str, Any]) -> bytes:
    """What the scheduler runs on a worker. A machine that cannot sweep any more leaves the fleet,
    so that it does not fail the models of a whole catalog, one after the other."""
    from distributed import get_worker

    worker = get_worker()
    measurer: Measurer = getattr(worker, _ATTRIBUTE)
    try:
        return await measurer.measure(FleetTask.model_validate(task))
    except EnvironmentProblem as problem:
        log.error("leaving the fleet: %s", problem)
        setattr(worker, f"{_ATTRIBUTE}_problem", problem)
        worker.loop.add_callback(worker.close, reason="litertjs-sweep: cannot sweep any more")
        await asyncio.Event().wait()  # ends with the worker: the task then counts as lost
        raise AssertionError("unreachable") from problem


@contextlib.asynccontextmanager
async def fleet_worker(
    scheduler: str, *, machine_label: str | None, browser: Path | None, headed: bool
) -> AsyncIterator[Worker]:
    """A worker that has joined the fleet, and leaves it with the context.

    Raises:
        EnvironmentProblem: Dask is not installed, no scheduler answers, or nothing can be swept.
    """
    try:
        from distributed import Worker
    except ImportError as error:
        raise EnvironmentProblem(
            "A worker needs Dask: pip install 'litertjs-sweep[fleet]'."
        ) from error
    choice = await find_browser(browser, install=False)
    measurer = Measurer(choice, machine_label or default_machine_label(), headed=headed)
    with tempfile.TemporaryDirectory(prefix=scratch_prefix()) as folder:
        try:
            resources = await measurer.capabilities()
            worker = Worker(
                scheduler,
                nthreads=1,
                resources=dict.fromkeys(resources, 1.0),
                local_directory=folder,
                memory_limit=0,  # what is large is in the browser, and in files
                dashboard=False,
                death_timeout=CONNECT_TIMEOUT_S,
            )
            setattr(worker, _ATTRIBUTE, measurer)
            try:
                await worker
            except (OSError, TimeoutError, RuntimeError) as error:
                raise EnvironmentProblem(
                    f"No scheduler answers at {scheduler}. Start one with `dask scheduler`."
                ) from error
            log.info("joined %s as %s, offering %s", scheduler, worker.address, resources)
            try:
                yield worker
            finally:
                await worker.close(nanny=False)
        finally:
            await measurer.close()


async def run_worker(
    scheduler: str, *, machine_label: str | None, browser: Path | None, headed: bool
) -> None:
    """Works for a scheduler until that ends or this is interrupted.

    Raises:
        EnvironmentProblem: this machine cannot sweep, or cannot any more.
    """
    async with fleet_worker(
        scheduler, machine_label=machine_label, browser=browser, headed=headed
    ) as worker:
        await worker.finished()  # type: ignore[no-untyped-call]
        problem: EnvironmentProblem | None = getattr(worker, f"{_ATTRIBUTE}_problem", None)
        if problem is not None:
            raise problem

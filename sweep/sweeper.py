"""A whole sweep: find browser and core, open the bench, sweep, stop when asked to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.bench import Bench, open_bench
from sweep.browser import find_browser
from sweep.catalog import CatalogEntry
from sweep.config import SweepConfig
from sweep.env import default_machine_label
from sweep.errors import EnvironmentProblem, UsageError
from sweep.estimate import expected_seconds
from sweep.fleet import connect, sweep_fleet
from sweep.gate import MeasuringGate
from sweep.orchestrate import Event, SweepOutcome, sweep_models
from sweep.paths import cache_dir, data_dir
from sweep.runtime import ensure_core
from sweep.scratch import remove_stale
from sweep.sources import FetchOptions, ModelCache
from sweep.state import SweepAbout, keep_state
from sweep.store import sweep_lock

log = logging.getLogger(__name__)


async def run_sweep(
    config: SweepConfig,
    entries: Sequence[CatalogEntry],
    base_dir: Path,
    *,
    out: Path | None,
    date: str,
    browser: Path | None,
    machine_label: str | None,
    headed: bool,
    skip_existing: bool,
    require_hardware: bool,
    on_event: Callable[[Event], None],
    jobs: int = 1,
    endpoint: str | None = None,
) -> SweepOutcome:
    """Finds browser and core, opens the bench and sweeps, holding the store's lock.

    `endpoint`: of a Playwright server whose browser is used instead of one of this machine; then
    `machine_label` has to be given.
    `jobs`: browsers side by side; more than one only where nothing is timed.

    Raises:
        EnvironmentProblem: no browser, no core package, or only a software adapter where
            hardware was required.
        StoreError: another sweep holds the store, or it cannot be written.
        UsageError: several jobs, but timed runs.
    """
    if endpoint is not None and machine_label is None:
        raise UsageError("--browser-endpoint needs --machine-label: name the browser's machine.")
    if jobs > 1 and config.latency:
        raise UsageError("--jobs above 1 needs --no-latency: timed runs need the machine alone.")
    async with contextlib.AsyncExitStack() as held:
        stopping = held.enter_context(stop_on_signals())
        if out is not None:
            held.enter_context(sweep_lock(out))
        await asyncio.to_thread(remove_stale)
        core = await ensure_core(config.core_version, cache_dir())
        config = config.model_copy(update={"core_version": core.version})
        choice = await find_browser(browser, install=False) if endpoint is None else None
        label = machine_label or default_machine_label()
        gate = MeasuringGate()
        benches = [
            await held.enter_async_context(
                open_bench(
                    config,
                    core,
                    choice,
                    machine_label=label,
                    headed=headed,
                    gate=gate,
                    endpoint=endpoint,
                    far_executable=browser if endpoint else None,
                )
            )
            for _ in range(jobs)
        ]
        if require_hardware:
            await _require_hardware(benches[0])
        listeners = [on_event]
        if out is not None:
            about = SweepAbout(core_version=core.version, date=date, leg=config.leg.name)
            ids = tuple(entry.model_id for entry in entries)
            expected = await asyncio.to_thread(expected_seconds, out, ids, label, config)
            listeners.append(held.enter_context(keep_state(out, about, ids, expected)))

        def tell_all(event: Event) -> None:
            for listen in listeners:
                listen(event)

        stopping.begun = True
        return await sweep_models(
            benches,
            entries,
            base_dir,
            date=date,
            out=out,
            cache=held.enter_context(ModelCache()),
            fetch_options=FetchOptions.from_env(),
            skip_existing=skip_existing,
            on_event=tell_all,
            stop=stopping.event,
            rescue=data_dir() / "unwritten",
        )


async def run_fleet(
    config: SweepConfig,
    entries: Sequence[CatalogEntry],
    base_dir: Path,
    *,
    scheduler: str,
    needs: Sequence[str],
    out: Path,
    date: str,
    skip_existing: bool,
    on_event: Callable[[Event], None],
) -> SweepOutcome:
    """A sweep by the workers of a Dask scheduler, whose records are written here.

    Raises:
        EnvironmentProblem: no scheduler, no Dask here, or no core package.
        StoreError: another sweep holds the store.
    """
    with stop_on_signals() as stopping, sweep_lock(out):
        core = await ensure_core(config.core_version, cache_dir())
        config = config.model_copy(update={"core_version": core.version})
        async with connect(scheduler) as client:
            stopping.begun = True
            return await sweep_fleet(
                client,
                config,
                entries,
                base_dir,
                out=out,
                date=date,
                needs=needs,
                skip_existing=skip_existing,
                on_event=on_event,
                stop=stopping.event,
            )


async def _require_hardware(bench: Bench) -> None:
    probe = await bench.probe()
    found = bench.environment(probe).adapter_class
    if found != "hardware":
        raise EnvironmentProblem(
            f"Hardware was required, but the WebGPU adapter here is: {found or 'unknown'}. "
            "Run `litertjs-sweep doctor`, or sweep without --require-hardware."
        )


@dataclass
class Stopping:
    """What a signal has asked for."""

    event: asyncio.Event
    """Set: begin no further model."""
    begun: bool = False
    """There is a model that may be finished; before, a signal ends the run at once."""


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stopping]:
    """The first SIGINT or SIGTERM lets the running model finish; the second stops at once.

    Either way the task that is in the context cleans up behind itself: nothing outlives it.
    """
    stopping = Stopping(asyncio.Event())
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None

    def asked() -> None:
        if stopping.event.is_set() or not stopping.begun:
            task.cancel()
        else:
            log.warning("Stopping after the running model; once more stops at once.")
        stopping.event.set()

    handled = []
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows has no loop signal handlers
            loop.add_signal_handler(number, asked)
            handled.append(number)
    try:
        yield stopping
    finally:
        for number in handled:
            loop.remove_signal_handler(number)

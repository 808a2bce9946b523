"""A whole sweep: find browser and core, open the bench, sweep, stop when asked to."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sweep.bench import Bench, open_bench
from sweep.browser import find_browser
from sweep.catalog import CatalogEntry
from sweep.config import SweepConfig
from sweep.env import default_machine_label
from sweep.errors import EnvironmentProblem, UsageError
from sweep.gate import MeasuringGate
from sweep.orchestrate import Event, SweepOutcome, sweep_models
from sweep.paths import cache_dir
from sweep.runtime import ensure_core
from sweep.sources import FetchOptions, ModelCache
from sweep.store import sweep_lock


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
) -> SweepOutcome:
    """Finds browser and core, opens the bench and sweeps, holding the store's lock.

    `jobs` browsers work side by side; more than one only where nothing is timed.

    Raises:
        EnvironmentProblem: no browser, no core package, or only a software adapter where
            hardware was required.
        StoreError: another sweep holds the store, or it cannot be written.
        UsageError: several jobs, but timed runs.
    """
    if jobs > 1 and config.latency:
        raise UsageError("--jobs above 1 needs --no-latency: timed runs need the machine alone.")
    core = await ensure_core(config.core_version, cache_dir())
    config = config.model_copy(update={"core_version": core.version})
    choice = await find_browser(browser, install=False)
    gate = MeasuringGate()
    async with contextlib.AsyncExitStack() as held:
        if out is not None:
            held.enter_context(sweep_lock(out))
        benches = [
            await held.enter_async_context(
                open_bench(
                    config,
                    core,
                    choice,
                    machine_label=machine_label or default_machine_label(),
                    headed=headed,
                    gate=gate,
                )
            )
            for _ in range(jobs)
        ]
        if require_hardware:
            await _require_hardware(benches[0])
        stop = held.enter_context(stop_on_signals())
        return await sweep_models(
            benches,
            entries,
            base_dir,
            date=date,
            out=out,
            cache=held.enter_context(ModelCache()),
            fetch_options=FetchOptions.from_env(),
            skip_existing=skip_existing,
            on_event=on_event,
            stop=stop,
        )


async def _require_hardware(bench: Bench) -> None:
    probe = await bench.probe()
    found = bench.environment(probe).adapter_class
    if found != "hardware":
        raise EnvironmentProblem(
            f"Hardware was required, but the WebGPU adapter here is: {found or 'unknown'}. "
            "Run `litertjs-sweep doctor`, or sweep without --require-hardware."
        )


@contextlib.contextmanager
def stop_on_signals() -> Iterator[asyncio.Event]:
    """The first SIGINT or SIGTERM lets the running model finish; the second stops at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None

    def asked() -> None:
        if stop.is_set():
            task.cancel()
        stop.set()

    handled = []
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows has no loop signal handlers
            loop.add_signal_handler(number, asked)
            handled.append(number)
    try:
        yield stop
    finally:
        for number in handled:
            loop.remove_signal_handler(number)

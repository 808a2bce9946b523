"""What `run`, `model` and `evaluate` share: open the bench, sweep, stop when asked to."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from sweep.bench import Bench, open_bench
from sweep.browser import find_browser
from sweep.catalog import CatalogEntry
from sweep.config import SweepConfig
from sweep.env import default_machine_label
from sweep.errors import EnvironmentProblem, UsageError
from sweep.orchestrate import Event, SweepOutcome, not_measured, sweep_models
from sweep.paths import cache_dir
from sweep.record import Record
from sweep.runtime import ensure_core
from sweep.sources import FetchOptions, ModelCache
from sweep.store import sweep_lock

DONE, NOT_ALL_MEASURED, FAIL_ON = 0, 1, 4
"""Exit codes of a sweep; 2 and 3 come with the errors that cause them."""


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
) -> SweepOutcome:
    """Finds browser and core, opens the bench and sweeps, holding the store's lock.

    Raises:
        EnvironmentProblem: no browser, no core package, or only a software adapter where
            hardware was required.
        StoreError: another sweep holds the store, or it cannot be written.
    """
    core = await ensure_core(config.core_version, cache_dir())
    config = config.model_copy(update={"core_version": core.version})
    choice = await find_browser(browser, install=False)
    with contextlib.ExitStack() as held:
        if out is not None:
            held.enter_context(sweep_lock(out))
        async with open_bench(
            config,
            core,
            choice,
            machine_label=machine_label or default_machine_label(),
            headed=headed,
        ) as bench:
            if require_hardware:
                await _require_hardware(bench)
            with _stop_on_signals() as stop:
                return await sweep_models(
                    bench,
                    entries,
                    base_dir,
                    date=date,
                    out=out,
                    cache=ModelCache(),
                    fetch_options=FetchOptions(),
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
def _stop_on_signals() -> Iterator[asyncio.Event]:
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


def exit_code(outcome: SweepOutcome, fail_on: Sequence[str]) -> int:
    """0 done, 1 something could not be measured, 4 a --fail-on status was met."""
    statuses = {result.status for record in outcome.records for result in record.results}
    if statuses & set(fail_on):
        return FAIL_ON
    if outcome.stopped or any(not_measured(record) for record in outcome.records):
        return NOT_ALL_MEASURED
    return DONE


def today(date: str | None) -> str:
    """The sweep's date, checked.

    Raises:
        UsageError: not a date.
    """
    if date is None:
        return datetime.datetime.now().astimezone().date().isoformat()
    try:
        return datetime.date.fromisoformat(date).isoformat()
    except ValueError as error:
        raise UsageError(f"--date {date!r} is not a date: write it as YYYY-MM-DD.") from error


def model_id_of(source: str) -> str:
    """A model id from a source: the file's stem in the characters that ids may have."""
    stem = re.split(r"[/\\]", source.split("@")[0] if source.startswith("hf:") else source)[-1]
    stem = stem.removesuffix(".tflite").lower()
    slug = re.sub(r"[^a-z0-9._-]+", "-", stem).strip("-._")
    if not slug:
        raise UsageError(f"No model id can be made of the source {source!r}: rename the file.")
    return slug


def describe_environments(records: Sequence[Record], console: Console) -> None:
    """One line per distinct environment of the records."""
    from sweep.views.table import describe_environment

    seen = {describe_environment(result.env) for record in records for result in record.results}
    for line in sorted(seen):
        console.print(line, style="dim", highlight=False)

"""Memory of a long sweep, and of one with very large outputs.

    python -m benchmarks.bench_memory [--models 200] [--megabytes 256]

Printed is the orchestrator's own private resident memory, the wasm heap of the pages once their
model is unloaded, and the resident memory of the whole browser.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import tempfile
from pathlib import Path

import psutil

from benchmarks.common import TODAY, entries_of, opened, rss_mb, show_environment
from benchmarks.models import write_large_output, write_small_models
from sweep.bench import Bench
from sweep.orchestrate import Event, SweepOutcome, sweep_models
from sweep.sources import FetchOptions, ModelCache


def browser_mb() -> float:
    """Resident memory of all our child processes that are a browser's."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(arg.startswith("--type=") for arg in process.cmdline()):
                total += process.memory_info().rss
    return total / 1e6


def heaps(bench: Bench) -> str:
    """Wasm heap per backend, in MB."""
    sizes = [bench.session(backend).wasm_bytes or 0 for backend in bench.config.backends]
    return " + ".join(f"{size / 1e6:.0f}" for size in sizes)


async def _sweep(bench: Bench, paths: list[Path], out: Path, every: int) -> list[float]:
    """Sweeps and returns our memory after each model, in MB."""
    seen: list[float] = []

    def on_event(event: Event) -> None:
        if event.kind != "done":
            return
        seen.append(rss_mb())
        if len(seen) % every == 0:
            print(
                f"  after {len(seen):3} models: {seen[-1]:.0f} MB; wasm heaps {heaps(bench)} MB; "
                f"browser {browser_mb():.0f} MB",
                flush=True,
            )

    with ModelCache() as cache:
        outcome: SweepOutcome = await sweep_models(
            [bench], entries_of(paths), out, date=TODAY, out=out, cache=cache,
            fetch_options=FetchOptions(), on_event=on_event,
        )  # fmt: skip
    wrong = [r.reason for record in outcome.records for r in record.results if not r.runs]
    assert not wrong, wrong
    return seen


async def _peak(megabytes: int, task: asyncio.Task[list[float]]) -> None:
    peak = 0.0
    while not task.done():
        peak = max(peak, rss_mb())
        await asyncio.sleep(0.02)
    await task
    print(f"(e) peak with outputs of {megabytes} MB: {peak:.0f} MB (goal: < 400)")


async def run(folder: Path, models: int, megabytes: int) -> None:
    async with opened(latency=False) as bench:
        seen = await _sweep(bench, write_small_models(folder, models), folder / "a", models // 10)
        gc.collect()
        # The first models load code and fill caches once.
        start, end = min(seen[9:20]), seen[-1]
        print(f"(e) growth from model 10 to {models}: {end - start:.1f} MB (goal: < 10)")
        large = write_large_output(folder / "large.tflite", megabytes)
        task = asyncio.create_task(_sweep(bench, [large], folder / "b", 1))
        await _peak(megabytes, task)
        await _sweep(bench, write_small_models(folder, 2), folder / "c", 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--megabytes", type=int, default=256)
    options = parser.parse_args()
    show_environment()
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(run(Path(name), options.models, options.megabytes))


if __name__ == "__main__":
    main()

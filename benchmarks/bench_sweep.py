"""A sweep of small models: ours against the usual way, and what a job costs beyond computing.

    python -m benchmarks.bench_sweep [--models 30] [--blocks 3]

The sweeps take turns, a block of models at a time, so that whatever else the machine does meets
all. Each launches its browser once, inside the time counted. Ours runs the desktop reference and
two input sets as well, and writes records; the usual way does not. By default ours also takes
more than the ten timed runs asked for while they scatter; a third sweep takes ten, as the usual way
does.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from playwright.async_api import async_playwright

from benchmarks.common import TODAY, entries_of, opened, show_environment, spread
from benchmarks.models import write_small_models
from benchmarks.naive import launch_plain, naive_sweep
from sweep.bench import Bench
from sweep.orchestrate import sweep_models
from sweep.protocol import Job, Measurement
from sweep.session import PageSession
from sweep.sources import FetchOptions, ModelCache


def watch_jobs() -> list[tuple[str, bool, float, float]]:
    """From now on, jobs are listed: backend, fresh page, wall milliseconds, computing ones."""
    seen: list[tuple[str, bool, float, float]] = []
    run = PageSession.run

    async def watched(self: PageSession, job: Job) -> Measurement:
        began = time.perf_counter()
        done = await run(self, job)
        wall = (time.perf_counter() - began) * 1000
        seen.append((job.backend, done.fresh_page, wall, done.computing_ms))
        return done

    PageSession.run = watched  # type: ignore[method-assign]
    return seen


async def sweep(bench: Bench, paths: list[Path], out: Path) -> None:
    """Ours, with every default."""
    with ModelCache() as cache:
        outcome = await sweep_models(
            [bench], entries_of(paths), out, date=TODAY, out=out, cache=cache,
            fetch_options=FetchOptions(),
        )  # fmt: skip
    found = [r.status for record in outcome.records for r in record.results]
    assert found == ["pass"] * (2 * len(paths)), found


async def compare(folder: Path, models: int, blocks: int) -> None:
    paths = write_small_models(folder, models)
    ours, ten, naive = [], [], []
    jobs = watch_jobs()
    async with (
        opened() as bench,
        opened(target_half_width=0) as bench_of_ten,
        async_playwright() as playwright,
    ):
        browser = None
        for block in range(blocks):
            part = paths[block * models // blocks : (block + 1) * models // blocks]
            began = time.perf_counter()
            browser = browser or await launch_plain(playwright)
            await naive_sweep(bench, browser, part)
            naive.append(time.perf_counter() - began)
            began = time.perf_counter()
            await sweep(bench, part, folder / "records")
            ours.append(time.perf_counter() - began)
            began = time.perf_counter()
            await sweep(bench_of_ten, part, folder / "records-of-ten")
            ten.append(time.perf_counter() - began)
            print(
                f"  block {block}: naive {naive[-1]:.1f} s, ours {ours[-1]:.1f} s, "
                f"with exactly ten runs {ten[-1]:.1f} s",
                flush=True,
            )
        assert browser is not None
        await browser.close()
    print(f"(a) {models} small models, both backends (goal: ≥ 4)")
    for what, seconds in (("ours", ours), ("ours with exactly ten runs", ten)):
        line = f"    naive / {what} = {sum(naive) / sum(seconds):.1f}"
        warm = [n / s for n, s in zip(naive[1:], seconds[1:], strict=True)]
        print(line + (f"; without the first block {spread(warm)}" if warm else ""))
    _show_overhead(jobs)


def _show_overhead(jobs: list[tuple[str, bool, float, float]]) -> None:
    for backend in sorted({job[0] for job in jobs}):
        over = [w - c for b, fresh, w, c in jobs if b == backend and not fresh]
        print(f"(b) {backend}: ms per job beyond compiling and inferring: {spread(over)}")
    over = [w - c for _, fresh, w, c in jobs if not fresh]
    print(f"(b) median over all jobs: {statistics.median(over):.0f} ms (goal: ≤ 100)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=30)
    parser.add_argument("--blocks", type=int, default=3)
    options = parser.parse_args()
    show_environment()
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(compare(Path(name), options.models, options.blocks))


if __name__ == "__main__":
    main()

"""Is a model measured at its steady speed? With and without the browser flag that hastens it.

    python -m benchmarks.bench_warmup [--rounds 3]

Each round opens a browser with the flag and one without, and in each measures some models of the
starter catalog one after another in the same page, as a sweep does, and then runs each for two
seconds more. Printed is p50 as measured over p50 of the last quarter of these: 1 is right. They are
real models, since each has kernels that those before it have not, which is what it is about.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections import defaultdict

import sweep.browser
from benchmarks.common import opened, show_environment, spread
from sweep.bench import Bench
from sweep.catalog import load_catalog
from sweep.config import Backend
from sweep.measure import job_of
from sweep.paths import resource_dir
from sweep.prepare import Prepared, prepare
from sweep.protocol import Job, TimedRuns
from sweep.sources import FetchOptions, ModelCache

BACKEND: Backend = "wasm_xnnpack"
LONG = TimedRuns(
    floor_runs=1, min_runs=100_000, max_runs=100_000, batch=1, budget_ms=2000, extra_budget_ms=2000,
    relative_half_width=0,
)  # fmt: skip
MODELS = (
    "dummy_cv_model",
    "rnet",
    "face_detection_short_range",
    "hand_recrop",
    "selfie_segmentation",
)
CATALOG = resource_dir("configs") / "catalogs" / "starter.toml"


async def jobs_of(bench: Bench) -> list[Job]:
    jobs = []
    entries = {entry.model_id: entry for entry in load_catalog(CATALOG).entries}
    with ModelCache() as cache:
        for model_id in MODELS:
            ready = await prepare(
                entries[model_id], CATALOG.parent, bench.config, cache, FetchOptions.from_env()
            )
            assert isinstance(ready, Prepared)
            jobs.append(job_of(bench.config, ready, BACKEND))
    return jobs


async def samples(bench: Bench, job: Job) -> tuple[float, ...]:
    done = await bench.session(BACKEND).run(job)
    assert done.error is None, done.error
    return done.timings.samples_ms


async def measured_over_steady() -> dict[str, float]:
    """Model → p50 as a sweep measures it over its steady p50, in a browser of its own."""
    ratios = {}
    async with opened(desktop_reference=False, input_sets=1) as bench:
        for job in await jobs_of(bench):
            measured = statistics.median(await samples(bench, job))
            long = await samples(bench, job.model_copy(update={"timed": LONG}))
            ratios[job.model_id] = measured / statistics.median(long[-len(long) // 4 :])
    return ratios


async def run(rounds: int) -> None:
    steady = sweep.browser.STEADY
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(rounds):
        for name, flags in (("with the flag", steady), ("without it", ())):
            sweep.browser.STEADY = flags  # type: ignore[assignment]
            for model, ratio in (await measured_over_steady()).items():
                found[name][model].append(ratio)
    for name, models in found.items():
        every = [ratio for ratios in models.values() for ratio in ratios]
        print(f"{name}: measured / steady p50 = {spread(every)}")
        for model, ratios in models.items():
            print(f"  {model:26} {spread(ratios)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    show_environment()
    asyncio.run(run(options.rounds))


if __name__ == "__main__":
    main()

"""Whether latency measured in a reused page is that of a fresh page.

    python -m benchmarks.bench_reuse [--models 6] [--rounds 4] [--runs 15]

Each model is measured in turn in a page that has run all the others before, and in one opened for
it alone. The samples of either kind are pooled and held against each other as two releases would
be (`compare_latency`: significant and more than 5 %, or within noise). The same is done between
the fresh pages of even and of odd rounds, which shows how often the machine alone looks like a
difference.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.common import entries_of, opened, show_environment
from benchmarks.models import write_small_models
from sweep.bench import Bench
from sweep.config import Backend
from sweep.measure import job_of
from sweep.prepare import Prepared, prepare
from sweep.releases.statistics import compare_latency
from sweep.session import PageSession
from sweep.sources import FetchOptions, ModelCache

Samples = dict[tuple[str, Backend], list[list[float]]]


async def _samples(
    session: PageSession, bench: Bench, prepared: Prepared, backend: Backend, *, fresh: bool
) -> list[float]:
    measurement = await session.run(job_of(bench.config, prepared, backend))
    assert measurement.error is None, measurement.error
    assert measurement.fresh_page is fresh
    return list(measurement.timings.samples_ms)


async def run(folder: Path, models: int, rounds: int, runs: int) -> None:
    fields = {"timed_runs": runs, "target_half_width": 0, "desktop_reference": False}
    kept: Samples = collections.defaultdict(list)
    fresh: Samples = collections.defaultdict(list)
    async with opened(**fields) as bench, opened(**fields) as other:
        prepared: list[Prepared] = []
        with ModelCache() as cache:
            for entry in entries_of(write_small_models(folder, models)):
                ready = await prepare(entry, folder, bench.config, cache, FetchOptions())
                assert isinstance(ready, Prepared)
                prepared.append(ready)
        backends = bench.config.backends
        for backend in backends:  # opens the pages that are kept
            await bench.session(backend).run(job_of(bench.config, prepared[0], backend))
        for number in range(rounds):
            for model in prepared:
                for backend in backends:
                    key = model.entry.model_id, backend
                    # Which kind goes first changes from round to round.
                    for reused in (number % 2 == 0, number % 2 == 1):
                        if reused:
                            kept[key].append(
                                await _samples(
                                    bench.session(backend), bench, model, backend, fresh=False
                                )
                            )
                        else:
                            await other.recycle(backend)
                            fresh[key].append(
                                await _samples(
                                    other.session(backend), other, model, backend, fresh=True
                                )
                            )
            print(f"  round {number + 1} of {rounds}", flush=True)
    _judge(kept, fresh)


def _judge(kept: Samples, fresh: Samples) -> None:
    for backend in sorted({backend for _, backend in kept}):
        floors = [
            min(_pooled(kept[key])) / min(_pooled(fresh[key])) for key in kept if key[1] == backend
        ]
        ratios, verdicts, null = [], collections.Counter[str](), collections.Counter[str]()
        for key in kept:
            if key[1] != backend:
                continue
            change = compare_latency(_pooled(fresh[key]), _pooled(kept[key]))
            verdicts[change.verdict] += 1
            ratios.append(float(change.ratio or 1))
            alone = compare_latency(_pooled(fresh[key][::2]), _pooled(fresh[key][1::2]))
            null[alone.verdict] += 1
        mean = float(np.exp(np.mean(np.log(ratios))))
        print(
            f"(reuse) {backend}: reused / fresh = {mean:.3f} (geometric mean; single models "
            f"{min(ratios):.3f} … {max(ratios):.3f}), {dict(verdicts)}; "
            f"fresh against fresh: {dict(null)}"
        )
        print(
            "        fastest sample, which other work on the machine disturbs least: "
            f"reused / fresh = {np.exp(np.mean(np.log(floors))):.3f} "
            f"({min(floors):.3f} … {max(floors):.3f})"
        )


def _pooled(rounds: list[list[float]]) -> list[float]:
    return [sample for samples in rounds for sample in samples]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    show_environment()
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(run(Path(name), options.models, options.rounds, options.runs))


if __name__ == "__main__":
    main()

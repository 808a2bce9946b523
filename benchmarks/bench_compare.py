"""Comparison throughput against plain numpy passes over the same two arrays.

    python -m benchmarks.bench_compare [--elements 16000000] [--rounds 9]

The passes take turns with the comparison. `compare_outputs` gives some twenty facts; the passes
give one.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from benchmarks.common import show_environment, spread
from sweep.compare import compare_outputs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=16_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    show_environment()
    rng = np.random.default_rng(0)
    rows = options.elements // 1000
    a = rng.standard_normal((rows, 1000)).astype(np.float32)
    b = a + rng.standard_normal(a.shape).astype(np.float32) * np.float32(1e-6)
    out = np.empty_like(a)
    works: dict[str, Callable[[], object]] = {
        "max |a − b|, whole arrays": lambda: np.abs(a - b).max(),
        "a − b into a buffer": lambda: np.subtract(a, b, out=out),
        "a.copy()": lambda: a.copy(),
        "compare_outputs": lambda: compare_outputs(a, b),
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(options.rounds):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            times[name].append((time.perf_counter() - began) * 1000)
    for name, values in times.items():
        rate = 2 * a.nbytes / statistics.median(values) / 1e6
        print(f"  {name:28} {spread(values)} ms, {rate:.1f} GB/s of input")
    ours = statistics.median(times.pop("compare_outputs"))
    for name, values in times.items():
        ratio = ours / statistics.median(values)
        goal = " (goal: ≤ 3)" if name.startswith("max") else ""
        print(f"(d) compare_outputs / ({name}) = {ratio:.2f}{goal}")


if __name__ == "__main__":
    main()

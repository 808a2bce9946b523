"""Latency figures from raw samples, and signs that they should be read with care."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import binom

from sweep.conditions import Conditions, noise_of
from sweep.protocol import Timings
from sweep.record import Latency

UNSTABLE_STDEV = 0.10
"""Standard deviation over mean from which samples are called unstable (pyperf's rule)."""
UNSTABLE_EXTREME = 0.50
"""Distance of the extremes from the median, over the median (pyperf's rule)."""


def median_ci(samples: Sequence[float], confidence: float = 0.99) -> tuple[float, float] | None:
    """Confidence interval of the median by binomial order statistics, without assumptions on the
    distribution; None where the samples are too few for it (below 8 at 99 %).

    The interval [x(k), x(n+1−k)] covers the median with probability 1 − 2·P(B(n, ½) < k); k is the
    largest that keeps the confidence (e.g. Conover, Practical Nonparametric Statistics, §3.2).
    """
    n = len(samples)
    k = int(binom.ppf((1 - confidence) / 2, n, 0.5))
    while k > 0 and 2 * binom.cdf(k - 1, n, 0.5) > 1 - confidence:
        k -= 1
    if k < 1:
        return None
    ordered = sorted(samples)
    return ordered[k - 1], ordered[n - k]


def summarise(
    timings: Timings, *, conditions: Conditions, cores: int | None, software: bool
) -> Latency:
    """The record's latency block of one measurement; all figures in milliseconds."""
    samples = np.asarray(timings.samples_ms, dtype=np.float64)
    interval = median_ci(timings.samples_ms)
    return Latency(
        samples_ms=timings.samples_ms,
        p50_ms=_figure(np.median(samples)) if samples.size else None,
        p90_ms=_figure(np.percentile(samples, 90)) if samples.size else None,
        min_ms=_figure(samples.min()) if samples.size else None,
        mean_ms=_figure(samples.mean()) if samples.size else None,
        stdev_ms=_figure(samples.std(ddof=1)) if samples.size > 1 else None,
        ci99_low_ms=interval[0] if interval else None,
        ci99_high_ms=interval[1] if interval else None,
        batch=timings.batch,
        warmup_ms=timings.warmup_ms,
        extra_warmup_runs=timings.extra_warmup_runs,
        first_run_ms=timings.first_run_ms,
        compile_ms=timings.compile_ms,
        fetch_ms=timings.fetch_ms,
        init_ms=timings.init_ms,
        load_average=conditions.load_average,
        conditions=conditions,
        noise=_noise(samples, conditions, cores, software=software),
    )


def _figure(value: np.floating) -> float:
    return round(float(value), 4)


def _noise(
    samples: np.ndarray, conditions: Conditions, cores: int | None, *, software: bool
) -> tuple[str, ...]:
    found = []
    if software:
        found.append("software adapter: says nothing of a GPU")
    found += noise_of(conditions, cores)
    if samples.size > 1:
        median = float(np.median(samples))
        if samples.std(ddof=1) >= UNSTABLE_STDEV * samples.mean():
            found.append("samples spread widely (standard deviation ≥ 10 % of the mean)")
        if median > 0 and samples.max() - median >= UNSTABLE_EXTREME * median:
            found.append("a sample lies more than 50 % above the median")
    return tuple(found)

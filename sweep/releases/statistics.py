"""Latency changes, judged by the samples.

Two runs of one model are called different only if both hold:

- *significance*: a two-sided Mann-Whitney U test gives p < 0.002. It compares ranks and assumes no
  distribution. The bound is the one that airspeed-velocity uses; 7 samples per side are the fewest
  that can pass it, 8 are asked for here.
- *effect*: the typical ratio new/old is off 1 by more than 5 %. Samples of one session share their
  page, their heat and their neighbours, so two sessions of the very same thing can differ by a few
  percent with a p-value as small as one likes. The test cannot see that; the threshold allows for
  it.

The typical ratio is the Hodges-Lehmann estimate on logarithms (the median of all pairwise ratios),
its interval the inversion of the same test (Hollander, Wolfe and Chicken, *Nonparametric
Statistical Methods*, §4.2-4.3).

Two things that timed runs do are allowed for. A *stall* (a sample more than 50 % above its side's
median, the bound of pyperf) is left out, a fifth of a side at most and never below 8 samples, since
one or two of them would hide a slowdown that every other sample shows; their number is reported.
Samples that visibly *depend* on their predecessors (heating up, throttling) are worth fewer
independent ones, and the test is weakened accordingly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sweep.config import Frozen
from sweep.latency import median_ci

__all__ = ["LatencyChange", "compare_latency", "median_ci"]

MIN_SAMPLES = 8
SIGNIFICANCE = 0.002
EFFECT = 0.05
STALL = 1.5
MOST_STALLS = 0.2
INTERVAL = 0.99

LatencyVerdict = Literal["slower", "faster", "within_noise", "not_comparable"]


class LatencyChange(Frozen):
    """The comparison of two sets of latency samples; None: was not computed."""

    verdict: LatencyVerdict
    reason: str
    """One sentence with the numbers."""
    old_median_ms: float | None = None
    new_median_ms: float | None = None
    ratio: float | None = None
    """Typical new/old; above 1 is slower."""
    ratio_low: float | None = None
    """99 % confidence interval of the ratio, for independent samples."""
    ratio_high: float | None = None
    p_value: float | None = None
    cliffs_delta: float | None = None
    """P(new > old) − P(new < old): 1 when every new sample is slower than every old one."""
    old_samples: int = 0
    new_samples: int = 0
    old_stalls: int = 0
    """Samples left out because they stalled; `*_samples` counts them, the median too."""
    new_stalls: int = 0
    dependent: bool = False
    """Samples of one side depend on their predecessors; the p-value allows for it."""


def compare_latency(
    old: Sequence[float], new: Sequence[float], *, effect: float = EFFECT
) -> LatencyChange:
    """Judge whether `new` is slower or faster than `old`.

    Args:
        old, new: samples in milliseconds, in the order in which they were taken.
        effect: smallest |ratio − 1| that counts as a change.

    Returns:
        `not_comparable` with fewer than 8 samples on a side, or where a sample is not a positive
        finite number (below the clock's resolution); otherwise `slower`, `faster`, `within_noise`.
    """
    before, after = np.asarray(old, dtype=np.float64), np.asarray(new, dtype=np.float64)
    counts: dict[str, Any] = {"old_samples": before.size, "new_samples": after.size}
    if min(before.size, after.size) < MIN_SAMPLES:
        return LatencyChange(
            verdict="not_comparable",
            reason=f"too few samples: {before.size} and {after.size}, {MIN_SAMPLES} are needed",
            **counts,
        )
    both = np.concatenate([before, after])
    if not (np.isfinite(both).all() and (both > 0).all()):
        return LatencyChange(
            verdict="not_comparable",
            reason="a sample is not a positive number: shorter than the clock can tell",
            **counts,
        )
    old_kept, new_kept = _without_stalls(before), _without_stalls(after)
    p_value, delta, dependent = _mann_whitney(old_kept, new_kept)
    ratio, low, high = _typical_ratio(old_kept, new_kept)
    changed = p_value < SIGNIFICANCE and abs(ratio - 1) > effect
    verdict: LatencyVerdict = "within_noise" if not changed else "slower" if ratio > 1 else "faster"
    return LatencyChange(
        verdict=verdict,
        reason=_reason(verdict, ratio, low, high, p_value, effect, dependent),
        old_median_ms=float(np.median(before)),
        new_median_ms=float(np.median(after)),
        ratio=ratio,
        ratio_low=low,
        ratio_high=high,
        p_value=p_value,
        cliffs_delta=delta,
        dependent=dependent,
        old_stalls=before.size - old_kept.size,
        new_stalls=after.size - new_kept.size,
        **counts,
    )


def _without_stalls(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """The samples in their order without stalls; all of them where stalls are no exception."""
    kept = samples[samples <= STALL * np.median(samples)]
    least = max(MIN_SAMPLES, samples.size * (1 - MOST_STALLS))
    return kept if kept.size >= least else samples


def _mann_whitney(old: NDArray[np.float64], new: NDArray[np.float64]) -> tuple[float, float, bool]:
    """(p, Cliff's delta, whether dependence within a side was seen and allowed for)."""
    if (old[0] == np.concatenate([old, new])).all():
        return 1.0, 0.0, False
    test = stats.mannwhitneyu(new, old, alternative="two-sided")
    pairs = old.size * new.size
    delta = 2 * float(test.statistic) / pairs - 1
    share = min(_independent_share(old), _independent_share(new))
    if share >= 1:
        return float(test.pvalue), delta, False
    # n dependent samples carry the information of n·share independent ones, and z grows as √n.
    z = float(stats.norm.isf(float(test.pvalue) / 2)) * np.sqrt(share)
    return float(2 * stats.norm.sf(z)), delta, True


def _independent_share(samples: NDArray[np.float64]) -> float:
    """Effective over nominal sample size, (1 − r)/(1 + r) for lag-1 rank autocorrelation r.

    1 unless r is beyond what independent samples show by chance (2/√n, Bartlett).
    """
    ranks = stats.rankdata(samples) - (samples.size + 1) / 2
    total = float(ranks @ ranks)
    if total == 0:
        return 1.0
    r = float(ranks[1:] @ ranks[:-1]) / total
    return (1 - r) / (1 + r) if r > 2 / np.sqrt(samples.size) else 1.0


def _typical_ratio(
    old: NDArray[np.float64], new: NDArray[np.float64]
) -> tuple[float, float, float]:
    """Hodges-Lehmann ratio new/old and its 99 % interval by inverting the Mann-Whitney test."""
    shifts = np.sort(np.subtract.outer(np.log(new), np.log(old)).ravel())
    n, m = old.size, new.size
    z = float(stats.norm.isf((1 - INTERVAL) / 2))
    rank = max(int(np.floor(n * m / 2 - z * np.sqrt(n * m * (n + m + 1) / 12))), 1)
    low, high = shifts[rank - 1], shifts[n * m - rank]
    return float(np.exp(np.median(shifts))), float(np.exp(low)), float(np.exp(high))


def _reason(
    verdict: LatencyVerdict,
    ratio: float,
    low: float,
    high: float,
    p_value: float,
    effect: float,
    dependent: bool,
) -> str:
    numbers = f"×{ratio:.3f} (99 % interval {low:.3f} to {high:.3f}), p = {p_value:.2g}"
    if dependent:
        numbers += ", allowing for samples that depend on their predecessors"
    if verdict != "within_noise":
        return f"{verdict}: {numbers}"
    why = (
        "not significant" if p_value >= SIGNIFICANCE else f"below the {100 * effect:g} % that count"
    )
    return f"within noise ({why}): {numbers}"

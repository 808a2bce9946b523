from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sweep.releases.statistics import MIN_SAMPLES, compare_latency, median_ci
from sweep.store import StoredRecord, iter_records

Samples = NDArray[np.float64]


def noisy(draw: np.random.Generator, count: int = 10, center: float = 20.0) -> Samples:
    """Like a page's timed runs: right-skewed, neighbours a little alike, now and then a stall."""
    shared = draw.normal(0, 0.02, count)
    for i in range(1, count):
        shared[i] += 0.3 * shared[i - 1]
    samples: Samples = center * np.exp(shared) * (1 + draw.gamma(1.5, 0.02, count))
    samples[draw.random(count) < 0.05] *= 1.8
    return samples.round(4)


def verdicts(factor: float, pairs: int = 200) -> list[str]:
    draw = np.random.default_rng(7)
    return [
        compare_latency(list(noisy(draw)), list(noisy(draw) * factor)).verdict for _ in range(pairs)
    ]


def test_thirty_percent_is_found_and_one_is_not() -> None:
    assert verdicts(1.3).count("slower") >= 190
    assert verdicts(1 / 1.3).count("faster") >= 190
    # The test's own error is 0.2 %; these samples depend on their neighbours a little.
    assert verdicts(1.01).count("within_noise") >= 198
    assert verdicts(1.0).count("within_noise") >= 198
    draw = np.random.default_rng(1)
    for _ in range(50):  # the same samples, moved: here the size of the change is exactly known
        samples = list(noisy(draw))
        assert compare_latency(samples, [s * 1.01 for s in samples]).verdict == "within_noise"


def test_real_samples_of_committed_sweeps() -> None:
    data = Path(__file__).parents[1] / "data" / "sweep"
    kept = [
        (one.record.model_id, result.backend, list(result.latency.samples_ms))
        for one in iter_records(data)
        if isinstance(one, StoredRecord)
        for result in one.record.results
        if result.latency and len(result.latency.samples_ms) >= MIN_SAMPLES
    ]
    if not kept:
        pytest.skip(f"no sweep with samples in {data}")
    for model_id, backend, samples in kept:
        spread = np.subtract(*np.percentile(samples, [75, 25])) / np.median(samples)
        one = compare_latency(samples, [s * 1.01 for s in samples])
        assert one.verdict == "within_noise", (model_id, backend, one.reason)
        if spread < 0.1:  # where the samples themselves vary by less than what is to be found
            thirty = compare_latency(samples, [s * 1.3 for s in samples])
            assert thirty.verdict == "slower", (model_id, backend, thirty.reason)


def test_the_numbers() -> None:
    old = [10.0, 11, 12, 13, 14, 15, 16, 17]
    change = compare_latency(old, [2 * s for s in old])
    assert change.old_median_ms == 13.5
    assert change.new_median_ms == 27
    assert change.ratio == pytest.approx(2)
    assert change.ratio_low is not None
    assert change.ratio_high is not None
    assert 1 < change.ratio_low < 2 < change.ratio_high < 3.4
    assert change.cliffs_delta == 1
    assert (change.old_samples, change.new_samples) == (8, 8)
    back = compare_latency([2 * s for s in old], old)
    assert (back.verdict, back.cliffs_delta) == ("faster", -1)
    assert back.ratio == pytest.approx(0.5)


def test_stalls_neither_make_nor_hide_a_slowdown() -> None:
    draw = np.random.default_rng(3)
    old, new = draw.normal(20, 0.2, 10), draw.normal(20, 0.2, 10)
    new[[2, 6]] = 400
    same = compare_latency(list(old), list(new))
    assert (same.verdict, same.old_stalls, same.new_stalls) == ("within_noise", 0, 2)
    slowed = compare_latency(list(new), list(old * 1.3))
    assert (slowed.verdict, slowed.old_stalls, slowed.new_stalls) == ("slower", 2, 0)
    new[[0, 1]] = 400  # four of ten are no exception: nothing is left out
    assert compare_latency(list(old), list(new)).new_stalls == 0
    assert compare_latency(list(old[:8]), [20.0] * 7 + [400]).new_stalls == 0


def test_significant_but_small_is_within_noise() -> None:
    draw = np.random.default_rng(3)
    old, new = draw.normal(20, 0.02, 50), draw.normal(20.6, 0.02, 50)
    change = compare_latency(list(old), list(new))
    assert change.p_value is not None
    assert change.p_value < 1e-9
    assert change.verdict == "within_noise"
    assert "below the 5 %" in change.reason
    assert compare_latency(list(old), list(new), effect=0.02).verdict == "slower"


def test_large_but_not_significant_is_within_noise() -> None:
    old = [10.0, 30, 12, 28, 11, 31, 9, 29, 10, 30]
    new = [30.0, 14, 33, 12, 30, 13, 34, 11, 35, 36]
    change = compare_latency(old, new)
    assert change.ratio is not None
    assert change.ratio > 1.05
    assert change.verdict == "within_noise"
    assert "not significant" in change.reason


def test_drifting_samples_are_worth_fewer() -> None:
    steady = [20.0 + 0.1 * (i % 3) for i in range(12)]
    drifting = [19.9 + 0.45 * i for i in range(12)]
    shuffled = [drifting[i] for i in (5, 0, 9, 3, 11, 1, 8, 4, 10, 2, 7, 6)]
    drift, mixed = compare_latency(steady, drifting), compare_latency(steady, shuffled)
    assert drift.cliffs_delta == mixed.cliffs_delta
    assert (drift.dependent, mixed.dependent) == (True, False)
    assert drift.p_value is not None
    assert mixed.p_value is not None
    assert drift.p_value > 10 * mixed.p_value


def test_eight_samples_are_needed_and_suffice() -> None:
    few = compare_latency([10.0] * 7, [20.0] * 50)
    assert (few.verdict, few.ratio) == ("not_comparable", None)
    assert "too few samples: 7 and 50" in few.reason
    enough = compare_latency([10.0 + i / 9 for i in range(8)], [20.0 + i / 9 for i in range(8)])
    assert enough.verdict == "slower"


def test_what_the_clock_cannot_tell_is_not_compared() -> None:
    assert compare_latency([0.0] * 8, [0.1] * 8).verdict == "not_comparable"
    assert compare_latency([0.1] * 8, [0.1] * 8).verdict == "within_noise"


def test_median_interval_is_that_of_order_statistics() -> None:
    assert median_ci([float(i) for i in range(1, 9)]) == (1, 8)
    assert median_ci([float(i) for i in range(7)]) is None

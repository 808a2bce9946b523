"""`compare_outputs` against a one-shot float64 implementation, and its corners by hand."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sweep.compare import OutputComparison, compare_outputs
from sweep.model import Quantization

Array = np.ndarray[Any, Any]


def one_shot(m: Array, r: Array, abs_: float = 1e-5, rel: float = 1e-3) -> dict[str, Any]:
    """The facts by their definitions, float64, whole arrays; for finite values."""
    o, s = m.astype(np.float64).ravel(), r.astype(np.float64).ravel()
    e = np.abs(o - s)
    rms = math.sqrt(np.mean(s * s))
    return {
        "max_abs": e.max(),
        "mean_abs": e.mean(),
        "rmse": math.sqrt(np.mean(e * e)),
        "max_rel": (e / np.maximum(np.abs(s), 1e-9)).max(),
        "nrmse": math.sqrt(np.mean(e * e)) / rms if rms else (None if e.any() else 0.0),
        "strict_outside": int(np.sum(e > np.maximum(abs_, rel * np.abs(s)))),
        "differing": int(np.sum(o != s)),
        "max_scaled": (e / np.maximum(np.abs(s), rms)).max() if rms else None,
    }


def agree(facts: OutputComparison, expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        got = getattr(facts, name)
        if value is None or isinstance(value, int):
            assert got == value, name
        else:
            loose = name in ("mean_abs", "rmse", "nrmse", "max_scaled")
            # The 1.0 numbers are float64 to the last bit, the others to float32 sums.
            assert got == pytest.approx(value, rel=1e-4 if loose else 0, abs=1e-30), name


finite32 = st.floats(-1e4, 1e4, width=32)
pairs = hnp.array_shapes(max_dims=4, max_side=5).flatmap(
    lambda shape: st.tuples(
        hnp.arrays(np.float32, shape, elements=finite32),
        hnp.arrays(np.float32, shape, elements=finite32),
    )
)


@given(pairs)
@settings(deadline=None)
def test_float32_equals_the_definitions(pair: tuple[Array, Array]) -> None:
    agree(compare_outputs(*pair), one_shot(*pair))


@given(pairs, st.integers(1, 9))
@settings(deadline=None)
def test_facts_do_not_depend_on_the_chunk_size(pair: tuple[Array, Array], size: int) -> None:
    whole, cut = compare_outputs(*pair), compare_outputs(*pair, chunk_elements=size)
    for name in ("max_abs", "max_rel", "strict_outside", "worst", "differing", "identical",
                 "gross_outside", "measured", "reference"):  # fmt: skip
        a, b = getattr(whole, name), getattr(cut, name)
        if name in ("measured", "reference"):
            a, b = a.model_copy(update={"rms": 0.0}), b.model_copy(update={"rms": 0.0})
        assert a == b, name
    for name in ("nrmse", "mean_abs", "max_scaled", "cosine"):
        a, b = getattr(whole, name), getattr(cut, name)
        assert (a is None and b is None) or a == pytest.approx(b, rel=1e-4, abs=1e-5), name
    assert sum(whole.log_error_histogram) == sum(cut.log_error_histogram) == whole.elements
    assert {b.index: b.max_abs for b in whole.batch} == {b.index: b.max_abs for b in cut.batch}


@given(hnp.arrays(np.int8, (4, 6)), hnp.arrays(np.int8, (4, 6)), st.integers(-128, 127))
@settings(deadline=None)
def test_quantized_ratios_are_of_real_values(m: Array, r: Array, zero: int) -> None:
    q = Quantization(scale=(0.25,), zero_point=(zero,))
    facts = compare_outputs(m, r, quantization=q)
    stored = one_shot(m, r)
    real = one_shot((m.astype(int) - zero) * 0.25, (r.astype(int) - zero) * 0.25)
    agree(facts, {k: stored[k] for k in ("max_abs", "rmse", "max_rel", "strict_outside")})
    agree(facts, {k: real[k] for k in ("nrmse", "max_scaled", "differing")})
    assert facts.lsb_max == stored["max_abs"]


@pytest.mark.parametrize("size", [1e-9, 1e-6, 1e-3, 1.0])
@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e25])
def test_small_errors_of_any_magnitude(size: float, scale: float) -> None:
    rng = np.random.default_rng(1)
    r = rng.standard_normal((3, 200_001)).astype(np.float64)
    r = (r * scale).astype(np.float32)
    m = (r * (1 + size * rng.standard_normal(r.shape))).astype(np.float32)
    expected = one_shot(m, r)
    facts = compare_outputs(m, r)
    agree(facts, {k: expected[k] for k in ("max_abs", "max_rel", "strict_outside")})
    assert facts.nrmse == pytest.approx(expected["nrmse"], rel=1e-3)


def test_pearson_where_the_mean_dwarfs_the_deviation() -> None:
    rng = np.random.default_rng(2)
    wave = rng.standard_normal(300_000)
    r = (1e4 + wave).astype(np.float32)
    m = (1e4 + 0.5 * wave + 0.5 * rng.standard_normal(wave.size)).astype(np.float32) * 2
    expected = np.corrcoef(m.astype(np.float64), r.astype(np.float64))[0, 1]
    facts = compare_outputs(m, r)
    assert facts.pearson == pytest.approx(expected, abs=1e-4)
    assert facts.cosine == pytest.approx(1.0, abs=1e-6)  # cosine alone would have hidden it


def test_strict_rule_decides_in_float64_at_its_edge() -> None:
    r = np.array([1.0, 1.0], np.float32)
    inside = np.float32(1.001)  # 0.0010000467 in float64: outside
    m = np.array([inside, np.nextafter(inside, np.float32(0))], np.float32)
    expected = int(np.sum(np.abs(m.astype(float) - 1.0) > 1e-3))
    assert expected == 1
    assert compare_outputs(m, r).strict_outside == 1


def test_snr_and_histogram_by_hand() -> None:
    r = np.ones(5, np.float32)
    m = np.array([1, 1 + 2**-20, 1.05, 3, 21], np.float32)
    facts = compare_outputs(m, r)
    e = np.abs(m.astype(float) - 1)
    assert facts.snr_db == pytest.approx(10 * math.log10(5 / np.sum(e * e)), rel=1e-6)
    # 0 · 9.5e-7 → [1e-7,1e-6) · 0.05 → [1e-2,1e-1) · 2 → [1,10) · 20 → >=10
    assert facts.log_error_histogram == (1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 1)
    assert facts.worst is not None
    assert facts.worst.index == (4,)


def test_zeros_never_look_fine() -> None:
    zero, some = np.zeros((2, 3), np.float32), np.full((2, 3), 1e-6, np.float32)
    against_zero = compare_outputs(some, zero)
    assert against_zero.nrmse is None
    assert against_zero.max_rel == pytest.approx(1e3)
    assert against_zero.reference.all_zero
    assert against_zero.gross_outside == 6
    assert [b.nrmse for b in against_zero.batch] == [None, None]
    zeros = compare_outputs(zero, some)
    assert zeros.nrmse == pytest.approx(1.0)
    assert zeros.measured.all_zero
    assert compare_outputs(zero, zero.copy()).nrmse == 0.0


def test_non_finite_values() -> None:
    nan, inf = np.nan, np.inf
    r = np.array([1, nan, inf, -inf, 2], np.float32)
    same = compare_outputs(r.copy(), r)
    assert same.identical
    assert not same.nonfinite_positions_differ
    assert same.strict_match is None
    assert same.strict_outside is None
    assert (same.max_abs, same.finite_pairs, same.differing) == (0.0, 2, 0)
    assert (same.reference.nan, same.reference.pos_inf, same.reference.neg_inf) == (1, 1, 1)
    for m in ([1, inf, inf, -inf, 2], [1, nan, -inf, -inf, 2], [nan, nan, inf, -inf, 2]):
        other = compare_outputs(np.array(m, np.float32), r)
        assert other.nonfinite_positions_differ
        assert other.differing == 1
    allnan = compare_outputs(np.full(3, nan, np.float32), np.full(3, nan, np.float32))
    assert (allnan.problem, allnan.finite_pairs, allnan.max_abs) == (None, 0, None)
    assert not allnan.nonfinite_positions_differ
    gone = compare_outputs(np.full(3, nan, np.float32), np.ones(3, np.float32))
    assert (gone.problem, gone.finite_pairs, gone.max_abs) == (None, 0, None)
    assert gone.nonfinite_positions_differ


def test_rows_with_non_finite_values_keep_their_index() -> None:
    r = np.ones((3, 4), np.float32)
    m = r.copy()
    m[0, 1] = np.nan
    m[2, 3] = 2
    facts = compare_outputs(m, r)
    assert facts.batch[0].index == 2
    assert facts.batch[0].nrmse == pytest.approx(0.5)
    assert facts.worst is not None
    assert facts.worst.index == (2, 3)


def test_batch_errors_are_the_worst_sixteen() -> None:
    r = np.ones((40, 7, 3), np.float32)
    m = r + (np.arange(40, dtype=np.float32) / 100)[:, None, None]
    for size in (5, 21, 1 << 16):
        batch = compare_outputs(m, r, chunk_elements=size).batch
        assert [b.index for b in batch] == list(range(39, 23, -1))
        assert batch[0].nrmse == pytest.approx(0.39, rel=1e-5)


def test_identical_is_of_bits() -> None:
    r = np.array([0.0, 1.0], np.float32)
    facts = compare_outputs(np.array([-0.0, 1.0], np.float32), r)
    assert (facts.identical, facts.differing, facts.max_abs) == (False, 0, 0.0)
    assert compare_outputs(r.copy(), r).identical
    big = np.array([2**60], np.int64)
    assert compare_outputs(big + 1, big).differing == 1  # float64 cannot tell them apart


def test_what_cannot_be_compared_says_why() -> None:
    r = np.ones((2, 3), np.float32)
    assert "shape [3, 2]" in str(compare_outputs(r.reshape(3, 2), r).problem)
    assert "dtype int32" in str(compare_outputs(r.astype(np.int32), r).problem)
    assert "no elements" in str(compare_outputs(r[:0], r[:0]).problem)
    assert compare_outputs(np.array([True]), np.array([1], np.uint8)).max_abs == 0.0


def test_scores() -> None:
    r = np.array([[0.1, 0.2, 0.3, 0.15, 0.05, 0.12, 0.08]], np.float32)
    m = r.copy()
    m[0, 2], m[0, 1] = 0.2, 0.3
    facts = compare_outputs(m, r)
    assert (facts.argmax_agree, facts.top5_overlap) == (False, 1.0)
    tie = r.copy()
    tie[0, 1] = 0.3
    assert compare_outputs(tie, r).argmax_agree  # a tie is not a disagreement
    m[0, 2] = 0.01
    assert compare_outputs(m, r).top5_overlap == pytest.approx(0.8)
    image = np.ones((1, 80, 80, 3), np.float32)
    assert compare_outputs(image, image.copy()).argmax_agree is None
    assert compare_outputs(image / 3, image / 3).argmax_agree is True


def test_memory_stays_bounded(tmp_path: Any) -> None:
    n = 8_000_000
    r = np.memmap(tmp_path / "r", np.float32, "w+", shape=(1, n))
    m = np.memmap(tmp_path / "m", np.float32, "w+", shape=(1, n))
    r[:] = 1
    m[:] = 1
    m[0, n - 1] = 3
    tracemalloc.start()
    facts = compare_outputs(m, r)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert facts.max_scaled == pytest.approx(2)
    assert facts.gross_outside == 1
    assert peak < 6e6

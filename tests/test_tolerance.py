"""Grades of outputs, from arrays whose faults are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sweep.compare import compare_outputs
from sweep.model import Quantization
from sweep.tolerance import (
    GUARD_RAILS,
    NoiseFloor,
    OutputJudgement,
    PrecisionInUse,
    judge_output,
    measure_floor,
)

Array = np.ndarray[Any, Any]


def judge(
    measured: Array,
    reference: Array,
    *,
    precision: PrecisionInUse = "fp32",
    floor: NoiseFloor | None = None,
    policy: Any = "calibrated",
    quantization: Quantization | None = None,
) -> OutputJudgement:
    facts = compare_outputs(measured, reference, quantization=quantization)
    return judge_output(
        facts,
        policy=policy,
        floor=floor,
        precision=precision,
        dtype=str(measured.dtype),
        quantized=quantization is not None,
    )


def noise_floor(nrmse: float, max_abs: float, precision: str = "fp32") -> NoiseFloor:
    return NoiseFloor(
        kernel_nrmse=nrmse, kernel_max_abs=max_abs, perturb_nrmse=None, perturb_max_abs=None,
        precision=precision,
    )  # fmt: skip


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("nrmse", "grade"),
    [(0, "exact"), (5e-6, "rounding"), (5e-4, "precision"), (5e-3, "divergent"), (2, "broken")],
)
def test_grades_by_size_of_the_error(nrmse: float, grade: str) -> None:
    r = normal(10_000)
    m = r + np.float32(nrmse) * normal(10_000, seed=1)
    found = judge(m, r)
    assert found.grade == grade
    assert found.match is (grade not in ("divergent", "broken"))
    assert found.threshold_nrmse == 1e-3


def test_a_noisy_reference_widens_the_threshold_up_to_a_cap() -> None:
    r = normal(10_000)
    m = r + np.float32(8e-3) * normal(10_000, seed=1)
    assert judge(m, r).grade == "divergent"
    found = judge(m, r, floor=noise_floor(1e-3, 5e-3))
    assert (found.grade, found.threshold_nrmse) == ("precision", 1e-2)
    wild = noise_floor(1.0, 10.0)
    assert judge(m, r, floor=wild).threshold_nrmse == 0.05
    assert judge(r + np.float32(0.06) * normal(10_000, seed=1), r, floor=wild).grade == "divergent"


@pytest.mark.parametrize("precision", ["fp32", "fp16", "quantized"])
@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e-8, 1e-5, 1.0])
def test_zeros_are_no_rounding_of_values(precision: PrecisionInUse, scale: float) -> None:
    """However small the reference is, unless its arithmetic may flush it."""
    r = (normal(100) * scale).astype(np.float32)
    flushed = precision == "fp16" and scale < 1e-7
    found = judge(np.zeros_like(r), r, precision=precision)
    assert found.grade == ("rounding" if flushed else "broken")


def test_subnormal_numbers_may_be_flushed() -> None:
    r = np.full(10, 1e-39, np.float32)
    assert judge(np.zeros_like(r), r).grade == "rounding"
    r[0] = 2e-38
    assert judge(np.zeros_like(r), r).grade == "broken"


@pytest.mark.parametrize("precision", ["fp32", "fp16", "quantized"])
def test_the_absolute_floor_is_for_residuals(precision: PrecisionInUse) -> None:
    zero = np.zeros(100, np.float32)
    residual = np.full(100, 9e-8, np.float32)
    assert judge(residual, zero, precision=precision).grade == "rounding"
    assert judge(2 * residual, zero, precision=precision).grade == "broken"
    # Unrelated, but both below the floor; one of them above it; related, above it.
    small, other = 2e-8 * normal(100), 2e-8 * normal(100, seed=1)
    assert judge(small, other, precision=precision).grade == "rounding"
    assert judge(small, 3 * other, precision=precision).grade == "broken"
    real = 1e-7 * normal(100)
    assert judge(real + small, real, precision=precision).grade == "rounding"
    # A softmax over 100,000 classes is no residual: its values are what it gives.
    scores = (np.abs(normal(100_000)) / 1e5).astype(np.float32)
    assert judge(scores[::-1].copy(), scores, precision=precision).grade == "broken"


@pytest.mark.parametrize("off", [0.11, 0.15, 0.2, 0.6])
def test_one_wrong_element_in_a_million(off: float) -> None:
    """Not excused by a noisy floor, nor by large values elsewhere."""
    r = normal(1_000_000)
    r[7], r[8] = 0.3, 200.0
    m = r.copy()
    m[7] += np.float32(off)
    for floor in (None, noise_floor(1e-5, 1.0), noise_floor(1e-2, 100.0)):
        found = judge(m, r, floor=floor)
        assert found.grade == "divergent", off
        assert "an element is off" in found.reason
    m = r.copy()
    m[8] *= np.float32(1.004)  # by 0.8: within the share of its own size
    assert judge(m, r).grade == "precision"


def test_a_floor_may_double_an_elements_share() -> None:
    r = normal(1_000_000)
    m = r.copy()
    m[7] = r[7] + np.float32(0.07)
    m[8] = r[8] + np.float32(0.02)
    assert judge(m, r).grade == "divergent"
    assert judge(m, r, floor=noise_floor(1e-5, 5e-3)).grade == "divergent"
    assert judge(m, r, floor=noise_floor(1e-5, 2e-2)).grade in ("rounding", "precision")


def test_a_small_channel_that_is_all_wrong() -> None:
    r = normal(1, 32, 32, 8)
    r[..., 5] *= np.float32(1e-4)
    noisy = r + np.float32(1e-6) * normal(*r.shape, seed=1)
    assert judge(noisy, r).grade == "rounding"
    for fault in (-1, 0, 2):
        m = noisy.copy()
        m[..., 5] *= fault
        found = judge(m, r, floor=noise_floor(1e-7, 1e-6))
        assert found.grade == "divergent", fault
        assert "channel 5 of axis 3" in found.reason
    nchw, wrong = (np.ascontiguousarray(np.moveaxis(a, 3, 1)) for a in (r, m))
    assert "channel 5 of axis 1" in judge(wrong, nchw).reason
    # Of the same signal, a channel that is lost in everyone's noise is not held against it.
    for size in (3e-5, 3e-4):
        m = r + np.float32(size) * normal(*r.shape, seed=1)
        assert judge(m, r).grade == "precision"
    # Nor is one that the reference's own kernels lose.
    m = noisy.copy()
    m[..., 5] *= -1
    assert judge(m, r, floor=noise_floor(1e-5, 4e-4)).grade == "precision"
    # Nor what is noise beside the output at the precision in use.
    assert judge(m, r, precision="fp16").grade == "rounding"


def test_channels_of_a_large_output_are_sampled() -> None:
    r = normal(2, 200, 300, 7)
    r[..., 3] *= np.float32(1e-4)
    m = r.copy()
    m[..., 3] *= -1
    facts = compare_outputs(m, r)
    assert [(c.axis, c.index) for c in facts.lost_channels] == [(3, 3)]
    (lost,) = facts.lost_channels
    assert lost.signal == pytest.approx(1e-4, rel=0.02)
    assert lost.error == pytest.approx(2 * lost.signal)
    assert lost.others == 0
    assert compare_outputs(m, r) == facts


def test_labels_may_tie() -> None:
    r = np.random.default_rng(0).integers(0, 21, (1, 50, 40)).astype(np.int32)
    m = r.copy()
    m[0, 0, :2] = 20 - m[0, 0, :2] + (m[0, 0, :2] == 10)
    assert judge(m, r).grade == "precision"  # 2 of 2000
    m[0, 1, 0] += 1
    assert judge(m, r).grade == "divergent"  # 3 of 2000
    few, off = r[0, :24], r[0, :24].copy()
    off[0, 0] += 1
    assert judge(off, few).grade == "divergent"  # 1 of 960: below a thousand
    assert judge(few.copy(), few).grade == "exact"
    # The reference's own kernels move them as far.
    assert judge(off, few, floor=noise_floor(1e-2, 1)).grade == "precision"
    mask = r > 10
    flipped = mask.copy()
    flipped[0, 0, 0] ^= True
    assert judge(flipped, mask).grade == "precision"


@pytest.mark.parametrize("steps", [1, 2, 3, 6, 200])
def test_quantized_integers_are_judged_in_steps(steps: int) -> None:
    q = Quantization(scale=(1 / 256,), zero_point=(0,))
    r = np.random.default_rng(0).integers(0, 50, (1, 1000)).astype(np.uint8)
    m = r.copy()
    m[0, 3] += np.uint8(steps)
    unknown, still, moves = (
        judge(m, r, quantization=q, floor=f, precision="quantized")
        for f in (None, noise_floor(0, 0, "quantized"), noise_floor(1e-2, 50, "quantized"))
    )
    expected = {1: "rounding"}
    assert unknown.grade == expected.get(steps, "precision" if steps == 2 else "divergent")
    assert still.grade == expected.get(steps, "divergent")
    assert moves.grade == expected.get(steps, "precision" if steps <= 5 else "divergent")


def test_dynamic_range_int8_against_dequantized_floats() -> None:
    """One side rounds activations to int8 per row, the other multiplies floats."""
    x, w = normal(64, 256), normal(256, 100, seed=1)
    scale = np.abs(w).max(axis=0) / 127
    weights = np.rint(w / scale)
    floats = x @ (weights * scale).astype(np.float32)
    step = np.abs(x).max(axis=1, keepdims=True) / 127
    integers = (np.rint(x / step) @ weights * step * scale).astype(np.float32)
    facts = compare_outputs(floats, integers)
    assert facts.nrmse is not None
    assert 1e-3 < facts.nrmse < 5e-2
    assert facts.strict_match is False
    assert judge(floats, integers, precision="quantized").grade == "precision"
    assert judge(floats, integers).grade == "divergent"  # as fp32 it would be a fault
    assert judge(1.06 * floats, integers, precision="quantized").grade == "divergent"
    assert judge(-floats, integers, precision="quantized").grade == "broken"


def test_values_that_are_not_finite() -> None:
    nan, r = np.full(5, np.nan, np.float32), np.ones(5, np.float32)
    assert judge(nan.copy(), nan).grade == "exact"
    other = nan.copy()
    other.view(np.uint32)[0] = 0xFFC00001  # NaN of other bits
    assert judge(other, nan).grade == "exact"
    assert judge(nan, r).grade == "broken"
    assert judge(r, nan).grade == "broken"
    inf = np.array([np.inf, -np.inf], np.float32)
    assert judge(-inf, inf).grade == "broken"
    some, wrong = r.copy(), r.copy()
    some[2] = wrong[2] = np.nan
    wrong[0] = 2
    assert judge(some.copy(), some).grade == "exact"
    assert judge(wrong, some).grade == "divergent"  # the finite ones decide
    for policy in ("strict", "calibrated"):
        assert judge(nan.copy(), nan, policy=policy).match


def test_what_cannot_be_compared_is_broken() -> None:
    found = judge(np.ones((2, 3), np.float32), np.ones((3, 2), np.float32))
    assert (found.grade, found.match) == ("broken", False)
    assert "shape [2, 3]" in found.reason


def test_the_strict_policy_is_the_element_rule() -> None:
    r = np.array([600.0, 1e-12], np.float32)
    m = np.array([600.0, 5e-5], np.float32)  # pose landmarks: healthy, and outside 1e-5/1e-3
    calibrated, strict = judge(m, r), judge(m, r, policy="strict")
    assert (calibrated.grade, calibrated.match) == ("rounding", True)
    assert (strict.grade, strict.match) == ("divergent", False)
    assert strict.reason.startswith("1 of 2 elements outside the strict rule")
    tiny = np.full(4, 1e-6, np.float32)
    assert judge(2 * tiny, tiny, policy="strict").match
    assert not judge(2 * tiny, tiny).match


def test_floor_is_what_the_reference_moves_by() -> None:
    r = normal(1000)
    floor = measure_floor(r, r * np.float32(1.5), r + np.float32(0.25), "fp16")
    assert floor.kernel_nrmse == pytest.approx(0.5, rel=1e-5)
    assert floor.kernel_max_abs == pytest.approx(np.abs(r).max() / 2, rel=1e-5)
    assert floor.perturb_max_abs == pytest.approx(0.25, rel=1e-5)
    assert floor.precision == "fp16"
    none = measure_floor(r, None, None, "fp32")
    assert (none.kernel_nrmse, none.perturb_max_abs) == (None, None)


def test_rails_are_ordered() -> None:
    rails = [GUARD_RAILS[p] for p in ("fp32", "fp16", "quantized")]
    for name in ("nrmse", "cap", "element", "channel"):
        values = [getattr(rail, name) for rail in rails]
        assert values == sorted(values), name
    assert all(rail.rounding < rail.nrmse < rail.cap for rail in rails)


def test_integer_kernels_excuse_what_differs_no_more_than_they_do() -> None:
    """An int8 detector's scores on noise: one or two steps, as XNNPACK and builtin differ."""
    rng = np.random.default_rng(3)
    r = rng.choice([0.0, 0.0156], (1, 20_000), p=[0.998, 0.002]).astype(np.float32)
    r += rng.choice([0.0, 0.0078], r.shape, p=[0.9, 0.1]).astype(np.float32)
    o = r + rng.choice([0.0, 0.0078, -0.0078], r.shape, p=[0.98, 0.01, 0.01]).astype(np.float32)
    facts = compare_outputs(o, r)
    assert facts.nrmse is not None
    assert facts.nrmse > 0.15
    assert judge(o, r, precision="quantized").grade == "divergent"
    as_far = noise_floor(facts.nrmse * 0.98, 0.0078, "quantized")
    assert judge(o, r, precision="quantized", floor=as_far).grade == "precision"
    nearer = noise_floor(facts.nrmse * 0.7, 0.0078, "quantized")
    assert judge(o, r, precision="quantized", floor=nearer).grade == "divergent"
    unrelated = rng.permutation(r.reshape(-1)).reshape(r.shape)
    wide = noise_floor(2.0, 0.1, "quantized")
    assert judge(unrelated, r, precision="quantized", floor=wide).grade in ("divergent", "broken")

"""Each pattern is found where it was made, on top of rounding, and none in noise."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweep.patterns import LARGEST, ErrorPattern, describe_error

Array = np.ndarray[Any, Any]

SHAPES = [(100,), (1, 12), (1, 256), (7, 33), (1, 16, 16, 3), (2, 5, 8, 8), (1, 20_000), (64, 1, 9)]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def image(*shape: int) -> Array:
    """Smooth along every axis, positive: neighbours are alike, as in feature maps."""
    waves = [np.sin(np.arange(n) * (0.3 + 0.1 * a) + a) for a, n in enumerate(shape)]
    total = sum(np.meshgrid(*waves, indexing="ij"), np.zeros(shape))
    return (total + 4).astype(np.float32)


def describe(measured: Array, reference: Array) -> ErrorPattern:
    """With the rounding that any other device adds."""
    jitter = 1 + 1e-6 * normal(*measured.shape, seed=9)
    return describe_error((measured * jitter).astype(np.float32), reference)


@pytest.mark.parametrize("make", [normal, image])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1e-7, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 0.1, 1.0, 10.0, 1e3])
def test_noise_of_any_size_is_none(make: Any, shape: tuple[int, ...], size: float) -> None:
    r = make(*shape)
    for seed in range(1, 6):
        noise = np.float32(size) * normal(*shape, seed=seed)
        assert describe_error(r + noise, r).kind == "none"
        assert describe_error(r * (1 + noise), r).kind == "none"


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e3])
@pytest.mark.parametrize("shape", SHAPES)
def test_unrelated_values_are_none(shape: tuple[int, ...], scale: float) -> None:
    """Small ones are no scaled reference, and the same distribution is no permutation."""
    for seed in range(1, 6):
        o = np.float32(scale) * normal(*shape, seed=seed)
        assert describe_error(o, normal(*shape)).kind == "none"
        assert describe_error(o, normal(*shape) + 100).kind == "none"
        if scale >= 1e-3:  # below that it is a constant
            assert describe_error(o + 50, normal(*shape) + 100).kind == "none"


def test_heavy_tailed_and_sparse_noise_is_none() -> None:
    rng = np.random.default_rng(0)
    r = normal(1, 64, 64, 8)
    wild = np.float32(1e-4) * np.asarray(rng.standard_cauchy(r.shape), np.float32)
    assert describe_error(r + wild, r).kind == "none"
    hits = r.copy()
    hits.reshape(-1)[rng.integers(0, r.size, 12)] += 3
    assert describe_error(hits, r).kind == "none"
    steps = rng.integers(0, 255, (1, 500)).astype(np.uint8)
    moved = steps.copy()
    moved[0, ::50] += (moved[0, ::50] < 255).astype(np.uint8)
    assert describe_error(moved, steps).kind == "none"  # a step here and there


def test_the_same_million_of_another_draw_is_no_permutation() -> None:
    assert describe_error(normal(1, LARGEST, seed=1), normal(1, LARGEST)).kind == "none"


def test_zeros_constant_nan() -> None:
    r = normal(4, 25)
    zeros = describe_error(np.zeros_like(r), r)
    assert zeros.kind == "zeros"
    assert zeros.evidence.startswith("all 100 values are zero; the reference's RMS is 0.9")
    assert describe_error(np.full_like(r, 0.25), r).evidence == "all 100 values are 0.25"
    assert describe_error(np.full_like(r, 0.25), r).kind == "constant"
    m = r.copy()
    m[1, 3] = np.nan
    assert (describe_error(m, r).kind, describe_error(r, m).kind) == ("nan", "none")
    assert describe_error(m.copy(), m).kind == "none"
    assert describe_error(r.copy(), r).kind == "none"
    assert describe_error(np.zeros_like(r), np.zeros_like(r)).kind == "none"
    assert describe_error(r.T.copy(), r).kind == "none"
    assert describe_error(np.array(1.0), np.array(2.0)).kind == "none"


@pytest.mark.parametrize("make", [normal, image])
def test_scaled_offset_saturated(make: Any) -> None:
    r = make(1, 8, 8, 4)
    scaled = describe(-0.5 * r, r)
    assert scaled.kind == "scaled"
    assert scaled.factor == pytest.approx(-0.5, rel=1e-4)
    offset = describe(r + 3, r)
    assert offset.kind == "offset"
    assert offset.factor == pytest.approx(3, rel=1e-3)
    low, high = np.quantile(r, [0.1, 0.8])
    clipped = describe(np.clip(r, low, high), r)
    assert clipped.kind == "saturated"
    assert "30" in clipped.evidence or "29" in clipped.evidence


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_only_some_indices_of_an_axis(axis: int) -> None:
    r = normal(5, 12, 10, 6)
    m = np.moveaxis(r.copy(), axis, 0)
    m[[1, 3 if axis == 1 else 1]] = normal(*m[:2].shape, seed=1)
    found = describe(np.moveaxis(m, 0, axis), r)
    assert (found.kind, found.axis) == ("slice_only", axis)
    assert found.indices == ((1, 3) if axis == 1 else (1,))
    assert f"of {r.shape[axis]} indices of axis {axis}" in found.evidence


def test_one_wrong_element_of_a_vector() -> None:
    r = normal(1, 40)
    m = r.copy()
    m[0, 17] += 2
    found = describe(m, r)
    assert (found.kind, found.axis, found.indices) == ("slice_only", 1, (17,))


@pytest.mark.parametrize(("axis", "shift"), [(1, 1), (1, -2), (2, 3), (3, 1)])
def test_shifted(axis: int, shift: int) -> None:
    """As PAD does that moves rows; what moves in is zero or what moved out."""
    r = normal(1, 12, 14, 5)
    rolled = np.roll(r, shift, axis)
    filled = np.moveaxis(rolled.copy(), axis, 0)
    filled[:shift] = 0 if shift > 0 else filled[:shift]
    for m in (rolled, np.moveaxis(filled, 0, axis)):
        found = describe(m, r)
        assert (found.kind, found.axis, found.indices) == ("shifted", axis, (shift,))


def test_broadcast() -> None:
    r = normal(6, 3, 20)
    m = np.broadcast_to(r[:1], r.shape).copy()
    assert (describe_error(m, r).kind, describe_error(m, r).axis) == ("broadcast", 0)
    m = np.broadcast_to(r[:, :, :1], r.shape).copy()
    assert (describe_error(m, r).kind, describe_error(m, r).axis) == ("broadcast", 2)


@pytest.mark.parametrize("make", [normal, image])
@pytest.mark.parametrize("shape", [(1, 6, 7, 4), (2, 8, 8, 3), (1, 5, 5, 5)])
def test_nhwc_and_nchw_taken_for_each_other(make: Any, shape: tuple[int, ...]) -> None:
    r = make(*shape)
    if shape[1] == shape[3]:  # a cube: smooth along all axes it must not be alike when turned
        r = r * np.arange(1, 6, dtype=np.float32)
    n, h, w, c = shape
    written = r.transpose(0, 3, 1, 2).reshape(shape)
    found = describe(written, r)
    assert (found.kind, found.permutation, found.inverse) == ("permuted", (0, 3, 1, 2), False)
    assert "transposed by [0, 3, 1, 2], read in memory order" in found.evidence
    read = r.reshape(n, c, h, w).transpose(0, 2, 3, 1)
    found = describe(read, r)
    assert found.kind == "permuted"
    assert found.permutation is not None
    a, b = (read, r) if found.inverse else (r, read)
    assert np.array_equal(np.transpose(a, found.permutation).reshape(shape), b)


def test_transposed_and_reordered() -> None:
    r = normal(1, 9, 13)
    found = describe(r.transpose(0, 2, 1).reshape(r.shape), r)
    assert (found.kind, found.permutation) == ("permuted", (0, 2, 1))
    shuffled = np.random.default_rng(1).permutation(r.reshape(-1)).reshape(r.shape)
    found = describe_error(shuffled, r)
    assert (found.kind, found.permutation) == ("permuted", None)
    r = normal(2, 3, 4, 5, 6)
    found = describe(r.transpose(1, 4, 0, 3, 2).reshape(r.shape), r)
    assert (found.kind, found.permutation) == ("permuted", (1, 4, 0, 3, 2))


def test_large_arrays_cost_bounded_time_and_memory(tmp_path: Path) -> None:
    shape = (3, 1000, 1000, 5)
    r, m = (np.memmap(tmp_path / name, np.float32, "w+", shape=shape) for name in "rm")
    r[:] = normal(1000, 1000, 5)
    m[:] = r
    m[2] = r[2] * 2
    tracemalloc.start()
    started = time.perf_counter()
    found = describe_error(m, r)
    took = time.perf_counter() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found.kind, found.axis, found.indices) == ("slice_only", 0, (2,))
    assert peak < 100e6
    m[:] = -r
    m[0] = 4 * r[0]
    found = describe_error(m, r)
    assert found.kind == "scaled"
    assert found.factor == pytest.approx(4)
    assert "(in indices 0 … 0 of axis 0" in found.evidence
    assert took < 30


def test_large_noise_is_none_within_bounds() -> None:
    r = normal(1, 2000, 1000, 3)
    m = normal(1, 2000, 1000, 3, seed=1)
    tracemalloc.start()
    assert describe_error(m, r).kind == "none"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 250e6

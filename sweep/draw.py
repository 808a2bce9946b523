"""Drawing an input's values: only raw 64-bit draws and exact arithmetic.

Neither numpy's distributions (which may change between its versions) nor the machine's math
library have a say, so the bytes are the same everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sweep.semantics import MASKED, Recipe

Array = np.ndarray[Any, Any]

CHUNK = 1 << 20
"""Elements drawn at a time."""


def draw(recipe: Recipe, shape: tuple[int, ...], dtype: np.dtype[Any], key: int) -> Array:
    """One input.

    Values vary wherever the recipe allows two of them: no array of two or more elements is
    constant, and a single number is not zero.

    Args:
        recipe: not of kind `none`.
        shape: of the result.
        dtype: of the result; floats are computed in float64 and rounded once.
        key: seeds PCG64.
    """
    result = np.empty(shape, dtype)
    flat = result.reshape(-1)
    if recipe.kind == "fixed":
        assert recipe.values is not None
        values = recipe.values.reshape(-1)
        flat[:] = values if values.size == flat.size else values[:1]
        return result
    stream = np.random.PCG64(key)
    if recipe.kind == "ramp":
        length = shape[-1]
        room = max(int(recipe.high) + 2 - length, 1)
        start = int(_integers(stream, 1, 0, room - 1)[0])
        result[...] = (start + np.arange(length)) % (int(recipe.high) + 1)
        return result
    if recipe.kind == "starts":
        assert recipe.values is not None
        for place, highest in enumerate(recipe.values.reshape(-1).tolist()):
            flat[place] = _integers(stream, 1, 0, highest)[0]
        return result
    for begin in range(0, flat.size, CHUNK):
        part = flat[begin : begin + CHUNK]
        part[:] = _values(recipe, stream, part.size)
    if recipe.kind in ("binary", "additive"):
        shown, hidden = (1.0, 0.0) if recipe.kind == "binary" else (0.0, MASKED)
        _show_both(result, shown, hidden)
    elif recipe.kind == "integer":
        _vary(flat, int(recipe.low), int(recipe.high))
    return result


def _values(recipe: Recipe, stream: np.random.PCG64, size: int) -> Array:
    match recipe.kind:
        case "normal":
            # Irwin–Hall: twelve uniforms less six have mean 0 and variance 1, without any libm.
            total = np.full(size, -6.0)
            for _ in range(12):
                total += _units(stream, size)
            return total
        case "binary":
            return stream.random_raw(size) >> np.uint64(63)
        case "additive":
            hidden = (stream.random_raw(size) >> np.uint64(62)) == 0  # one in four
            return np.where(hidden, MASKED, 0.0)
        case "integer":
            return _integers(stream, size, int(recipe.low), int(recipe.high))
        case _:
            # A narrower type may round up to the upper end: no harm.
            return recipe.low + (recipe.high - recipe.low) * _units(stream, size)


def _integers(stream: np.random.PCG64, size: int, low: int, high: int) -> Array:
    """Uniform in low..high, by multiply-and-shift; of wider ranges, the lowest 2³² values."""
    span = min(high - low + 1, 2**32)
    raw = stream.random_raw(size) >> np.uint64(32)
    return ((raw * np.uint64(span)) >> np.uint64(32)).astype(np.int64) + low


def _units(stream: np.random.PCG64, size: int) -> Array:
    """Uniform in (0, 1): odd multiples of 2⁻²⁵, so that 2u − 1 is never 0 and fits float32."""
    top = (stream.random_raw(size) >> np.uint64(40)).astype(np.float64)
    return (top * 2.0 + 1.0) * 2.0**-25


def _show_both(array: Array, shown: float, hidden: float) -> None:
    """Puts both values of a mask in every row.

    A row that hides everything leaves a softmax with differences of rounding only; a mask without
    a hidden element tests nothing. A single element is shown.
    """
    axis = next((a for a in range(array.ndim - 1, -1, -1) if array.shape[a] > 1), None)
    if axis is None:
        array[...] = shown
        return
    rows = np.moveaxis(array, axis, -1)
    rows[..., 0] = shown
    rows[..., 1] = hidden


def _vary(flat: Array, low: int, high: int) -> None:
    """No constant array, no single zero, where low..high allows."""
    if low == high or not flat.size:
        return
    if flat.size == 1:
        if flat[0] == 0:
            flat[0] = high or low
    elif (flat == flat[0]).all():
        flat[-1] = low if flat[0] != low else high

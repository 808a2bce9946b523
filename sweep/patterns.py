"""What kind of wrong: the simplest transformation that explains an output's error."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from sweep.config import Frozen

PatternKind = Literal[
    "zeros", "constant", "nan", "scaled", "offset", "saturated", "shifted", "slice_only",
    "permuted", "broadcast", "none",
]  # fmt: skip

EXPLAINED = 1e-2
"""Share of the error's energy that may be left over when a pattern is said to explain it."""
RIGHT = 1e-3
"""Error over RMS below which a slice counts as right."""
LARGEST = 4_000_000
"""Elements beyond which transformations are tried on the first batch item only."""

Array = np.ndarray[Any, Any]


class ErrorPattern(Frozen):
    """The pattern and the evidence for it."""

    kind: PatternKind
    evidence: str
    """One sentence with the numbers."""
    axis: int | None = None
    indices: tuple[int, ...] = ()
    """Along `axis`: the wrong ones, or the shift."""
    factor: float | None = None
    """Of `scaled`; the distance of `offset`."""
    permutation: tuple[int, ...] | None = None
    """The reference under `np.transpose(…, permutation)`, read in memory order."""


def describe_error(measured: Array, reference: Array) -> ErrorPattern:
    """Names the simplest pattern that leaves at most a hundredth of the error's energy unexplained.

    Args:
        measured, reference: arrays of the same shape, any numeric dtype.

    Returns:
        `none` when no pattern does, or when there is no error.
    """
    if measured.shape != reference.shape or not measured.size:
        return _none("the arrays have different shapes, or are empty")
    if measured.size > LARGEST and measured.ndim > 1 and measured.shape[0] > 1:
        measured, reference = measured[:1], reference[:1]
    o, r = measured.astype(np.float64), reference.astype(np.float64)
    nan = int(np.count_nonzero(~np.isfinite(o)))
    if nan:
        if nan > int(np.count_nonzero(~np.isfinite(r))):
            return ErrorPattern(kind="nan", evidence=f"{nan} of {o.size} values are not finite")
        return _none("non-finite values on both sides")
    if not np.isfinite(r).all():
        return _none("the reference has non-finite values")
    energy = float(np.sum((o - r) ** 2))
    if energy == 0:
        return _none("there is no error")
    return (
        _flat(o, r)
        or _slices(o, r)
        or _affine(o, r, energy)
        or _saturated(o, r, energy)
        or _shifted(o, r, energy)
        or _broadcast(o, r)
        or _permuted(o, r, energy)
        or _none("no simple transformation of the reference explains it")
    )


def _none(evidence: str) -> ErrorPattern:
    return ErrorPattern(kind="none", evidence=evidence)


def _explains(guess: Array, o: Array, energy: float) -> bool:
    return float(np.sum((guess - o) ** 2)) <= EXPLAINED * energy


def _flat(o: Array, r: Array) -> ErrorPattern | None:
    if not o.any():
        return ErrorPattern(
            kind="zeros",
            evidence=f"all {o.size} values are zero; the reference's RMS is {_rms(r):.3g}",
        )
    if o.size > 1 and o.min() == o.max() and r.min() != r.max():
        return ErrorPattern(kind="constant", evidence=f"all {o.size} values are {o.flat[0]:.6g}")
    return None


def _affine(o: Array, r: Array, energy: float) -> ErrorPattern | None:
    """Least squares of one factor, and of one offset."""
    if o.size < 3:
        return None
    power = float(np.sum(r * r))
    if power > 0:
        factor = float(np.sum(o * r)) / power
        if _explains(factor * r, o, energy) and abs(factor) > 1e-6:
            return ErrorPattern(
                kind="scaled",
                factor=factor,
                evidence=f"the output is the reference times {factor:.6g} within "
                f"{_left(factor * r, o, energy):.2g} of the error's energy",
            )
    offset = float(np.mean(o - r))
    if _explains(r + offset, o, energy):
        return ErrorPattern(
            kind="offset",
            factor=offset,
            evidence=f"the output is the reference plus {offset:.6g} within "
            f"{_left(r + offset, o, energy):.2g} of the error's energy",
        )
    return None


def _saturated(o: Array, r: Array, energy: float) -> ErrorPattern | None:
    low, high = float(o.min()), float(o.max())
    if low <= r.min() and high >= r.max():
        return None
    if low < high and _explains(np.clip(r, low, high), o, energy):
        share = np.count_nonzero((r < low) | (r > high)) / r.size
        return ErrorPattern(
            kind="saturated",
            evidence=f"the output is the reference clipped to [{low:.6g}, {high:.6g}]; "
            f"{share:.1%} of the reference lies outside",
        )
    return None


def _slices(o: Array, r: Array) -> ErrorPattern | None:
    """Only some indices of one axis are wrong, fewer than half of them."""
    scale = _rms(r)
    best: tuple[int, Array] | None = None
    for axis, length in enumerate(o.shape):
        if length < 2:
            continue
        others = tuple(a for a in range(o.ndim) if a != axis)
        worst = np.max(np.abs(o - r), axis=others)
        wrong = np.flatnonzero(worst > RIGHT * scale)
        if 0 < wrong.size <= length // 2 and (
            best is None or wrong.size / length < best[1].size / o.shape[best[0]]
        ):
            best = axis, wrong
    if best is None:
        return None
    axis, wrong = best
    names = ", ".join(str(i) for i in wrong[:8]) + (" …" if wrong.size > 8 else "")
    return ErrorPattern(
        kind="slice_only",
        axis=axis,
        indices=tuple(int(i) for i in wrong[:64]),
        evidence=f"only {wrong.size} of {o.shape[axis]} indices of axis {axis} are wrong ({names})",
    )


def _shifted(o: Array, r: Array, energy: float) -> ErrorPattern | None:
    for axis, length in enumerate(o.shape):
        if length < 3:
            continue
        for shift in _candidate_shifts(o, r, axis):
            inner = _overlap(o, r, axis, shift)
            if inner is None:
                continue
            a, b = inner
            if a.size * 2 < o.size or not np.any(b - b.mean()):
                continue
            if float(np.sum((a - b) ** 2)) <= EXPLAINED * energy * a.size / o.size:
                return ErrorPattern(
                    kind="shifted",
                    axis=axis,
                    indices=(shift,),
                    evidence=f"the output is the reference moved by {shift} along axis {axis}",
                )
    return None


def _candidate_shifts(o: Array, r: Array, axis: int) -> list[int]:
    """The strongest peaks of the circular cross-correlation of the axis' profiles."""
    length = o.shape[axis]
    x = np.moveaxis(o, axis, -1).reshape(-1, length)[:4096]
    y = np.moveaxis(r, axis, -1).reshape(-1, length)[:4096]
    spectrum = np.fft.rfft(x, axis=-1) * np.conj(np.fft.rfft(y, axis=-1))
    correlation = np.fft.irfft(spectrum.sum(axis=0), n=length)
    order = np.argsort(-correlation)[:3]
    shifts = [int(s) if s <= length // 2 else int(s) - length for s in order]
    return [s for s in shifts if s != 0]


def _overlap(o: Array, r: Array, axis: int, shift: int) -> tuple[Array, Array] | None:
    length = o.shape[axis]
    if abs(shift) >= length:
        return None
    here = slice(max(shift, 0), length + min(shift, 0))
    there = slice(max(-shift, 0), length + min(-shift, 0))
    take = [slice(None)] * o.ndim
    take[axis] = here
    a = o[tuple(take)]
    take[axis] = there
    return a, r[tuple(take)]


def _broadcast(o: Array, r: Array) -> ErrorPattern | None:
    """One slice of the output repeated along an axis on which the reference varies."""
    for axis, length in enumerate(o.shape):
        if length < 2 or o.size == length:
            continue
        first = np.take(o, [0], axis=axis)
        if np.ptp(first) == 0 or not np.array_equal(np.broadcast_to(first, o.shape), o):
            continue
        if not np.allclose(np.take(r, [0], axis=axis), r, rtol=1e-3, atol=RIGHT * _rms(r)):
            return ErrorPattern(
                kind="broadcast",
                axis=axis,
                evidence=f"the first slice of axis {axis} is repeated over all {length} of them",
            )
    return None


def _permuted(o: Array, r: Array, energy: float) -> ErrorPattern | None:
    """The reference's values in another order, as a wrong layout would give."""
    if r.size < 4 or r.min() == r.max():
        return None
    for axes in _layouts(r.ndim):
        guess = np.transpose(r, axes).reshape(o.shape)
        if _explains(guess, o, energy):
            return ErrorPattern(
                kind="permuted",
                permutation=axes,
                evidence=f"the output is the reference transposed by {list(axes)}, read in "
                "memory order",
            )
    if r.size >= 8 and np.unique(r).size > r.size // 2:
        a, b = np.sort(o, axis=None), np.sort(r, axis=None)
        if float(np.sum((a - b) ** 2)) <= (RIGHT * _rms(r)) ** 2 * r.size:
            return ErrorPattern(
                kind="permuted", evidence="the output has the reference's values in another order"
            )
    return None


def _layouts(ndim: int) -> Iterator[tuple[int, ...]]:
    if not 2 <= ndim <= 5:
        return
    for axes in itertools.permutations(range(ndim)):
        if axes != tuple(range(ndim)):
            yield axes


def _rms(values: Array) -> float:
    return math.sqrt(float(np.mean(values * values)))


def _left(guess: Array, o: Array, energy: float) -> float:
    return float(np.sum((guess - o) ** 2)) / energy

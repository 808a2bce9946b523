"""What kind of wrong: the simplest transformation that explains an output's error.

Every kind needs more than little left over: the output must follow the reference's own variation,
or its slices must fall apart into right and wrong ones. Noise of any size is `none`; so is an
output that has nothing to do with the reference, unless it is zero or constant.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sweep.config import Frozen
from sweep.passes import Survey, survey

PatternKind = Literal[
    "zeros", "constant", "nan", "scaled", "offset", "saturated", "shifted", "slice_only",
    "permuted", "broadcast", "none",
]  # fmt: skip

EXPLAINED = 1e-2
"""Share of the error's energy that may be left over when a pattern is said to explain it."""
FOLLOWED = 0.1
"""Share of the output's variance that may be left over: a constant near its mean explains most of
the energy of an error, and nothing of the output."""
RIGHT = 1e-3
"""Error over RMS below which an element counts as right."""
GAP = 0.1
"""Largest error of a right slice over the smallest of a wrong one."""
MIN_ELEMENTS = 8
"""Below this chance explains as much as any pattern."""
LARGEST = 4_000_000
"""Elements beyond which transformations are tried on the part with the largest error only."""
BLOCK = 1 << 20
"""Elements looked at in one step."""
LONGEST_AXIS = 1 << 20

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
    """The output is the reference under `np.transpose(…, permutation)`, read in memory order, or
    (`inverse`) the reference is the output so transposed."""
    inverse: bool = False


def describe_error(measured: Array, reference: Array) -> ErrorPattern:
    """Names the simplest pattern that leaves at most a hundredth of the error's energy unexplained.

    Args:
        measured, reference: arrays of the same shape, any real dtype; may be `np.memmap`. Zeros,
            constants, non-finite values and wrong slices are looked for in all of it; beyond
            4,000,000 elements the transformations are tried on whole batch items, or on a block of
            the first axis, where the error is largest. At most some 200 MB are taken.

    Returns:
        `none` when no pattern does, or when there is no error.
    """
    if measured.shape != reference.shape or not measured.size:
        return _none("the arrays have different shapes, or are empty")
    measured, reference = (np.asarray(a, order="C").view(np.ndarray) for a in (measured, reference))
    with np.errstate(all="ignore"):
        side_o, side_r = survey(measured, BLOCK), survey(reference, BLOCK)
        return _non_finite(side_o, side_r) or _flat(side_o, side_r) or _of(measured, reference)


def _of(measured: Array, reference: Array) -> ErrorPattern:
    found = _slices(measured, reference)
    if found:
        return found
    o, r, where, whole = _worst_part(measured, reference)
    o, r = o.astype(np.float64), r.astype(np.float64)
    energy = float(np.sum((o - r) ** 2))
    if energy == 0:
        return _none("there is no error")
    if o.size < MIN_ELEMENTS:
        return _none("too few elements to tell a pattern from chance")
    found = (
        _affine(o, r, energy)
        or _saturated(o, r, energy)
        or _shifted(o, r, energy)
        or _broadcast(o, r)
        or (_permuted(o, r, energy) if whole else None)
        or _none("no simple transformation of the reference explains it")
    )
    return found.model_copy(update={"evidence": found.evidence + where}) if where else found


def _none(evidence: str) -> ErrorPattern:
    return ErrorPattern(kind="none", evidence=evidence)


def _explains(guess: Array, o: Array, energy: float) -> bool:
    left = float(np.sum((guess - o) ** 2))
    return left <= EXPLAINED * energy and left <= FOLLOWED * float(np.var(o)) * o.size


def _non_finite(o: Survey, r: Survey) -> ErrorPattern | None:
    nan = o.size - o.finite
    if nan > r.size - r.finite:
        return ErrorPattern(kind="nan", evidence=f"{nan} of {o.size} values are not finite")
    if nan:
        return _none("non-finite values on both sides")
    return _none("the reference has non-finite values") if r.finite < r.size else None


def _flat(o: Survey, r: Survey) -> ErrorPattern | None:
    if o.low == 0 == o.high and (r.low, r.high) != (0, 0):
        return ErrorPattern(
            kind="zeros",
            evidence=f"all {o.size} values are zero; the reference's RMS is {r.rms() or 0:.3g}",
        )
    if o.size > 1 and o.low == o.high and r.low != r.high:
        return ErrorPattern(kind="constant", evidence=f"all {o.size} values are {o.low:.6g}")
    return None


# --- large arrays, in steps


def _worst_part(o: Array, r: Array) -> tuple[Array, Array, str, bool]:
    """At most LARGEST elements, with where they were taken, and whether they are whole items."""
    taken: list[str] = []
    axis = 0
    while o.size > LARGEST:
        axis = next(a for a, length in enumerate(o.shape) if length > 1)
        length = o.shape[axis]
        step = max(1, LARGEST // (o.size // length))
        parts = [
            (slice(None),) * axis + (slice(start, start + step),)
            for start in range(0, length, step)
        ]
        worst = max(parts, key=lambda part: _energy(o[part], r[part]))
        o, r = o[worst], r[worst]
        taken.append(f"{worst[axis].start} … {worst[axis].stop - 1} of axis {axis}")
    if not taken:
        return o, r, "", True
    return o, r, f" (in indices {', '.join(taken)}, where the error is largest)", axis == 0


def _energy(o: Array, r: Array) -> float:
    o, r = o.reshape(-1), r.reshape(-1)
    return sum(
        float(np.sum((o[i : i + BLOCK].astype(np.float64) - r[i : i + BLOCK]) ** 2))
        for i in range(0, o.size, BLOCK)
    )


@dataclass
class _AxisErrors:
    """Per index of one axis: largest |error|, and how many elements are not right."""

    peak: Array
    wrong: Array


def _axis_errors(o: Array, r: Array, axis: int, right: float) -> _AxisErrors:
    length = o.shape[axis]
    shape = (math.prod(o.shape[:axis]), length, math.prod(o.shape[axis + 1 :]))
    o, r = o.reshape(shape), r.reshape(shape)
    found = _AxisErrors(np.zeros(length), np.zeros(length, np.int64))
    for part in _blocks(shape):
        error = np.abs(o[part].astype(np.float64) - r[part])
        span = part[1]
        np.maximum(found.peak[span], error.max(axis=(0, 2)), out=found.peak[span])
        found.wrong[span] += np.count_nonzero(error > right, axis=(0, 2))
    return found


def _blocks(shape: tuple[int, int, int]) -> Iterator[tuple[slice, slice, slice]]:
    """The whole of an array in parts of at most BLOCK elements."""
    first, length, last = shape
    thick = min(last, BLOCK)
    high = max(1, min(length, BLOCK // thick))
    deep = max(1, min(first, BLOCK // (thick * high)))
    for i in range(0, first, deep):
        for j in range(0, length, high):
            for k in range(0, last, thick):
                yield slice(i, i + deep), slice(j, j + high), slice(k, k + thick)


def _slices(o: Array, r: Array) -> ErrorPattern | None:
    """Only some indices of one axis are wrong, no more than half, and throughout."""
    if o.size < MIN_ELEMENTS:
        return None
    right = RIGHT * (survey(r, BLOCK).rms() or 0.0)
    if o.dtype.kind in "iub":
        right = max(right, 1.0)  # a step of the quantization is rounding
    best: tuple[int, Array] | None = None
    for axis, length in enumerate(o.shape):
        if not 2 <= length <= LONGEST_AXIS:
            continue
        errors = _axis_errors(o, r, axis, right)
        wrong = np.flatnonzero(errors.peak > right)
        if not 0 < wrong.size <= length // 2:
            continue
        sound = np.delete(errors.peak, wrong)
        apart = float(sound.max()) <= GAP * float(errors.peak[wrong].min())
        throughout = int(errors.wrong[wrong].min()) * 4 >= o.size // length
        if not (apart and throughout):
            continue
        if best is None or wrong.size / length < best[1].size / o.shape[best[0]]:
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


# --- transformations


def _affine(o: Array, r: Array, energy: float) -> ErrorPattern | None:
    """Least squares of one factor, and of one offset."""
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


def _shifted(o: Array, r: Array, energy: float) -> ErrorPattern | None:
    for axis, length in enumerate(o.shape):
        if length < 3:
            continue
        for shift in _candidate_shifts(o, r, axis):
            inner = _overlap(o, r, axis, shift)
            if inner is None:
                continue
            a, b = inner
            if a.size * 2 < o.size or a.size < MIN_ELEMENTS:
                continue
            if _explains(b, a, energy * a.size / o.size):
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
    rows = max(1, BLOCK // length)
    x = np.moveaxis(o, axis, -1).reshape(-1, length)[:rows]
    y = np.moveaxis(r, axis, -1).reshape(-1, length)[:rows]
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
    for inverse in (False, True):
        for axes in _layouts(r.shape):
            a, b = (o, r) if inverse else (r, o)
            if not _probe(a, b, axes):
                continue
            if _explains(np.transpose(a, axes).reshape(b.shape), b, energy):
                what = "reference is the output" if inverse else "output is the reference"
                return ErrorPattern(
                    kind="permuted",
                    permutation=axes,
                    inverse=inverse,
                    evidence=f"the {what} transposed by {list(axes)}, read in memory order",
                )
    return _same_values(o, r, energy)


def _probe(a: Array, b: Array, axes: tuple[int, ...]) -> bool:
    """Whether `a` transposed may be `b`, by a thousand places: all layouts of five axes are 119."""
    flat = np.unique(np.linspace(0, a.size - 1, 1000).astype(np.int64))
    place = np.unravel_index(flat, tuple(a.shape[axis] for axis in axes))
    values = a[tuple(place[axes.index(axis)] for axis in range(a.ndim))]
    there = b.reshape(-1)[flat]
    left = float(np.sum((values - there) ** 2))
    return left <= 2 * FOLLOWED * max(float(np.var(there)), float(np.var(b))) * flat.size


def _same_values(o: Array, r: Array, energy: float) -> ErrorPattern | None:
    """The same values in an order of no layout. Two samples of one distribution, sorted, are alike
    too: the values must agree far better than neighbours among them do."""
    a, b = np.sort(o, axis=None), np.sort(r, axis=None)
    gaps = np.diff(b)
    if np.count_nonzero(gaps) < b.size // 2:
        return None
    off = np.abs(a - b)
    apart = float(np.median(gaps[gaps > 0]))
    if np.count_nonzero(off > GAP * apart) > EXPLAINED * off.size:
        return None
    if float(np.sum(off**2)) > EXPLAINED * energy:
        return None
    return ErrorPattern(
        kind="permuted", evidence="the output has the reference's values in another order"
    )


def _layouts(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Orders of the axes that move values: axes of length 1 stay where they are."""
    real = [axis for axis, length in enumerate(shape) if length > 1]
    if not 2 <= len(real) <= 5:
        return
    for order in itertools.permutations(real):
        if list(order) != real:
            moved = iter(order)
            yield tuple(next(moved) if length > 1 else a for a, length in enumerate(shape))


def _rms(values: Array) -> float:
    return math.sqrt(float(np.mean(values * values)))


def _left(guess: Array, o: Array, energy: float) -> float:
    return float(np.sum((guess - o) ** 2)) / energy

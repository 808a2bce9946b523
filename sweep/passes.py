"""The two chunked passes behind a comparison: each side by itself, then their difference.

Chunks are sized for the cache; extra memory is a few buffers of one chunk, whatever the size of the
arrays, so both may be `np.memmap`. float32 chunks are computed in float32 and summed over chunks in
float64: `a - b` is exact where the two are within a factor of two (Sterbenz), and off by half an
ulp of the difference elsewhere. Chunks whose squares could over- or underflow, and other dtypes,
are computed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[Any]

HISTOGRAM_BINS = 13
REL_FLOOR = 1e-9
"""Smallest divisor of `max_rel`, as in the 1.0 format."""
GROSS_RMS = 1e-3
GROSS_OWN = 0.1
"""An error is gross above GROSS_RMS·RMS(reference) and above GROSS_OWN of its own element."""

SAFE_LOW, SAFE_HIGH = 1e-15, 1e15
PLAIN_LOW = 1e-10
# Above float32's rounding of the few operations behind it: what lies closer to a limit than this
# is decided in float64.
_MARGIN = 1e-6


@dataclass(slots=True)
class Survey:
    """One side by itself; sums over the finite elements, in stored units."""

    size: int
    finite: int = 0
    nan: int = 0
    pos_inf: int = 0
    neg_inf: int = 0
    low: float = math.inf
    high: float = -math.inf
    total: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / self.finite if self.finite else 0.0

    def rms(self, zero_point: float = 0.0) -> float | None:
        if not self.finite:
            return None
        squares = self.squares
        if zero_point:
            squares += zero_point * (self.finite * zero_point - 2 * self.total)
        return math.sqrt(max(squares, 0.0) / self.finite)

    @property
    def plain(self) -> bool:
        """All finite, and squares sum in float32: what a chunk of it loses to underflow is nothing
        beside the largest."""
        peak = max(-self.low, self.high)
        return self.finite == self.size and (peak == 0 or PLAIN_LOW < peak < SAFE_HIGH)


@dataclass(slots=True)
class Difference:
    """Sums over the positions finite on both sides. `x`, `y`: measured, reference, each less a
    constant near its mean, so that their moments do not cancel."""

    pairs: int = 0
    error_squares: float = 0.0
    error_total: float = 0.0
    sx: float = 0.0
    sy: float = 0.0
    sxx: float = 0.0
    syy: float = 0.0
    sxy: float = 0.0
    max_abs: float = 0.0
    worst: int | None = None
    max_rel: float = 0.0
    max_scaled: float = 0.0
    outside: int = 0
    gross: int = 0
    differing: int = 0
    nonfinite_differ: bool = False
    identical: bool = True
    histogram: list[int] = field(default_factory=lambda: [0] * HISTOGRAM_BINS)


@dataclass(frozen=True, slots=True)
class Terms:
    """What the second pass knows beforehand."""

    tolerance_abs: float
    tolerance_rel: float
    rms: float
    """Of the reference, less its zero point."""
    zero_point: float
    shift_measured: float
    shift_reference: float
    plain: bool = False
    """Both sides are, as `Survey.plain` has it: no chunk need be looked at again."""

    @property
    def surveyed(self) -> bool:
        """The surveys hold all moments but the mixed one."""
        return self.plain and self.shift_measured == 0 == self.shift_reference


@dataclass(slots=True)
class Rows:
    """Per index of the first axis: Σerror², Σreference² (less the zero point) and max |error|."""

    length: int
    error: FloatArray
    signal: FloatArray
    peak: FloatArray


class Buffers:
    """Temporaries of one chunk, and rows of constants: a dot product with ones sums faster than
    `sum`, and `np.maximum` takes a row four times as fast as a number."""

    def __init__(self, size: int, dtype: npt.DTypeLike = np.float32) -> None:
        self.error: FloatArray = np.empty(size, dtype)
        self.other: FloatArray = np.empty(size, dtype)
        self.more: FloatArray = np.empty(size, dtype)
        self.ones: FloatArray = np.ones(size, dtype)
        self._constants: dict[float, FloatArray] = {}
        self._wide: Buffers | None = None

    def constant(self, value: float, size: int) -> FloatArray:
        if value not in self._constants:
            self._constants[value] = np.full_like(self.ones, value)
        return self._constants[value][:size]

    def wide(self) -> Buffers:
        """The same in float64."""
        if self._wide is None:
            self._wide = Buffers(self.ones.size, np.float64)
        return self._wide


# --- first pass: one side by itself


def survey(array: Array, chunk_elements: int) -> Survey:
    flat = array.reshape(-1)
    side = Survey(size=flat.size)
    if flat.dtype.kind not in "fiub":
        return side
    ones = np.ones(min(chunk_elements, max(flat.size, 1)), np.float32)
    for start in range(0, flat.size, chunk_elements):
        values = _as_float(flat[start : start + chunk_elements])
        low, high = float(values.min()), float(values.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            side.nan += int(np.count_nonzero(np.isnan(values)))
            side.pos_inf += int(np.count_nonzero(np.isposinf(values)))
            side.neg_inf += int(np.count_nonzero(np.isneginf(values)))
            values = values[np.isfinite(values)]
            if not values.size:
                continue
            low, high = float(values.min()), float(values.max())
        side.finite += values.size
        side.low, side.high = min(side.low, low), max(side.high, high)
        if not _squares_safely(max(-low, high)):
            values = values.astype(np.float64)
        one = ones[: values.size] if values.dtype == np.float32 else np.ones(values.size)
        side.total += float(values @ one)
        side.squares += float(values @ values)
    return side


# --- second pass: the difference


def difference(m: Array, r: Array, terms: Terms, rows: Rows | None, size: int) -> Difference:
    d = Difference()
    work = Buffers(min(size, m.size))
    integers = r.dtype.kind != "f"
    same_dtype = m.dtype == r.dtype
    # float128 has no integer of its width.
    bits = np.dtype(f"u{m.dtype.itemsize}" if m.dtype.itemsize <= 8 else np.uint8)
    for start, stop in _spans(m.size, size, rows):
        raw_m, raw_r = m[start:stop], r[start:stop]
        if d.identical:
            d.identical = same_dtype and np.array_equal(raw_m.view(bits), raw_r.view(bits))
        a, b = _as_float(raw_m), _as_float(raw_r)
        where = None
        if not terms.plain:
            bounds = (float(a.min()), float(a.max()), float(b.min()), float(b.max()))
        if terms.plain:
            pass
        elif not all(map(math.isfinite, bounds)):
            finite_a, finite_b = np.isfinite(a), np.isfinite(b)
            both = finite_a & finite_b
            same = both | (np.isnan(a) & np.isnan(b)) | (~finite_a & (a == b))
            unlike = int(np.count_nonzero(~same))
            d.differing += unlike
            d.nonfinite_differ = d.nonfinite_differ or unlike > 0
            where = np.flatnonzero(both)
            if not where.size:
                continue
            a, b = a[where].astype(np.float64), b[where].astype(np.float64)
        elif not (
            _squares_safely(max(map(abs, bounds[:2])))
            and _squares_safely(max(map(abs, bounds[2:])))
        ):
            a, b = a.astype(np.float64), b.astype(np.float64)
        # Mixed float widths: the difference must not be taken in the narrower one.
        if a.dtype != b.dtype:
            a, b = a.astype(np.float64), b.astype(np.float64)
        before, squares = d.histogram[0], d.error_squares
        error = _add_chunk(d, a, b, start, where, terms, work)
        if integers:  # compared as stored: float64 cannot tell large int64 apart
            d.differing += int(np.count_nonzero(raw_m != raw_r))
        else:
            d.differing += a.size - (d.histogram[0] - before)
        if rows is not None:
            _add_rows(rows, start, where, error, b, terms.zero_point, d.error_squares - squares)
    return d


def _add_chunk(
    d: Difference,
    a: FloatArray,
    b: FloatArray,
    start: int,
    where: Array | None,
    terms: Terms,
    work: Buffers,
) -> FloatArray:
    """Add finite `a`, `b` (one dtype, float32 or float64) and give |a − b|, in a reused buffer."""
    n = a.size
    d.pairs += n
    if a.dtype != np.float32:
        work = work.wide()
    error, other, more, ones = work.error[:n], work.other[:n], work.more[:n], work.ones[:n]

    if terms.surveyed:
        d.sxy += float(a @ b)
    else:
        # Moments about constants near the means: plain sums would cancel where mean ≫ deviation.
        x = np.subtract(a, terms.shift_measured, out=other)
        y = np.subtract(b, terms.shift_reference, out=more)
        d.sx += float(x @ ones)
        d.sy += float(y @ ones)
        d.sxx += float(x @ x)
        d.syy += float(y @ y)
        d.sxy += float(x @ y)

    np.subtract(a, b, out=error)
    np.abs(error, out=error)
    peak = float(error.max())
    if peak == 0:
        d.histogram[0] += n
        return error
    if _squares_safely(peak):
        d.error_squares += float(error @ error)
    else:
        wide = error.astype(np.float64)
        d.error_squares += float(wide @ wide)
    d.error_total += float(error @ ones)

    # Rounding to float32 keeps order, so the float64 maximum is among the float32 maxima.
    if peak >= d.max_abs * (1 - _MARGIN):
        at = np.flatnonzero(error == peak)
        exact = np.abs(a[at].astype(np.float64) - b[at])
        best = int(exact.argmax())
        if exact[best] > d.max_abs:
            d.max_abs = float(exact[best])
            d.worst = start + int(at[best] if where is None else where[at[best]])

    own = np.abs(b, out=other)
    peak_rel = _add_relative(d, a, b, error, own, work)
    certain = peak <= terms.tolerance_abs * (1 - _MARGIN) or (
        peak_rel <= terms.tolerance_rel * (1 - _MARGIN)
        and terms.tolerance_abs >= terms.tolerance_rel * REL_FLOOR
    )
    if not certain:
        d.outside += _outside(a, b, error, own, work, terms)
    if terms.zero_point:
        own = np.abs(b - terms.zero_point)
    _add_scaled(d, error, own, work, peak, terms.rms)
    return error


def _add_relative(
    d: Difference,
    a: FloatArray,
    b: FloatArray,
    error: FloatArray,
    own: FloatArray,
    work: Buffers,
) -> float:
    out = work.more[: error.size]
    np.maximum(own, work.constant(REL_FLOOR, error.size), out=out)
    relative = np.divide(error, out, out=out)
    peak = float(relative.max())
    if peak >= d.max_rel * (1 - _MARGIN):
        if peak == 1 and not a.any():  # zeros are off by exactly 1
            d.max_rel = max(d.max_rel, 1.0)
            return peak
        at = np.flatnonzero(relative >= peak * (1 - _MARGIN))
        exact_r = b[at].astype(np.float64)
        exact = np.abs(a[at].astype(np.float64) - exact_r) / np.maximum(np.abs(exact_r), REL_FLOOR)
        d.max_rel = max(d.max_rel, float(exact.max()))
    return peak


def _outside(
    a: FloatArray,
    b: FloatArray,
    error: FloatArray,
    own: FloatArray,
    work: Buffers,
    terms: Terms,
) -> int:
    """Elements outside the strict rule; near its limit, decided in float64."""
    limit = np.multiply(own, terms.tolerance_rel * (1 + _MARGIN), out=work.more[: error.size])
    np.maximum(limit, work.constant(terms.tolerance_abs * (1 + _MARGIN), error.size), out=limit)
    beyond = int(np.count_nonzero(error > limit))
    limit *= (1 - _MARGIN) / (1 + _MARGIN)
    at_most = error > limit
    if int(np.count_nonzero(at_most)) == beyond:
        return beyond
    at = np.flatnonzero(at_most)
    exact_r = b[at].astype(np.float64)
    exact = np.abs(a[at].astype(np.float64) - exact_r)
    allowed = np.maximum(terms.tolerance_abs, terms.tolerance_rel * np.abs(exact_r))
    return int(np.count_nonzero(exact > allowed))


def _add_scaled(
    d: Difference, error: FloatArray, own: FloatArray, work: Buffers, peak: float, rms: float
) -> None:
    """What is counted against the RMS of the reference: histogram, `max_scaled`, gross errors."""
    nonzero = int(np.count_nonzero(error > 0))
    d.histogram[0] += error.size - nonzero
    if rms == 0:
        d.histogram[-1] += nonzero
        d.gross += nonzero
        return
    if peak > d.max_scaled * rms:
        out = np.maximum(own, work.constant(rms, error.size), out=work.more[: error.size])
        d.max_scaled = max(d.max_scaled, float(np.divide(error, out, out=out).max()))
    if peak > GROSS_RMS * rms:
        limit = np.multiply(own, GROSS_OWN, out=work.more[: error.size])
        np.maximum(limit, work.constant(GROSS_RMS * rms, error.size), out=limit)
        d.gross += int(np.count_nonzero(error > limit))
    # Once few elements are left only those are gone through.
    left, gone, above = error, 0, 0
    for exponent in range(1, -10, -1):
        edge = rms * 10.0**exponent
        if edge > peak:
            continue
        beyond = left >= edge
        count = gone + int(np.count_nonzero(beyond))
        d.histogram[exponent + 11] += count - above
        above = count
        if above == nonzero:
            return
        if (count - gone) * 8 > left.size * 7:
            left, gone = left[np.flatnonzero(left < edge)], count
    d.histogram[1] += nonzero - above


def _add_rows(
    rows: Rows,
    start: int,
    where: Array | None,
    error: FloatArray,
    b: FloatArray,
    zero_point: float,
    error_squares: float,
) -> None:
    """`error_squares` is that of the whole chunk, known already."""
    signal = b - zero_point if zero_point else b
    if where is not None:
        index = (start + where) // rows.length
        rows.error += np.bincount(index, weights=error * error, minlength=rows.error.size)
        rows.signal += np.bincount(index, weights=signal * signal, minlength=rows.error.size)
        np.maximum.at(rows.peak, index, error)
        return
    first, count = start // rows.length, max(1, error.size // rows.length)
    span = slice(first, first + count)
    peaks = error.reshape(count, -1).max(axis=1)
    np.maximum(rows.peak[span], peaks, out=rows.peak[span])
    rows.signal[span] += _row_squares(signal.reshape(count, -1))
    if count == 1:
        rows.error[first] += error_squares
    elif peaks.any():
        rows.error[span] += _row_squares(error.reshape(count, -1))


def _row_squares(values: FloatArray) -> FloatArray:
    """Sum of squares per row: in float32 where that neither overflows nor underflows."""
    if values.dtype != np.float32:
        return np.asarray(np.square(values, dtype=np.float64).sum(axis=1))
    if values.shape[0] == 1:
        sums = np.array([float(values[0] @ values[0])])
    else:
        sums = np.einsum("ij,ij->i", values, values).astype(np.float64)
    unsure = np.flatnonzero((sums < SAFE_LOW**2 * values.shape[1]) | (sums > SAFE_HIGH**2))
    if unsure.size:
        sums[unsure] = np.square(values[unsure], dtype=np.float64).sum(axis=1)
    return sums


# --- small things


def _as_float(chunk: Array) -> FloatArray:
    """float32 as it is, float16 widened to it (exact); everything else float64."""
    if chunk.dtype == np.float32:
        return chunk
    return chunk.astype(np.float32 if chunk.dtype == np.float16 else np.float64)


def _squares_safely(peak: float) -> bool:
    """Whether squares of values up to `peak` sum in float32 without overflow, nor all underflow."""
    return peak == 0 or SAFE_LOW < peak < SAFE_HIGH


def _spans(total: int, size: int, rows: Rows | None) -> Iterator[tuple[int, int]]:
    """Chunks of at most `size`; with rows, each holds whole rows or lies within one."""
    if rows is None:
        block = step = total if total < size else size
        for start in range(0, total, step):
            yield start, min(start + block, total)
        return
    block = size // rows.length * rows.length if rows.length <= size else rows.length
    for start in range(0, total, block):
        stop = min(start + block, total)
        for at in range(start, stop, size):
            yield at, min(at + size, stop)

"""Comparison: numeric facts of a measured output against a reference output (pure numpy).

Two passes over both arrays in cache-sized chunks: the first takes each side by itself (`SideFacts`),
the second their difference, which needs the reference's RMS and both means. Extra memory is a few
buffers of one chunk, whatever the size of the arrays, so both may be `np.memmap`.

float32 chunks are computed in float32 and accumulated in float64: `a - b` is exact where the two
are within a factor of two (Sterbenz), and off by half an ulp elsewhere. Chunks whose squares could
over- or underflow, and all other dtypes, are computed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sweep.config import Frozen
from sweep.model import Quantization
from sweep.scores import score_agreement

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[Any]

CHUNK_ELEMENTS = 1 << 16
MAX_BATCH_ERRORS = 16
MAX_BATCH_ROWS = 1 << 16
HISTOGRAM_BINS = 13
REL_FLOOR = 1e-9
"""Smallest divisor of `max_rel`, as in the 1.0 format."""
GROSS_RMS = 1e-3
GROSS_OWN = 0.1
"""An error is gross above GROSS_RMS·RMS(reference) and above GROSS_OWN of its own element."""

_SAFE_LOW, _SAFE_HIGH = 1e-15, 1e15
# Above float32's rounding of the few operations behind it: what lies closer to a limit than this
# is decided in float64.
_MARGIN = 1e-6


class WorstElement(Frozen):
    """The element with the largest absolute error."""

    index: tuple[int, ...]
    measured: float
    reference: float


class SideFacts(Frozen):
    """What one side of a comparison looks like by itself."""

    nan: int
    pos_inf: int
    neg_inf: int
    all_zero: bool
    constant: bool
    """Every element has the same value (a single element counts as not constant)."""
    min: float | None
    max: float | None
    rms: float | None
    """Over the finite elements; None when there are none."""


class BatchError(Frozen):
    """Error per index of the first axis, when it is longer than 1."""

    index: int
    nrmse: float | None
    max_abs: float | None


class OutputComparison(Frozen):
    """Facts about one output against one reference. None: cannot be computed (see `problem`).

    Errors are over the positions that are finite on both sides; where any position is not, the
    strict rule has no answer (`strict_match` is None), as in the 1.0 format.
    """

    problem: str | None
    """Why values could not be compared: shape or dtype differ, empty; None when they were."""
    elements: int
    max_abs: float | None
    mean_abs: float | None
    rmse: float | None
    max_rel: float | None
    nrmse: float | None
    """None where the reference is all zero and the measurement is not: no number is large enough."""
    cosine: float | None
    pearson: float | None
    snr_db: float | None
    """None where there is no error or no reference signal."""
    strict_outside: int | None
    """Elements outside the strict rule."""
    strict_outside_fraction: float | None
    strict_match: bool | None
    worst: WorstElement | None
    """None where no finite element differs."""
    measured: SideFacts
    reference: SideFacts
    nonfinite_positions_differ: bool
    identical: bool
    """Bit for bit."""
    lsb_max: float | None
    """Largest error in units of the output's quantization step; None where not quantized."""
    argmax_agree: bool | None
    """None where the output does not look like scores."""
    top5_overlap: float | None
    log_error_histogram: tuple[int, ...]
    """Counts of |error|/RMS(reference) per decade: exactly 0, then <1e-9, [1e-9,1e-8) … [1,10), >=10."""
    batch: tuple[BatchError, ...]
    """The worst 16 indices at most, worst first; empty for vectors and one-item batches."""
    finite_pairs: int | None = None
    """Positions finite on both sides."""
    differing: int | None = None
    """Positions whose values differ (−0 equals 0, NaN equals NaN)."""
    max_scaled: float | None = None
    """max |o−r| / max(|r|, RMS(reference)): local corruption that an average over many elements
    hides. None where the reference is all zero."""
    gross_outside: int | None = None
    """Elements off by more than 10 % of themselves and by more than 1e-3·RMS(reference)."""


@dataclass(slots=True)
class _Survey:
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

    def facts(self) -> SideFacts:
        whole = self.finite == self.size and self.size > 0
        return SideFacts(
            nan=self.nan,
            pos_inf=self.pos_inf,
            neg_inf=self.neg_inf,
            all_zero=whole and self.low == 0 == self.high,
            constant=whole and self.size > 1 and self.low == self.high,
            min=self.low if self.finite else None,
            max=self.high if self.finite else None,
            rms=_number(self.rms()),
        )


@dataclass(slots=True)
class _Difference:
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
class _Terms:
    """What the second pass knows beforehand."""

    tolerance_abs: float
    tolerance_rel: float
    rms: float
    """Of the reference, less its zero point."""
    zero_point: float
    shift_measured: float
    shift_reference: float


@dataclass(slots=True)
class _Rows:
    """Per index of the first axis: Σerror², Σreference² (less the zero point) and max |error|."""

    length: int
    error: FloatArray
    signal: FloatArray
    peak: FloatArray


class _Buffers:
    """Reused temporaries of one chunk in float32: three and a row of ones."""

    def __init__(self, size: int) -> None:
        self.error, self.other, self.more = (np.empty(size, np.float32) for _ in range(3))
        self.ones = np.ones(size, np.float32)


def compare_outputs(
    measured: Array,
    reference: Array,
    *,
    quantization: Quantization | None = None,
    tolerance_abs: float = 1e-5,
    tolerance_rel: float = 1e-3,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> OutputComparison:
    """Facts about `measured` against `reference`, two arrays of one shape and one kind of dtype.

    Any bool, integer or real floating dtype; C-contiguous (others are copied whole). With o, r the
    elements of both, over the positions finite on both sides:

    - `max_abs` = max |o−r|, `mean_abs`, `rmse` = √mean (o−r)²: in stored units
    - `max_rel` = max |o−r| / max(|r|, 1e-9) and the strict rule |o−r| ≤ max(abs, rel·|r|): the 1.0
      sweep format's, evaluated in float64 so that they equal its JavaScript numbers
    - `nrmse` = RMSE / RMS(r); 0 where both are all zero, None where only the reference is
    - `snr_db` = 10·log10(Σr²/Σ(o−r)²), as LiteRT's accuracy debugger has it
    - `cosine` = Σor/√(Σo²Σr²); `pearson` = the same less both means; None without any variation
    - `argmax_agree`, `top5_overlap`: see `sweep.scores`

    For integer outputs with one zero point z, `nrmse`, `snr_db`, `cosine`, `max_scaled`, `batch` and
    the histogram are of o−z and r−z, i.e. of the real values (the scale cancels); `lsb_max` is the
    largest error in stored units. For float outputs with a quantization it is max_abs / scale.
    """
    assert chunk_elements > 0
    measured, reference = _contiguous(measured), _contiguous(reference)
    with np.errstate(all="ignore"):
        side_m = _survey(measured, chunk_elements)
        side_r = _survey(reference, chunk_elements)
        problem = _problem(measured, reference)
        if problem is not None:
            return _uncompared(problem, measured.size, side_m.facts(), side_r.facts())
        zero_point = _zero_point(reference.dtype, quantization)
        rms = side_r.rms(zero_point) or 0.0
        terms = _Terms(
            tolerance_abs=tolerance_abs,
            tolerance_rel=tolerance_rel,
            rms=rms,
            zero_point=zero_point,
            shift_measured=_shift(side_m.mean, measured.dtype),
            shift_reference=_shift(side_r.mean, reference.dtype),
        )
        rows = _rows_of(reference.shape)
        d = _difference(measured.reshape(-1), reference.reshape(-1), terms, rows, chunk_elements)
    agree, overlap = None, None
    if side_m.finite == side_r.finite == measured.size and _may_be_scores(reference, quantization):
        agree, overlap = score_agreement(measured, reference)
    strict_defined = d.pairs == measured.size
    nrmse = _nrmse(d.error_squares, rms * rms * d.pairs) if d.pairs else None
    return OutputComparison(
        problem=None,
        elements=measured.size,
        max_abs=_number(d.max_abs) if d.pairs else None,
        mean_abs=_number(d.error_total / d.pairs) if d.pairs else None,
        rmse=_number(math.sqrt(d.error_squares / d.pairs)) if d.pairs else None,
        max_rel=_number(d.max_rel) if d.pairs else None,
        nrmse=nrmse,
        cosine=_cosine(d, terms),
        pearson=_pearson(d, side_m, side_r),
        snr_db=-20 * math.log10(nrmse) if nrmse else None,
        strict_outside=d.outside if d.pairs else None,
        strict_outside_fraction=d.outside / d.pairs if d.pairs else None,
        strict_match=d.outside == 0 if strict_defined else None,
        worst=_worst(measured, reference, d.worst),
        measured=side_m.facts(),
        reference=side_r.facts(),
        nonfinite_positions_differ=d.nonfinite_differ,
        identical=d.identical,
        lsb_max=_lsb(d, reference.dtype, quantization),
        argmax_agree=agree,
        top5_overlap=overlap,
        log_error_histogram=tuple(d.histogram),
        batch=_batch(rows),
        finite_pairs=d.pairs,
        differing=d.differing,
        max_scaled=_number(d.max_scaled) if rms and d.pairs else None,
        gross_outside=d.gross if d.pairs else None,
    )


# --- first pass: one side by itself


def _survey(array: Array, chunk_elements: int) -> _Survey:
    flat = array.reshape(-1)
    side = _Survey(size=flat.size)
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


def _difference(m: Array, r: Array, terms: _Terms, rows: _Rows | None, size: int) -> _Difference:
    d = _Difference()
    work = _Buffers(min(size, m.size))
    integers = r.dtype.kind != "f"
    same_dtype = m.dtype == r.dtype
    for start, stop in _spans(m.size, size, rows):
        raw_m, raw_r = m[start:stop], r[start:stop]
        if d.identical:
            d.identical = same_dtype and np.array_equal(raw_m.view(np.uint8), raw_r.view(np.uint8))
        a, b = _as_float(raw_m), _as_float(raw_r)
        bounds = (float(a.min()), float(a.max()), float(b.min()), float(b.max()))
        where = None
        if not all(map(math.isfinite, bounds)):
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
        before = d.histogram[0]
        error = _add_chunk(d, a, b, start, where, terms, work)
        if integers:  # compared as stored: float64 cannot tell large int64 apart
            d.differing += int(np.count_nonzero(raw_m != raw_r))
        else:
            d.differing += a.size - (d.histogram[0] - before)
        if rows is not None:
            _add_rows(rows, start, where, error, b, terms.zero_point)
    return d


def _add_chunk(
    d: _Difference,
    a: FloatArray,
    b: FloatArray,
    start: int,
    where: Array | None,
    terms: _Terms,
    work: _Buffers,
) -> FloatArray:
    """Add finite `a`, `b` (one dtype, float32 or float64) and give |a − b|, in a reused buffer."""
    n = a.size
    d.pairs += n
    if a.dtype == np.float32:
        error, other, more = work.error[:n], work.other[:n], work.more[:n]
        ones = work.ones[:n]
    else:
        error, other, more = np.empty(n), np.empty(n), np.empty(n)
        ones = np.ones(n)

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
    peak_rel = _add_relative(d, a, b, error, own, more)
    certain = peak <= terms.tolerance_abs * (1 - _MARGIN) or (
        peak_rel <= terms.tolerance_rel * (1 - _MARGIN)
        and terms.tolerance_abs >= terms.tolerance_rel * REL_FLOOR
    )
    if not certain:
        d.outside += _outside(a, b, error, own, more, terms)
    _add_scaled(
        d, error, own - terms.zero_point if terms.zero_point else own, more, peak, terms.rms
    )
    return error


def _add_relative(
    d: _Difference,
    a: FloatArray,
    b: FloatArray,
    error: FloatArray,
    own: FloatArray,
    out: FloatArray,
) -> float:
    divisor = own if float(own.min()) > REL_FLOOR else np.maximum(own, REL_FLOOR, out=out)
    relative = np.divide(error, divisor, out=out)
    peak = float(relative.max())
    if peak >= d.max_rel * (1 - _MARGIN):
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
    out: FloatArray,
    terms: _Terms,
) -> int:
    """Elements outside the strict rule; near its limit, decided in float64."""
    limit = np.multiply(own, terms.tolerance_rel * (1 - _MARGIN), out=out)
    np.maximum(limit, terms.tolerance_abs * (1 - _MARGIN), out=limit)
    at = np.flatnonzero(error > limit)
    exact_r = b[at].astype(np.float64)
    exact = np.abs(a[at].astype(np.float64) - exact_r)
    allowed = np.maximum(terms.tolerance_abs, terms.tolerance_rel * np.abs(exact_r))
    return int(np.count_nonzero(exact > allowed))


def _add_scaled(
    d: _Difference, error: FloatArray, own: FloatArray, out: FloatArray, peak: float, rms: float
) -> None:
    """What is counted against the RMS of the reference: histogram, `max_scaled`, gross errors."""
    nonzero = int(np.count_nonzero(error > 0))
    d.histogram[0] += error.size - nonzero
    if rms == 0:
        d.histogram[-1] += nonzero
        d.gross += nonzero
        return
    if peak > d.max_scaled * rms:
        scaled = np.divide(error, np.maximum(np.abs(own), rms, out=out), out=out)
        d.max_scaled = max(d.max_scaled, float(scaled.max()))
    if peak > GROSS_RMS * rms:
        gross = error > np.multiply(np.abs(own), GROSS_OWN, out=out)
        gross &= error > GROSS_RMS * rms
        d.gross += int(np.count_nonzero(gross))
    above = 0
    for exponent in range(1, -10, -1):
        edge = rms * 10.0**exponent
        at_least = int(np.count_nonzero(error >= edge)) if edge <= peak else 0
        d.histogram[exponent + 11] += at_least - above
        above = at_least
        if above == nonzero:
            return
    d.histogram[1] += nonzero - above


def _add_rows(
    rows: _Rows,
    start: int,
    where: Array | None,
    error: FloatArray,
    b: FloatArray,
    zero_point: float,
) -> None:
    signal = b - zero_point if zero_point else b
    if where is not None:
        index = (start + where) // rows.length
        rows.error += np.bincount(index, weights=error * error, minlength=rows.error.size)
        rows.signal += np.bincount(index, weights=signal * signal, minlength=rows.error.size)
        np.maximum.at(rows.peak, index, error)
        return
    first, count = start // rows.length, max(1, error.size // rows.length)
    span = slice(first, first + count)
    error, signal = error.reshape(count, -1), signal.reshape(count, -1)
    rows.error[span] += np.square(error, dtype=np.float64).sum(axis=1)
    rows.signal[span] += np.square(signal, dtype=np.float64).sum(axis=1)
    np.maximum(rows.peak[span], error.max(axis=1), out=rows.peak[span])


# --- from sums to facts


def _cosine(d: _Difference, terms: _Terms) -> float | None:
    u = terms.shift_measured - terms.zero_point
    v = terms.shift_reference - terms.zero_point
    n = d.pairs
    uu = d.sxx + u * (2 * d.sx + n * u)
    vv = d.syy + v * (2 * d.sy + n * v)
    uv = d.sxy + v * d.sx + u * d.sy + n * u * v
    return _ratio(uv, uu, vv)


def _pearson(d: _Difference, m: _Survey, r: _Survey) -> float | None:
    if d.pairs < 2 or m.low == m.high or r.low == r.high:
        return None
    n = d.pairs
    return _ratio(d.sxy - d.sx * d.sy / n, d.sxx - d.sx**2 / n, d.syy - d.sy**2 / n)


def _ratio(uv: float, uu: float, vv: float) -> float | None:
    if not (0 < uu < math.inf and 0 < vv < math.inf and math.isfinite(uv)):
        return None
    return max(-1.0, min(1.0, uv / math.sqrt(uu) / math.sqrt(vv)))


def _nrmse(error: float, signal: float) -> float | None:
    if error == 0:
        return 0.0
    return _number(math.sqrt(error) / math.sqrt(signal)) if signal > 0 else None


def _batch(rows: _Rows | None) -> tuple[BatchError, ...]:
    if rows is None:
        return ()
    # An error against an all-zero reference comes first: no nRMSE is large enough for it.
    key = np.where(rows.error > 0, np.sqrt(rows.error / np.maximum(rows.signal, 1e-300)), 0.0)
    worst = np.lexsort((np.arange(key.size), -key))[:MAX_BATCH_ERRORS]
    return tuple(
        BatchError(
            index=int(i),
            nrmse=_nrmse(float(rows.error[i]), float(rows.signal[i])),
            max_abs=_number(float(rows.peak[i])),
        )
        for i in worst
    )


def _worst(measured: Array, reference: Array, flat: int | None) -> WorstElement | None:
    if flat is None:
        return None
    return WorstElement(
        index=tuple(int(i) for i in np.unravel_index(flat, reference.shape)),
        measured=float(measured.reshape(-1)[flat]),
        reference=float(reference.reshape(-1)[flat]),
    )


def _lsb(d: _Difference, dtype: np.dtype[Any], quantization: Quantization | None) -> float | None:
    if quantization is None or not d.pairs:
        return None
    if dtype.kind in "iu":
        return d.max_abs
    steps = [s for s in quantization.scale if s > 0]
    return _number(d.max_abs / min(steps)) if steps else None


def _uncompared(problem: str, elements: int, m: SideFacts, r: SideFacts) -> OutputComparison:
    return OutputComparison(
        problem=problem, elements=elements, max_abs=None, mean_abs=None, rmse=None, max_rel=None,
        nrmse=None, cosine=None, pearson=None, snr_db=None, strict_outside=None,
        strict_outside_fraction=None, strict_match=None, worst=None, measured=m, reference=r,
        nonfinite_positions_differ=False, identical=False, lsb_max=None, argmax_agree=None,
        top5_overlap=None, log_error_histogram=(0,) * HISTOGRAM_BINS, batch=(),
    )  # fmt: skip


# --- small things


def _problem(measured: Array, reference: Array) -> str | None:
    if measured.shape != reference.shape:
        return f"shape {list(measured.shape)} differs from the reference's {list(reference.shape)}"
    kinds = {"f": "float", "i": "integer", "u": "integer", "b": "integer"}
    kind_m, kind_r = kinds.get(measured.dtype.kind), kinds.get(reference.dtype.kind)
    if kind_m is None or kind_r is None or kind_m != kind_r:
        return f"dtype {measured.dtype} cannot be compared with the reference's {reference.dtype}"
    return "the output has no elements" if measured.size == 0 else None


def _contiguous(array: Array) -> Array:
    """A plain ndarray: slicing `np.memmap` itself costs more than small chunks do."""
    return np.asarray(array, order="C").view(np.ndarray)


def _as_float(chunk: Array) -> FloatArray:
    """float32 as it is, float16 widened to it (exact); everything else float64."""
    if chunk.dtype == np.float32:
        return chunk
    return chunk.astype(np.float32 if chunk.dtype == np.float16 else np.float64)


def _squares_safely(peak: float) -> bool:
    """Whether squares of values up to `peak` sum in float32 without overflow, nor all underflow."""
    return peak == 0 or _SAFE_LOW < peak < _SAFE_HIGH


def _shift(mean: float, dtype: np.dtype[Any]) -> float:
    """Rounded to what both widths hold exactly, so that every chunk subtracts the same number."""
    narrow = dtype.itemsize <= 4 and abs(mean) < _SAFE_HIGH
    return float(np.float32(mean)) if narrow else mean if math.isfinite(mean) else 0.0


def _zero_point(dtype: np.dtype[Any], quantization: Quantization | None) -> float:
    if quantization is None or dtype.kind not in "iu" or len(set(quantization.zero_point)) != 1:
        return 0.0
    return float(quantization.zero_point[0])


def _may_be_scores(reference: Array, quantization: Quantization | None) -> bool:
    return reference.dtype.kind == "f" or (
        reference.dtype.kind in "iu" and quantization is not None and len(quantization.scale) == 1
    )


def _rows_of(shape: tuple[int, ...]) -> _Rows | None:
    if len(shape) < 2 or not 2 <= shape[0] <= MAX_BATCH_ROWS or 0 in shape:
        return None
    zeros = (np.zeros(shape[0]) for _ in range(3))
    return _Rows(math.prod(shape[1:]), *zeros)


def _spans(total: int, size: int, rows: _Rows | None) -> Iterator[tuple[int, int]]:
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


def _number(value: float | None) -> float | None:
    """JSON has no infinity and no NaN."""
    return value if value is not None and math.isfinite(value) else None

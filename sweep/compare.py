"""Comparison: numeric facts of a measured output against a reference output (pure numpy).

The arithmetic over the elements is in `sweep.passes`: two passes, bounded memory.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from sweep.channels import LostChannel, lost_channels
from sweep.config import Frozen
from sweep.model import Quantization
from sweep.passes import (
    HISTOGRAM_BINS,
    SAFE_HIGH,
    Difference,
    Rows,
    Survey,
    Terms,
    difference,
    survey,
)
from sweep.scores import score_agreement

Array = npt.NDArray[Any]

CHUNK_ELEMENTS = 1 << 17
MAX_BATCH_ERRORS = 16
MAX_BATCH_ROWS = 1 << 16
SHIFTED = 0.9
"""Mean over RMS from which moments are taken about the mean."""
CHANNEL_ERROR = 1e-5
"""Share of RMS(reference) below which no channel is looked for."""


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
    """Why values could not be compared: shape or dtype differ, or empty. None when they were, even
    if no position is finite on both sides (`finite_pairs` is 0, and the errors are None)."""
    elements: int
    max_abs: float | None
    mean_abs: float | None
    rmse: float | None
    max_rel: float | None
    nrmse: float | None
    """None where the reference is all zero and the measurement is not: no number would do."""
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
    """Counts of |error|/RMS(reference) per decade: exactly 0, then <1e-9, [1e-9,1e-8) …
    [1,10), >=10: 13 counts, of the positions finite on both sides."""
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
    lost_channels: tuple[LostChannel, ...] = ()
    """Channels that are wrong throughout, the worst 8; looked for where an error above
    1e-5·RMS(reference) shows and all values are finite."""


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

    Integer outputs with one zero point z: `nrmse`, `snr_db`, `cosine`, `max_scaled`, `batch`
    and the histogram are of o−z and r−z, i.e. of the real values (the scale cancels); `lsb_max` is
    the largest error in stored units. For float outputs with a quantization it is max_abs / scale.
    """
    assert chunk_elements > 0
    measured, reference = _contiguous(measured), _contiguous(reference)
    with np.errstate(all="ignore"):
        side_m = survey(measured, chunk_elements)
        side_r = survey(reference, chunk_elements)
        problem = _problem(measured, reference)
        if problem is not None:
            return _uncompared(problem, measured.size, _side(side_m), _side(side_r))
        zero_point = _zero_point(reference.dtype, quantization)
        rms = side_r.rms(zero_point) or 0.0
        terms = Terms(
            tolerance_abs=tolerance_abs,
            tolerance_rel=tolerance_rel,
            rms=rms,
            zero_point=zero_point,
            shift_measured=_shift(side_m, measured.dtype),
            shift_reference=_shift(side_r, reference.dtype),
            plain=side_m.plain and side_r.plain,
        )
        rows = _rows_of(reference.shape)
        d = difference(measured.reshape(-1), reference.reshape(-1), terms, rows, chunk_elements)
        if terms.surveyed:
            d.sx, d.sxx, d.sy, d.syy = side_m.total, side_m.squares, side_r.total, side_r.squares
    all_finite = side_m.finite == side_r.finite == measured.size
    agree, overlap = None, None
    if all_finite and _may_be_scores(reference, quantization):
        agree, overlap = score_agreement(measured, reference)
    channels: tuple[LostChannel, ...] = ()
    if all_finite and reference.dtype.kind == "f" and CHANNEL_ERROR * rms < d.max_abs < SAFE_HIGH:
        channels = lost_channels(measured, reference)
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
        strict_outside=d.outside if strict_defined else None,
        strict_outside_fraction=d.outside / d.pairs if strict_defined else None,
        strict_match=d.outside == 0 if strict_defined else None,
        worst=_worst(measured, reference, d.worst),
        measured=_side(side_m),
        reference=_side(side_r),
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
        lost_channels=channels,
    )


# --- from sums to facts


def _side(side: Survey) -> SideFacts:
    whole = side.finite == side.size and side.size > 0
    return SideFacts(
        nan=side.nan,
        pos_inf=side.pos_inf,
        neg_inf=side.neg_inf,
        all_zero=whole and side.low == 0 == side.high,
        constant=whole and side.size > 1 and side.low == side.high,
        min=side.low if side.finite else None,
        max=side.high if side.finite else None,
        rms=_number(side.rms()),
    )


def _cosine(d: Difference, terms: Terms) -> float | None:
    u = terms.shift_measured - terms.zero_point
    v = terms.shift_reference - terms.zero_point
    n = d.pairs
    uu = d.sxx + u * (2 * d.sx + n * u)
    vv = d.syy + v * (2 * d.sy + n * v)
    uv = d.sxy + v * d.sx + u * d.sy + n * u * v
    return _ratio(uv, uu, vv)


def _pearson(d: Difference, m: Survey, r: Survey) -> float | None:
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


def _batch(rows: Rows | None) -> tuple[BatchError, ...]:
    if rows is None:
        return ()
    # An error against an all-zero reference comes first: no nRMSE is large enough for it.
    key = np.where(rows.error > 0, np.inf, 0.0)
    with np.errstate(over="ignore"):
        np.divide(rows.error, rows.signal, out=key, where=(rows.error > 0) & (rows.signal > 0))
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


def _lsb(d: Difference, dtype: np.dtype[Any], quantization: Quantization | None) -> float | None:
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


def _shift(side: Survey, dtype: np.dtype[Any]) -> float:
    """The mean, rounded to what both widths hold exactly, so that every chunk subtracts the same
    number; 0 where the deviation is no smaller than a third of the mean, so that nothing cancels.
    """
    mean = side.mean
    if not math.isfinite(mean) or (side.plain and abs(mean) < SHIFTED * (side.rms() or 0.0)):
        return 0.0
    narrow = dtype.itemsize <= 4 and abs(mean) < SAFE_HIGH
    return float(np.float32(mean)) if narrow else mean


def _zero_point(dtype: np.dtype[Any], quantization: Quantization | None) -> float:
    if quantization is None or dtype.kind not in "iu" or len(set(quantization.zero_point)) != 1:
        return 0.0
    return float(quantization.zero_point[0])


def _may_be_scores(reference: Array, quantization: Quantization | None) -> bool:
    return reference.dtype.kind == "f" or (
        reference.dtype.kind in "iu" and quantization is not None and len(quantization.scale) == 1
    )


def _rows_of(shape: tuple[int, ...]) -> Rows | None:
    if len(shape) < 2 or not 2 <= shape[0] <= MAX_BATCH_ROWS or 0 in shape:
        return None
    zeros = (np.zeros(shape[0]) for _ in range(3))
    return Rows(math.prod(shape[1:]), *zeros)


def _number(value: float | None) -> float | None:
    """JSON has no infinity and no NaN."""
    return value if value is not None and math.isfinite(value) else None

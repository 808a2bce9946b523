"""Comparison: numeric facts of a measured output against a reference output (pure numpy)."""

from __future__ import annotations

from sweep.config import Frozen


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
    """Facts about one output against one reference. None: cannot be computed (see `problem`)."""

    problem: str | None
    """Why values could not be compared: shape or dtype differ, empty; None when they were."""
    elements: int
    max_abs: float | None
    mean_abs: float | None
    rmse: float | None
    max_rel: float | None
    nrmse: float | None
    cosine: float | None
    pearson: float | None
    snr_db: float | None
    strict_outside: int | None
    """Elements outside the strict rule."""
    strict_outside_fraction: float | None
    strict_match: bool | None
    worst: WorstElement | None
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

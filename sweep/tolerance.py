"""Tolerance policies, noise floors and grades: from numeric facts to a judgement of one output."""

from __future__ import annotations

from typing import Literal

from sweep.config import Frozen

Grade = Literal["exact", "rounding", "precision", "divergent", "broken"]
"""From best to worst; `output_mismatch` from `divergent` on."""


class NoiseFloor(Frozen):
    """How far the desktop reference itself moves, per output (in the output's own units)."""

    kernel_nrmse: float | None
    """XNNPACK against builtin kernels on the same input; None: not measured."""
    kernel_max_abs: float | None
    perturb_nrmse: float | None
    """Inputs rounded to the precision in use; None: not measured."""
    perturb_max_abs: float | None
    precision: str
    """The precision whose rounding was applied: `fp32`, `fp16` or `quantized`."""


class OutputJudgement(Frozen):
    """The grade of one output, with the numbers it hangs on."""

    policy: Literal["calibrated", "strict"]
    grade: Grade
    match: bool
    threshold_nrmse: float | None
    """The bound for `precision`; above it is `divergent`."""
    floor: NoiseFloor | None
    reason: str
    """One sentence with the numbers."""

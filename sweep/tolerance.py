"""Tolerance policies, noise floors and grades: from numeric facts to a judgement of one output.

Policy `calibrated` judges the size of an output's error at three levels, and the worst decides:

* overall: normalised RMSE against a threshold, which is the guard rail of the precision in use,
  or ten times the model's measured noise floor where that is larger, up to a cap;
* in one element: the largest |o−r| / max(|r|, RMS(r)) against a fixed share, so that one wrong
  value in a large output shows. A noisy floor may double the share, no more;
* in one channel (`sweep.channels`): an error as large as the channel's signal, where the signal is
  more than the precision's noise and the error far above the other channels' and the floor.

Values that are related to the reference's may differ by the absolute floor at any scale; unrelated
ones only where both sides lie below it. Zeros are no rounding of a reference that is not zero.

Integers that stand for real numbers are judged in steps of their quantization. Integers that do not
(labels, indices, counts) must be equal, but for one in a thousand where there are a thousand of
them: an argmax over two nearly equal scores may fall either way. Or else the reference's own
kernels move them as far.

Healthy fp32 runs on WebGPU show a normalised RMSE of 1e-8 to 4e-4, real mismatches 0.2 and more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from sweep.channels import LostChannel
from sweep.compare import OutputComparison, SideFacts, compare_outputs
from sweep.config import Frozen, TolerancePolicyName

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


GRADES: tuple[Grade, ...] = ("exact", "rounding", "precision", "divergent", "broken")

PrecisionInUse = Literal["fp32", "fp16", "quantized"]


class GuardRail(Frozen):
    """What an error may be where nothing better is known, for one precision."""

    rounding: float
    """Normalised RMSE up to which an error is called rounding."""
    nrmse: float
    """Normalised RMSE up to which it is explained by the precision."""
    cap: float
    """However noisy the reference is, beyond this normalised RMSE it excuses nothing."""
    element: float
    """Largest error of an element, as a share of the reference's RMS or of that element."""
    channel: float
    """Signal of a channel, as a share of the output's RMS, from which the channel must be right."""
    smallest: float
    """Values below this may become zero: the smallest the arithmetic need not flush."""


GUARD_RAILS: dict[PrecisionInUse, GuardRail] = {
    "fp32": GuardRail(
        rounding=1e-5, nrmse=1e-3, cap=0.05, element=0.05, channel=3e-5, smallest=2.0**-126
    ),
    # float16 ends at its smallest subnormal number, 2^-24.
    "fp16": GuardRail(rounding=1e-3, nrmse=1e-2, cap=0.1, element=0.2, channel=1e-2, smallest=6e-8),
    # Integer arithmetic on one side may meet dequantized floats on the other.
    "quantized": GuardRail(
        rounding=1e-5, nrmse=5e-2, cap=0.15, element=0.5, channel=0.1, smallest=2.0**-126
    ),
}

ABSOLUTE = 1e-7
"""Residuals of float arithmetic on values about 1 (x − x, 1 − x): an error this small is rounding,
unless the output shares nothing else with the reference."""

FLOOR_ELEMENT = 2.0
"""How often `GuardRail.element` a noisy floor may excuse in one element."""

LABEL_ELEMENTS = 1000
LABEL_SHARE = 1e-3
"""Of at least so many labels, so many may differ: ties of an argmax, broken by rounding."""

FLOOR_FACTOR = 10.0
"""How many noise floors an error may be: the floor is one draw of what it estimates."""

KERNELS_NRMSE, KERNELS_MAX_ABS, KERNELS_PEARSON = 1.25, 2.0, 0.8
"""How near to the distance between the reference's kernels an error must be that they excuse."""

LSB = 1.0
"""Quantization steps that two correct kernels may differ by, beside the measured floor."""
MAX_LSB_FLOOR = 4.0
"""A floor beyond this many steps is not believed."""

BROKEN_NRMSE = 0.9
"""From here on the output shares about as much with the reference as zeros do."""
BROKEN_PEARSON = 0.5


def is_mismatch(grade: Grade) -> bool:
    """Whether a grade makes the run an `output_mismatch`."""
    return grade in ("divergent", "broken")


def worst_grade(grades: Iterable[Grade]) -> Grade | None:
    """The worst of some grades; None of none."""
    return max(grades, key=GRADES.index, default=None)


def measure_floor(
    base: np.ndarray[Any, Any],
    other_kernels: np.ndarray[Any, Any] | None,
    perturbed: np.ndarray[Any, Any] | None,
    precision: str,
) -> NoiseFloor:
    """How far one output of the reference moves.

    Args:
        base: the reference's output; the other two have its shape.
        other_kernels: the same inputs through other kernels; None: not measured.
        perturbed: inputs rounded to the precision in use; None: not measured.
        precision: whose rounding was applied: `fp32`, `fp16` or `quantized`.
    """
    kernels = compare_outputs(other_kernels, base) if other_kernels is not None else None
    rounded = compare_outputs(perturbed, base) if perturbed is not None else None
    return NoiseFloor(
        kernel_nrmse=kernels.nrmse if kernels else None,
        kernel_max_abs=kernels.max_abs if kernels else None,
        perturb_nrmse=rounded.nrmse if rounded else None,
        perturb_max_abs=rounded.max_abs if rounded else None,
        precision=precision,
    )


def judge_output(
    facts: OutputComparison,
    *,
    policy: TolerancePolicyName,
    floor: NoiseFloor | None,
    precision: PrecisionInUse,
    dtype: str,
    quantized: bool,
) -> OutputJudgement:
    """Grades one output.

    Args:
        facts: of the output against its reference.
        policy: `strict` takes the element rule for the match; `calibrated` see the module.
        floor: the model's measured noise floor; None: the guard rails alone decide.
        precision: the coarsest rounding that a correct run may show.
        dtype: of the output, in numpy's spelling.
        quantized: its integers stand for real numbers.
    """
    rail = GUARD_RAILS[precision]
    threshold = min(max(rail.nrmse, FLOOR_FACTOR * _floor_nrmse(floor)), rail.cap)
    integer = not dtype.startswith(("float", "bfloat"))
    if integer:
        grade, reason = _grade_integers(facts, floor, quantized=quantized)
    else:
        grade, reason = _grade_floats(facts, floor, rail, threshold)
        if precision == "quantized" and is_mismatch(grade) and _as_far_as_kernels(facts, floor):
            grade, reason = "precision", f"{reason}; the reference's own kernels differ as much"
    match = not is_mismatch(grade)
    # Where a value is not finite the strict rule has no answer: the grade stands.
    if policy == "strict" and facts.strict_match is not None:
        match = facts.strict_match
        reason = (
            f"{facts.strict_outside} of {facts.elements} elements outside the strict rule; {reason}"
        )
        if match and is_mismatch(grade):
            grade = "rounding"
        elif not match and not is_mismatch(grade):
            grade = "divergent"
    return OutputJudgement(
        policy=policy,
        grade=grade,
        match=match,
        threshold_nrmse=None if integer else threshold,
        floor=floor,
        reason=reason,
    )


def _as_far_as_kernels(facts: OutputComparison, floor: NoiseFloor | None) -> bool:
    """Whether an output lies no further from the reference than the reference's two sets of
    kernels lie from each other, and still goes with it.

    Integer arithmetic leaves kernels much freedom: on noise, an int8 object detector's scores are
    one or two steps of their quantization, and XNNPACK and the builtin kernels differ by half of
    their RMS. Ten floors would excuse anything there, so the floor itself is the measure.
    """
    if floor is None or floor.kernel_nrmse is None or floor.kernel_max_abs is None:
        return False
    if facts.nrmse is None or facts.max_abs is None or facts.pearson is None:
        return False
    return (
        facts.nrmse <= KERNELS_NRMSE * floor.kernel_nrmse
        and facts.max_abs <= KERNELS_MAX_ABS * floor.kernel_max_abs
        and facts.pearson >= KERNELS_PEARSON
    )


def _floor_nrmse(floor: NoiseFloor | None) -> float:
    if floor is None:
        return 0.0
    return max(floor.kernel_nrmse or 0.0, floor.perturb_nrmse or 0.0)


def _floor_max_abs(floor: NoiseFloor | None) -> float:
    if floor is None:
        return 0.0
    return max(floor.kernel_max_abs or 0.0, floor.perturb_max_abs or 0.0)


def _not_numbers(facts: OutputComparison) -> tuple[Grade, str] | None:
    """The grades that need no size of an error."""
    if facts.problem:
        return "broken", facts.problem
    if facts.nonfinite_positions_differ:
        return "broken", "non-finite values stand at other positions than in the reference"
    if facts.identical:
        return "exact", "identical bit for bit"
    if facts.max_abs is None and facts.elements and facts.rmse is None:
        return "exact", "no finite value on either side, at the same positions"
    if facts.max_abs == 0:
        return "exact", "equal in every element"
    return None


def _grade_integers(
    facts: OutputComparison, floor: NoiseFloor | None, *, quantized: bool
) -> tuple[Grade, str]:
    early = _not_numbers(facts)
    if early:
        return early
    assert facts.max_abs is not None
    moved = _floor_max_abs(floor)
    if quantized:
        allowed = LSB + (min(moved, MAX_LSB_FLOOR) if floor else LSB)
        words = f"off by up to {facts.max_abs:g} steps of the quantization, {allowed:g} allowed"
        if facts.max_abs <= LSB:
            return "rounding", words
        if facts.max_abs <= allowed:
            return "precision", words
        return ("broken" if _shares_nothing(facts) else "divergent"), words
    words = f"integers differ by up to {facts.max_abs:g}"
    if facts.differing is not None:
        words = f"{facts.differing} of {facts.elements} {words}"
        if facts.elements >= LABEL_ELEMENTS and facts.differing <= LABEL_SHARE * facts.elements:
            return "precision", words
    if moved > 0 and facts.max_abs <= moved and (facts.nrmse or 0) <= 2 * _floor_nrmse(floor):
        return "precision", f"{words}, as the reference's own kernels do"
    return ("broken" if _shares_nothing(facts) else "divergent"), words


def _grade_floats(
    facts: OutputComparison, floor: NoiseFloor | None, rail: GuardRail, threshold: float
) -> tuple[Grade, str]:
    early = _not_numbers(facts)
    if early:
        return early
    if facts.max_abs is None or facts.rmse is None:
        return "broken", "the error is too large for a number"
    if _excused(facts, rail):
        words = f"no error above {facts.max_abs:.3g}"
        if facts.measured.all_zero:
            words += f", and below {rail.smallest:.2g} the precision may give zeros"
        return "rounding", words
    if facts.nrmse is None:
        return "broken", f"the reference is all zeros, the output has {facts.max_abs:.3g}"
    words = f"normalised RMSE {facts.nrmse:.3g}, {threshold:.3g} allowed"
    if facts.nrmse > threshold:
        return ("broken" if _shares_nothing(facts) else "divergent"), words
    share, allowed = facts.max_scaled or 0.0, _element_share(facts, floor, rail)
    if share > allowed and facts.max_abs > ABSOLUTE:
        return "divergent", (
            f"{words}, but an element is off by {share:.3g} of its scale, {allowed:.3g} allowed"
        )
    lost = _lost_channel(facts, floor, rail)
    if lost:
        return "divergent", (
            f"{words}, but channel {lost.index} of axis {lost.axis} is off by {lost.error:.3g} RMS "
            f"with a signal of {lost.signal:.3g}, the others by no more than {lost.others:.3g}"
        )
    rounding = max(rail.rounding, min(3 * _floor_nrmse(floor), rail.nrmse))
    return ("rounding" if facts.nrmse <= rounding else "precision"), words


def _excused(facts: OutputComparison, rail: GuardRail) -> bool:
    """Whether an error is too small in itself to say anything, at whatever scale."""
    assert facts.max_abs is not None
    measured, reference = _peak(facts.measured), _peak(facts.reference)
    if facts.measured.all_zero:
        return reference < rail.smallest
    if facts.max_abs > ABSOLUTE:
        return False
    return max(measured, reference) <= ABSOLUTE or not _shares_nothing(facts)


def _peak(side: SideFacts) -> float:
    """The largest magnitude among the finite values."""
    return max(abs(side.min or 0.0), abs(side.max or 0.0))


def _element_share(facts: OutputComparison, floor: NoiseFloor | None, rail: GuardRail) -> float:
    """Largest |o−r| / max(|r|, RMS(r)) that one element may show."""
    scale = facts.reference.rms
    noise = FLOOR_FACTOR * _floor_max_abs(floor) / scale if scale else 0.0
    return max(rail.element, min(noise, FLOOR_ELEMENT * rail.element))


def _lost_channel(
    facts: OutputComparison, floor: NoiseFloor | None, rail: GuardRail
) -> LostChannel | None:
    """A channel that no noise explains: neither the others' errors nor the reference's floor."""
    scale = facts.reference.rms or 0.0
    for channel in facts.lost_channels:
        noise = max(channel.others, _floor_max_abs(floor), ABSOLUTE / FLOOR_FACTOR)
        if channel.signal >= rail.channel * scale and channel.error > FLOOR_FACTOR * noise:
            return channel
    return None


def _shares_nothing(facts: OutputComparison) -> bool:
    """Zeros, a constant, or values without a relation to the reference's."""
    if facts.measured.constant and not facts.reference.constant and facts.elements > 1:
        return True
    if facts.nrmse is None or facts.nrmse >= BROKEN_NRMSE:
        return True
    return facts.pearson is not None and facts.elements > 2 and facts.pearson < BROKEN_PEARSON

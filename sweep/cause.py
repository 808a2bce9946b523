"""Causes: what the evidence shows to be behind wrong values, and nothing it does not show.

The order is the order of proof: commands that the GPU refused explain anything that follows;
non-finite and unwritten values are facts of the output itself; patterns of the error come next;
that a part ran on the CPU only stands beside the error and so comes last.
"""

from __future__ import annotations

from collections.abc import Sequence

from sweep.config import Frozen
from sweep.console import ConsoleFacts, normalise
from sweep.protocol import GpuError
from sweep.record import Cause, ComparisonRecord
from sweep.tolerance import Grade

MISMATCHING: frozenset[Grade] = frozenset({"divergent", "broken"})
"""Grades that make an `output_mismatch`."""

PEARSON_OF_NOISE = 0.99
"""Correlation from which a wrong output is the right one plus noise, not another one."""

PERMUTED_KINDS = frozenset({"permuted", "shifted"})
SCALED_KINDS = frozenset({"scaled"})


def wrong(comparison: ComparisonRecord) -> bool:
    """Whether this output of this run is an output mismatch against its reference."""
    return comparison.judgement.grade in MISMATCHING


def non_finite_counts(comparison: ComparisonRecord) -> tuple[int, int]:
    """Non-finite elements of the measured output and of the reference."""
    measured, reference = comparison.facts.measured, comparison.facts.reference
    return (
        measured.nan + measured.pos_inf + measured.neg_inf,
        reference.nan + reference.pos_inf + reference.neg_inf,
    )


def all_non_finite(comparison: ComparisonRecord) -> bool:
    """Measured and reference are non-finite throughout: no element can be compared."""
    elements = comparison.facts.elements
    return elements > 0 and non_finite_counts(comparison) == (elements, elements)


class Refusal(Frozen):
    """GPU commands that the browser refused, so that what they should have written was not."""

    message: str
    out_of_memory: bool
    """Refused for lack of memory, whatever became invalid by it."""
    validation: bool
    """Some command was invalid."""


def refused_gpu_work(console: ConsoleFacts, gpu_errors: Sequence[GpuError]) -> Refusal | None:
    """What the browser refused (`uncapturederror` events and console); None when nothing."""
    by_kind = {error.kind: error.message for error in reversed(gpu_errors)}
    messages = [by_kind[k] for k in ("out-of-memory", "validation", "internal") if k in by_kind]
    messages += [line.text for line in console.gpu_validation]
    if not messages:
        return None
    return Refusal(
        message=normalise(messages[0]).splitlines()[0],
        out_of_memory="out-of-memory" in by_kind,
        validation="validation" in by_kind or bool(console.gpu_validation),
    )


def mismatch_cause(
    judged: Sequence[ComparisonRecord],
    *,
    invalid: bool,
    unstable: bool,
    partial: bool,
    pattern_kind: str | None,
) -> Cause:
    """The cause of wrong values.

    Args:
        judged: comparisons with the reference that decided, right ones included.
        invalid: the GPU refused commands because they were invalid.
        unstable: runs on the same input differ.
        partial: some operators are known to have run on the CPU.
        pattern_kind: how the worst output's error looks (`scaled`, `permuted`, …).
    """
    bad = [c for c in judged if wrong(c)]
    if invalid:
        return "gpu_validation_error"
    if any(c.facts.nonfinite_positions_differ and _only_measured(c) for c in bad):
        return "nan_gpu_only"
    if unstable:
        return "unstable_across_runs"
    if pattern_kind == "zeros" or any(
        c.facts.measured.all_zero and not c.facts.reference.all_zero for c in bad
    ):
        return "zero_output"
    if pattern_kind in SCALED_KINDS:
        return "scale_error"
    if pattern_kind in PERMUTED_KINDS:
        return "permuted_output"
    if bad and all(_noise_of(c, "quantized") for c in bad):
        return "quantization_noise"
    if bad and all(_noise_of(c, "fp16") for c in bad):
        return "precision"
    return "partial_delegation" if partial else "unknown"


def _only_measured(comparison: ComparisonRecord) -> bool:
    """More non-finite elements than the reference has: at least one is the backend's own."""
    measured, reference = non_finite_counts(comparison)
    return measured > reference


def _noise_of(comparison: ComparisonRecord, precision: str) -> bool:
    """Divergent, not broken, correlated with the reference, where `precision` is in use."""
    floor, pearson = comparison.judgement.floor, comparison.facts.pearson
    return (
        comparison.judgement.grade == "divergent"
        and floor is not None
        and floor.precision == precision
        and pearson is not None
        and pearson >= PEARSON_OF_NOISE
    )

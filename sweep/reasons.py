"""Sentences: how a verdict is told to a person, with its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import get_args

from sweep.cause import non_finite_counts
from sweep.console import ConsoleFacts
from sweep.protocol import Measurement
from sweep.record import ComparisonRecord
from sweep.tolerance import Grade


def largest(values: Iterable[float | None]) -> float | None:
    """Largest of the values that are known; None when none is."""
    return max((v for v in values if v is not None), default=None)


def badness(grade: Grade) -> int:
    """0 for `exact`, growing."""
    return get_args(Grade).index(grade)


def worst_grade(judged: Sequence[ComparisonRecord]) -> Grade:
    """The worst grade of at least one comparison."""
    return max((c.judgement.grade for c in judged), key=badness)


def error_size(comparison: ComparisonRecord) -> tuple[int, float]:
    """Sort key: grade, then normalised RMSE (unknown counts as infinite)."""
    nrmse = comparison.facts.nrmse
    return badness(comparison.judgement.grade), float("inf") if nrmse is None else nrmse


def numbers(judged: Sequence[ComparisonRecord], grade: Grade) -> str:
    """`rounding, normalised RMSE up to 1.2e-07, 2 outputs`."""
    nrmse = largest(c.facts.nrmse for c in judged)
    outputs = len({(c.signature, c.output) for c in judged})
    said = "no finite error" if nrmse is None else f"normalised RMSE up to {nrmse:.2g}"
    return f"{grade}, {said}, {outputs} {'output' if outputs == 1 else 'outputs'}"


def where_it_ran(measurement: Measurement, console: ConsoleFacts) -> str:
    """What is known of a fallback: `138 of 204 operators ran on the CPU`."""
    delegation = console.delegation
    if measurement.accelerator == "wasm":
        return "The whole model fell back to wasm"
    if delegation.ops_on_cpu is not None:
        total = delegation.ops_on_cpu + (delegation.ops_on_gpu or 0)
        return f"{delegation.ops_on_cpu} of {total} operators ran on the CPU"
    return "A part of the model ran on the CPU"


def describe_mismatch(
    worst: ComparisonRecord, against: str, bad: Sequence[ComparisonRecord]
) -> str:
    """The worst output of a mismatch, with its worst element."""
    facts = worst.facts
    name = f"Output {worst.output!r}"
    if worst.signature:
        name += f" of signature {worst.signature!r}"
    if facts.problem:
        return f"{name} cannot be compared with {against}: {facts.problem}"
    said = f"{name} differs from {against} ({worst.judgement.grade}"
    if facts.nrmse is not None:
        said += f", normalised RMSE {facts.nrmse:.3g}"
    if facts.max_abs is not None:
        said += f", largest error {facts.max_abs:.3g}"
    said += ")"
    if facts.worst:
        said += (
            f": {facts.worst.measured:.6g} instead of {facts.worst.reference:.6g}"
            f" at {list(facts.worst.index)}"
        )
    measured, reference = non_finite_counts(worst)
    if measured != reference:
        said += f"; {measured} non-finite elements instead of {reference}"
    others = len({(c.signature, c.output) for c in bad}) - 1
    return f"{said}; {others} more outputs differ" if others else said

"""Flags: what stands beside a verdict without deciding it."""

from __future__ import annotations

from collections.abc import Sequence

from sweep.cause import non_finite_counts
from sweep.protocol import Measurement
from sweep.record import ComparisonRecord, Flag
from sweep.verdict import Verdict, VerdictContext

SUSPICIOUS_FLAGS: frozenset[Flag] = frozenset(
    {
        "suspect_fallback",
        "mismatch_after_first_run",
        "nondeterministic",
        "input_independent",
        "non_finite",
    }
)
"""Flags that speak of this run, not of its surroundings: worth seeing again in a fresh page."""


def flags_of(
    verdict: Verdict,
    measurement: Measurement,
    comparisons: Sequence[ComparisonRecord],
    context: VerdictContext,
) -> tuple[Flag, ...]:
    """What a reader should know beside the status; says nothing of a run that gave no values."""
    on_gpu = context.backend != "wasm_xnnpack"
    found: list[Flag] = []
    if verdict.runs:
        zero = [c.facts.measured.all_zero for c in comparisons]
        if context.uncompared_all_zero is not None:
            zero.append(context.uncompared_all_zero)
        only_here = [
            c.facts.measured.all_zero and not c.facts.reference.all_zero for c in comparisons
        ]
        non_finite = context.uncompared_non_finite or any(
            non_finite_counts(c)[0] for c in comparisons
        )
        wasm_alone = on_gpu and not any(c.against == "wasm" for c in comparisons)
        checks: tuple[tuple[Flag, bool], ...] = (
            (
                "suspect_fallback",
                on_gpu
                and verdict.status == "pass"
                and context.identical_to_wasm is True
                and context.graph_computes,
            ),
            ("mismatch_after_first_run", context.mismatch_after_first_run),
            ("nondeterministic", unstable(context)),
            ("input_independent", context.input_independent is True),
            ("all_zero", (bool(zero) and all(zero)) or any(only_here)),
            ("non_finite", non_finite),
            ("reference_disagrees_with_desktop", _references_disagree(verdict, context)),
            ("reference_missing", wasm_alone),
        )
        found += [flag for flag, holds in checks if holds]
    if on_gpu and context.software_adapter and verdict.status != "unavailable":
        found.append("software_adapter")
    if context.desktop_status in ("failed", "crashed", "timeout"):
        found.append("desktop_failed")
    if measurement.confirmed is False:
        found.append("not_confirmed_in_fresh_page")
    return tuple(found)


def _references_disagree(verdict: Verdict, context: VerdictContext) -> bool:
    if context.backend == "wasm_xnnpack":
        return verdict.status == "output_mismatch"
    return context.wasm_agrees_with_desktop is False


def unstable(context: VerdictContext) -> bool:
    """Runs on the same input gave different bytes."""
    return any(s.second_same is False or s.last_same is False for s in context.stability)

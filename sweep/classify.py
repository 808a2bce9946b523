"""The verdict: a pure function of a measurement, its console facts and its comparisons.

What decides, in this order:

1. The model could not be given to the page, or the job ended early: `failure.py` names the class.
2. Fatal console lines: nothing was computed, however well the values agree. `run_failed`.
3. The GPU device was lost during the job. `run_failed`.
4. No outputs. `run_failed`.
5. Values that are wrong against every reference that can be trusted. `output_mismatch`, whatever
   was delegated.
6. Commands that the GPU refused although the values are right, or could not be compared:
   `run_failed`. What the refused commands should have written may be left over from an earlier
   run, so agreement on these inputs proves nothing.
7. Nothing to compare with, outputs that were not compared, or nothing finite. `unverified`.
8. Right values, but some or all operators known to have run on the CPU. `fallback`.
9. `pass`, which names what it was verified against.

References. The wasm run of the same sweep counts when it ran clean and does not disagree with the
desktop reference; where the two disagree the desktop reference decides for both backends, and the
record is flagged. A backend is right if all its outputs agree with at least one reference that
counts: two references that agree with each other differ by rounding, so an output may lie within
the tolerance of one and just outside that of the other. The wasm backend itself is held against
the desktop reference only; without one it is `unverified`: a reference does not prove itself.

Non-finite values. At the same positions on both sides they are no error, and the finite elements
decide; where an output has none on either side the run is `unverified` with cause `nan_both`.
A wasm reference that is non-finite where the backend is not cannot be used (`reference_invalid`),
nor one whose outputs are all zero where the backend's are not, unless the desktop reference is
there to arbitrate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from sweep.cause import (
    Refusal,
    all_non_finite,
    mismatch_cause,
    non_finite_counts,
    refused_gpu_work,
    wrong,
)
from sweep.console import ConsoleFacts
from sweep.failure import failure_of, lost_device, telling_line
from sweep.flags import SUSPICIOUS_FLAGS, flags_of, unstable
from sweep.protocol import Measurement
from sweep.reasons import (
    badness,
    describe_mismatch,
    error_size,
    largest,
    numbers,
    where_it_ran,
    worst_grade,
)
from sweep.record import Cause, ComparisonRecord
from sweep.verdict import Against, Verdict, VerdictContext

__all__ = [
    "SUSPICIOUS_FLAGS",
    "Verdict",
    "VerdictContext",
    "agrees_with",
    "classify",
    "fell_back",
    "full_delegation",
]


def agrees_with(
    wasm_matches_desktop: bool | None, webgpu_matches_desktop: bool | None
) -> Literal["wasm", "webgpu", "both", "neither"] | None:
    """Which backends the desktop reference agrees with.

    None where a comparison is missing and the other does not settle the question: one backend
    that agrees is named even if the other could not be compared.
    """
    if wasm_matches_desktop and webgpu_matches_desktop:
        return "both"
    if wasm_matches_desktop:
        return "wasm"
    if webgpu_matches_desktop:
        return "webgpu"
    if wasm_matches_desktop is None or webgpu_matches_desktop is None:
        return None
    return "neither"


def classify(
    measurement: Measurement,
    console: ConsoleFacts,
    comparisons: Sequence[ComparisonRecord],
    context: VerdictContext,
) -> Verdict:
    """The verdict of one run; the module's docstring gives the rules and their order."""
    if context.failure_class is not None:
        message = context.failure_message or context.failure_class
        return Verdict(
            status="load_failed",
            failure_class=context.failure_class,
            error=message,
            reason=message,
            cause="unknown",
            loads=False,
            runs=False,
        )
    decided = _decide(measurement, console, comparisons, context)
    loads = decided.status not in ("unavailable", "load_failed")
    against_wasm = [c for c in comparisons if c.against == "wasm"]
    on_gpu = context.backend != "wasm_xnnpack"
    return decided.model_copy(
        update={
            "flags": flags_of(decided, measurement, comparisons, context),
            "full_delegation": full_delegation(measurement, console) if loads else None,
            "output_match": _strict_match(against_wasm) if on_gpu and decided.runs else None,
            "max_abs_diff": largest(c.facts.max_abs for c in against_wasm if decided.runs),
            "max_rel_diff": largest(c.facts.max_rel for c in against_wasm if decided.runs),
            "loads": loads,
            "not_reported": _not_reported(measurement) if loads else (),
        }
    )


def full_delegation(measurement: Measurement, console: ConsoleFacts) -> bool | None:
    """Whether the GPU took every operator; None for wasm, and where nothing tells.

    `isFullyAccelerated` alone proves nothing: after a whole-model fallback it can be true.
    """
    if measurement.backend == "wasm_xnnpack":
        return None
    if fell_back(measurement, console):
        return False
    return measurement.fully_accelerated


def fell_back(measurement: Measurement, console: ConsoleFacts) -> bool:
    """Some or all operators are known to have run on the CPU although the GPU was asked for."""
    return measurement.backend != "wasm_xnnpack" and (
        measurement.fully_accelerated is False
        or measurement.accelerator == "wasm"
        or console.delegation.fallback is True
        or (console.delegation.ops_on_cpu or 0) > 0
    )


def _decide(
    measurement: Measurement,
    console: ConsoleFacts,
    comparisons: Sequence[ComparisonRecord],
    context: VerdictContext,
) -> Verdict:
    refused = refused_gpu_work(console, measurement.gpu_errors)
    on_gpu = context.backend != "wasm_xnnpack"
    failure_cause: Cause = "unknown"
    if on_gpu and refused and refused.validation:
        failure_cause = "gpu_validation_error"
    failure = failure_of(measurement, console, model_bytes=context.model_bytes)
    if failure is not None:
        unavailable = failure.status == "unavailable"
        return Verdict(
            status=failure.status,
            failure_class=failure.failure_class,
            error=failure.error,
            reason=failure.reason,
            cause=None if unavailable else failure_cause,
            loads=False,
            runs=False,
        )
    if console.fatal:
        lines = dict.fromkeys(line.text.splitlines()[0] for line in console.fatal)
        return Verdict(
            status="run_failed",
            failure_class="run_error",
            error="\n".join(lines),
            reason=f"run() returned, but nothing was computed: {telling_line(console)}",
            cause=failure_cause,
            loads=True,
            runs=False,
        )
    lost = lost_device(measurement)
    if on_gpu and lost:
        return Verdict(
            status="run_failed",
            failure_class="device_lost",
            error=f"the GPU device was lost: {lost}",
            reason=f"The GPU device was lost during the job ({lost})",
            cause=failure_cause,
            loads=True,
            runs=False,
        )
    if not any(run.outputs for run in measurement.runs):
        return Verdict(
            status="run_failed",
            failure_class="no_output",
            error="the run gave no output",
            reason="The run ended without an error and gave no output",
            cause=failure_cause,
            loads=True,
            runs=False,
        )
    return _judge_values(measurement, console, comparisons, context, refused if on_gpu else None)


def _judge_values(
    measurement: Measurement,
    console: ConsoleFacts,
    comparisons: Sequence[ComparisonRecord],
    context: VerdictContext,
    refused: Refusal | None,
) -> Verdict:
    references, invalid = _references(comparisons, context)
    right = tuple(a for a, judged in references.items() if not any(wrong(c) for c in judged))
    partial = fell_back(measurement, console)
    if references and not right:
        return _mismatch(references, context, refused, partial)
    if refused is not None:
        return Verdict(
            status="run_failed",
            failure_class="memory_ceiling" if refused.out_of_memory else "backend_error",
            error=refused.message,
            reason=f"The GPU refused commands, so the values prove nothing: {refused.message}",
            cause="gpu_validation_error" if refused.validation else "unknown",
            loads=True,
            runs=False,
        )
    if not references:
        return _unverified(comparisons, context, invalid)
    covered = tuple(a for a in right if not _uncompared(measurement, comparisons, a))
    if not covered:
        missed = _uncompared(measurement, comparisons, right[0])
        return Verdict(
            status="unverified",
            reason=f"{missed} outputs could not be compared with {' or '.join(right)}",
            loads=True,
            runs=True,
        )
    right = covered
    judged = [c for against in right for c in references[against]]
    unseen = sorted({c.output for c in judged if all_non_finite(c)})
    if unseen:
        return Verdict(
            status="unverified",
            reason=f"No finite value on either side in {', '.join(unseen)}: nothing to compare",
            cause="nan_both",
            loads=True,
            runs=True,
        )
    grade = min((worst_grade(references[a]) for a in right), key=badness)
    agrees = f"agrees with {' and '.join(right)} ({numbers(judged, grade)})"
    reason = f"{where_it_ran(measurement, console)}; {agrees}" if partial else f"Output {agrees}"
    return Verdict(
        status="fallback" if partial else "pass",
        reason=reason,
        verified_against=right,
        grade=grade,
        loads=True,
        runs=True,
    )


def _references(
    comparisons: Sequence[ComparisonRecord], context: VerdictContext
) -> tuple[dict[Against, list[ComparisonRecord]], str | None]:
    """The comparisons that count, by reference, and why the wasm reference does not count."""
    by: dict[Against, list[ComparisonRecord]] = {"wasm": [], "desktop": []}
    for comparison in comparisons:
        comparable = comparison.facts.elements > 0 and comparison.facts.problem is None
        if comparable or wrong(comparison):
            by[comparison.against].append(comparison)
    if context.backend == "wasm_xnnpack":
        return ({"desktop": by["desktop"]} if by["desktop"] else {}), None
    problem = None
    if not context.wasm_sound:
        status = context.wasm_status
        problem = f"the wasm run is {status}" if status else "there is no wasm run"
    elif context.wasm_agrees_with_desktop is False:
        problem = "the wasm run disagrees with the desktop reference"
    elif any(_reference_non_finite(c) for c in by["wasm"]):
        problem = "the wasm run gave non-finite values where this backend did not"
    elif by["wasm"] and not by["desktop"] and all(_only_reference_zero(c) for c in by["wasm"]):
        problem = "the wasm run gave nothing but zeros, which no desktop reference confirms"
    if problem:
        by["wasm"] = []
    return {against: judged for against, judged in by.items() if judged}, problem


def _uncompared(
    measurement: Measurement, comparisons: Sequence[ComparisonRecord], against: Against
) -> int:
    """How many outputs of all runs were not held against this reference."""
    compared: dict[tuple[str, int], set[str]] = {}
    for c in comparisons:
        if c.against == against:
            compared.setdefault((c.signature, c.input_set), set()).add(c.output)
    missing = 0
    for run in measurement.runs:
        given = {output.name for output in run.outputs if output.run == "first"}
        missing += max(0, len(given) - len(compared.get((run.signature, run.input_set), ())))
    return missing


def _reference_non_finite(comparison: ComparisonRecord) -> bool:
    measured, reference = non_finite_counts(comparison)
    return reference > measured


def _only_reference_zero(comparison: ComparisonRecord) -> bool:
    return comparison.facts.reference.all_zero and not comparison.facts.measured.all_zero


def _mismatch(
    references: dict[Against, list[ComparisonRecord]],
    context: VerdictContext,
    refused: Refusal | None,
    partial: bool,
) -> Verdict:
    # The reference it agrees with best: the milder charge is the one that stands on any account.
    against = min(references, key=lambda a: badness(worst_grade(references[a])))
    judged = references[against]
    bad = [c for c in judged if wrong(c)]
    worst = max(bad, key=error_size)
    own_non_finite = any(
        c.facts.nonfinite_positions_differ and non_finite_counts(c)[0] > 0 for c in bad
    )
    cause = mismatch_cause(
        judged,
        invalid=refused is not None and refused.validation,
        unstable=context.mismatch_after_first_run or unstable(context),
        partial=partial,
        pattern_kind=context.pattern_kind,
    )
    if cause == "nan_gpu_only" and context.backend == "wasm_xnnpack":
        cause = "unknown"  # the name speaks of the GPU
    reason = describe_mismatch(worst, against, bad)
    if context.mismatch_after_first_run:
        reason += "; the first run was right, a later one on the same input was not"
    if refused:
        reason += f"; the GPU refused commands: {refused.message}"
    elif partial:
        reason += "; a part ran on the CPU"
    return Verdict(
        status="output_mismatch",
        failure_class="non_finite" if own_non_finite else None,
        reason=reason,
        cause=cause,
        verified_against=tuple(references),
        grade=worst_grade(judged),
        loads=True,
        runs=True,
    )


def _unverified(
    comparisons: Sequence[ComparisonRecord], context: VerdictContext, invalid: str | None
) -> Verdict:
    desktop = {
        "ok": "the desktop reference gave no output to compare with",
        "skipped": "the desktop reference was not run",
        "failed": "the desktop reference failed",
        "crashed": "the desktop reference crashed",
        "timeout": "the desktop reference did not end in time",
    }[context.desktop_status]
    parts = [desktop]
    if context.backend != "wasm_xnnpack":
        parts.insert(0, invalid or "there is no wasm output to compare with")
    # A wasm run that timed out or crashed is no invalid reference: it is none.
    computed_nothing = context.wasm_status == "run_failed" and (
        context.wasm_failure_class in ("run_error", "no_output", "non_finite", None)
    )
    discarded = bool(invalid) and (
        computed_nothing or any(c.against == "wasm" for c in comparisons)
    )
    return Verdict(
        status="unverified",
        reason=f"Ran, but nothing to compare with: {', and '.join(parts)}",
        cause="reference_invalid" if discarded else None,
        loads=True,
        runs=True,
    )


def _not_reported(measurement: Measurement) -> tuple[str, ...]:
    missing = []
    if measurement.fully_accelerated is None:
        missing.append("isFullyAccelerated")
    if measurement.accelerator is None:
        missing.append("options.accelerator")
    return tuple(missing)


def _strict_match(against_wasm: Sequence[ComparisonRecord]) -> bool | None:
    matches = [c.facts.strict_match for c in against_wasm]
    if not matches or any(m is None for m in matches):
        return None
    if any(any(non_finite_counts(c)) for c in against_wasm):
        return None
    return all(matches)

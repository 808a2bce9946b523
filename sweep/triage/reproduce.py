"""Whether the fault is there, how steadily, what it looks like, and who stands alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sweep.record import ComparisonRecord, Record
from sweep.tolerance import is_mismatch
from sweep.triage.fault import Fault, shows
from sweep.triage.findings import (
    Agreement,
    Arbitration,
    ErrorFacts,
    OutputFinding,
    Reproduction,
    Side,
)
from sweep.triage.lab import Trial, error_size
from sweep.verify import Outputs, SetKey


def reproduction(trials: Sequence[Trial], fault: Fault, sets: int) -> Reproduction:
    """What several trials of the same model and inputs, each in a fresh page, say together."""
    showing = [t for t in trials if shows(fault, t)]
    seen = showing[0] if showing else trials[0]
    wrong_sets = sorted({c.input_set for t in showing for c in t.wrong})
    stability = [s for t in trials if t.verified for s in t.verified.stability]
    known = [same for s in stability for same in (s.second_same, s.last_same) if same is not None]
    within = all(known) if known else None
    across = _same_outputs([t.outputs for t in trials])
    steady = (
        None
        if within is None and across is None
        else bool(within is not False and across is not False)
    )
    independent = seen.verified.input_independent if seen.verified else None
    return Reproduction(
        reproduced=len(showing) == len(trials),
        pages=len(trials),
        input_sets=sets,
        wrong_sets=tuple(wrong_sets),
        same_within_page=within,
        same_across_pages=across,
        deterministic=steady,
        input_dependent=(0 < len(wrong_sets) < sets) if fault.kind == "mismatch" else None,
        ignores_input=independent,
        only_later_runs=bool(seen.verified and seen.verified.mismatch_after_first_run),
        outputs=tuple(_finding(seen, c) for c in _worst_per_output(seen.wrong)),
    )


def _worst_per_output(wrong: Sequence[ComparisonRecord]) -> list[ComparisonRecord]:
    worst: dict[str, ComparisonRecord] = {}
    for c in wrong:
        if c.output not in worst or error_size(c) > error_size(worst[c.output]):
            worst[c.output] = c
    return sorted(worst.values(), key=lambda c: -error_size(c))


def _finding(trial: Trial, c: ComparisonRecord) -> OutputFinding:
    pattern = trial.pattern_of(c)
    worst = c.facts.worst
    return OutputFinding(
        output=c.output,
        input_set=c.input_set,
        dtype=c.dtype,
        shape=c.shape,
        error=error_facts(c),
        pattern=pattern.kind,
        pattern_evidence=pattern.evidence,
        wrong_elements=c.facts.gross_outside,
        elements=c.facts.elements,
        worst_index=worst.index if worst else None,
        worst_measured=worst.measured if worst else None,
        worst_expected=worst.reference if worst else None,
    )


def error_facts(c: ComparisonRecord) -> ErrorFacts:
    """The numbers of one comparison that a report shows."""
    return ErrorFacts(
        nrmse=c.facts.nrmse,
        max_abs=c.facts.max_abs,
        grade=c.judgement.grade,
        reason=c.judgement.reason,
    )


def _same_outputs(found: Sequence[Mapping[SetKey, Outputs]]) -> bool | None:
    kept = [outputs for outputs in found if outputs]
    if len(kept) < 2:
        return None
    first = kept[0]
    return all(
        other.keys() == first.keys()
        and all(
            np.array_equal(value.view(np.uint8), other[key][name].view(np.uint8))
            if value.shape == other[key][name].shape and value.ndim
            else value.tobytes() == other[key][name].tobytes()
            for key, outputs in first.items()
            for name, value in outputs.items()
        )
        for other in kept[1:]
    )


def arbitration(record: Record, backend: str) -> Arbitration:
    """Who stands alone among the backend, wasm and the desktop reference, from one record."""
    by = {result.backend: result for result in record.results}
    target, wasm = by.get(backend), by.get("wasm_xnnpack")  # type: ignore[call-overload]
    desktop_ok = record.desktop is not None and record.desktop.status == "ok"
    sides = []
    if wasm is not None and backend != "wasm_xnnpack":
        sides.append(
            _side("wasm", "desktop", [c for c in wasm.comparisons if c.against == "desktop"])
        )
    name = "webgpu" if backend == "webgpu_mldrift" else backend.partition("_")[0]
    if target is not None:
        for against in ("wasm", "desktop"):
            if against == name:
                continue
            found = [c for c in target.comparisons if c.against == against]
            sides.append(_side(name, against, found))
    known = {frozenset((s.left, s.right)): s.agreement for s in sides}
    parties = sorted({p for s in sides for p in (s.left, s.right)})
    alone = [
        p
        for p in parties
        if all(
            known.get(frozenset((p, q))) == "differs" for q in parties if q != p
        )
        and any(
            known.get(frozenset((q, r))) == "agrees"
            for q in parties for r in parties if len({p, q, r}) == 3
        )
    ]  # fmt: skip
    if alone:
        others = " and ".join(p for p in parties if p != alone[0])
        statement = f"{alone[0]} stands alone: {others} agree with each other and not with it."
    elif sides and all(s.agreement == "agrees" for s in sides):
        statement = f"{', '.join(parties)} agree with one another."
    elif not desktop_ok:
        why = record.desktop.error if record.desktop else None
        statement = "The desktop reference gave nothing to arbitrate with" + (
            f": {why.splitlines()[-1]}" if why else "."
        )
    elif all(s.agreement == "not compared" for s in sides):
        statement = "Nothing could be compared."
    elif all(s.agreement == "differs" for s in sides) and len(sides) > 1:
        statement = "No two of them agree: nothing tells who is right."
    else:
        statement = "; ".join(f"{s.left} and {s.right}: {s.agreement}" for s in sides) + "."
    return Arbitration(alone=alone[0] if alone else None, statement=statement, sides=tuple(sides))


def _side(left: str, right: str, found: Sequence[ComparisonRecord]) -> Side:
    if not found:
        return Side(left=left, right=right, agreement="not compared")
    worst = max(found, key=error_size)
    wrong = any(is_mismatch(c.judgement.grade) for c in found)
    agreement: Agreement = "differs" if wrong else "agrees"
    return Side(
        left=left,
        right=right,
        agreement=agreement,
        nrmse=worst.facts.nrmse,
        detail=f"{worst.output}: {worst.judgement.reason}",
    )

"""The report of a case: what was observed, what is inferred from it, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweep.bench import Bench
from sweep.config import Frozen
from sweep.triage.composite import DISAGREE
from sweep.triage.findings import Arbitration, CorePart, Culprit, Report, Reproduction
from sweep.triage.lab import Lab
from sweep.triage.localise import plural
from sweep.triage.reproduce import arbitration

if TYPE_CHECKING:
    from sweep.triage.triage import Case


INTERFACE = "unsupported_dtype"
"""The failure class that the inputs and outputs cause, whatever the operators."""


class CommandFacts(Frozen):
    """What the bench knows of itself."""

    core: CorePart
    label: str

    @classmethod
    def of(cls, bench: Bench) -> CommandFacts:
        return cls(
            core=CorePart(version=bench.core.version, integrity=bench.core.integrity),
            label=bench.machine_label,
        )


def compose(case: Case, lab: Lab, facts: CommandFacts) -> Report:
    """The report of everything that was found."""
    request, result = case.request, case.result
    desktop = case.record.desktop
    reference = (
        f"{desktop.package} {desktop.version}"
        if lab.use_desktop and desktop is not None
        else "wasm_xnnpack in the same browser"
    )
    culprits = tuple(a.culprit for a in case.accusations)
    model = case.prepared.facts
    arbitrated = arbitration_of(case) if case.fault.kind != "failure" else None
    return Report(
        model_id=request.model_id,
        source=_public_source(request.source),
        sha256=model.sha256,
        bytes=model.bytes,
        operators=sum(o.count for o in model.operators),
        signature=case.subject.signature.key if case.subject else model.signatures[0].key,
        backend=request.backend,
        core=facts.core,
        reference=reference,
        env=result.env,
        date=request.date,
        command=f"litertjs-sweep triage {_public_source(request.source)} "
        f"--core {facts.core.version} --backend {request.backend}",
        kind=case.fault.kind,
        status=result.status or "unverified",
        failure_class=result.failure_class,
        reason=result.reason or "",
        headline=headline(case, culprits),
        reproduced=bool(case.reproduction and case.reproduction.reproduced)
        and case.fault.kind != "none",
        stable=case.reproduction.deterministic if case.reproduction else None,
        reproduction=case.reproduction,
        arbitration=arbitrated,
        ladder=case.ladder,
        delegation=case.delegation,
        exposure=case.localised.exposure,
        error_along_graph=tuple(
            sorted(case.localised.errors, key=lambda e: (e.how != "exposed", e.position, e.tensor))
        ),
        boundary=case.localised.boundary_words,
        singles_run=case.localised.singles_run,
        singles_right=case.localised.singles_right,
        culprits=culprits,
        observed=tuple(_observed(case, culprits)),
        inferred=tuple(_inferred(case, culprits)),
        evidence=result.evidence or (),
        notes=tuple(dict.fromkeys(case.notes)),
        complete=case.complete,
        seconds=round(case.budget.spent, 1),
        runs=lab.runs,
    )


def arbitration_of(case: Case) -> Arbitration:
    """Who stands alone on the whole model."""
    found = arbitration(case.record, case.request.backend)
    lines = tuple(
        line for a in case.accusations for line in a.culprit.evidence if "decomposition" in line
    )
    return found.model_copy(update={"facts": lines})


def headline(case: Case, culprits: tuple[Culprit, ...]) -> str:
    """One sentence: the operator as far as a reproducer shows it, else the fault."""
    backend = case.request.backend
    if case.fault.kind == "none":
        return f"No fault on {backend}: {case.result.status}."
    if case.result.failure_class == INTERFACE:
        what = (case.result.error or case.result.reason or "").removeprefix("Error: ")
        return (
            f"{case.fault.status} on {backend}: the model's inputs or outputs are refused ({what})"
        )
    if not culprits:
        return f"{case.fault.status} on {backend}; no smaller part of the model shows it."
    first = culprits[0]
    where = ", ".join(str(n) for n in first.node_indices[:6])
    verb = {
        "mismatch": "gives wrong values",
        "failure": "does not load" if case.fault.status == "load_failed" else "does not run",
        "fallback": "is left to the CPU",
    }[case.fault.kind]
    single = len(first.node_indices) == 1
    shape = next(
        (
            "×".join(map(str, t.shape))
            for o in first.operators[:1]
            for t in o.tensors
            if t.role == "input"
        ),
        None,
    )
    on = f" on a {len(shape.split('×'))}-D input ({shape})" if single and shape else ""
    return (
        f"{first.op}{on} {verb} on {backend} "
        f"(operator{'' if single else 's'} {where} of the model; confidence {first.confidence})."
    )


def _observed(case: Case, culprits: tuple[Culprit, ...]) -> list[str]:
    result = case.result
    lines = [f"The whole model is {result.status} on {result.backend}: {result.reason}"]
    if case.reproduction is not None:
        lines += _steadiness(case.reproduction, case.fault.kind)
    if case.fault.kind == "mismatch":
        lines.append(arbitration_of(case).statement)
    if case.localised.boundary_words:
        lines.append(case.localised.boundary_words)
    lines += case.localised.observed
    exposure = case.localised.exposure
    if exposure is not None:
        lines.append(exposure.statement)
    if case.localised.singles_run:
        lines.append(
            f"{plural(case.localised.singles_run, 'operator')}, one of each kind and shape, run "
            f"alone and fed with "
            f"{'drawn inputs' if _values_unknown(case) else 'reference values'}: "
            f"{case.localised.singles_run - case.localised.singles_right} show the fault, "
            f"{case.localised.singles_right} do not."
        )
    if case.delegation is not None:
        lines.append(case.delegation.statement)
    for culprit in culprits:
        lines += list(culprit.evidence)
    if case.ladder is not None:
        lines.append("Whole model: " + case.ladder.statement)
    if case.repro_ladder is not None:
        ran = [r for r in case.repro_ladder.rungs if r.status != "not_run"]
        lines.append(
            "The reproducer on other releases: "
            + ", ".join(f"{r.name.removeprefix('core ')} {r.status}" for r in ran)
            + "."
            if ran
            else "The reproducer was run on no other release."
        )
    return list(dict.fromkeys(lines))


def _values_unknown(case: Case) -> bool:
    return case.subject is not None and (
        case.subject.unknown is not None
        or len(case.subject.values[0]) <= len(case.subject.signature.inputs)
    )


def _steadiness(found: Reproduction, kind: str) -> list[str]:
    lines = []
    if kind == "none":
        return [f"It did not show in {found.pages} fresh pages."]
    if found.reproduced:
        lines.append(f"It shows in each of {found.pages} fresh pages.")
    else:
        lines.append(f"It shows in some of {found.pages} fresh pages only.")
    if kind == "mismatch":
        lines.append(
            f"Wrong on {len(found.wrong_sets)} of {found.input_sets} input sets"
            + (f" ({', '.join(map(str, found.wrong_sets))})." if found.input_dependent else ".")
        )
        if found.deterministic:
            lines.append("Repeated runs and pages give the same bytes.")
        elif found.deterministic is False:
            where = "within one page" if found.same_within_page is False else "from page to page"
            lines.append(f"Repeated runs on the same input differ {where}: nondeterministic.")
        if found.only_later_runs:
            lines.append("The first run of a page is right, a later one on the same input is not.")
        if found.ignores_input:
            lines.append("Different inputs give the same outputs, unlike on the reference.")
        lines += [
            f"Output {o.output!r} ({o.dtype}, {'×'.join(map(str, o.shape))}): {o.error.reason}"
            + (f"; pattern {o.pattern}: {o.pattern_evidence}" if o.pattern != "none" else "")
            + "."
            for o in found.outputs[:8]
        ]
    return lines


def _inferred(case: Case, culprits: tuple[Culprit, ...]) -> list[str]:
    lines = []
    backend = case.request.backend
    for culprit in culprits:
        if culprit.confidence == "low":
            continue
        repro = culprit.repro
        what = {
            "mismatch": f"{culprit.op} is where {backend} and the references part",
            "failure": f"{culprit.op} is what {backend} does not {_verb(case)}",
            "fallback": f"{culprit.op} is what {backend} leaves to the CPU",
        }[case.fault.kind]
        if repro.failure_class == INTERFACE:
            lines.append(
                "The message names the element type of an input or output, so any operator would "
                f"do: {culprit.op} is only the smallest model with such an input or output."
            )
            continue
        lines.append(f"{what} ({culprit.confidence}: {culprit.confidence_because}).")
        right = [c for c in repro.controls if c.status in ("pass", "fallback")]
        if any(c.name == "prepared weights" for c in right):
            lines.append(
                "With the weights stored as the graph would prepare them the operator is right: "
                "preparing them in the graph is part of the condition."
            )
        bent = [c for c in right if c.name in ("2-D input", "1×1 spatial", "rank 4")]
        if bent and repro.inputs:
            shapes = ", ".join("×".join(map(str, s)) for s in repro.inputs.values())
            lines.append(
                f"The same values and weights under another input shape come out right "
                f"({', '.join(c.name for c in bent)}), so the input's shape ({shapes}) is part of "
                "the condition."
            )
        if any(d.unused for d in repro.dependence):
            lines.append("Part of the input is never read, which accounts for the wrong values.")
        if culprit.also_shown:
            shown = ", ".join(map(str, culprit.also_shown[:24]))
            lines.append(
                f"Operators {shown} of the model show the fault by themselves as well; they are "
                "of the same kind, so this is taken to be one fault."
            )
        if culprit.also:
            also = ", ".join(map(str, culprit.also[:12]))
            lines.append(
                f"Operators {also} are of the same kind, options and shapes and are likely to do "
                "the same; they were not run."
            )
    exposure = case.localised.exposure
    if exposure is not None and exposure.effect == "heals":
        lines.append(
            "Exposing tensors heals the model, so the fault lies in operators that the delegate "
            "computes together (fusion), not in one of them."
        )
    if any(DISAGREE in line for c in culprits for line in c.evidence):
        lines.append(
            f"{backend} computes the composite by a kernel of its own, by its name, and not by the "
            "decomposition in the file; here these two definitions disagree. Which is meant, the "
            "file does not say: this may be a fault of the model file as well as of the backend."
        )
    if case.fault.kind == "mismatch" and case.delegation is not None and case.delegation.on_cpu:
        lines.append(
            "The model is split between GPU and CPU; whether the split or the operators are at "
            "fault only the reproducers tell."
        )
    if not lines and case.fault.kind != "none":
        lines.append("Nothing beyond the observations: no smaller model shows the fault.")
    return list(dict.fromkeys(lines))


def _verb(case: Case) -> str:
    return "load" if case.fault.status == "load_failed" else "run"


def _public_source(source: str) -> str:
    """A local file by its name only: where it lies on this machine is nobody's business."""
    if ":" in source.split("/")[0] and not source.startswith("file:"):
        return source
    return source.replace("\\", "/").rsplit("/", 1)[-1]

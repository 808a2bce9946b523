"""From a set of operators that shows the fault to a culprit: shrunk, confirmed, with controls."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sweep.catalog import CatalogEntry
from sweep.measure import measure_model
from sweep.prepare import Prepared, prepare
from sweep.record import Record, Result
from sweep.sources import FetchOptions, ModelCache
from sweep.tolerance import is_mismatch
from sweep.triage import graph as graphs
from sweep.triage.budget import Budget
from sweep.triage.composite import composite_facts
from sweep.triage.controls import depends_on, run_controls
from sweep.triage.fault import Fault
from sweep.triage.findings import Confidence, Control, Culprit, Repro
from sweep.triage.lab import Lab, error_size
from sweep.triage.reproduce import arbitration
from sweep.triage.resize import fed_shapes
from sweep.triage.shrink import Shrunk, operator_count, shrink
from sweep.triage.subject import Subject

Array = np.ndarray[Any, np.dtype[Any]]

REPRO_ID = "repro"


@dataclass(frozen=True)
class ReproFiles:
    """What is written beside the report for one culprit."""

    data: bytes
    inputs: tuple[Mapping[str, Array], ...]
    """Per input set: name → array."""
    expected: tuple[Mapping[str, Array], ...]
    """Per input set: output name → the reference's array; empty where it gave none."""
    record: Record


@dataclass(frozen=True)
class Accusation:
    """A culprit and its files."""

    culprit: Culprit
    files: ReproFiles
    shrunk: Shrunk


async def accuse(
    subject: Subject,
    lab: Lab,
    fault: Fault,
    window: Sequence[int],
    budget: Budget,
    date: str,
    *,
    input_set: int,
) -> Accusation | None:
    """Shrinks the operators to a reproducer and measures that as any model, in a fresh page.

    None where they do not show the fault after all.
    """
    shrunk = await shrink(
        subject, lab, fault, window, budget, input_set=input_set, model_id=REPRO_ID
    )
    if shrunk is None:
        return None
    record = await measure_repro(lab, shrunk, date)
    result = _result(record, lab.backend)
    fixed = graphs.constant_nodes(subject.graph)
    acting = [n for n in shrunk.operators if n not in fixed]
    composed = any(subject.graph.nodes[n].subgraphs for n in shrunk.operators)
    single = len(acting) <= 1
    controls: tuple[Control, ...] = ()
    dependence: tuple[Any, ...] = ()
    if fault.kind == "mismatch":
        if single and not composed:
            controls = await run_controls(lab, shrunk.data, shrunk.sets, shrunk.right)
        dependence = await depends_on(lab, shrunk.data, shrunk.sets[0])
    composites = [
        line
        for node in shrunk.operators
        for line in await composite_facts(subject, lab, node, input_set, fault)
    ]
    wrong = [c for c in result.comparisons if is_mismatch(c.judgement.grade)]
    worst = max(wrong, key=error_size, default=None)
    pattern = shrunk.trial.pattern()
    sets = record.config.input_sets or len(shrunk.sets)
    repro = Repro(
        model="repro.tflite",
        bytes=len(shrunk.data),
        sha256=hashlib.sha256(shrunk.data).hexdigest(),
        operators=operator_count(shrunk.data),
        inputs=fed_shapes(shrunk.data),
        inputs_are=shrunk.inputs_are,
        constants_are=shrunk.constants_are,
        status=result.status or "unverified",
        reason=result.reason or "",
        failure_class=result.failure_class,
        wasm_status=_result(record, "wasm_xnnpack").status,
        nrmse=worst.facts.nrmse if worst else None,
        max_abs=worst.facts.max_abs if worst else None,
        pattern=pattern.kind,
        pattern_evidence=pattern.evidence,
        wrong_sets=tuple(sorted({c.input_set for c in wrong})),
        input_sets=len(shrunk.sets) if not shrunk.inputs_are.startswith("what a sweep") else sets,
        shrink=shrunk.steps,
        controls=controls,
        dependence=dependence,
        arbitration=arbitration(record, lab.backend),
    )
    nodes = [subject.graph.nodes[n] for n in shrunk.operators]
    main = [n for n in nodes if n.index not in fixed] or nodes
    kind = subject.kind(main[0])
    confidence, because = _confidence(lab, fault, repro, single)
    culprit = Culprit(
        op=" + ".join(_named(n) for n in nodes),
        node_indices=tuple(n.index for n in nodes),
        tensors=_tensors(subject, shrunk.operators),
        operators=tuple(subject.operator(n.index) for n in nodes),
        confidence=confidence,
        confidence_because=because,
        evidence=tuple(_evidence(lab, fault, repro, result, composites)),
        repro=repro,
        also=tuple(
            n.index
            for n in subject.graph.nodes
            if len(main) == 1 and n.index != main[0].index and subject.kind(n) == kind
        ),
    )
    return Accusation(culprit, await _files(lab, shrunk, record), shrunk)


async def measure_repro(lab: Lab, shrunk: Shrunk, date: str) -> Record:
    """A whole measurement of the reproducer, in fresh pages, as `litertjs-sweep model` makes it."""
    folder = lab.directory / hashlib.sha256(shrunk.data).hexdigest()[:12]
    folder.mkdir(exist_ok=True)
    (folder / f"{REPRO_ID}.tflite").write_bytes(shrunk.data)
    entry = CatalogEntry(
        model_id=REPRO_ID, source=f"./{REPRO_ID}.tflite", license="as the model it was cut from"
    )
    with ModelCache(folder / "cache") as cache:
        ready = await prepare(entry, folder, lab.bench.config, cache, FetchOptions())
        if isinstance(ready, Prepared) and not shrunk.inputs_are.startswith("what a sweep"):
            ready = replace(
                ready,
                sets=tuple(
                    {key: dict(values) for key, values in one.items()} for one in shrunk.sets
                ),
            )
        for backend in {"wasm_xnnpack", lab.backend}:
            await lab.bench.recycle(backend)
        return await measure_model(lab.bench, ready, date)


async def _files(lab: Lab, shrunk: Shrunk, record: Record) -> ReproFiles:
    inputs = tuple(dict(next(iter(one.values()))) for one in shrunk.sets)
    expected: list[Mapping[str, Array]] = []
    for one in shrunk.sets:
        given = await lab.desktop(shrunk.data, one)
        if isinstance(given, str):
            expected = []
            break
        expected.append(dict(next(iter(given.values()))))
    if not expected and shrunk.trial.reference:
        expected = [dict(v) for _, v in sorted(shrunk.trial.reference.items())]
    return ReproFiles(shrunk.data, inputs, tuple(expected), record)


def _result(record: Record, backend: str) -> Result:
    return next(r for r in record.results if r.backend == backend)


def _named(node: graphs.Node) -> str:
    name = node.options.get("name") if node.op == "STABLEHLO_COMPOSITE" else None
    return f"{node.op} {name}" if name else node.op


def _tensors(subject: Subject, nodes: Sequence[int]) -> tuple[Any, ...]:
    seen: dict[int, Any] = {}
    for node in nodes:
        for tensor in subject.operator(node).tensors:
            seen.setdefault(tensor.index, tensor)
    return tuple(seen.values())


def _confidence(lab: Lab, fault: Fault, repro: Repro, single: bool) -> tuple[Confidence, str]:
    if repro.status != fault.status:
        return "low", (
            f"the reproducer showed the fault during the search, but a whole measurement of it in "
            f"a fresh page says {repro.status}"
        )
    doubts = []
    if repro.failure_class == "unsupported_dtype":
        doubts.append("what is refused is an element type of inputs or outputs, not the operator")
    if not single:
        doubts.append(f"it takes {repro.operators} operators together")
    if fault.kind == "mismatch":
        if len(repro.wrong_sets) < 2:
            doubts.append("it was seen on one input only")
        alone = repro.arbitration.alone if repro.arbitration else None
        if alone is None or not lab.backend.startswith(alone):
            doubts.append("the references do not both stand against it")
    if doubts:
        return "medium", "confirmed in a fresh page, but " + " and ".join(doubts)
    words = "one operator alone shows it in a fresh page"
    if repro.operators > 1:
        words = "one operator with what prepares its weights shows it in a fresh page"
    if fault.kind == "mismatch":
        words += (
            f", on {len(repro.wrong_sets)} of {repro.input_sets} inputs, against two references"
        )
    return "high", words


def _evidence(
    lab: Lab, fault: Fault, repro: Repro, result: Result, composites: Sequence[str]
) -> list[str]:
    lines = [
        f"A model of {repro.operators} operator{'s' if repro.operators > 1 else ''} "
        f"({repro.bytes} bytes, inputs {_shapes(repro)}) is {repro.status} on {lab.backend} in a "
        f"fresh page: {repro.reason}",
    ]
    if repro.wasm_status:
        lines.append(f"On wasm_xnnpack the same file is {repro.wasm_status}.")
    delegation = result.delegation
    if delegation is not None and delegation.unsupported:
        said = "; ".join(f"{u.op}: {u.reason}" for u in delegation.unsupported)
        lines.append(f"The delegate says of it: {said}")
    if fault.kind == "mismatch":
        if repro.pattern != "none":
            lines.append(f"Pattern `{repro.pattern}`: {repro.pattern_evidence}.")
        lines += [d.statement for d in repro.dependence]
        if repro.arbitration:
            lines.append(repro.arbitration.statement)
        lines += [
            f"Neighbour, {c.name} ({c.changed}): {c.status}"
            + (f", normalised RMSE {c.nrmse:.3g}" if c.nrmse is not None else "")
            + "."
            for c in repro.controls
        ]
    return [*lines, *composites]


def _shapes(repro: Repro) -> str:
    return ", ".join("×".join(map(str, s)) or "scalar" for s in repro.inputs.values()) or "none"


def write_repro(files: ReproFiles, folder: Path) -> dict[str, Any]:
    """Writes the model, inputs and expected outputs; returns what repro.html needs to know."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "repro.tflite").write_bytes(files.data)
    listed: dict[str, Any] = {"sets": []}
    for index, inputs in enumerate(files.inputs):
        entry: dict[str, Any] = {"inputs": [], "expected": []}
        for kind, arrays in (
            ("inputs", inputs),
            ("expected", files.expected[index] if index < len(files.expected) else {}),
        ):
            for position, (name, array) in enumerate(arrays.items()):
                path = Path(kind) / f"set{index}-{position}.npy"
                (folder / kind).mkdir(exist_ok=True)
                np.save(folder / path, np.ascontiguousarray(array), allow_pickle=False)
                entry[kind].append({"name": name, "file": path.as_posix()})
        listed["sets"].append(entry)
    return listed

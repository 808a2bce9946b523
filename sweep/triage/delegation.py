"""Which operators stay on the CPU, why, and what the borders cost."""

from __future__ import annotations

import math
from collections.abc import Collection

from sweep.console import Delegation
from sweep.triage import graph as graphs
from sweep.triage.budget import Budget
from sweep.triage.fault import fault_of
from sweep.triage.findings import DelegationFinding
from sweep.triage.graph import Graph
from sweep.triage.lab import Lab
from sweep.triage.localise import plural
from sweep.triage.subject import Subject

TRIED_PER_OP = 3
"""Shapes of one operator that are run; if all stay on the CPU the others are taken to do so."""

BYTES = {"float32": 4, "int32": 4, "uint8": 1, "int8": 1, "bool": 1, "float16": 2, "int64": 8}


async def find_on_cpu(
    subject: Subject, lab: Lab, asked: Delegation, budget: Budget, input_set: int
) -> tuple[list[int], list[int], bool]:
    """Operators that, alone in a model, are left to the CPU; those taken to be like them; and
    whether the search came to its end.

    Those that the delegate named are tried first; where it named none, all are.
    """
    named = {u.op for u in asked.unsupported}
    fixed = graphs.constant_nodes(subject.graph)
    order = sorted(subject.graph.nodes, key=lambda n: (n.op not in named, n.index))
    kinds: dict[str, bool] = {}
    outcomes: dict[str, list[bool]] = {}
    found: list[int] = []
    alike: list[int] = []
    for node in order:
        kind = subject.kind(node)
        if kind not in kinds:
            if named and node.op not in named:
                continue
            before = outcomes.setdefault(node.op, [])
            if len(before) >= TRIED_PER_OP and len(set(before)) == 1:
                alike += [node.index] if before[0] else []
                continue
            if budget.left <= 0:
                return sorted(found), alike, False
            nodes = _with_reader(subject, node.index) if node.index in fixed else [node.index]
            candidate = subject.part(nodes, sets=(input_set,))
            if candidate is None:
                continue
            trial = await lab.run(candidate.data, candidate.sets)
            reported = {u.op for u in trial.console.delegation.unsupported}
            fell = fault_of(trial).kind == "fallback" or bool(
                trial.console.delegation.ops_on_cpu or trial.measurement.accelerator == "wasm"
            )
            kinds[kind] = fell and (not reported or node.op in reported)
            before.append(kinds[kind])
        if kinds[kind]:
            found.append(node.index)
    return sorted(found), alike, True


def _with_reader(subject: Subject, index: int) -> list[int]:
    """An operator that prepares a weight, and the first operators that read what it prepares."""
    chosen = [index]
    fixed = graphs.constant_nodes(subject.graph)
    while chosen[-1] in fixed:
        readers = [
            c for t in subject.graph.nodes[chosen[-1]].outputs
            for c in subject.graph.consumers.get(t, ())
        ]  # fmt: skip
        if not readers:
            break
        chosen.append(readers[0])
    return chosen


def borders(graph: Graph, on_cpu: Collection[int]) -> tuple[int, int, int]:
    """(GPU partitions, tensors that cross, their bytes) if exactly these ran on the CPU.

    Partitions as TFLite makes them: operators are taken in the file's order, one device as long
    as any operator of it is ready. Weights that are prepared on the CPU cross once as well.
    """
    cpu = set(on_cpu)
    waiting = [n.index for n in graph.nodes]
    done: set[int] = set()
    on_gpu, partitions, idle = False, 0, 0
    while waiting and idle < 2:
        taken = False
        while ready := [n for n in waiting if (n not in cpu) == on_gpu and _ready(graph, n, done)]:
            done.update(ready)
            waiting = [n for n in waiting if n not in done]
            taken = True
        partitions += taken and on_gpu
        idle = 0 if taken else idle + 1
        on_gpu = not on_gpu
    crossing = [
        t
        for t, producer in graph.producer.items()
        if any((c in cpu) != (producer in cpu) for c in graph.consumers.get(t, ()))
    ]
    total = sum(
        BYTES.get(graph.tensors[t].dtype, 4) * math.prod(max(d, 1) for d in graph.tensors[t].shape)
        for t in crossing
    )
    return partitions, len(crossing), total


def _ready(graph: Graph, node: int, done: Collection[int]) -> bool:
    return all(graph.producer[t] in done for t in graph.nodes[node].inputs if t in graph.producer)


def finding(
    subject: Subject,
    delegation: Delegation,
    on_cpu: Collection[int],
    alike: Collection[int],
    complete: bool,
) -> DelegationFinding:
    """Facts of the delegation, with the borders counted along the graph."""
    left = {*on_cpu, *alike}
    counted = borders(subject.graph, left) if left else (None, None, None)
    partitions = delegation.partitions if delegation.partitions is not None else counted[0]
    named = ", ".join(dict.fromkeys(subject.graph.nodes[n].op for n in on_cpu))
    said = ""
    if delegation.ops_on_gpu is not None:
        said = (
            f"The runtime says that {delegation.ops_on_gpu} operators run on the GPU and "
            f"{delegation.ops_on_cpu} on the CPU. "
        )
    if on_cpu:
        parts = plural(counted[0] or 0, "GPU partition")
        tensors = plural(counted[1] or 0, "tensor")
        said += (
            f"{plural(len(on_cpu), 'operator')} ({named}) left to the CPU also when alone"
            + (f", and {len(alike)} more of the same names are taken to be" if alike else "")
            + f"; counted along the graph that makes {parts} and {tensors} ({counted[2]} bytes) "
            "that cross between GPU and CPU."
        )
    elif not complete:
        said += "Which operators these are was not found out in the time given."
    else:
        said += "No operator alone is left to the CPU."
    return DelegationFinding(
        delegation=delegation,
        on_cpu=tuple(subject.operator(n) for n in on_cpu),
        on_cpu_alike=tuple(sorted(alike)),
        reasons=tuple(
            f"{u.op}: {u.reason}" + (f" ({u.tensor})" if u.tensor else "")
            for u in delegation.unsupported
        ),
        gpu_partitions=partitions,
        transfers=counted[1],
        transfer_bytes=counted[2],
        statement=said.strip(),
    )

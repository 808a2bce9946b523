"""A composite operator against its own decomposition: two definitions of one thing in one file."""

from __future__ import annotations

from typing import Any

import numpy as np

from sweep.triage import graph as graphs
from sweep.triage.constants import Array
from sweep.triage.cut import SIGNATURE, cut
from sweep.triage.fault import Fault
from sweep.triage.lab import Lab
from sweep.triage.rebuild import CutError, ModelFile
from sweep.triage.resize import stored_values
from sweep.triage.subject import Subject

DISAGREE = "give different values"


async def composite_facts(
    subject: Subject, lab: Lab, index: int, input_set: int, fault: Fault
) -> list[str]:
    """What running a composite's decomposition as a model of its own tells.

    A delegate may have a kernel of its own for a composite by its name; the CPU runs the
    decomposition that the file carries.
    """
    node = subject.graph.nodes[index]
    if node.op != "STABLEHLO_COMPOSITE" or not node.subgraphs:
        return []
    name = str(node.options.get("name"))
    inner = graphs.read(subject.model, node.subgraphs[0])
    known = subject.values[input_set]
    feeds: dict[int, Array] = {}
    for outer, tensor in zip(node.inputs, inner.inputs, strict=False):
        value = known.get(outer)
        if value is None:
            value = _constant(subject.model, subject.graph.subgraph, outer)
        if value is None:
            return [
                f"The inputs of composite {name!r} are unknown, so its decomposition was not run."
            ]
        feeds[tensor] = value
    try:
        model = cut(
            subject.model,
            operators=range(len(inner.nodes)),
            inputs=inner.inputs,
            outputs=inner.outputs,
            subgraph=inner.subgraph,
        )
    except CutError as error:
        return [f"The decomposition of composite {name!r} cannot be run by itself: {error}"]
    given = {SIGNATURE: {p.name: feeds[p.tensor] for p in model.inputs}}
    trial = await lab.run(model.data, (given,), fresh=True)
    facts = [
        f"Operator {index} is a composite named {name!r}; the file gives its decomposition as "
        f"subgraph {inner.subgraph} of {len(inner.nodes)} operators "
        f"({', '.join(dict.fromkeys(n.op for n in inner.nodes))})."
    ]
    facts += [
        f"In the decomposition, operator {n.index} ({n.op}) subtracts tensor {n.inputs[0]} "
        f"{inner.tensors[n.inputs[0]].name!r} from itself, which is zero whatever the input."
        for n in inner.nodes
        if n.op in ("SUB", "STABLEHLO_SUBTRACT")
        and len(n.inputs) == 2
        and n.inputs[0] == n.inputs[1]
    ]
    status = trial.verdict.status
    if fault.kind == "mismatch" and status in ("pass", "fallback"):
        facts.append(
            f"Run as a model of its own the decomposition comes out the same on {lab.backend} and "
            f"on the desktop reference ({trial.verdict.reason}): on {lab.backend} the composite "
            f"and its own decomposition {DISAGREE}."
        )
    else:
        facts.append(
            f"Run as a model of its own the decomposition is {status} on {lab.backend}: "
            f"{trial.verdict.reason}"
        )
    reference = (trial.reference or {}).get((SIGNATURE, 0), {})
    if reference and all(not np.any(np.asarray(v)) for v in reference.values()):
        facts.append("What the decomposition gives on the desktop reference is all zeros.")
    return facts


def _constant(model: ModelFile, subgraph: int, tensor: int) -> Array | None:
    raw: Any = model.tree.subgraphs[subgraph].tensors[tensor] if tensor >= 0 else None
    return stored_values(model.tree, raw) if raw is not None else None

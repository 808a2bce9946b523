"""Weights that the graph prepares (DEQUANTIZE, DENSIFY …), prepared beforehand instead.

Where that cures a model, the preparing operator is part of the fault; where it does not, it was
never needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sweep.triage import graph as graphs
from sweep.triage.cut import SIGNATURE, cut
from sweep.triage.lab import InputSet, Lab
from sweep.triage.rebuild import CutError, ModelFile, open_model

_NUMPY = {"float32": "<f4", "float16": "<f2", "float64": "<f8", "int32": "<i4", "int8": "|i1",
          "uint8": "|u1", "int64": "<i8", "int16": "<i2"}  # fmt: skip


async def folded(lab: Lab, data: bytes, node: int, inputs: InputSet) -> bytes | None:
    """The model without one operator of constant result, whose result is stored instead.

    `inputs` are any that the model runs on: the reference is asked for the result while it runs.
    None where the operator is none such, or its result cannot be had.
    """
    model = open_model(data)
    graph = graphs.read(model)
    if node not in graphs.constant_nodes(graph) or len(graph.nodes[node].outputs) != 1:
        return None
    (tensor,) = graph.nodes[node].outputs
    if tensor in graph.outputs or graph.tensors[tensor].dtype not in _NUMPY:
        return None
    try:
        shown = cut(
            model, operators=range(len(graph.nodes)), inputs=graph.inputs, outputs=(tensor,)
        )
    except CutError:
        return None
    # XNNPACK takes weights apart by itself and leaves such a tensor unwritten.
    given = await lab.desktop(shown.data, inputs, kernels="builtin")
    if isinstance(given, str):
        return None
    value = next(iter(given[SIGNATURE].values()))
    tree = open_model(data).tree
    raw: Any = tree.subgraphs[0].tensors[tensor]
    flat = np.ascontiguousarray(value.astype(_NUMPY[graph.tensors[tensor].dtype]))
    tree.buffers.append(schema.BufferT(data=flat.reshape(-1).view(np.uint8)))
    raw.buffer = len(tree.buffers) - 1
    raw.sparsity = None
    tree.subgraphs[0].operators.pop(node)
    rest = graphs.read(ModelFile("the folded model", tree))
    needed = graphs.ancestors(rest, rest.outputs)
    # Cutting drops what the operator read.
    return cut(
        ModelFile("the folded model", tree),
        operators=needed,
        outputs=rest.outputs,
        inputs=rest.inputs,
    ).data


async def fold_all(lab: Lab, data: bytes, inputs: InputSet) -> bytes | None:
    """The model with no operator of constant result left; None where there is none, or not all
    can be stored."""
    changed = False
    while fixed := graphs.constant_nodes(graphs.read(data)):
        smaller = await folded(lab, data, min(fixed), inputs)
        if smaller is None:
            return None
        data, changed = smaller, True
    return data if changed else None

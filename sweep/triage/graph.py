"""A read-only view of one subgraph: operators in order, who produces and who consumes what."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sweep.triage.rebuild import CutError, Source, open_model

HANDLE_DTYPES = frozenset({"resource", "variant"})
"""Element types of handles (variables, tables): they cannot enter or leave a model."""


def _names(enum: type) -> dict[int, str]:
    return {value: name for name, value in vars(enum).items() if isinstance(value, int)}


_OPERATORS = _names(schema.BuiltinOperator)
_DTYPES = {value: name.lower() for value, name in _names(schema.TensorType).items()}
_ACTIVATIONS = _names(schema.ActivationFunctionType)
_PADDINGS = _names(schema.Padding)

OptionValue = bool | int | float | str | list[int] | list[float] | list[bool] | None


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor. Shape and element type as declared; runtime shapes may differ when dynamic."""

    index: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    shape_signature: tuple[int, ...] | None
    """With -1 for dynamic dimensions; None where the file gives none."""
    constant: bool
    """Its values are stored in the file."""
    variable: bool
    """State that is kept between runs; starts as zeros."""
    quantized: bool

    @property
    def empty(self) -> bool:
        """Has no elements, so it needs neither a producer nor stored values."""
        return 0 in self.shape


@dataclass(frozen=True, slots=True)
class Node:
    """One operator. `inputs` holds -1 where an optional input is left out."""

    index: int
    op: str
    """Builtin name, or the custom code."""
    custom: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    subgraphs: tuple[int, ...]
    """Subgraphs it calls."""
    options: dict[str, OptionValue]
    """Its builtin options under the schema's names, enums spelled out."""


@dataclass(frozen=True)
class Graph:
    """One subgraph. Nodes and tensors are addressed by their index in the file."""

    subgraph: int
    nodes: tuple[Node, ...]
    """In the file's order, which is the order in which the runtime executes them."""
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    producer: dict[int, int]
    """tensor → node."""
    consumers: dict[int, tuple[int, ...]]
    """tensor → nodes, ascending; absent where nothing reads it."""

    def given(self, tensor: int) -> bool:
        """Whether it has its value without being computed or fed: stored, state, or empty."""
        facts = self.tensors[tensor]
        return facts.constant or facts.variable or (facts.empty and tensor not in self.inputs)


def read(source: Source, subgraph: int = 0) -> Graph:
    """View a subgraph of a model. Raises ModelError (unreadable), CutError (no such subgraph)."""
    model = open_model(source)
    if not 0 <= subgraph < len(model.tree.subgraphs):
        count = len(model.tree.subgraphs)
        raise CutError(f"{model.name}: no subgraph {subgraph}, the file has {count}")
    raw = model.tree.subgraphs[subgraph]
    tensors = tuple(_tensor(model.tree, i, t) for i, t in enumerate(raw.tensors or []))
    nodes = tuple(_node(model.tree, i, o) for i, o in enumerate(raw.operators or []))
    producer: dict[int, int] = {}
    consumers: dict[int, list[int]] = {}
    for node in nodes:
        for tensor in node.outputs:
            if producer.setdefault(tensor, node.index) != node.index:
                raise CutError(
                    f"{model.name}: tensor {tensor} is written by operators {producer[tensor]} "
                    f"and {node.index}; such a graph has no sub-models"
                )
        for tensor in sorted({t for t in node.inputs if t >= 0}):
            consumers.setdefault(tensor, []).append(node.index)
    return Graph(
        subgraph=subgraph,
        nodes=nodes,
        tensors=tensors,
        inputs=integers(raw.inputs),
        outputs=integers(raw.outputs),
        producer=producer,
        consumers={tensor: tuple(found) for tensor, found in consumers.items()},
    )


def topological(graph: Graph) -> bool:
    """Whether every operator comes after the ones it reads from.

    Where not, the runtime itself computes with values that do not exist yet.
    """
    return all(
        graph.producer.get(tensor, -1) < node.index
        for node in graph.nodes
        for tensor in node.inputs
    )


def ancestors(graph: Graph, tensors: Iterable[int]) -> tuple[int, ...]:
    """The operators that the values of `tensors` depend on, in the file's order.

    Where one of them touches a handle (a variable or a table), also the earlier operators that
    write through handles or run once at the start, since no tensor leads to those.
    """
    found: set[int] = set()
    pending = list(tensors)
    while True:
        while pending:
            node = graph.producer.get(pending.pop())
            if node is not None and node not in found:
                found.add(node)
                pending.extend(graph.nodes[node].inputs)
        handled = [n for n in found if _touches_handle(graph, graph.nodes[n])]
        if not handled:
            break
        writers = [
            node
            for node in graph.nodes[: max(handled)]
            if node.index not in found and _writes_state(graph, node)
        ]
        if not writers:
            break
        found.update(node.index for node in writers)
        pending.extend(tensor for node in writers for tensor in node.inputs)
    return tuple(sorted(found))


def constant_nodes(graph: Graph) -> frozenset[int]:
    """Operators whose results do not depend on inputs, state or chance: DEQUANTIZE of weights …"""
    fixed: set[int] = set()
    for node in graph.nodes:
        if node.subgraphs or node.op.startswith("RANDOM") or node.op in _STATEFUL:
            continue
        if not node.inputs or _touches_handle(graph, node):
            continue
        if all(
            t < 0
            or (t not in graph.inputs and graph.given(t) and not graph.tensors[t].variable)
            or graph.producer.get(t) in fixed
            for t in node.inputs
        ):
            fixed.add(node.index)
    return frozenset(fixed)


def supports(graph: Graph, nodes: Iterable[int]) -> tuple[int, ...]:
    """`nodes`, and the operators that must stay with them for them to be themselves.

    A weight that is dequantized or densified in the graph stays a weight only together with the
    operator that does it, and a handle only with the operator that makes it.
    """
    chosen = set(nodes)
    fixed = constant_nodes(graph)
    pending = [tensor for node in chosen for tensor in graph.nodes[node].inputs]
    while pending:
        tensor = pending.pop()
        producer = graph.producer.get(tensor)
        if producer is None or producer in chosen:
            continue
        if producer in fixed or graph.tensors[tensor].dtype in HANDLE_DTYPES:
            chosen.add(producer)
            pending.extend(graph.nodes[producer].inputs)
    return tuple(sorted(chosen))


def boundary(graph: Graph, nodes: Collection[int]) -> tuple[int, ...]:
    """Tensors that must be fed to run only `nodes`: the model's own inputs first, in its order."""
    inside = {tensor for node in nodes for tensor in graph.nodes[node].outputs}
    needed: list[int] = []
    for node in sorted(nodes):
        for tensor in graph.nodes[node].inputs:
            fed = tensor >= 0 and tensor not in inside and tensor not in needed
            if fed and (tensor in graph.inputs or not graph.given(tensor)):
                needed.append(tensor)
    own = [tensor for tensor in dict.fromkeys(graph.inputs) if tensor in needed]
    return (*own, *(tensor for tensor in needed if tensor not in own))


def results(graph: Graph, nodes: Collection[int]) -> tuple[int, ...]:
    """Tensors of `nodes` that the rest of the graph or the user reads; all last ones if none."""
    inside = set(nodes)
    written = [tensor for node in sorted(inside) for tensor in graph.nodes[node].outputs]

    def read_outside(tensor: int) -> bool:
        return tensor in graph.outputs or any(
            n not in inside for n in graph.consumers.get(tensor, ())
        )

    leaving = [t for t in written if graph.tensors[t].dtype not in HANDLE_DTYPES]
    return tuple(t for t in leaving if read_outside(t)) or tuple(
        t for t in leaving if t not in graph.consumers
    )


_STATEFUL = frozenset({"CALL_ONCE", "ASSIGN_VARIABLE", "READ_VARIABLE", "HASHTABLE_IMPORT"})
_WRITERS = frozenset({"CALL_ONCE", "ASSIGN_VARIABLE", "HASHTABLE_IMPORT"})


def _touches_handle(graph: Graph, node: Node) -> bool:
    return any(
        t >= 0 and graph.tensors[t].dtype in HANDLE_DTYPES for t in (*node.inputs, *node.outputs)
    )


def _writes_state(graph: Graph, node: Node) -> bool:
    calls_with_handle = bool(node.subgraphs) and _touches_handle(graph, node)
    return node.op in _WRITERS or calls_with_handle


def _tensor(tree: Any, index: int, raw: Any) -> Tensor:
    data = tree.buffers[raw.buffer].data if raw.buffer < len(tree.buffers) else None
    has_signature = raw.shapeSignature is not None and len(raw.shapeSignature) > 0
    scale = raw.quantization.scale if raw.quantization is not None else None
    return Tensor(
        index=index,
        name=text(raw.name),
        dtype=_DTYPES.get(raw.type, "unknown"),
        shape=integers(raw.shape),
        shape_signature=integers(raw.shapeSignature) if has_signature else None,
        constant=data is not None and len(data) > 0,
        variable=bool(raw.isVariable),
        quantized=scale is not None and len(scale) > 0,
    )


def _node(tree: Any, index: int, raw: Any) -> Node:
    code = tree.operatorCodes[raw.opcodeIndex]
    # Old files have the code only in the deprecated 8-bit field.
    builtin = max(code.builtinCode, code.deprecatedBuiltinCode)
    custom = builtin == schema.BuiltinOperator.CUSTOM
    options = raw.builtinOptions2 if raw.builtinOptions2 is not None else raw.builtinOptions
    name = text(code.customCode) if custom else _OPERATORS.get(builtin, f"BUILTIN_{builtin}")
    return Node(
        index=index,
        op=name or "CUSTOM",
        custom=custom,
        inputs=integers(raw.inputs),
        outputs=integers(raw.outputs),
        intermediates=integers(raw.intermediates),
        subgraphs=tuple(called_subgraphs(options).values()),
        options={key: _option(key, value) for key, value in vars(options).items()}
        if options is not None
        else {},
    )


def called_subgraphs(options: Any) -> dict[str, int]:
    """Field name → subgraph, of all fields of an operator's options that name a subgraph."""
    if options is None:
        return {}
    fields = [f for f in vars(options) if f == "subgraph" or f.endswith("SubgraphIndex")]
    return {f: value for f in fields if (value := getattr(options, f)) >= 0}


def _option(key: str, value: Any) -> OptionValue:
    if key == "fusedActivationFunction":
        return _ACTIVATIONS.get(value, str(value))
    if key == "padding":
        return _PADDINGS.get(value, str(value))
    if isinstance(value, bytes):
        return text(value)
    if isinstance(value, np.ndarray):
        # Long vectors are serialized attributes of composites, nothing to read.
        return list(value.tolist()) if value.size <= 64 else f"{value.size} values"
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    return type(value).__name__  # a nested table


def integers(values: Any) -> tuple[int, ...]:
    """A vector of the tree (numpy array, list or None) as plain integers."""
    return tuple(int(v) for v in values) if values is not None else ()


def text(data: Any) -> str:
    """A string of the tree; a stray byte is no reason to refuse a model."""
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else (data or "")

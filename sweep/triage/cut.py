"""Sub-models: real `.tflite` files cut from a model, with its own weights and quantization."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from sweep.triage import graph as graphs
from sweep.triage.graph import HANDLE_DTYPES, Graph
from sweep.triage.rebuild import CutError, ModelFile, Source, open_model, pack_model

SIGNATURE = "serving_default"

KEPT_METADATA = frozenset({"min_runtime_version", "reduced_precision_support"})
"""Metadata that runtimes act upon and that stays true of a part of the model.

Not kept: control dependencies (they number the operators of the whole model) and descriptions.
"""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a sub-model."""

    tensor: int
    """Index in the subgraph that was cut."""
    name: str
    """Name in the signature of the sub-model: the tensor's own, made unique."""


@dataclass(frozen=True)
class SubModel:
    """A model cut from another. It has one signature, `serving_default`."""

    data: bytes
    """The `.tflite` file."""
    operators: tuple[int, ...]
    """Their indices in the subgraph that was cut; here they are numbered from 0 in this order."""
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def cut(
    source: Source,
    *,
    operators: Iterable[int],
    outputs: Sequence[int],
    inputs: Sequence[int] | None = None,
    subgraph: int = 0,
) -> SubModel:
    """The sub-model of exactly these operators.

    Operators keep the order they have in the file, which is the order of execution. Weights,
    quantization, sparsity and options are kept as they are; subgraphs that operators call come
    along. Repeated `outputs` are given once.

    Args:
        source: the model; a `ModelFile` of `open_model` saves parsing it again.
        operators: indices of operators in the subgraph.
        outputs: tensor indices: written by these operators, stored, or among the inputs.
        inputs: tensor indices to be fed, in this order; a stored tensor named here loses its
            values and is fed. None: those that the operators need, the model's own first.
        subgraph: which subgraph to cut from.

    Raises:
        CutError: an index that does not exist, an input that is missing or computed inside, an
            output that is not there, a handle crossing the cut, recursion, 2 GB or more.
        ModelError: the source is not a readable `.tflite`.
    """
    model = open_model(source)
    graph = graphs.read(model, subgraph)
    chosen = tuple(sorted(set(operators)))
    if chosen and not 0 <= chosen[0] <= chosen[-1] < len(graph.nodes):
        raise CutError(
            f"{model.name}: no operator {chosen[-1] if chosen[0] >= 0 else chosen[0]}, "
            f"subgraph {subgraph} has {len(graph.nodes)}"
        )
    results = tuple(dict.fromkeys(outputs))
    _check_tensors(model, graph, (*results, *(inputs or ())))
    if inputs is None:
        inside = {tensor for node in chosen for tensor in graph.nodes[node].outputs}
        passed = [t for t in results if t not in inside and t in graph.inputs]
        needed = graphs.boundary(graph, chosen)
        own = [t for t in graph.inputs if t in needed or t in passed]
        fed = tuple(dict.fromkeys((*own, *needed)))
    else:
        fed = tuple(dict.fromkeys(inputs))
    _check_cut(model, graph, chosen, fed, results)
    taken: set[str] = set()
    fed_ports = _ports(graph, fed, taken)
    names = {port.tensor: port.name for port in fed_ports}
    result_ports = _ports(graph, results, taken, names)
    tree = _assemble(model, graph, chosen, fed_ports, result_ports)
    return SubModel(pack_model(tree), chosen, fed_ports, result_ports)


def prefix(source: Source, tensors: int | Sequence[int], *, subgraph: int = 0) -> SubModel:
    """Everything up to these tensors, and nothing else; they are the only outputs."""
    wanted = (tensors,) if isinstance(tensors, int) else tuple(tensors)
    model = open_model(source)
    needed = graphs.ancestors(graphs.read(model, subgraph), wanted)
    return cut(model, operators=needed, outputs=wanted, subgraph=subgraph)


def window(source: Source, first: int, last: int, *, subgraph: int = 0) -> SubModel:
    """Operators `first` to `last` (inclusive, in the file's order), fed with what they read.

    Operators before the window that only prepare weights for it (DEQUANTIZE, DENSIFY …) come
    along, or the weights would become inputs. Outputs are what the rest of the graph reads.
    """
    model = open_model(source)
    graph = graphs.read(model, subgraph)
    if not 0 <= first <= last < len(graph.nodes):
        raise CutError(
            f"{model.name}: no window {first}..{last}, subgraph {subgraph} has "
            f"{len(graph.nodes)} operators"
        )
    inside = range(first, last + 1)
    return cut(
        model,
        operators=graphs.supports(graph, inside),
        outputs=graphs.results(graph, inside),
        subgraph=subgraph,
    )


def op_model(source: Source, index: int, *, subgraph: int = 0) -> SubModel:
    """One operator alone, with its weights."""
    return window(source, index, index, subgraph=subgraph)


def expose(source: Source, tensors: Sequence[int], *, subgraph: int = 0) -> SubModel:
    """The whole subgraph with its own inputs and outputs, and `tensors` as further outputs."""
    model = open_model(source)
    graph = graphs.read(model, subgraph)
    computed = [t for t in tensors if t in graph.producer]
    if len(computed) != len(tensors):
        lost = sorted(set(tensors) - set(computed))
        raise CutError(f"{model.name}: no operator computes tensors {lost}, nothing to expose")
    return cut(
        model,
        operators=range(len(graph.nodes)),
        inputs=graph.inputs,
        outputs=(*graph.outputs, *tensors),
        subgraph=subgraph,
    )


def _check_tensors(model: ModelFile, graph: Graph, tensors: Sequence[int]) -> None:
    for tensor in tensors:
        if not 0 <= tensor < len(graph.tensors):
            raise CutError(
                f"{model.name}: no tensor {tensor}, subgraph {graph.subgraph} has "
                f"{len(graph.tensors)}"
            )


def _check_cut(
    model: ModelFile,
    graph: Graph,
    chosen: tuple[int, ...],
    fed: tuple[int, ...],
    results: tuple[int, ...],
) -> None:
    inside = {tensor for node in chosen for tensor in graph.nodes[node].outputs}

    def named(tensors: Iterable[int]) -> str:
        return ", ".join(f"{t} ({graph.tensors[t].name!r})" for t in tensors)

    if missing := [t for t in graphs.boundary(graph, chosen) if t not in fed]:
        raise CutError(f"{model.name}: the cut also needs the inputs {named(missing)}")
    if computed := [t for t in fed if t in inside]:
        raise CutError(f"{model.name}: computed inside the cut, so not inputs: {named(computed)}")
    if not results:
        raise CutError(f"{model.name}: a cut without outputs computes nothing")
    if lost := [t for t in results if not (t in inside or t in fed or graph.tensors[t].constant)]:
        raise CutError(f"{model.name}: nothing in the cut computes the outputs {named(lost)}")
    if handles := [t for t in (*fed, *results) if graph.tensors[t].dtype in HANDLE_DTYPES]:
        raise CutError(
            f"{model.name}: handles cannot cross a cut: {named(handles)}; "
            "take the operators that make them along"
        )


def _ports(
    graph: Graph, tensors: tuple[int, ...], taken: set[str], known: Mapping[int, str] | None = None
) -> tuple[Port, ...]:
    """Unique names in one signature; a tensor that is input and output has one name."""
    ports = []
    for tensor in tensors:
        name = (known or {}).get(tensor)
        if name is None:
            base = graph.tensors[tensor].name or f"tensor_{tensor}"
            name, number = base, 1
            while name in taken:
                number += 1
                name = f"{base}#{number}"
            taken.add(name)
        ports.append(Port(tensor, name))
    return tuple(ports)


@dataclass
class _Assembly:
    """What has been taken from the source tree so far, under its new number."""

    source: Any
    buffers: dict[int, int] = field(default_factory=lambda: {0: 0})
    codes: dict[int, int] = field(default_factory=dict)
    subgraphs: dict[int, int] = field(default_factory=dict)

    def buffer(self, index: int) -> int:
        """Buffer 0 is the empty one by convention; all buffers without data become it."""
        data = self.source.buffers[index].data
        if data is None or not len(data):
            return 0
        return self.buffers.setdefault(index, len(self.buffers))

    def tensor(self, raw: Any, fed: bool = False) -> Any:
        taken = copy.copy(raw)
        taken.buffer = 0 if fed else self.buffer(raw.buffer)
        return taken

    def operator(self, raw: Any, tensors: Mapping[int, int] | None = None) -> Any:
        taken = copy.copy(raw)
        taken.opcodeIndex = self.codes.setdefault(raw.opcodeIndex, len(self.codes))
        taken.debugMetadataIndex = -1
        for options in ("builtinOptions", "builtinOptions2"):
            called = graphs.called_subgraphs(getattr(raw, options))
            if called:
                changed = copy.copy(getattr(raw, options))
                for name, subgraph in called.items():
                    setattr(changed, name, self.subgraphs[subgraph])
                setattr(taken, options, changed)
        if tensors is not None:
            for name in ("inputs", "outputs", "intermediates"):
                old = getattr(raw, name)
                if old is not None:
                    new = [tensors[t] if t >= 0 else -1 for t in graphs.integers(old)]
                    setattr(taken, name, new)
        return taken


def _assemble(
    model: ModelFile,
    graph: Graph,
    chosen: tuple[int, ...],
    fed: tuple[Port, ...],
    results: tuple[Port, ...],
) -> Any:
    source = model.tree
    assembly = _Assembly(source)
    called = _called(model, graph, chosen)
    assembly.subgraphs.update({old: new for new, old in enumerate(called, start=1)})

    touched = {port.tensor for port in (*fed, *results)}
    for node in (graph.nodes[n] for n in chosen):
        touched.update(t for t in (*node.inputs, *node.outputs, *node.intermediates) if t >= 0)
    tensors = {old: new for new, old in enumerate(sorted(touched))}
    raw = source.subgraphs[graph.subgraph]
    newly_fed = {port.tensor for port in fed} - set(graph.inputs)
    main = schema.SubGraphT(
        tensors=[assembly.tensor(raw.tensors[t], t in newly_fed) for t in tensors],
        inputs=[tensors[port.tensor] for port in fed],
        outputs=[tensors[port.tensor] for port in results],
        operators=[assembly.operator(raw.operators[n], tensors) for n in chosen],
        name="main",
    )
    others = []
    for index in called:
        other = copy.copy(source.subgraphs[index])
        other.debugMetadataIndex = -1
        other.tensors = [assembly.tensor(t) for t in other.tensors or []]
        other.operators = [assembly.operator(o) for o in other.operators or []]
        others.append(other)
    metadata = []
    for entry in source.metadata or []:
        if graphs.text(entry.name) in KEPT_METADATA:
            kept = copy.copy(entry)
            kept.buffer = assembly.buffer(entry.buffer)
            metadata.append(kept)
    return schema.ModelT(
        version=source.version,
        operatorCodes=[source.operatorCodes[old] for old in assembly.codes],
        subgraphs=[main, *others],
        description=source.description,
        buffers=[schema.BufferT(), *(source.buffers[b] for b in list(assembly.buffers)[1:])],
        metadata=metadata or None,
        signatureDefs=[_signature(fed, results, tensors)],
    )


def _signature(fed: tuple[Port, ...], results: tuple[Port, ...], tensors: Mapping[int, int]) -> Any:
    def maps(ports: tuple[Port, ...]) -> list[Any]:
        return [schema.TensorMapT(name=p.name, tensorIndex=tensors[p.tensor]) for p in ports]

    return schema.SignatureDefT(
        inputs=maps(fed), outputs=maps(results), signatureKey=SIGNATURE, subgraphIndex=0
    )


def _called(model: ModelFile, graph: Graph, chosen: tuple[int, ...]) -> tuple[int, ...]:
    """Subgraphs that the operators call, directly or through one another."""
    found: set[int] = set()
    pending = [s for n in chosen for s in graph.nodes[n].subgraphs]
    while pending:
        subgraph = pending.pop()
        if subgraph == graph.subgraph:
            raise CutError(f"{model.name}: subgraph {subgraph} calls itself; it cannot be cut")
        if subgraph not in found:
            found.add(subgraph)
            pending += [s for n in graphs.read(model, subgraph).nodes for s in n.subgraphs]
    return tuple(sorted(found))

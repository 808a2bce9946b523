"""Small models described as values, for tests that alter the description of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ai_edge_litert import schema_py_generated as schema

from tests.tflite_builder import ModelBuilder, packed


class Tensor(NamedTuple):
    """What `ModelBuilder.tensor` takes."""

    name: str
    shape: Sequence[int]
    dtype: str = "float32"
    data: Any = None
    scale: Sequence[float] | None = None
    zero_point: Sequence[int] | None = None
    shape_signature: Sequence[int] | None = None


class Operator(NamedTuple):
    """What `ModelBuilder.op` takes."""

    name: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: Any = None


class Graph(NamedTuple):
    tensors: list[Tensor]
    operators: list[Operator]
    inputs: list[int]
    outputs: list[int]
    signature: tuple[str, dict[str, int], dict[str, int]] | None = None
    """Key, inputs, outputs."""


def tree(*graphs: Graph, metadata: Mapping[str, bytes] | None = None) -> Any:
    """The object tree of a model."""
    b = ModelBuilder(description=None)
    for number, graph in enumerate(graphs):
        if number:
            b.subgraph()
        for tensor in graph.tensors:
            b.tensor(**tensor._asdict())
        for operator in graph.operators:
            b.op(*operator)
        b.graph.inputs, b.graph.outputs = list(graph.inputs), list(graph.outputs)
        if graph.signature:
            b.signature(*graph.signature)
    for name, data in (metadata or {}).items():
        b.metadata(name, data)
    return b.model


def pack(*graphs: Graph, metadata: Mapping[str, bytes] | None = None) -> bytes:
    """The bytes of a model."""
    return packed(tree(*graphs, metadata=metadata))


def add(constant: float) -> Graph:
    """y = x + constant, on [2]."""
    tensors = [Tensor("x", [2]), Tensor("c", [2], data=[constant] * 2), Tensor("y", [2])]
    return Graph(tensors, [Operator("ADD", [0, 1], [2], schema.AddOptionsT())], [0], [2])


def less_than(bound: float) -> Graph:
    """c = x < bound, on [1]: a loop's condition."""
    tensors = [Tensor("x", [1]), Tensor("bound", [1], data=[bound]), Tensor("c", [1], "bool")]
    return Graph(tensors, [Operator("LESS", [0, 1], [2], schema.LessOptionsT())], [0], [2])


def loop(condition: int, body: int, shape: list[int]) -> Graph:
    """y = x, then the body's result as long as the condition's is true."""
    options = schema.WhileOptionsT(condSubgraphIndex=condition, bodySubgraphIndex=body)
    tensors = [Tensor("x", shape), Tensor("y", shape)]
    return Graph(tensors, [Operator("WHILE", [0], [1], options)], [0], [1])


def sine(shape: list[int], shape_signature: list[int] | None = None) -> Graph:
    """y = sin x."""
    tensors = [Tensor(name, shape, shape_signature=shape_signature) for name in "xy"]
    return Graph(tensors, [Operator("SIN", [0], [1])], [0], [1])

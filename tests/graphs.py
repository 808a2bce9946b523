"""Small `.tflite` files built from the schema, for tests that need a model of a certain kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

OP = schema.BuiltinOperator
KIND = schema.TensorType


class Tensor(NamedTuple):
    name: str
    kind: int
    shape: list[int]
    data: Any = None
    """Stored values (numpy, or raw bytes)."""
    scale: list[float] | None = None
    zero_point: list[int] | None = None
    dynamic: bool = False
    """The first dimension is -1 in the shape signature."""


class Operator(NamedTuple):
    code: int
    inputs: list[int]
    outputs: list[int]
    options: Any = None
    """An options object of the schema; its union type follows from its class."""
    custom: str | None = None


class Graph(NamedTuple):
    tensors: list[Tensor]
    operators: list[Operator]
    inputs: list[int]
    outputs: list[int]


def tree(
    *graphs: Graph,
    signatures: Mapping[str, tuple[int, dict[str, int], dict[str, int]]] | None = None,
    metadata: Mapping[str, bytes] | None = None,
) -> Any:
    """The object tree of a model. `signatures`: key → (subgraph, inputs, outputs)."""
    model = schema.ModelT(version=3, operatorCodes=[], subgraphs=[], buffers=[schema.BufferT()])

    def store(data: bytes) -> int:
        model.buffers.append(schema.BufferT(data=np.frombuffer(data, np.uint8)))
        return len(model.buffers) - 1

    for graph in graphs:
        subgraph = schema.SubGraphT(tensors=[], operators=[], inputs=graph.inputs)
        subgraph.outputs = graph.outputs
        for tensor in graph.tensors:
            raw = schema.TensorT(name=tensor.name, type=tensor.kind, shape=tensor.shape)
            if tensor.dynamic:
                raw.shapeSignature = [-1, *tensor.shape[1:]]
            if tensor.scale is not None:
                raw.quantization = schema.QuantizationParametersT(
                    scale=tensor.scale, zeroPoint=tensor.zero_point
                )
            if tensor.data is not None:
                data = tensor.data
                raw.buffer = store(data if isinstance(data, bytes) else np.asarray(data).tobytes())
            subgraph.tensors.append(raw)
        for operator in graph.operators:
            model.operatorCodes.append(
                schema.OperatorCodeT(
                    builtinCode=operator.code,
                    deprecatedBuiltinCode=min(operator.code, 127),
                    version=1,
                    customCode=operator.custom,
                )
            )
            node = schema.OperatorT(
                opcodeIndex=len(model.operatorCodes) - 1,
                inputs=operator.inputs,
                outputs=operator.outputs,
            )
            if operator.options is not None:
                node.builtinOptions = operator.options
                name = type(operator.options).__name__.removesuffix("T")
                node.builtinOptionsType = getattr(schema.BuiltinOptions, name)
            subgraph.operators.append(node)
        model.subgraphs.append(subgraph)
    model.signatureDefs = [
        schema.SignatureDefT(
            inputs=[schema.TensorMapT(name=n, tensorIndex=i) for n, i in inputs.items()],
            outputs=[schema.TensorMapT(name=n, tensorIndex=i) for n, i in outputs.items()],
            signatureKey=key,
            subgraphIndex=subgraph,
        )
        for key, (subgraph, inputs, outputs) in (signatures or {}).items()
    ]
    model.metadata = [
        schema.MetadataT(name=name, buffer=store(value)) for name, value in (metadata or {}).items()
    ]
    return model


def to_bytes(model: Any) -> bytes:
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def pack(
    *graphs: Graph,
    signatures: Mapping[str, tuple[int, dict[str, int], dict[str, int]]] | None = None,
    metadata: Mapping[str, bytes] | None = None,
) -> bytes:
    """The bytes of a model; see `tree`."""
    return to_bytes(tree(*graphs, signatures=signatures, metadata=metadata))


def add(constant: float) -> Graph:
    """y = x + constant, on [2]."""
    return Graph(
        [
            Tensor("x", KIND.FLOAT32, [2]),
            Tensor("c", KIND.FLOAT32, [2], np.full(2, constant, np.float32)),
            Tensor("y", KIND.FLOAT32, [2]),
        ],
        [Operator(OP.ADD, [0, 1], [2], schema.AddOptionsT())],
        [0],
        [2],
    )


def less_than(bound: float) -> Graph:
    """c = x < bound, on [1]: a loop's condition."""
    return Graph(
        [
            Tensor("x", KIND.FLOAT32, [1]),
            Tensor("bound", KIND.FLOAT32, [1], np.full(1, bound, np.float32)),
            Tensor("c", KIND.BOOL, [1]),
        ],
        [Operator(OP.LESS, [0, 1], [2], schema.LessOptionsT())],
        [0],
        [2],
    )


def loop(condition: int, body: int, shape: list[int]) -> Graph:
    """y = x, then the body's result as long as the condition's is true."""
    options = schema.WhileOptionsT(condSubgraphIndex=condition, bodySubgraphIndex=body)
    return Graph(
        [Tensor("x", KIND.FLOAT32, shape), Tensor("y", KIND.FLOAT32, shape)],
        [Operator(OP.WHILE, [0], [1], options)],
        [0],
        [1],
    )


def sine(shape: list[int], *, dynamic: bool = False) -> Graph:
    return Graph(
        [
            Tensor("x", KIND.FLOAT32, shape, dynamic=dynamic),
            Tensor("y", KIND.FLOAT32, shape, dynamic=dynamic),
        ],
        [Operator(OP.SIN, [0], [1])],
        [0],
        [1],
    )

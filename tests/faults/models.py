"""Tiny models, built here: `y = x · c` over one row, told apart by how wide the row is."""

from __future__ import annotations

from pathlib import Path

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sweep.catalog import CatalogEntry


def scaling_model(width: int, *, extra_constants: int = 0) -> bytes:
    """A float32 model with one MUL over [1, width] and a signature; values are 1, 2, 3, …

    `extra_constants`: bytes of weights that a second MUL uses, for a file of some size.
    """
    builder = schema.ModelT()
    builder.version = 3
    builder.operatorCodes = [schema.OperatorCodeT()]
    builder.operatorCodes[0].builtinCode = schema.BuiltinOperator.MUL
    builder.operatorCodes[0].deprecatedBuiltinCode = schema.BuiltinOperator.MUL
    constant = np.arange(1, width + 1, dtype=np.float32).reshape(1, width)
    builder.buffers = [schema.BufferT(), _buffer(constant.tobytes())]
    graph = schema.SubGraphT()
    graph.name = "main"
    graph.tensors = [
        _tensor("x", (1, width), 0),
        _tensor("c", (1, width), 1),
        _tensor("y", (1, width), 0),
    ]
    graph.inputs, graph.outputs = [0], [2]
    graph.operators = [_mul([0, 1], [2])]
    if extra_constants:
        rows = extra_constants // (4 * width)
        builder.buffers.append(_buffer(bytes(rows * 4 * width)))
        graph.tensors += [_tensor("w", (rows, width), 2), _tensor("z", (rows, width), 0)]
        graph.operators.append(_mul([2, 3], [4]))
        graph.outputs = [2, 4]
    builder.subgraphs = [graph]
    signature = schema.SignatureDefT()
    signature.signatureKey = "serving_default"
    signature.subgraphIndex = 0
    signature.inputs = [_map("x", 0)]
    signature.outputs = [_map(f"out{i}", index) for i, index in enumerate(graph.outputs)]
    builder.signatureDefs = [signature]
    packer = flatbuffers.Builder(1024)
    packer.Finish(builder.Pack(packer), file_identifier=b"TFL3")
    return bytes(packer.Output())


def write_models(directory: Path, widths: dict[str, int]) -> tuple[CatalogEntry, ...]:
    """Model files, and the catalog entries that name them."""
    entries = []
    for model_id, width in widths.items():
        if width > 0:  # else the test has written a file of its own
            (directory / f"{model_id}.tflite").write_bytes(scaling_model(width))
        entries.append(
            CatalogEntry(model_id=model_id, source=f"{model_id}.tflite", license="Apache-2.0")
        )
    return tuple(entries)


def catalog_text(entries: tuple[CatalogEntry, ...]) -> str:
    """The same entries as a catalog file."""
    models = "".join(
        f'[[model]]\nmodel_id = "{e.model_id}"\nsource = "{e.source}"\nlicense = "{e.license}"\n'
        for e in entries
    )
    return f'[catalog]\nname = "faults"\n{models}'


def _buffer(data: bytes) -> schema.BufferT:
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(data, np.uint8)
    return buffer


def _tensor(name: str, shape: tuple[int, ...], buffer: int) -> schema.TensorT:
    tensor = schema.TensorT()
    tensor.name, tensor.shape, tensor.buffer = name, list(shape), buffer
    tensor.type = schema.TensorType.FLOAT32
    return tensor


def _mul(inputs: list[int], outputs: list[int]) -> schema.OperatorT:
    operator = schema.OperatorT()
    operator.opcodeIndex, operator.inputs, operator.outputs = 0, inputs, outputs
    operator.builtinOptionsType = schema.BuiltinOptions.MulOptions
    operator.builtinOptions = schema.MulOptionsT()
    return operator


def _map(name: str, index: int) -> schema.TensorMapT:
    entry = schema.TensorMapT()
    entry.name, entry.tensorIndex = name, index
    return entry

"""Small `.tflite` models made on the spot, so that the benchmarks need no download."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

Array = np.ndarray[Any, np.dtype[Any]]


class _Graph:
    """One subgraph with one signature, float32 throughout."""

    def __init__(self) -> None:
        self._tensors: list[Any] = []
        self._buffers: list[Any] = [schema.BufferT()]
        self._operators: list[Any] = []
        self._codes: list[int] = []
        self._inputs: list[int] = []

    def tensor(self, shape: tuple[int, ...], data: Array | None = None) -> int:
        """A tensor; with `data` a constant."""
        made = schema.TensorT()
        made.name = f"t{len(self._tensors)}"
        made.shape = list(shape)
        made.type = schema.TensorType.FLOAT32
        if data is not None:
            if data.dtype == np.int32:
                made.type = schema.TensorType.INT32
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(data.tobytes(), np.uint8)
            made.buffer = len(self._buffers)
            self._buffers.append(buffer)
        self._tensors.append(made)
        return len(self._tensors) - 1

    def input(self, shape: tuple[int, ...]) -> int:
        """An input of the graph."""
        self._inputs.append(self.tensor(shape))
        return self._inputs[-1]

    def op(self, name: str, inputs: list[int], shape: tuple[int, ...], options: Any = None) -> int:
        """An operator with one output; `name` as in the schema's BuiltinOperator."""
        code = getattr(schema.BuiltinOperator, name)
        if code not in self._codes:
            self._codes.append(code)
        made = schema.OperatorT()
        made.opcodeIndex = self._codes.index(code)
        made.inputs = inputs
        made.outputs = [self.tensor(shape)]
        if options is not None:
            made.builtinOptions = options
            kind = type(options).__name__.removesuffix("T")
            made.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
        self._operators.append(made)
        output: int = made.outputs[0]
        return output

    def save(self, path: Path, outputs: list[int]) -> Path:
        """Writes the file and returns its path."""
        graph = schema.SubGraphT()
        graph.name = "main"
        graph.tensors = self._tensors
        graph.inputs = self._inputs
        graph.outputs = outputs
        graph.operators = self._operators
        model = schema.ModelT()
        model.version = 3
        model.subgraphs = [graph]
        model.buffers = self._buffers
        model.operatorCodes = [_code(number) for number in self._codes]
        signature = schema.SignatureDefT()
        signature.signatureKey = "serving_default"
        signature.inputs = [_named(f"in{i}", t) for i, t in enumerate(self._inputs)]
        signature.outputs = [_named(f"out{i}", t) for i, t in enumerate(outputs)]
        model.signatureDefs = [signature]
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
        path.write_bytes(bytes(builder.Output()))
        return path


def _code(number: int) -> Any:
    code = schema.OperatorCodeT()
    code.builtinCode = number
    code.deprecatedBuiltinCode = min(number, 127)
    code.version = 1
    return code


def _named(name: str, index: int) -> Any:
    entry = schema.TensorMapT()
    entry.name, entry.tensorIndex = name, index
    return entry


def write_small_models(folder: Path, count: int) -> list[Path]:
    """`count` different small models: perceptrons, convolutions and attention heads in turn."""
    kinds = (_perceptron, _convolution, _attention)
    rng = np.random.default_rng(7)
    return [
        kinds[i % 3](folder / f"{kinds[i % 3].__name__[1:]}-{i:03d}.tflite", 1 + i // 3 % 10, rng)
        for i in range(count)
    ]


def _perceptron(path: Path, size: int, rng: np.random.Generator) -> Path:
    graph = _Graph()
    width = 32 * size
    x = graph.input((1, width))
    for _ in range(3):
        weights = (rng.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32)
        bias = rng.standard_normal(width).astype(np.float32)
        options = schema.FullyConnectedOptionsT()
        options.fusedActivationFunction = schema.ActivationFunctionType.RELU
        x = graph.op(
            "FULLY_CONNECTED",
            [x, graph.tensor(weights.shape, weights), graph.tensor(bias.shape, bias)],
            (1, width),
            options,
        )
    return graph.save(path, [x])


def _convolution(path: Path, size: int, rng: np.random.Generator) -> Path:
    graph = _Graph()
    side, channels = 16 + 8 * size, 8
    shape = (1, side, side, channels)
    x = graph.input(shape)
    for _ in range(3):
        weights = (rng.standard_normal((channels, 3, 3, channels)) / 8).astype(np.float32)
        bias = rng.standard_normal(channels).astype(np.float32)
        options = schema.Conv2DOptionsT()
        options.strideH = options.strideW = 1
        options.padding = schema.Padding.SAME
        options.fusedActivationFunction = schema.ActivationFunctionType.RELU
        x = graph.op(
            "CONV_2D",
            [x, graph.tensor(weights.shape, weights), graph.tensor(bias.shape, bias)],
            shape,
            options,
        )
    return graph.save(path, [x])


def _attention(path: Path, size: int, rng: np.random.Generator) -> Path:
    graph = _Graph()
    rows, depth = 16 * size, 32
    x = graph.input((1, rows, depth))
    weights = (rng.standard_normal((1, depth, rows)) / np.sqrt(depth)).astype(np.float32)
    scores = graph.op(
        "BATCH_MATMUL",
        [x, graph.tensor(weights.shape, weights)],
        (1, rows, rows),
        schema.BatchMatMulOptionsT(),
    )
    options = schema.SoftmaxOptionsT()
    options.beta = 1.0
    shares = graph.op("SOFTMAX", [scores], (1, rows, rows), options)
    return graph.save(path, [graph.op("BATCH_MATMUL", [shares, x], (1, rows, depth),
                                      schema.BatchMatMulOptionsT())])  # fmt: skip


def write_large_output(path: Path, megabytes: int) -> Path:
    """Two vectors in, their outer product out: an output of `megabytes` · 2²⁰ bytes."""
    graph = _Graph()
    columns = 2**20 // 4
    left, right = graph.input((megabytes, 1)), graph.input((1, columns))
    out = graph.op("MUL", [left, right], (megabytes, columns), schema.MulOptionsT())
    return graph.save(path, [out])

"""Small `.tflite` models made on the spot, so that the benchmarks need no download."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.tflite_builder import ModelBuilder

RELU = schema.ActivationFunctionType.RELU


def write_small_models(folder: Path, count: int) -> list[Path]:
    """`count` different small models: perceptrons, convolutions and attention heads in turn."""
    kinds = (_perceptron, _convolution, _attention)
    rng = np.random.default_rng(7)
    paths = []
    for i in range(count):
        kind = kinds[i % 3]
        paths.append(folder / f"{kind.__name__[1:]}-{i:03d}.tflite")
        paths[-1].write_bytes(kind(1 + i // 3 % 10, rng))
    return paths


def _perceptron(size: int, rng: np.random.Generator) -> bytes:
    b = ModelBuilder(description=None)
    width = 32 * size
    options = schema.FullyConnectedOptionsT(fusedActivationFunction=RELU)
    x = first = b.tensor("x", (1, width))
    for i in range(3):
        weights = rng.standard_normal((width, width)) / np.sqrt(width)
        w = b.tensor(f"w{i}", weights.shape, data=weights)
        bias = b.tensor(f"b{i}", (width,), data=rng.standard_normal(width))
        y = b.tensor(f"y{i}", (1, width))
        b.op("FULLY_CONNECTED", [x, w, bias], [y], options)
        x = y
    b.signature("serving_default", {"in0": first}, {"out0": x})
    return b.build()


def _convolution(size: int, rng: np.random.Generator) -> bytes:
    b = ModelBuilder(description=None)
    side, channels = 16 + 8 * size, 8
    options = schema.Conv2DOptionsT(
        padding=schema.Padding.SAME, strideH=1, strideW=1, fusedActivationFunction=RELU
    )
    x = first = b.tensor("x", (1, side, side, channels))
    for i in range(3):
        weights = rng.standard_normal((channels, 3, 3, channels)) / 8
        w = b.tensor(f"w{i}", weights.shape, data=weights)
        bias = b.tensor(f"b{i}", (channels,), data=rng.standard_normal(channels))
        y = b.tensor(f"y{i}", (1, side, side, channels))
        b.op("CONV_2D", [x, w, bias], [y], options)
        x = y
    b.signature("serving_default", {"in0": first}, {"out0": x})
    return b.build()


def _attention(size: int, rng: np.random.Generator) -> bytes:
    b = ModelBuilder(description=None)
    rows, depth = 16 * size, 32
    x = b.tensor("x", (1, rows, depth))
    weights = rng.standard_normal((1, depth, rows)) / np.sqrt(depth)
    w = b.tensor("w", weights.shape, data=weights)
    scores, shares = b.tensor("scores", (1, rows, rows)), b.tensor("shares", (1, rows, rows))
    y = b.tensor("y", (1, rows, depth))
    b.op("BATCH_MATMUL", [x, w], [scores], schema.BatchMatMulOptionsT())
    b.op("SOFTMAX", [scores], [shares], schema.SoftmaxOptionsT(beta=1.0))
    b.op("BATCH_MATMUL", [shares, x], [y], schema.BatchMatMulOptionsT())
    b.signature("serving_default", {"in0": x}, {"out0": y})
    return b.build()


def write_large_output(path: Path, megabytes: int) -> Path:
    """Two vectors in, their outer product out: an output of `megabytes` · 2²⁰ bytes."""
    b = ModelBuilder(description=None)
    columns = 2**20 // 4
    left, right = b.tensor("left", (megabytes, 1)), b.tensor("right", (1, columns))
    out = b.tensor("out", (megabytes, columns))
    b.op("MUL", [left, right], [out], schema.MulOptionsT())
    b.signature("serving_default", {"in0": left, "in1": right}, {"out0": out})
    path.write_bytes(b.build())
    return path

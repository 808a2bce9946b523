"""Weights replaced by seeded constants: a reproducer that carries nobody's trained values."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sweep.triage.rebuild import Source, open_model, pack_model

Array = np.ndarray[Any, np.dtype[Any]]

_KIND = schema.TensorType
_FLOATS = {_KIND.FLOAT32: "<f4", _KIND.FLOAT16: "<f2", _KIND.FLOAT64: "<f8"}
_INTEGERS = {
    _KIND.INT8: "<i1",
    _KIND.UINT8: "<u1",
    _KIND.INT16: "<i2",
    _KIND.INT32: "<i4",
    _KIND.INT64: "<i8",
}


def replace_constants(source: Source, seed: int) -> bytes:
    """The same model with every weight drawn anew from numpy's PCG64 at (seed, buffer index).

    Weights are float constants, and integer constants that are quantized. Each keeps element
    type, shape, and the range of its values: floats are uniform between the smallest and the
    largest, non-finite ones stay where they are, tensors with at most two different values draw
    from these. Integers that are not quantized (shapes, axes, indices) and single elements
    (epsilons, scale factors) decide what is computed and stay.
    """
    model = open_model(source)
    tree = copy.copy(model.tree)
    kinds: dict[int, set[int | None]] = {}
    for graph in tree.subgraphs or []:
        for tensor in graph.tensors or []:
            kinds.setdefault(tensor.buffer, set()).add(_weight_kind(tensor))
    for entry in tree.metadata or []:
        kinds.setdefault(entry.buffer, set()).add(None)
    buffers = []
    for index, buffer in enumerate(tree.buffers):
        (kind, *more) = kinds.get(index, {None})
        if kind is not None and not more and buffer.data is not None and len(buffer.data):
            rng = np.random.Generator(np.random.PCG64([seed, index]))
            buffer = schema.BufferT(data=_draw(kind, np.asarray(buffer.data), rng))
        buffers.append(buffer)
    tree.buffers = buffers
    return pack_model(tree)


def _weight_kind(tensor: Any) -> int | None:
    """The element type of a tensor that may be replaced; None for one that may not."""
    scale = tensor.quantization.scale if tensor.quantization is not None else None
    quantized = scale is not None and len(scale) > 0
    packed = (_KIND.INT4, _KIND.INT2)
    kind: int = tensor.type
    if kind in _FLOATS or kind == _KIND.BFLOAT16 or kind in packed:
        return kind
    return kind if kind in _INTEGERS and quantized else None


def _draw(kind: int, data: Array, rng: np.random.Generator) -> Array:
    if kind in _FLOATS or kind in _INTEGERS:
        values = data.view(_FLOATS.get(kind) or _INTEGERS[kind])
        drawn = _like(values, rng)
    elif kind == _KIND.BFLOAT16:
        # The upper half of a float32.
        values = (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
        drawn = (_like(values, rng).view(np.uint32) >> 16).astype("<u2")
    else:  # several values in a byte: bytes that occur hold only values that occur
        drawn = rng.choice(np.unique(data), data.size)
    return np.ascontiguousarray(drawn).view(np.uint8)


def _like(values: Array, rng: np.random.Generator) -> Array:
    if values.dtype.kind != "f":
        found = np.unique(values)
        if found.size <= 2:
            return rng.choice(found, values.size) if found.size == 2 else values
        return rng.integers(found[0], found[-1], values.size, endpoint=True, dtype=values.dtype)
    finite = np.isfinite(values)
    found = np.unique(values[finite])
    if found.size == 2:
        drawn = rng.choice(found, values.size)
    elif found.size < 2:
        return values
    else:
        drawn = rng.uniform(found[0], found[-1], values.size).astype(values.dtype)
    return np.where(finite, drawn, values).astype(values.dtype)

"""Changed shapes: a sub-model with smaller tensors, whose weights are cut to fit.

Sizes are changed by a rule that is applied everywhere at once: a size n becomes m in fed tensors,
in weights, and in the stored shapes that operators read; sizes that are multiples of n (a flatten
has made them) follow by the same ratio, or its square where n is both height and width. Which rule
keeps a model consistent is not worked out: the desktop reference refuses the others.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sweep.triage.graph import integers, text
from sweep.triage.rebuild import open_model, pack_model

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]

_KIND = schema.TensorType
_NUMPY = {
    _KIND.FLOAT32: "<f4", _KIND.FLOAT16: "<f2", _KIND.FLOAT64: "<f8", _KIND.BFLOAT16: "<u2",
    _KIND.INT8: "<i1", _KIND.UINT8: "<u1", _KIND.INT16: "<i2", _KIND.UINT16: "<u2",
    _KIND.INT32: "<i4", _KIND.UINT32: "<u4", _KIND.INT64: "<i8", _KIND.BOOL: "<u1",
}  # fmt: skip
_SHAPE_READERS = {"RESHAPE": 1, "BROADCAST_TO": 1, "FILL": 0, "RESIZE_BILINEAR": 1,
                  "RESIZE_NEAREST_NEIGHBOR": 1, "TRANSPOSE_CONV": 0, "SLICE": 2}  # fmt: skip
"""Operators with a stored shape, and which of their inputs it is."""


@dataclass(frozen=True)
class SizeRule:
    """Size `old` becomes `new`.

    `multiples`: what becomes of other sizes that `old` (to this power) divides: scaled by the
    ratio to this power; 0: nothing. `axis`: only this axis of the fed tensors has `old` replaced
    (and, with multiples, weights follow); None: every axis that has it, of everything.
    """

    old: int
    new: int
    multiples: int = 0
    axis: int | None = None

    def size(self, size: int) -> int:
        """What a size of a weight, or of a stored shape, becomes."""
        if size == self.old and self.axis is None:
            return self.new
        if self.multiples:
            whole, part = int(self.old**self.multiples), int(self.new**self.multiples)
            if size % whole == 0 and size > 0:
                return size // whole * part
        return size

    def fed(self, shape: Shape) -> Shape:
        """What a fed tensor's shape becomes."""
        if self.axis is None:
            return tuple(self.new if d == self.old else d for d in shape)
        return tuple(
            self.new if i == self.axis and d == self.old else d for i, d in enumerate(shape)
        )


def with_input_shapes(data: bytes, shapes: Mapping[str, Shape]) -> bytes:
    """The model with concrete shapes of its inputs (by signature name); nothing else changes."""
    tree = open_model(data).tree
    changed = False
    for name, index in _inputs(tree):
        raw = tree.subgraphs[0].tensors[index]
        wanted = shapes.get(name)
        if wanted is None:
            continue
        dynamic = raw.shapeSignature is not None and any(d < 0 for d in raw.shapeSignature)
        if integers(raw.shape) != tuple(wanted) or dynamic:
            raw.shape, raw.shapeSignature = np.array(wanted, np.int32), None
            changed = True
    return pack_model(tree) if changed else data


def with_output(data: bytes, name: str) -> bytes:
    """The model with one of its outputs only."""
    tree = open_model(data).tree
    entry = tree.signatureDefs[0]
    entry.outputs = [o for o in entry.outputs if text(o.name) == name]
    tree.subgraphs[0].outputs = [o.tensorIndex for o in entry.outputs]
    return pack_model(tree)


def without_activation(data: bytes) -> bytes | None:
    """The model with no fused activation; None where it has none."""
    tree = open_model(data).tree
    changed = False
    for operator in tree.subgraphs[0].operators:
        options = operator.builtinOptions
        if getattr(options, "fusedActivationFunction", 0):
            options.fusedActivationFunction = 0
            changed = True
    return pack_model(tree) if changed else None


def fed_shapes(data: bytes) -> dict[str, Shape]:
    """Input name → shape as declared."""
    tree = open_model(data).tree
    return {name: integers(tree.subgraphs[0].tensors[i].shape) for name, i in _inputs(tree)}


def sizes(data: bytes) -> tuple[int, ...]:
    """All sizes above 1 of fed tensors and weights, largest first."""
    tree = open_model(data).tree
    graph = tree.subgraphs[0]
    found: set[int] = set()
    for tensor in graph.tensors:
        if _stored(tree, tensor) or any(graph.tensors[i] is tensor for _, i in _inputs(tree)):
            found.update(d for d in integers(tensor.shape) if d > 1)
    return tuple(sorted(found, reverse=True))


def resized(data: bytes, rule: SizeRule) -> bytes | None:
    """The model under a rule; None where the rule changes nothing of it.

    Shapes of computed tensors are left as they were: `declared` sets them once they are known.
    """
    model = open_model(data)
    tree = model.tree
    graph = tree.subgraphs[0]
    changed = False
    fed = {index for _, index in _inputs(tree)}
    for index in fed:
        raw = graph.tensors[index]
        new = rule.fed(integers(raw.shape))
        changed = changed or new != integers(raw.shape)
        raw.shape = np.array(new, np.int32)
    shapes = _stored_shapes(tree)
    for index, raw in enumerate(graph.tensors):
        if index in fed or not _stored(tree, raw):
            continue
        if raw.type not in _NUMPY or raw.sparsity is not None:
            continue
        if index in shapes:
            changed = _rewrite_shape(tree, raw, rule) or changed
        else:
            changed = _slice(tree, raw, rule) or changed
    for operator in graph.operators:
        options = operator.builtinOptions
        target = getattr(options, "newShape", None)
        if target is not None and len(target):
            operator.builtinOptions = copy.copy(options)
            operator.builtinOptions.newShape = [rule.size(d) for d in integers(target)]
    return pack_model(tree) if changed else None


def declared(data: bytes, shapes: Mapping[str, Shape]) -> bytes:
    """The model with the shapes that its outputs were seen to have (by signature name)."""
    tree = open_model(data).tree
    for entry in tree.signatureDefs[0].outputs:
        name = text(entry.name)
        if name in shapes:
            raw = tree.subgraphs[0].tensors[entry.tensorIndex]
            raw.shape, raw.shapeSignature = np.array(shapes[name], np.int32), None
    return pack_model(tree)


def sliced(value: Array, shape: Shape) -> Array:
    """The first elements along every axis."""
    return np.ascontiguousarray(value[tuple(slice(0, d) for d in shape)])


def _inputs(tree: Any) -> list[tuple[str, int]]:
    return [(text(e.name), e.tensorIndex) for e in tree.signatureDefs[0].inputs]


def _stored(tree: Any, raw: Any) -> bool:
    data = tree.buffers[raw.buffer].data
    return data is not None and len(data) > 0


def _stored_shapes(tree: Any) -> set[int]:
    found = set()
    for operator in tree.subgraphs[0].operators:
        code = tree.operatorCodes[operator.opcodeIndex]
        builtin = max(code.builtinCode, code.deprecatedBuiltinCode)
        for name, position in _SHAPE_READERS.items():
            if builtin == getattr(schema.BuiltinOperator, name):
                inputs = integers(operator.inputs)
                if position < len(inputs):
                    found.add(inputs[position])
    return found


def _rewrite_shape(tree: Any, raw: Any, rule: SizeRule) -> bool:
    values = np.asarray(tree.buffers[raw.buffer].data).view(_NUMPY[raw.type])
    new = np.array([rule.size(int(v)) for v in values], values.dtype)
    if np.array_equal(new, values):
        return False
    _store(tree, raw, new)
    return True


def _slice(tree: Any, raw: Any, rule: SizeRule) -> bool:
    shape = integers(raw.shape)
    new = tuple(rule.size(d) for d in shape)
    if new == shape or any(n > d for n, d in zip(new, shape, strict=True)):
        return False
    values = np.asarray(tree.buffers[raw.buffer].data).view(_NUMPY[raw.type])
    if values.size != int(np.prod(shape, dtype=np.int64)):
        return False
    _store(tree, raw, sliced(values.reshape(shape), new))
    raw.shape = np.array(new, np.int32)
    quantization = raw.quantization
    if quantization is not None and quantization.scale is not None and len(quantization.scale) > 1:
        kept = new[quantization.quantizedDimension]
        raw.quantization = copy.copy(quantization)
        raw.quantization.scale = quantization.scale[:kept]
        if quantization.zeroPoint is not None:
            raw.quantization.zeroPoint = quantization.zeroPoint[:kept]
    return True


def _store(tree: Any, raw: Any, values: Array) -> None:
    """In place, or into a buffer of its own where other tensors share the old one."""
    flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    users = sum(t.buffer == raw.buffer for graph in tree.subgraphs for t in graph.tensors)
    if users > 1:
        tree.buffers.append(schema.BufferT())
        raw.buffer = len(tree.buffers) - 1
    tree.buffers[raw.buffer] = schema.BufferT(data=flat)


def stored_values(tree: Any, raw: Any) -> Array | None:
    """The values of a stored tensor; None where it has none, or of a type numpy lacks."""
    if not _stored(tree, raw) or raw.type not in _NUMPY or raw.sparsity is not None:
        return None
    data = np.asarray(tree.buffers[raw.buffer].data)
    if raw.type == _KIND.BFLOAT16:
        return None
    dtype = np.dtype(bool) if raw.type == _KIND.BOOL else np.dtype(_NUMPY[raw.type])
    values: Array = data.view(dtype).reshape(integers(raw.shape))
    return values

"""What an input means, read from the graph that uses it: ranges, indices, masks, shapes, states."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sweep.tflite import Graph, Operator, Signature, Subgraph, Tensor, constant, consumers

RecipeKind = Literal["uniform", "normal", "integer", "binary", "fixed", "none"]

# Operators that hand their first input on, perhaps in another shape or type.
MOVES = frozenset(
    {
        "RESHAPE", "CAST", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "DEQUANTIZE", "QUANTIZE",
        "PACK", "CONCATENATION", "SLICE", "STRIDED_SLICE", "SPLIT", "UNPACK", "TILE", "PAD",
        "BROADCAST_TO", "MIRROR_PAD", "PADV2",
    }
)  # fmt: skip
MOVED_POSITIONS = {"SPLIT": (1,), "PACK": None, "CONCATENATION": None}
"""Which input is handed on where it is not the first; None: any."""

MAX_DEPTH = 8

POSITIVE = frozenset({"SQRT", "RSQRT", "LOG"})
STEPPED = frozenset({"FLOOR", "CEIL", "ROUND"})
MASK = re.compile(r"(^|[_./:-])(attn_|attention_|padding_|pad_)?mask($|[_./:\d-])", re.I)
STATE = re.compile(
    r"state|cache|hidden|(^|[_./:-])(kv|past|memory|[hc]_?\d+|[hc]_in)($|[_./:\d-])", re.I
)
POSITION = re.compile(
    r"(^|[_./:-])(input_pos|pos(ition)?(_ids?)?|time_?step|step|index|offset)", re.I
)

TOKENS = 16
"""Integers of an input that nothing bounds are drawn below this."""


@dataclass(frozen=True)
class Recipe:
    """How to draw one input, and why so."""

    kind: RecipeKind
    why: str
    low: float = -1.0
    high: float = 1.0
    """`uniform`: [low, high). `integer`: low..high inclusive."""
    values: np.ndarray[Any, Any] | None = None
    """`fixed`: the very values."""


@dataclass(frozen=True)
class _Use:
    """One operator that reads the input, perhaps through operators that only move it."""

    op: Operator
    position: int
    subgraph: Subgraph


def recipe_for(graph: Graph, signature: Signature, name: str, index: int) -> Recipe:
    """The recipe of one input of a signature."""
    subgraph = graph.subgraphs[signature.subgraph]
    tensor = subgraph.tensors[index]
    uses = list(_uses(graph, subgraph, index, MAX_DEPTH))
    words = f"{name} {tensor.name}"
    if tensor.dtype in ("string", "resource", "variant", "complex64", "complex128", "unknown"):
        return Recipe("none", f"{tensor.dtype} cannot be drawn")
    if tensor.dtype == "bool":
        return Recipe("binary", "boolean")
    if tensor.dtype.startswith(("int", "uint")):
        return _integer_recipe(graph, subgraph, tensor, uses, words)
    return _float_recipe(graph, signature, subgraph, tensor, uses, words)


def _integer_recipe(
    graph: Graph, subgraph: Subgraph, tensor: Tensor, uses: list[_Use], words: str
) -> Recipe:
    if tensor.scale:
        low, high = _integer_range(tensor.dtype)
        return Recipe("integer", "quantized: its whole range", low, high)
    for use in uses:
        fixed = _argument(graph, use, tensor)
        if fixed is not None:
            return Recipe(
                "fixed", f"{use.op.name} takes it as an argument: {fixed.tolist()}", values=fixed
            )
    bounds = [(b, use.op.name) for use in uses if (b := _index_bound(graph, use)) is not None]
    if bounds:
        bound, op = min(bounds)
        return Recipe("integer", f"int below {bound} (feeds {op})", 0, max(bound - 1, 0))
    if MASK.search(words) or any(_is_mask_use(graph, use) for use in uses):
        return Recipe("binary", "mask: 0 or 1")
    if tensor.dtype in ("uint8", "int8"):
        low, high = _integer_range(tensor.dtype)
        return Recipe("integer", "its whole range", low, high)
    if POSITION.search(words):
        return Recipe("integer", "position: small and legal", 0, 3)
    return Recipe("integer", f"int below {TOKENS}", 0, TOKENS - 1)


def _float_recipe(
    graph: Graph,
    signature: Signature,
    subgraph: Subgraph,
    tensor: Tensor,
    uses: list[_Use],
    words: str,
) -> Recipe:
    if _is_state(signature, subgraph, tensor, words):
        return Recipe("fixed", "state: zeros", values=np.zeros(1))
    names = {use.op.name for use in uses}
    if len(tensor.shape) <= 3 and MASK.search(words) and "ADD" not in names:
        return Recipe("binary", "mask: 0 or 1")
    if any(_is_mask_use(graph, use) for use in uses):
        return Recipe("binary", "mask: 0 or 1")
    for use in uses:
        if use.op.name in POSITIVE or (use.op.name == "DIV" and use.position == 1):
            return Recipe("uniform", f"positive (feeds {use.op.name})", 0.25, 2.0)
        if use.op.name in STEPPED:
            return Recipe("uniform", f"over several steps (feeds {use.op.name})", -8.0, 8.0)
        real = _quantized_range(use)
        if real is not None:
            low, high = real
            return Recipe("uniform", f"the range of its QUANTIZE: [{low:g}, {high:g}]", low, high)
    if _image_like(tensor.shape):
        return _image_recipe(graph, uses)
    return Recipe("uniform", "uniform in [-1, 1)")


def _image_recipe(graph: Graph, uses: list[_Use]) -> Recipe:
    """The range of pixels that the normalisation at the model's entry suggests."""
    for use in uses:
        if use.op.name not in ("SUB", "ADD", "MUL", "DIV") or len(use.op.inputs) != 2:
            continue
        other = use.op.inputs[1 - use.position]
        values = constant(graph, use.subgraph.tensors[other]) if other >= 0 else None
        if values is None or not values.size or values.dtype.kind != "f":
            continue
        size = float(np.mean(np.abs(values)))
        if (use.op.name in ("SUB", "ADD") and size > 2) or (
            (use.op.name == "MUL" and 0 < size < 0.03) or (use.op.name == "DIV" and size > 30)
        ):
            return Recipe("uniform", f"pixels in [0, 255) ({use.op.name} by {size:.4g})", 0, 255)
        if use.op.name == "MUL" and 1.5 <= size <= 2.5:
            return Recipe("uniform", f"pixels in [0, 1) (MUL by {size:.4g})", 0, 1)
    return Recipe("uniform", "pixels in [0, 1)", 0, 1)


def _image_like(shape: tuple[int, ...]) -> bool:
    if len(shape) != 4:
        return False
    last = shape[3] in (1, 3, 4) and min(shape[1:3]) >= 8
    first = shape[1] in (1, 3, 4) and min(shape[2:]) >= 8
    return last or first


def _is_state(signature: Signature, subgraph: Subgraph, tensor: Tensor, words: str) -> bool:
    """A state has a telling name, an output of its shape, and a neighbour that is no state."""
    if not STATE.search(words):
        return False
    outputs = [subgraph.tensors[index] for _, index in signature.outputs]
    if not any(o.shape == tensor.shape and o.dtype == tensor.dtype for o in outputs):
        return False
    return any(
        not STATE.search(f"{name} {subgraph.tensors[index].name}")
        for name, index in signature.inputs
    )


def _uses(graph: Graph, subgraph: Subgraph, index: int, depth: int) -> Iterator[_Use]:
    """Everything that reads a tensor, through data movement and into called subgraphs."""
    readers = consumers(subgraph)
    seen: set[int] = set()
    pending = [(index, depth)]
    while pending:
        tensor, left = pending.pop(0)
        if tensor in seen:
            continue
        seen.add(tensor)
        for number, position in readers.get(tensor, ()):
            op = subgraph.operators[number]
            yield _Use(op, position, subgraph)
            if left <= 0:
                continue
            positions = MOVED_POSITIONS.get(op.name, (0,))
            if op.name in MOVES and (positions is None or position in positions):
                pending += [(out, left - 1) for out in op.outputs]
            for called in op.subgraphs:
                inside = graph.subgraphs[called]
                if position < len(inside.inputs):
                    yield from _uses(graph, inside, inside.inputs[position], left // 2)


def _index_bound(graph: Graph, use: _Use) -> int | None:
    """Rows that an index may name; None where the operator takes no index here."""
    tensors, inputs = use.subgraph.tensors, use.op.inputs

    def shape(position: int) -> tuple[int, ...]:
        return tensors[inputs[position]].shape if position < len(inputs) else ()

    match use.op.name, use.position:
        case "EMBEDDING_LOOKUP", 0:
            table = shape(1)
            return table[0] if table else None
        case "GATHER", 1:
            table = shape(0)
            return table[use.op.axis] if -len(table) <= use.op.axis < len(table) else None
        case "GATHER_ND", 1:
            table, indices = shape(0), shape(1)
            depth = indices[-1] if indices else 0
            return min(table[:depth]) if 0 < depth <= len(table) else None
        case "SCATTER_ND", 0:
            sizes = constant(graph, tensors[inputs[2]])
            return int(sizes.min()) if sizes is not None and sizes.size else None
        case "ONE_HOT", 0:
            depth_of = constant(graph, tensors[inputs[1]])
            return int(depth_of.flat[0]) if depth_of is not None and depth_of.size else None
        case "DYNAMIC_UPDATE_SLICE", 2:
            room = [a - b for a, b in zip(shape(0), shape(1), strict=False)]
            return max(min(room), 0) + 1 if room else None
    return None


def _argument(graph: Graph, use: _Use, tensor: Tensor) -> np.ndarray[Any, Any] | None:
    """The legal value of an input that an operator takes as shape, axis, size and the like."""
    op, position = use.op, use.position
    tensors = use.subgraph.tensors
    data = tensors[op.inputs[0]].shape if op.inputs and op.inputs[0] >= 0 else ()
    out = tensors[op.outputs[0]].shape if op.outputs else ()
    rank = len(data)
    value: Any = None
    match op.name, position:
        case ("RESHAPE" | "BROADCAST_TO", 1) | ("FILL", 0):
            value = [max(d, 1) for d in out]
        case "TILE", 1:
            value = [max(o // max(d, 1), 1) for o, d in zip(out, data, strict=False)]
        case "TRANSPOSE", 1:
            value = list(range(rank))
        case "PAD" | "PADV2" | "MIRROR_PAD", 1:
            value = np.zeros((rank, 2))
        case ("SLICE" | "STRIDED_SLICE", 1):
            value = [0] * rank
        case "SLICE", 2:
            value = [max(d, 1) for d in out] if len(out) == rank else list(data)
        case "STRIDED_SLICE", 2:
            value = list(data)
        case "STRIDED_SLICE", 3:
            value = [1] * rank
        case "RESIZE_BILINEAR" | "RESIZE_NEAREST_NEIGHBOR", 1:
            value = list(out[1:3])
        case "TOPK_V2", 1:
            value = out[-1] if out else 1
        case "RANGE", 0:
            value = 0
        case "RANGE", 1:
            value = out[0] if out and out[0] > 0 else 4
        case "RANGE", 2:
            value = 1
        case ("SPLIT", 0) | (
            "EXPAND_DIMS" | "ARG_MAX" | "ARG_MIN" | "CUMSUM" | "REVERSE_V2" | "SUM" | "MEAN"
            | "REDUCE_MAX" | "REDUCE_MIN" | "REDUCE_PROD" | "REDUCE_ANY" | "REDUCE_ALL",
            1,
        ):  # fmt: skip
            value = list(range(max(int(np.prod(tensor.shape, dtype=np.int64)), 1)))
    if value is None:
        return None
    array = np.asarray(value).reshape(-1)
    size = int(np.prod(tensor.shape, dtype=np.int64))
    return array[:size] if size and array.size >= size else None


def _is_mask_use(graph: Graph, use: _Use) -> bool:
    """A condition, or what becomes `1 − x` or is multiplied by a very negative number."""
    if use.op.name in ("SELECT", "SELECT_V2") and use.position == 0:
        return True
    if use.op.name not in ("SUB", "MUL") or len(use.op.inputs) != 2:
        return False
    other = use.op.inputs[1 - use.position]
    values = constant(graph, use.subgraph.tensors[other]) if other >= 0 else None
    if values is None or values.size != 1 or values.dtype.kind != "f":
        return False
    if use.op.name == "SUB":
        return use.position == 1 and float(values.flat[0]) == 1.0 and _then_large(graph, use)
    return float(values.flat[0]) <= -1e3


def _then_large(graph: Graph, use: _Use) -> bool:
    """The result of `1 − x` is multiplied by a very negative number."""
    return any(
        after.op.name == "MUL" and _is_mask_use(graph, after)
        for out in use.op.outputs
        for after in _uses(graph, use.subgraph, out, 2)
    )


def _quantized_range(use: _Use) -> tuple[float, float] | None:
    """Real numbers that a QUANTIZE at the entry can represent."""
    if use.op.name != "QUANTIZE" or use.position != 0 or not use.op.outputs:
        return None
    tensor = use.subgraph.tensors[use.op.outputs[0]]
    if len(tensor.scale) != 1 or tensor.dtype not in ("uint8", "int8", "int16"):
        return None
    low, high = _integer_range(tensor.dtype)
    zero = tensor.zero_point[0] if tensor.zero_point else 0
    scale = tensor.scale[0]
    return ((low - zero) * scale, (high - zero) * scale) if scale > 0 else None


def _integer_range(dtype: str) -> tuple[int, int]:
    bits = {"int4": 4, "int2": 2}.get(dtype)
    if bits:
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)

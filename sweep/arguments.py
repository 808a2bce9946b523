"""Integers that must be legal: indices into a table, and shapes, axes and sizes of operators."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sweep.uses import Tracer, Use

_REDUCTIONS = (
    "SUM", "MEAN", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL",
    "EXPAND_DIMS", "ARG_MAX", "ARG_MIN", "CUMSUM", "REVERSE_V2",
)  # fmt: skip


def index_range(tracer: Tracer, use: Use) -> tuple[int, int] | None:
    """Lowest and highest value an index input may have; None where the use is no index.

    Shifts on the way (`id + 1`) are taken back: the range is that of the input's own values. It is
    empty (low > high) where no value is legal on this way alone, as in `id < 0 ? id + N : id`.
    """
    rows = _rows(tracer, use)
    if rows is None:
        return None
    return -(use.low // use.scale), (rows - 1 - use.high) // use.scale


def _rows(tracer: Tracer, use: Use) -> int | None:
    """How many values, from 0, the operator takes here as an index."""
    op = use.op
    sizes: Sequence[int] = ()
    match op.name, use.position:
        case ("EMBEDDING_LOOKUP", 0):
            sizes = use.shape(1)[:1]
        case ("EMBEDDING_LOOKUP_SPARSE", 0):
            sizes = use.shape(3)[:1]
        case ("GATHER", 1):
            table = use.shape(0)
            axis = op.axis + len(table) if op.axis < 0 else op.axis
            sizes = table[axis : axis + 1]
        case ("GATHER_ND", 1):
            depth = (use.shape(1) or (0,))[-1]
            sizes = use.shape(0)[: max(depth, 0)]
        case ("SCATTER_ND", 0):
            sizes = use.output_shape()[: max((use.shape(0) or (0,))[-1], 0)]
        case ("ONE_HOT", 0):
            depths = tracer.value(use.number, op.inputs[1]) if len(op.inputs) > 1 else None
            sizes = (int(depths.flat[0]),) if depths is not None and depths.size else ()
        case ("UNSORTED_SEGMENT_SUM" | "UNSORTED_SEGMENT_MAX" | "UNSORTED_SEGMENT_MIN", 1):
            sizes = use.output_shape()[:1]
        case ("DYNAMIC_UPDATE_SLICE", 2):
            room = _room(use)
            if use.element is not None:
                sizes = room[use.element : use.element + 1]
            else:
                # The kernel clamps; the one axis that can move is the one that matters.
                sizes = [r for r in room if r > 1] or room[:1]
        case _:
            return None
    return max(min(sizes), 1) if sizes else None


def _room(use: Use) -> list[int]:
    """Per axis: how many places an update may start at."""
    return [a - b + 1 for a, b in zip(use.shape(0), use.shape(1), strict=False)]


def start_maxima(use: Use, size: int) -> tuple[int, ...] | None:
    """Highest legal start per axis, where the input is the whole start vector of a cache update."""
    if use.op.name != "DYNAMIC_UPDATE_SLICE" or use.position != 2 or not use.direct:
        return None
    room = _room(use)
    if use.element is not None or len(room) != size or size < 2:
        return None
    return tuple(max(r - 1, 0) for r in room)


def argument_values(use: Use, size: int) -> tuple[int, ...] | None:
    """The legal values of an input that an operator takes as a shape, an axis, a size and the like.

    Args:
        use: where the input is read, as it is.
        size: number of elements of the input.

    Returns:
        `size` integers; None where the use is no such argument.
    """
    if not use.direct or not use.dtype().startswith(("int", "uint")):
        return None
    whole = math.prod(use.shape(use.position)) if use.element is not None else size
    values = _argument(use, max(whole, 0)) if whole <= 4096 else None
    if values is None:
        return None
    if use.element is not None:
        return tuple(values[use.element : use.element + 1]) or None
    return tuple(values) if len(values) == size else None


def _argument(use: Use, size: int) -> Sequence[int] | None:
    name, position = use.op.name, use.position
    data, out = use.shape(0), use.output_shape()
    known = bool(out) and all(d > 0 for d in out)
    same_rank = known and len(out) == len(data) == size
    match name, position:
        case ("RESHAPE", 1):
            if known and len(out) == size and math.prod(out) == math.prod(data):
                return out
            return [1] * (size - 1) + [-1] if size else []
        case ("BROADCAST_TO", 1):
            return out if known and len(out) == size else [1] * (size - len(data)) + list(data)
        case (
            "FILL" | "RANDOM_UNIFORM" | "RANDOM_STANDARD_NORMAL" | "TRANSPOSE_CONV", 0
        ) | ("SCATTER_ND", 2):  # fmt: skip
            return out if known and len(out) == size else [1] * size
        case ("TILE", 1):
            if same_rank and all(o % d == 0 for o, d in zip(out, data, strict=True) if d > 0):
                return [o // max(d, 1) for o, d in zip(out, data, strict=True)]
            return [1] * (size - 1) + [2] if size else []
        case ("TRANSPOSE", 1):
            return _permutation(data, out) if same_rank else range(size)
        case ("PAD" | "PADV2" | "MIRROR_PAD", 1):
            return _paddings(data, out if known else (), size)
        case ("SLICE" | "STRIDED_SLICE", 1):
            return [0] * size
        case ("SLICE", 2) | ("STRIDED_SLICE", 2):
            fits = same_rank and all(o <= d for o, d in zip(out, data, strict=True))
            return out if fits else data[:size]
        case ("STRIDED_SLICE", 3):
            return [1] * size
        case ("RESIZE_BILINEAR" | "RESIZE_NEAREST_NEIGHBOR", 1):
            return out[1:3] if known else data[1:3]
        case ("TOPK_V2", 1):
            return [out[-1] if known and data and out[-1] <= data[-1] else 1]
        case ("RANGE", 0):
            return [0]
        case ("RANGE", 1):
            return [out[0] if known else 4]
        case ("RANGE", 2) | ("UNSORTED_SEGMENT_SUM", 2):
            return [out[0] if position == 2 and name != "RANGE" and known else 1]
        case ("ONE_HOT", 1):
            axis = use.op.axis
            return [out[axis] if known and -len(out) <= axis < len(out) else 4]
        case ("SPLIT", 0):
            return [_differing_axis(use.shape(1), out)] * size
        case ("SPLIT_V", 2):
            return [_differing_axis(data, out)] * size
        case ("SEGMENT_SUM", 1):
            return range(size)  # must be sorted
        case (op, 1) if op in _REDUCTIONS:
            return range(size)
    return None


def _permutation(data: Sequence[int], out: Sequence[int]) -> list[int]:
    """An order of the axes that turns one shape into the other; the identity where none does."""
    left = list(range(len(data)))
    order = []
    for size in out:
        axis = next((a for a in left if data[a] == size), None)
        if axis is None:
            return list(range(len(data)))
        left.remove(axis)
        order.append(axis)
    return order


def _paddings(data: Sequence[int], out: Sequence[int], size: int) -> list[int]:
    """(before, after) per axis, flat; the growth that the stored shapes show, split in halves."""
    if len(data) != len(out) or any(o < d for o, d in zip(out, data, strict=True)):
        return [0] * size
    growth = [o - d for o, d in zip(out, data, strict=True)]
    return [part for g in growth for part in (g // 2, g - g // 2)]


def _differing_axis(data: Sequence[int], out: Sequence[int]) -> int:
    pairs = zip(data, out, strict=False)
    return next((axis for axis, (a, b) in enumerate(pairs) if a != b), 0)

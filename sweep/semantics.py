"""What an input means, read from the graph that uses it: ranges, indices, masks, shapes, states.

Use goes before name: an index, a shape or a mask is recognised by the operators that read it, a
name only decides where they leave the meaning open.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sweep.arguments import argument_values, index_range, start_maxima
from sweep.model import SignatureFacts, TensorFacts
from sweep.tflite import NUMPY_DTYPES
from sweep.uses import Tracer, Use

RecipeKind = Literal[
    "uniform", "normal", "integer", "starts", "ramp", "binary", "additive", "fixed", "none"
]

POSITIVE = frozenset({"SQRT", "RSQRT", "LOG"})
"""Operators that are defined for positive numbers only."""
STEPPED = frozenset({"FLOOR", "CEIL", "ROUND"})
DIVISIONS = frozenset({"DIV", "FLOOR_DIV", "FLOOR_MOD"})

UNBOUND = 15
"""Highest integer of an input whose use sets no bound (as the 1.0 generator had it)."""
LAST_TIMESTEP = 999
MASKED = -1e4
"""What an additive mask holds where it hides: beyond any score, and finite in float16."""


@dataclass(frozen=True)
class Recipe:
    """How to draw one input, and why so."""

    kind: RecipeKind
    why: str
    low: float = -1.0
    high: float = 1.0
    """`uniform`: [low, high). `integer`: low..high inclusive. `ramp`: consecutive in low..high."""
    values: np.ndarray[Any, Any] | None = None
    """`fixed`: the very values, or one for all. `starts`: highest value per element, from 0."""


def recipe_for(
    tracer: Tracer, signature: SignatureFacts, tensor: TensorFacts, shape: tuple[int, ...]
) -> Recipe:
    """The recipe of one input of a signature, in the shape it will have.

    Kinds that depend on more than a range: `binary` is 0 or 1 with both in every row; `additive`
    is 0 or −1e4 likewise; `ramp` counts up along the last axis from a drawn start.
    """
    if tensor.dtype not in NUMPY_DTYPES or tensor.dtype.startswith("complex"):
        return Recipe("none", f"{tensor.dtype} cannot be drawn")
    uses = tracer.uses(signature.subgraph, tensor.tensor_index)
    legal = _legal_integers(tracer, tensor, uses, shape)
    if legal is not None and legal.kind != "integer":
        return legal
    if tensor.dtype == "bool":
        return Recipe("binary", "boolean: 0 or 1")
    mask = _mask_recipe(tracer, tensor, uses)
    if mask is not None and (legal is None or legal.high >= 1):
        return mask
    if legal is not None:
        return _positions(tensor, shape, int(legal.high), legal.why) or legal
    if _is_state(signature, tensor):
        return Recipe("fixed", "state: zeros", values=np.zeros(1))
    named = _named_recipe(signature, tensor, shape)
    if named is not None:
        return named
    if tensor.dtype.startswith(("int", "uint")):
        return _integer_recipe(tensor, uses, shape)
    return _float_recipe(tracer, uses, shape)


def _legal_integers(
    tracer: Tracer, tensor: TensorFacts, uses: list[Use], shape: tuple[int, ...]
) -> Recipe | None:
    """The recipe of an input that some operator reads as integers that must be legal.

    Float inputs count where a CAST turns them into such integers.
    """
    size = math.prod(shape)
    for use in uses:
        fixed = argument_values(use, size)
        if fixed is not None:
            why = f"{use.op.name} takes it as an argument: {list(fixed)}"
            return Recipe("fixed", why[:200], values=np.asarray(fixed))
        maxima = start_maxima(use, size)
        if maxima is not None:
            why = f"starts of {use.op.name}: up to {list(maxima)}"
            return Recipe("starts", why, values=np.asarray(maxima))
    ranges = [(r, u) for u in uses if (r := index_range(tracer, u)) is not None]
    # Where an index is used as it is and shifted (`id < 0 ? id + N : id`), as it is decides.
    ranges = [(r, u) for r, u in ranges if u.direct] or ranges
    if not ranges:
        return None
    low, high = max(r[0] for r, _ in ranges), min(r[1] for r, _ in ranges)
    reader = min(ranges, key=lambda pair: pair[0][1])[1].op.name
    if low > high:
        low, high = ranges[0][0]
        high = max(low, high)
    if low == 0:
        return Recipe("integer", f"int below {high + 1} (feeds {reader})", low, high)
    return Recipe("integer", f"int in {low}..{high} (feeds {reader})", low, high)


def _mask_recipe(tracer: Tracer, tensor: TensorFacts, uses: list[Use]) -> Recipe | None:
    if any(_is_mask_use(tracer, use) for use in uses):
        return Recipe("binary", "mask by its use: 0 or 1")
    if not _named_mask(tensor):
        return None
    if tensor.dtype.startswith("float") and any(_adds_to_scores(tracer, use) for use in uses):
        return Recipe("additive", f"mask added before SOFTMAX: 0 or {MASKED:g}")
    if tensor.quantization is not None:
        return None
    return Recipe("binary", "mask by its name: 0 or 1")


def _is_mask_use(tracer: Tracer, use: Use) -> bool:
    """A condition, or what becomes `1 − x` or `x − 1` and is multiplied by a huge number."""
    if not use.direct:
        return False
    if use.op.name in ("SELECT", "SELECT_V2", "WHERE", "IF") and use.position == 0:
        return True
    if use.op.name not in ("SUB", "ADD", "MUL") or not use.dtype().startswith("float"):
        return False
    operand = tracer.other(use)
    if operand is None or operand.size != 1:
        return False
    value = float(operand.flat[0])
    if use.op.name == "MUL":
        return value <= -1e3
    if value != (-1 if use.op.name == "ADD" else 1):
        return False
    return any(
        after.op.name == "MUL"
        and (factor := tracer.other(after)) is not None
        and factor.size == 1
        and abs(float(factor.flat[0])) >= 1e3
        for after in tracer.after(use)
    )


def _adds_to_scores(tracer: Tracer, use: Use) -> bool:
    """The input is added to something computed, and a SOFTMAX follows."""
    if use.op.name != "ADD" or tracer.other(use) is not None:
        return False
    following = tracer.after(use)
    further = [u for f in following[:8] if f.op.name == "ADD" for u in tracer.after(f)]
    return any(u.op.name == "SOFTMAX" for u in following + further)


def _named_recipe(
    signature: SignatureFacts, tensor: TensorFacts, shape: tuple[int, ...]
) -> Recipe | None:
    """Lengths, time steps and positions, which only their name gives away."""
    words = _words(tensor)
    whole = tensor.dtype.startswith(("int", "uint")) and tensor.quantization is None
    if whole and not words.isdisjoint({"length", "lengths", "len", "lens"}):
        sizes = [d for t in signature.inputs for d in t.shape[1:]]
        longest = max(sizes, default=UNBOUND)
        return Recipe("integer", f"length: 1..{longest} (largest input dimension)", 1, longest)
    if not words.isdisjoint({"timestep", "timesteps"}):
        return Recipe("integer", f"time step: 1..{LAST_TIMESTEP}", 1, LAST_TIMESTEP)
    return _positions(tensor, shape, None, "by its name") if whole else None


def _positions(
    tensor: TensorFacts, shape: tuple[int, ...], highest: int | None, why: str
) -> Recipe | None:
    """Positions count up: token i of a sequence stands at start + i."""
    words = _words(tensor)
    if words.isdisjoint({"pos", "position", "positions", "step", "index", "offset"}):
        return None
    length = shape[-1] if shape else 1
    high = highest if highest is not None else length + 2
    if length > 1:
        return Recipe("ramp", f"positions, consecutive in 0..{high} ({why})", 0, high)
    if highest is not None:
        return None  # a drawn index is a position already
    return Recipe("integer", f"position: 0..{high} ({why})", 0, high)


def _integer_recipe(tensor: TensorFacts, uses: list[Use], shape: tuple[int, ...]) -> Recipe:
    info = np.iinfo(NUMPY_DTYPES[tensor.dtype])
    low, high = int(info.min), int(info.max)
    quantization = tensor.quantization
    if quantization is not None and info.bits <= 16:
        scale = quantization.scale[0]
        zero = quantization.zero_point[0] if quantization.zero_point else 0
        why = f"{tensor.dtype} over its whole range"
        positive = _positive_use(uses)
        if positive is not None and zero < high:
            low = max(zero + 1, low)
            why = f"{tensor.dtype} above its zero point (feeds {positive.op.name})"
        real = f"real {(low - zero) * scale:.6g} to {(high - zero) * scale:.6g}"
        return Recipe("integer", f"{why}: {real}", low, high)
    if any(u.op.name in DIVISIONS and u.position == 1 and u.direct for u in uses):
        return Recipe("integer", f"int in 1..{UNBOUND} (a divisor)", 1, UNBOUND)
    if info.bits == 8:
        return Recipe("integer", f"{tensor.dtype} over its whole range", low, high)
    if _image_like(shape):
        return Recipe("integer", "pixels in 0..255", 0, 255)
    return Recipe("integer", f"int in 0..{UNBOUND} (no bound seen)", 0, UNBOUND)


def _float_recipe(tracer: Tracer, uses: list[Use], shape: tuple[int, ...]) -> Recipe:
    positive = _positive_use(uses)
    if positive is not None:
        return Recipe("uniform", f"positive, in [0.25, 2) (feeds {positive.op.name})", 0.25, 2.0)
    for use in uses:
        if use.op.name in STEPPED:
            return Recipe(
                "uniform", f"over several steps, in [-8, 8) (feeds {use.op.name})", -8.0, 8.0
            )
        real = _quantized_range(use)
        if real is not None:
            low, high = real
            return Recipe("uniform", f"the range of its QUANTIZE: [{low:g}, {high:g})", low, high)
    if _image_like(shape):
        return _image_recipe(tracer, uses)
    return Recipe("uniform", "uniform in [-1, 1)")


def _positive_use(uses: list[Use]) -> Use | None:
    """The operator that would make NaN or infinity of a number that is not positive."""
    for use in uses:
        base = use.op.name in POSITIVE or (use.op.name == "POW" and use.position == 0)
        if base or (use.op.name in DIVISIONS and use.position == 1):
            return use
    return None


def _image_recipe(tracer: Tracer, uses: list[Use]) -> Recipe:
    """The range of pixels that the normalisation at the model's entry suggests."""
    if not any(use.op.name in _IMAGE_READERS for use in uses):
        return Recipe("uniform", "uniform in [-1, 1)")
    for use in uses:
        if use.op.name not in ("SUB", "ADD", "MUL", "DIV"):
            continue
        values = tracer.other(use)
        if values is None or not values.size or values.dtype.kind != "f":
            continue
        size = float(np.mean(np.abs(values.astype(np.float64))))
        of_bytes = {"SUB": size > 2, "ADD": size > 2, "MUL": size < 0.03, "DIV": size > 30}
        if of_bytes[use.op.name] and size > 0:
            return Recipe("uniform", f"pixels in [0, 255) ({use.op.name} by {size:.4g})", 0, 255)
        return Recipe("uniform", f"pixels in [0, 1) ({use.op.name} by {size:.4g})", 0, 1)
    return Recipe("uniform", "pixels in [0, 1)", 0, 1)


_IMAGE_READERS = frozenset(
    {
        "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "RESIZE_BILINEAR",
        "RESIZE_NEAREST_NEIGHBOR", "AVERAGE_POOL_2D", "MAX_POOL_2D", "SUB", "ADD", "MUL", "DIV",
    }
)  # fmt: skip


def _image_like(shape: tuple[int, ...]) -> bool:
    """Four dimensions, of which the last or the second is 1, 3 or 4 and the others at least 8."""
    if len(shape) != 4:
        return False
    last = shape[3] in (1, 3, 4) and min(shape[1:3]) >= 8
    second = shape[1] in (1, 3, 4) and min(shape[2:]) >= 8
    return last or second


def _quantized_range(use: Use) -> tuple[float, float] | None:
    """Real numbers that a QUANTIZE at the entry can represent."""
    if use.op.name != "QUANTIZE" or use.position != 0 or not use.op.outputs:
        return None
    tensor = use.subgraph.tensors[use.op.outputs[0]]
    if len(tensor.scale) != 1 or tensor.dtype not in ("uint8", "int8", "int16"):
        return None
    info = np.iinfo(tensor.dtype)
    zero = tensor.zero_point[0] if tensor.zero_point else 0
    scale = tensor.scale[0]
    return ((info.min - zero) * scale, (info.max - zero) * scale) if scale > 0 else None


_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def _words(tensor: TensorFacts) -> set[str]:
    """Lower-case words of the input's name and its tensor's own, without path and output number."""
    names = (name.rsplit("/", 1)[-1] for name in (tensor.name, tensor.tensor_name))
    own = " ".join(re.sub(r":\d+$", "", name) for name in names)
    return {word.lower() for word in _WORD.findall(own)}


def _named_mask(tensor: TensorFacts) -> bool:
    words = _words(tensor)
    if not words & {"embedding", "embeddings", "feature", "features", "token", "tokens", "logits"}:
        return any(word.endswith(("mask", "masks")) for word in words) or "padding" in words
    return False


def _named_state(tensor: TensorFacts) -> bool:
    words = _words(tensor)
    if {"hidden", "states"} <= words and not words & {"cache", "past", "state"}:
        return False  # what a transformer calls its activations
    if words & {"state", "states", "cache", "hidden", "kv", "past", "carry", "mems"}:
        return True
    return bool(words & {"h", "c"} and words & {"0", "1", "in", "prev"})


def _is_state(signature: SignatureFacts, tensor: TensorFacts) -> bool:
    """A state has a telling name, an output of its shape, and a neighbour that carries data."""
    if not _named_state(tensor):
        return False
    if not any(o.shape == tensor.shape and o.dtype == tensor.dtype for o in signature.outputs):
        return False
    return any(not _named_state(t) and not _named_mask(t) for t in signature.inputs)

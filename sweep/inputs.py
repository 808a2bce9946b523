"""Inputs: deterministic arrays that mean something to the model, the same bytes on every machine.

Every array is drawn from a stream of its own, PCG64 seeded by the SHA-256 of (seed, model id,
signature, input name, input set). What is drawn is a catalog rule, else what the graph says
(`semantics.py`); how it is drawn is in `draw.py`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sweep.config import InputGenerator
from sweep.draw import Array, draw
from sweep.errors import CatalogError
from sweep.input_rules import InputRule, load_file
from sweep.model import ModelFacts, TensorFacts
from sweep.mulberry import tensor_1_0
from sweep.semantics import Recipe, recipe_for
from sweep.tflite import NUMPY_DTYPES, read_graph
from sweep.uses import Tracer

MAX_RANK = 32
"""Most dimensions of an input (numpy's own limit before 2.0)."""
MAX_BYTES = 2 << 30
"""Most bytes that the inputs of one set may have together; shapes come from untrusted files."""


@dataclass(frozen=True)
class InputItem:
    """One input of one signature: its resolved shape and how it is drawn."""

    signature: str
    name: str
    position: int
    dtype: str
    shape: tuple[int, ...]
    recipe: Recipe
    by_rule: bool
    """A catalog rule decided, not the graph."""
    rule: str
    """What is drawn and why, for the record."""

    @property
    def drawable(self) -> bool:
        """False for strings and the like, which no array can stand for, and beyond MAX_BYTES."""
        return self.recipe.kind != "none"


@dataclass(frozen=True)
class InputPlan:
    """All inputs of all signatures, in the file's order."""

    items: tuple[InputItem, ...]
    signatures: tuple[str, ...]


def plan_inputs(
    path: Path,
    facts: ModelFacts,
    *,
    rules: Mapping[str, InputRule] | None = None,
    dims: Mapping[str, int | Sequence[int]] | None = None,
    base_dir: Path | None = None,
) -> InputPlan:
    """Works out per signature and input what to draw, and why.

    Args:
        rules: catalog rules by input name (or tensor name); they go before what the graph says.
        dims: by input name: one size for all dynamic dimensions, or the whole shape.
        base_dir: directory of the catalog, for `file` rules.

    A dynamic dimension (−1 in the shape signature) takes its size from `dims`, else the size that
    the file stores beside it, else 1.

    An input that cannot be drawn (a string, or beyond `MAX_BYTES` in all) is planned as not
    drawable, with the reason as its rule.

    Raises:
        ModelError: the file is not a well-formed model.
        CatalogError: a rule or shape names no input of the model, or does not fit it.
    """
    rules, dims = rules or {}, dims or {}
    _check_names(facts, {*rules, *dims}, path)
    tracer = Tracer(read_graph(path))
    items = []
    left = MAX_BYTES
    for signature in facts.signatures:
        for position, tensor in enumerate(signature.inputs):
            shape = _shape(tensor, dims)
            rule = rules.get(tensor.name) or rules.get(tensor.tensor_name)
            need = _bytes(tensor, shape)
            if need > left or len(shape) > MAX_RANK:
                why = f"too large to draw: {list(shape)[:MAX_RANK]}, {need} bytes"
                recipe = Recipe("none", why)
            else:
                recipe = recipe_for(tracer, signature, tensor, shape)
                if rule is not None:
                    directory = base_dir or path.parent
                    recipe = _recipe_of_rule(rule, tensor, shape, recipe, directory)
            if recipe.kind != "none":
                left -= need
            items.append(
                InputItem(
                    signature=signature.key,
                    name=tensor.name,
                    position=position,
                    dtype=tensor.dtype,
                    shape=shape,
                    recipe=recipe,
                    by_rule=rule is not None,
                    rule=("catalog: " if rule else "") + recipe.why,
                )
            )
    return InputPlan(items=tuple(items), signatures=tuple(s.key for s in facts.signatures))


def draw_inputs(
    plan: InputPlan,
    *,
    model_id: str,
    seed: int,
    input_set: int,
    generator: InputGenerator = "2.0",
) -> dict[str, dict[str, Array]]:
    """Signature key → input name → array, in the planned shapes and dtypes.

    Generator `1.0` draws what the 1.0 format's harness drew (`mulberry.py`), from the seed plus the
    number of the input set; it knows no semantics, but catalog rules still hold. Inputs that are
    not drawable are left out.
    """
    drawn: dict[str, dict[str, Array]] = {key: {} for key in plan.signatures}
    for item in plan.items:
        if not item.drawable:
            continue
        if generator == "1.0" and not item.by_rule:
            array = tensor_1_0(seed + input_set, item.position, item.shape, item.dtype)
        else:
            words = "\0".join((str(seed), model_id, item.signature, item.name, str(input_set)))
            key = int.from_bytes(hashlib.sha256(words.encode()).digest(), "little")
            array = draw(item.recipe, item.shape, NUMPY_DTYPES[item.dtype], key)
        drawn[item.signature][item.name] = array
    return drawn


def input_spec(plan: InputPlan, signature: str) -> str:
    """Inputs of one signature in the 1.0 form: `1x3x224x224:float32;1x77:int32`."""
    return ";".join(
        f"{'x'.join(map(str, item.shape)) or '1'}:{item.dtype}"
        for item in plan.items
        if item.signature == signature
    )


def _check_names(facts: ModelFacts, names: set[str], path: Path) -> None:
    known = {
        name
        for signature in facts.signatures
        for tensor in signature.inputs
        for name in (tensor.name, tensor.tensor_name)
    }
    unknown = sorted(names - known)
    if unknown:
        raise CatalogError(
            f"{path.name} has no input {', '.join(unknown)}. Its inputs: "
            f"{', '.join(sorted(known)) or 'none'}. Correct `inputs` or `dims` in the catalog."
        )


def _bytes(tensor: TensorFacts, shape: tuple[int, ...]) -> int:
    """What an input costs; an empty one is charged for its other dimensions, as numpy does."""
    dtype = NUMPY_DTYPES.get(tensor.dtype)
    return math.prod(max(d, 1) for d in shape) * (dtype.itemsize if dtype else 0)


def _shape(tensor: TensorFacts, dims: Mapping[str, int | Sequence[int]]) -> tuple[int, ...]:
    signature = tensor.shape_signature or tensor.shape
    asked = dims.get(tensor.name, dims.get(tensor.tensor_name))
    if asked is not None and not isinstance(asked, int):
        fits = len(asked) == len(signature) and all(
            s in (-1, a) for s, a in zip(signature, asked, strict=True)
        )
        if not fits:
            raise CatalogError(
                f"dims of {tensor.name}: {list(asked)} does not fit {list(signature)}."
            )
        return tuple(asked)
    stored = tensor.shape if len(tensor.shape) == len(signature) else signature
    return tuple(
        (asked if isinstance(asked, int) else max(have, 1)) if size < 0 else size
        for size, have in zip(signature, stored, strict=True)
    )


def _recipe_of_rule(
    rule: InputRule, tensor: TensorFacts, shape: tuple[int, ...], default: Recipe, base_dir: Path
) -> Recipe:
    """The recipe that a catalog rule asks for; CatalogError where it does not fit the input.

    Images take the range of the default: 0..255 where the graph suggests it, else 0..1.
    """
    dtype = NUMPY_DTYPES.get(tensor.dtype)
    if dtype is None or dtype.kind not in "fiub":
        raise CatalogError(f"input {tensor.name} is {tensor.dtype}: no rule can fill it; drop it.")
    if rule.file is not None:
        white = 255.0 if (default.low, default.high) == (0, 255) else 1.0
        values = load_file(rule.file, base_dir, tensor.name, shape, dtype, white)
        return Recipe("fixed", f"file {rule.file}", values=values)
    if rule.fill is not None:
        value = {"zeros": 0.0, "ones": 1.0}.get(str(rule.fill))
        value = float(rule.fill) if value is None else value
        _check_fits(tensor.name, dtype, value, value)
        return Recipe("fixed", f"filled with {value:g}", values=np.array([value]))
    if rule.distribution == "normal":
        if dtype.kind != "f":
            raise CatalogError(
                f"input {tensor.name} is {tensor.dtype}: a normal distribution is for floats; "
                "give a range."
            )
        return Recipe("normal", "normal, mean 0, standard deviation 1")
    if dtype.kind == "b":
        return Recipe("binary", "0 or 1")
    if rule.range is None and dtype.kind != "f":
        raise CatalogError(f"input {tensor.name} is {tensor.dtype}: give the range of `uniform`.")
    low, high = rule.range or (-1.0, 1.0)
    if dtype.kind == "f":
        _check_fits(tensor.name, dtype, low, high)
        return Recipe("uniform", f"uniform in [{low:g}, {high:g})", low, high)
    first, last = math.ceil(low), math.ceil(high) - 1
    if first > last:
        raise CatalogError(f"input {tensor.name}: no integer lies in [{low:g}, {high:g}).")
    _check_fits(tensor.name, dtype, first, last)
    return Recipe("integer", f"int in [{low:g}, {high:g})", first, last)


def _check_fits(name: str, dtype: np.dtype[Any], low: float, high: float) -> None:
    """CatalogError unless the element type holds both numbers."""
    if dtype.kind == "f":
        fits = max(abs(low), abs(high)) <= float(np.finfo(dtype).max)
    elif dtype.kind == "b":
        fits = low in (0, 1) and high in (0, 1)
    else:
        info = np.iinfo(dtype)
        whole = float(low).is_integer() and float(high).is_integer()
        fits = whole and info.min <= low and high <= info.max
    if not fits:
        asked = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        raise CatalogError(f"input {name} is {dtype}, which does not hold {asked}.")

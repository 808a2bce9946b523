"""Inputs: deterministic arrays that mean something to the model, the same bytes on every machine.

Every array is drawn from a stream of its own, PCG64 seeded by the SHA-256 of (seed, model id,
signature, input name, input set). Only raw 64-bit draws and exact arithmetic are used, so neither
numpy's distributions nor the machine's math library have a say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sweep.config import InputGenerator
from sweep.errors import CatalogError
from sweep.input_rules import InputRule, load_file
from sweep.model import ModelFacts, TensorFacts
from sweep.mulberry import tensor_1_0
from sweep.semantics import Recipe, recipe_for
from sweep.tflite import read_graph

Array = np.ndarray[Any, Any]

CHUNK = 1 << 20
NUMPY_DTYPE = {"bfloat16": "float32", "int4": "int8", "int2": "int8", "uint4": "uint8"}
"""What numpy holds instead of types it lacks."""


@dataclass(frozen=True)
class InputItem:
    """One input of one signature: its resolved shape and how it is drawn."""

    signature: str
    name: str
    position: int
    dtype: str
    shape: tuple[int, ...]
    recipe: Recipe
    rule: str
    """What is drawn and why, for the record."""

    @property
    def drawable(self) -> bool:
        """False for strings and the like, which no array can stand for."""
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

    Raises:
        ModelError: the file is not a well-formed model.
        CatalogError: a rule or shape names no input of the model, or does not fit it.
    """
    rules, dims = rules or {}, dims or {}
    graph = read_graph(path)
    _check_names(facts, {*rules, *dims}, path)
    items = []
    for signature, facts_of in zip(graph.signatures, facts.signatures, strict=True):
        for position, tensor in enumerate(facts_of.inputs):
            shape = _shape(tensor, dims)
            rule = rules.get(tensor.name) or rules.get(tensor.tensor_name)
            recipe = (
                _recipe_of_rule(rule, tensor, shape, base_dir or path.parent)
                if rule
                else recipe_for(graph, signature, tensor.name, tensor.tensor_index)
            )
            items.append(
                InputItem(
                    signature=facts_of.key,
                    name=tensor.name,
                    position=position,
                    dtype=tensor.dtype,
                    shape=shape,
                    recipe=recipe,
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
    number of the input set; it knows no semantics, but catalog rules still hold.
    """
    drawn: dict[str, dict[str, Array]] = {key: {} for key in plan.signatures}
    for item in plan.items:
        if not item.drawable:
            continue
        if generator == "1.0" and not item.rule.startswith("catalog: "):
            dtype = NUMPY_DTYPE.get(item.dtype, item.dtype)
            array = tensor_1_0(seed + input_set, item.position, item.shape, dtype)
        else:
            words = "\0".join((str(seed), model_id, item.signature, item.name, str(input_set)))
            array = _draw(item, hashlib.sha256(words.encode()).digest())
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
    rule: InputRule, tensor: TensorFacts, shape: tuple[int, ...], base_dir: Path
) -> Recipe:
    dtype = np.dtype(NUMPY_DTYPE.get(tensor.dtype, tensor.dtype))
    if rule.file is not None:
        values = load_file(rule.file, base_dir, tensor.name, shape, dtype)
        return Recipe("fixed", f"file {rule.file}", values=values)
    if rule.fill is not None:
        value = {"zeros": 0.0, "ones": 1.0}.get(str(rule.fill))
        value = float(rule.fill) if value is None else value
        return Recipe("fixed", f"filled with {value:g}", values=np.array([value]))
    if rule.distribution == "normal":
        return Recipe("normal", "normal, mean 0, standard deviation 1")
    low, high = rule.range or (-1.0, 1.0)
    if dtype.kind in "iu":
        return Recipe("integer", f"int in [{low:g}, {high:g})", np.ceil(low), np.ceil(high) - 1)
    return Recipe("uniform", f"uniform in [{low:g}, {high:g})", low, high)


def _draw(item: InputItem, digest: bytes) -> Array:
    dtype = np.dtype(NUMPY_DTYPE.get(item.dtype, item.dtype))
    recipe = item.recipe
    result = np.empty(item.shape, dtype)
    flat = result.reshape(-1)
    if recipe.kind == "fixed":
        assert recipe.values is not None
        values = recipe.values.reshape(-1)
        flat[:] = values[:1] if values.size != flat.size else values
        return result
    stream = np.random.PCG64(int.from_bytes(digest, "little"))
    for start in range(0, flat.size, CHUNK):
        part = flat[start : start + CHUNK]
        part[:] = _values(recipe, stream, part.size, dtype)
    if recipe.kind == "binary":
        # A mask that hides everything makes a softmax divide by zero.
        _row_starts(result)[...] = 1
    return result


def _values(recipe: Recipe, stream: np.random.PCG64, size: int, dtype: np.dtype[Any]) -> Array:
    if recipe.kind == "normal":
        # Irwin–Hall: twelve uniforms less six have mean 0 and variance 1, without any libm.
        total = np.full(size, -6.0)
        for _ in range(12):
            total += _units(stream, size)
        return total
    if recipe.kind == "binary":
        return (stream.random_raw(size) >> np.uint64(63)).astype(dtype)
    if recipe.kind == "integer":
        span = int(recipe.high) - int(recipe.low) + 1
        if span >= 2**32:
            return (stream.random_raw(size) >> np.uint64(33)).astype(dtype)
        raw = (stream.random_raw(size) >> np.uint64(32)) * np.uint64(span) >> np.uint64(32)
        return raw.astype(np.int64) + int(recipe.low)
    values = recipe.low + (recipe.high - recipe.low) * _units(stream, size)
    if dtype.kind != "f":
        return np.floor(values)
    # Rounding to a narrower type may reach the upper end, or zero: neither harms.
    return values


def _units(stream: np.random.PCG64, size: int) -> Array:
    """Uniform in (0, 1): odd multiples of 2⁻²⁵, so that none is 0 and float32 holds all."""
    top = (stream.random_raw(size) >> np.uint64(40)).astype(np.float64)
    return (top * 2.0 + 1.0) * 2.0**-25


def _row_starts(array: Array) -> Array:
    """The first element of every row of the last axis."""
    return array[..., :1] if array.ndim else array.reshape(1)

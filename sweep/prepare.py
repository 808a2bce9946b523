"""Catalog entry → a model that can be measured: file, facts and inputs."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sweep.catalog import CatalogEntry, parse_input_spec
from sweep.config import SweepConfig
from sweep.errors import ModelError, SourceError
from sweep.inputs import InputPlan, draw_inputs, input_spec, plan_inputs
from sweep.model import ModelFacts, inspect_model, rounding_may_differ
from sweep.record import InputRecord
from sweep.sources import FetchOptions, ModelCache, fetch_model, parse_source

InputSet = dict[str, dict[str, np.ndarray]]
"""Signature key → input name → array."""


@dataclass(frozen=True)
class Prepared:
    """A model that is here, understood, and has inputs."""

    entry: CatalogEntry
    path: Path
    facts: ModelFacts
    sets: tuple[InputSet, ...]
    inputs: tuple[InputRecord, ...]
    input_spec: str
    computes: bool
    """Whether two right implementations may differ in the last bits."""


@dataclass(frozen=True)
class Unprepared:
    """A model that could not be made ready, and why."""

    entry: CatalogEntry
    failure_class: str
    message: str


async def prepare(
    entry: CatalogEntry,
    base_dir: Path,
    config: SweepConfig,
    cache: ModelCache,
    options: FetchOptions,
) -> Prepared | Unprepared:
    """Fetches, checks and inspects a model and draws its inputs. Does not raise for a bad model.

    Raises:
        CatalogError: an input rule of the entry does not fit the model.
    """
    try:
        source = parse_source(entry.source, base_dir)
        fetched = await fetch_model(source, sha256=entry.sha256, cache=cache, options=options)
    except SourceError as error:
        return Unprepared(entry, error.failure_class, str(error))
    try:
        return await asyncio.to_thread(_inspect_and_draw, entry, fetched.path, config, base_dir)
    except ModelError as error:
        return Unprepared(entry, "parse_error", str(error))


def _inspect_and_draw(
    entry: CatalogEntry, path: Path, config: SweepConfig, base_dir: Path
) -> Prepared:
    facts = inspect_model(path)
    dims = {**_dims_of_spec(entry, facts), **entry.dims}
    plan = plan_inputs(path, facts, rules=entry.inputs, dims=dims, base_dir=base_dir)
    sets = tuple(
        draw_inputs(
            plan,
            model_id=entry.model_id,
            seed=config.seed,
            input_set=index,
            generator=config.input_generator,
        )
        for index in range(config.input_sets)
    )
    return Prepared(
        entry=entry,
        path=path,
        facts=facts,
        sets=sets,
        inputs=_input_records(plan, sets),
        input_spec=entry.input_spec or input_spec(plan, facts.signatures[0].key),
        computes=rounding_may_differ(path),
    )


def _dims_of_spec(entry: CatalogEntry, facts: ModelFacts) -> dict[str, list[int]]:
    """Shapes that a 1.0 `input_spec` gives to the first signature's dynamic inputs, in order."""
    if entry.input_spec is None:
        return {}
    shapes = [list(shape) for shape, _ in parse_input_spec(entry.input_spec)]
    return {
        tensor.name: shape
        for tensor, shape in zip(facts.signatures[0].inputs, shapes, strict=False)
        if -1 in (tensor.shape_signature or ())
    }


def _input_records(plan: InputPlan, sets: tuple[InputSet, ...]) -> tuple[InputRecord, ...]:
    return tuple(
        InputRecord(
            signature=item.signature,
            name=item.name,
            dtype=item.dtype,
            shape=item.shape,
            rule=item.rule,
            sha256=tuple(
                hashlib.sha256(s[item.signature][item.name].tobytes()).hexdigest()
                for s in sets
                if item.name in s.get(item.signature, {})
            ),
        )
        for item in plan.items
    )

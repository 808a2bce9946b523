"""A reproducer as small as it gets: fewer operators, one output, smaller shapes, no real weights.

Every step keeps the fault alive, or it is not taken.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sweep.triage import search
from sweep.triage.budget import Budget
from sweep.triage.constants import replace_constants
from sweep.triage.cut import SIGNATURE
from sweep.triage.fault import Fault, shows, trial_showing
from sweep.triage.fold import folded
from sweep.triage.graph import read
from sweep.triage.lab import InputSet, Lab, Trial
from sweep.triage.localise import oracle_of_parts
from sweep.triage.rebuild import CutError
from sweep.triage.resize import (
    SizeRule,
    declared,
    fed_shapes,
    resized,
    sizes,
    sliced,
    with_output,
)
from sweep.triage.subject import Candidate, Subject, draw

Array = np.ndarray[Any, np.dtype[Any]]

MOST_NEIGHBOURS = 3
"""Right neighbours that a report shows."""


@dataclass(frozen=True)
class Shrunk:
    """A reproducer, the trial that shows the fault on it, and what was taken away."""

    data: bytes
    sets: tuple[InputSet, ...]
    trial: Trial
    operators: tuple[int, ...]
    """Of the model under triage, as far as they are culprits."""
    steps: tuple[str, ...]
    inputs_are: str
    constants_are: str
    complete: bool = True
    right: tuple[tuple[bytes, tuple[InputSet, ...]], ...] = ()
    """Smaller neighbours of the last step, on which the fault does not show."""


async def shrink(
    subject: Subject,
    lab: Lab,
    fault: Fault,
    window: Sequence[int],
    budget: Budget,
    *,
    input_set: int,
    model_id: str,
) -> Shrunk | None:
    """Shrinks a set of operators that shows the fault. None where it does not show it after all."""
    steps: list[str] = []
    bad = oracle_of_parts(subject, lab, fault, input_set)

    async def bad_tuple(nodes: tuple[int, ...]) -> bool:
        return await bad(frozenset(nodes))

    if not await bad(frozenset(window)):
        return None
    kept = await search.ddmin(tuple(window), bad_tuple, budget.part(0.5))
    if len(kept) < len(window):
        steps.append(f"operators: {len(window)} → {len(kept)}")
    candidate = subject.part(kept, sets=(input_set,), any_dtype=fault.kind == "failure")
    assert candidate is not None
    trial = await lab.run(candidate.data, candidate.sets)
    inputs_are = "drawn for the cut" if candidate.invented else "reference values of the model"
    now = Shrunk(
        candidate.data,
        candidate.sets,
        trial,
        candidate.operators,
        (),
        inputs_are,
        "the model's own",
    )
    now = await _one_output(lab, fault, now, steps)
    now = await _fold(lab, fault, now, steps)
    now = await _constants(lab, fault, now, steps, subject.seed)
    now = await _shapes(lab, fault, now, steps, budget.part(0.8))
    now = await _drawn_inputs(subject, lab, fault, now, model_id)
    return replace(
        now,
        operators=_originals(subject, now.data, candidate.operators),
        steps=tuple(steps),
        complete=budget.left > 0,
    )


def _originals(subject: Subject, data: bytes, cut_from: Sequence[int]) -> tuple[int, ...]:
    """The operators of the model that a reproducer still holds, known by what they write."""
    small = read(data)
    kept = {small.tensors[t].name for n in small.nodes for t in n.outputs}
    graph = subject.graph
    return tuple(
        n for n in cut_from if any(graph.tensors[t].name in kept for t in graph.nodes[n].outputs)
    )


async def _one_output(lab: Lab, fault: Fault, now: Shrunk, steps: list[str]) -> Shrunk:
    assert now.trial.facts is not None
    outputs = now.trial.facts.signatures[0].outputs
    if len(outputs) < 2:
        return now
    worst = now.trial.worst
    names = [worst.output] if worst else []
    names += [o.name for o in outputs if o.name not in names]
    for name in names:
        data = with_output(now.data, name)
        trial = await trial_showing(lab, fault, data, now.sets)
        if trial is not None:
            steps.append(f"outputs: {len(outputs)} → 1")
            return replace(now, data=data, trial=trial)
    return now


async def _fold(lab: Lab, fault: Fault, now: Shrunk, steps: list[str]) -> Shrunk:
    """Stores prepared weights, one preparing operator after the other, the last ones first."""
    start = operator_count(now.data)
    node = start - 1
    while node >= 0:
        data = await folded(lab, now.data, node, now.sets[0])
        if data is not None:
            trial = await trial_showing(lab, fault, data, now.sets)
            if trial is not None:
                now = replace(now, data=data, trial=trial)
                node = operator_count(data)
        node -= 1
    if operator_count(now.data) < start:
        steps.append(f"weights prepared beforehand: {start} → {operator_count(now.data)} operators")
    return now


async def _shapes(lab: Lab, fault: Fault, now: Shrunk, steps: list[str], budget: Budget) -> Shrunk:
    """Halves, then single steps, over every size there is, until nothing gives."""
    before = _shape_words(now.data)
    tried: set[bytes] = set()
    progress = True
    right: list[tuple[bytes, tuple[InputSet, ...]]] = []
    while progress and budget.left > 0:
        progress = False
        right.clear()
        for rule in _rules(now.data):
            if budget.left <= 0:
                break
            # Different rules often come to the same model.
            smaller = resized(now.data, rule)
            if smaller is None or (known := hashlib.sha256(smaller).digest()) in tried:
                continue
            tried.add(known)
            made = await _consistent(lab, now, smaller)
            if made is None:
                continue
            data, sets = made
            trial = await lab.run(data, sets)
            if shows(fault, trial) and await _references_agree(lab, fault, data, sets):
                now = replace(now, data=data, sets=sets, trial=trial)
                progress = True
                break
            if trial.verdict.status in ("pass", "fallback"):
                right.append((data, sets))
    now = replace(now, right=tuple(right[-MOST_NEIGHBOURS:]))
    after = _shape_words(now.data)
    if after != before:
        steps.append(f"shapes: {before} → {after}")
    return now


async def _references_agree(lab: Lab, fault: Fault, data: bytes, sets: Sequence[InputSet]) -> bool:
    if fault.kind != "mismatch" or not lab.wasm_agrees:
        return True
    return await lab.wasm_right(data, sets)


async def _consistent(
    lab: Lab, now: Shrunk, data: bytes
) -> tuple[bytes, tuple[InputSet, ...]] | None:
    """A resized model with its shapes declared and its inputs cut; None where it makes no sense."""
    shapes = fed_shapes(data)
    try:
        sets = tuple(
            {SIGNATURE: {n: sliced(v, shapes[n]) for n, v in one[SIGNATURE].items()}}
            for one in now.sets
        )
    except (IndexError, KeyError):
        return None
    if any(v.shape != shapes[n] for one in sets for n, v in one[SIGNATURE].items()):
        return None
    given = await lab.desktop(data, sets[0])
    if isinstance(given, str):
        # Without a reference nothing tells a consistent model from another one.
        return None
    shapes = {n: v.shape for n, v in given[SIGNATURE].items()}
    if _grew(now, shapes):
        return None
    return declared(data, shapes), sets


def _grew(now: Shrunk, shapes: dict[str, tuple[int, ...]]) -> bool:
    """An output with another rank or a longer axis: a rule has changed what is computed (columns
    of a weight matrix that became rows of a batch)."""
    before = {c.output: c.shape for c in now.trial.comparisons}
    return any(
        len(shape) != len(before[name])
        or any(new > old for new, old in zip(shape, before[name], strict=True))
        for name, shape in shapes.items()
        if name in before
    )


def _rules(data: bytes) -> Iterator[SizeRule]:
    """Rules worth trying, the boldest first."""
    found = sizes(data)
    axes = sorted(
        {(d, axis) for shape in fed_shapes(data).values() for axis, d in enumerate(shape) if d > 1},
        reverse=True,
    )
    targets: dict[int, list[int]] = {}
    for size in {*found, *(d for d, _ in axes)}:
        targets[size] = list(
            dict.fromkeys(t for t in (1, 2, 4, size // 2, size - 1) if 0 < t < size)
        )
    for size in found:
        for new in targets[size]:
            for multiples in (1, 2, 0):
                yield SizeRule(size, new, multiples)
    for size, axis in axes:
        for new in targets[size]:
            for multiples in (1, 0):
                yield SizeRule(size, new, multiples, axis)


def _shape_words(data: bytes) -> str:
    return ", ".join("×".join(map(str, s)) or "scalar" for s in fed_shapes(data).values())


async def _constants(lab: Lab, fault: Fault, now: Shrunk, steps: list[str], seed: int) -> Shrunk:
    data = replace_constants(now.data, seed)
    if data == now.data:
        return now
    trial = await trial_showing(lab, fault, data, now.sets)
    if trial is None:
        steps.append("weights: kept, the fault does not show with others")
        return now
    steps.append(f"weights: replaced by constants drawn with seed {seed}")
    return replace(now, data=data, trial=trial, constants_are=f"drawn with seed {seed}")


async def _drawn_inputs(
    subject: Subject, lab: Lab, fault: Fault, now: Shrunk, model_id: str
) -> Shrunk:
    """Inputs that a sweep of the file draws: whoever has the file needs nothing else."""
    try:
        sets = draw(subject.path.parent, now.data, model_id, subject.seed, 2)
    except CutError:
        return now
    trial = await trial_showing(lab, fault, now.data, sets)
    if trial is None:
        return now
    words = f"what a sweep draws for model id {model_id!r} with seed {subject.seed}"
    return replace(now, sets=sets, trial=trial, inputs_are=words)


def operator_count(data: bytes) -> int:
    """Operators of the file's main graph."""
    return len(read(data).nodes)


def candidate_of(shrunk: Shrunk) -> Candidate:
    """As something to run."""
    return Candidate(shrunk.data, shrunk.sets, shrunk.operators)

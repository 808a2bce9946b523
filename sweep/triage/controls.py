"""Neighbours of a reproducer: the same operator under another shape, which may well be right."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sweep.triage.cut import SIGNATURE
from sweep.triage.findings import Control, Dependence
from sweep.triage.fold import fold_all
from sweep.triage.lab import InputSet, Lab, Trial
from sweep.triage.resize import declared, fed_shapes, with_input_shapes, without_activation

Shape = tuple[int, ...]

MOST_ELEMENTS = 64
"""Input elements that are changed one by one."""


async def run_controls(
    lab: Lab,
    data: bytes,
    sets: Sequence[InputSet],
    smaller: Sequence[tuple[bytes, tuple[InputSet, ...]]] = (),
) -> tuple[Control, ...]:
    """Runs the variants that the desktop reference accepts.

    A variant keeps weights and values: only the shape that its input is declared with, or the
    fused activation, is another.
    """
    found: list[Control] = []
    shapes = fed_shapes(data)
    for name, shape in shapes.items():
        for title, other in variants(shape):
            model = with_input_shapes(data, {name: other})
            given = tuple(
                {SIGNATURE: {n: v.reshape(other) if n == name else v
                             for n, v in one[SIGNATURE].items()}}
                for one in sets
            )  # fmt: skip
            changed = f"{_words(shape)} → {_words(other)}"
            control = await _run(lab, model, given, title, changed)
            if control is not None:
                found.append(control)
    ready = await fold_all(lab, data, sets[0])
    if ready is not None:
        control = await _run(
            lab, ready, sets, "prepared weights", "weights stored as the graph would prepare them"
        )
        if control is not None:
            found.append(control)
    plain = without_activation(data)
    if plain is not None:
        control = await _run(lab, plain, sets, "no fused activation", "activation → NONE")
        if control is not None:
            found.append(control)
    for model, fed in smaller:
        words = ", ".join(_words(s) for s in fed_shapes(model).values())
        if any(c.changed == f"inputs {words}" for c in found):
            continue
        control = await _run(lab, model, fed, "smaller", f"inputs {words}")
        if control is not None:
            found.append(control)
    return tuple(found)


def variants(shape: Shape) -> Iterator[tuple[str, Shape]]:
    """Other shapes with the same elements in the same order."""
    seen = {shape}
    rest = math.prod(shape[1:])
    offered = [
        ("2-D input", (shape[0], rest) if len(shape) > 2 else shape),
        ("1×1 spatial", (shape[0], 1, 1, rest) if len(shape) in (2, 4) else shape),
        ("rank 4", (1,) * (4 - len(shape)) + shape),
        ("leading 1 dropped", shape[1:] if len(shape) > 2 and shape[0] == 1 else shape),
    ]
    for title, other in offered if shape else []:
        if other not in seen:
            seen.add(other)
            yield title, other


async def _run(
    lab: Lab, data: bytes, sets: Sequence[InputSet], title: str, changed: str
) -> Control | None:
    given = await lab.desktop(data, sets[0])
    if isinstance(given, str):
        return None
    data = declared(data, {n: v.shape for n, v in given[SIGNATURE].items()})
    trial = await lab.run(data, sets)
    return Control(
        name=title,
        changed=changed,
        input_shapes=fed_shapes(data),
        status=trial.verdict.status,
        nrmse=trial.nrmse,
    )


async def depends_on(lab: Lab, data: bytes, inputs: InputSet) -> tuple[Dependence, ...]:
    """Changes every input element in turn and sees whether outputs react, here and there.

    Only for float inputs of a few elements. An element that the reference reacts to and the
    backend does not is one that the backend never reads.
    """
    fed = inputs[SIGNATURE]
    count = sum(v.size for v in fed.values() if v.dtype.kind == "f")
    if not 1 < count <= MOST_ELEMENTS:
        return ()
    sets: list[InputSet] = [inputs]
    places: list[tuple[str, int]] = []
    for name, value in fed.items():
        if value.dtype.kind != "f":
            continue
        for position in range(value.size):
            moved = value.copy()
            moved.reshape(-1)[position] += max(1.0, abs(float(moved.reshape(-1)[position])))
            sets.append({SIGNATURE: {**fed, name: moved}})
            places.append((name, position))
    trial = await lab.run(data, sets)
    if not trial.outputs or trial.reference is None:
        return ()
    found = []
    for name, value in fed.items():
        here = [(i, p) for i, (n, p) in enumerate(places, start=1) if n == name]
        if not here:
            continue
        reference = [p for i, p in here if _moved(trial, i, reference=True)]
        measured = [p for i, p in here if _moved(trial, i, reference=False)]
        unused = [p for p in reference if p not in measured]
        if not unused and (reference or not measured):
            continue
        found.append(
            Dependence(
                input=name,
                elements=value.size,
                reference_uses=len(reference),
                measured_uses=len(measured),
                unused=tuple(_index(p, value.shape) for p in unused),
                statement=_statement(name, value.shape, reference, measured, unused),
            )
        )
    return tuple(found)


def _moved(trial: Trial, index: int, *, reference: bool) -> bool:
    outputs = trial.reference if reference else trial.outputs
    assert outputs is not None
    key, base = (SIGNATURE, index), (SIGNATURE, 0)
    if key not in outputs or base not in outputs:
        return False
    return any(
        outputs[key][name].tobytes() != value.tobytes() for name, value in outputs[base].items()
    )


def _index(position: int, shape: Shape) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        index.append(position % size)
        position //= size
    return tuple(reversed(index))


def _statement(
    name: str, shape: Shape, reference: list[int], measured: list[int], unused: list[int]
) -> str:
    total = math.prod(shape)
    if not unused:
        return (
            f"The outputs react to {len(measured)} of {total} elements of {name!r} here, and to "
            f"{len(reference)} on the reference."
        )
    shown = ", ".join(str(list(_index(p, shape))) for p in measured[:8])
    more = " …" if len(measured) > 8 else ""
    return (
        f"The reference's outputs react to {len(reference)} of {total} elements of {name!r} "
        f"({_words(shape)}), this backend's only to {len(measured)}"
        + (f": {shown}{more}." if measured else ".")
    )


def _words(shape: Shape) -> str:
    return "×".join(map(str, shape)) or "scalar"

"""The ladder: precision, JSPI, threads, batch and releases: which switch changes the outcome."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sweep.config import Leg
from sweep.errors import SweepError
from sweep.gate import MeasuringGate
from sweep.paths import cache_dir
from sweep.runtime import CoreFiles, cached_versions, ensure_core, published_versions, version_key
from sweep.session import PageSession
from sweep.triage.budget import Budget
from sweep.triage.cut import SIGNATURE
from sweep.triage.fault import Fault, shows
from sweep.triage.findings import Ladder, Rung
from sweep.triage.lab import InputSet, Lab
from sweep.triage.resize import with_input_shapes
from sweep.triage.subject import Subject

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Switch:
    """One way of running otherwise."""

    name: str
    changed: str
    leg: Leg
    version: str | None = None
    """Another release; None: the one under triage."""


def switches(leg: Leg, version: str, versions: Sequence[str]) -> list[Switch]:
    """All switches, each away from the leg and release under triage; releases oldest first."""
    made = [
        Switch("precision fp32", "precision", leg.model_copy(update={"precision": "fp32"})),
        Switch("precision fp16", "precision", leg.model_copy(update={"precision": "fp16"})),
        Switch("JSPI off", "jspi", leg.model_copy(update={"jspi": False})),
        Switch("threads", "threads", leg.model_copy(update={"threads": True, "jspi": False})),
    ]
    made += [Switch(f"core {v}", "core version", leg, v) for v in versions if v != version]
    return made


async def releases() -> tuple[list[str], str | None]:
    """Published releases, oldest first; where npm cannot be asked, the cached ones and why."""
    try:
        return [r.version for r in await published_versions()], None
    except SweepError as error:
        return cached_versions(cache_dir()), f"Only releases in the cache were tried: {error}"


async def climb(
    lab: Lab,
    model: Path | bytes,
    sets: Sequence[InputSet],
    fault: Fault,
    leg: Leg,
    asked: Sequence[Switch],
    budget: Budget,
) -> tuple[Rung, ...]:
    """Runs the model under every switch, each in a page of its own."""
    rungs = []
    for switch in asked:
        if budget.left <= 0:
            rungs.append(_not_run(switch, "the time was up"))
            continue
        rungs.append(await _climb_one(lab, model, sets, fault, switch))
    return tuple(rungs)


def batched(subject: Subject) -> tuple[bytes, tuple[InputSet, ...]] | None:
    """The model on two input sets as one batch; None where its first dimension is fixed."""
    graph = subject.graph
    signed = [graph.tensors[t] for t in graph.inputs]
    open_batch = all(t.shape_signature and t.shape_signature[0] == -1 for t in signed)
    if not signed or not open_batch or len(subject.values) < 2:
        return None
    candidate = subject.exposed((), (0, 1))
    if candidate is None:
        return None
    first, second = (one[SIGNATURE] for one in candidate.sets)
    joined = {name: np.concatenate([value, second[name]]) for name, value in first.items()}
    data = with_input_shapes(candidate.data, {name: v.shape for name, v in joined.items()})
    return data, ({SIGNATURE: joined},)


async def climb_batch(lab: Lab, subject: Subject, fault: Fault) -> tuple[Rung, ...]:
    """The rung of the batch size, where the model allows another."""
    made = batched(subject)
    if made is None:
        return ()
    trial = await lab.run(*made, fresh=True)
    rung = Rung(
        name="batch of 2",
        changed="batch size",
        status=trial.verdict.status,
        nrmse=trial.nrmse,
        changes_outcome=not shows(fault, trial),
        detail=trial.verdict.reason,
    )
    return (rung,)


async def _climb_one(
    lab: Lab, model: Path | bytes, sets: Sequence[InputSet], fault: Fault, switch: Switch
) -> Rung:
    core = lab.bench.core
    if switch.version is not None:
        try:
            core = await ensure_core(switch.version, cache_dir())
        except SweepError as error:
            return _not_run(switch, str(error))
    async with page_of(lab, core, switch.leg) as session:
        trial = await lab.run(model, sets, session=session, leg=switch.leg)
    if trial.verdict.status == "unavailable":
        return _not_run(switch, trial.verdict.reason)
    return Rung(
        name=switch.name,
        changed=switch.changed,
        status=trial.verdict.status,
        nrmse=trial.nrmse,
        changes_outcome=not shows(fault, trial),
        detail=trial.verdict.reason,
    )


@contextlib.asynccontextmanager
async def page_of(lab: Lab, core: CoreFiles, leg: Leg) -> AsyncIterator[PageSession]:
    """A page of another release or leg, in the same browser."""
    bench = lab.bench
    session = PageSession(
        bench.host,
        bench.server,
        bench.server.add_core(core),
        bench.server.wasm_directory(core.version),
        leg,
        bench.config.timeouts,
        gate=MeasuringGate(),
        init_script=bench.init_script,
    )
    try:
        yield session
    finally:
        await session.close()


def summarise(rungs: Sequence[Rung], version: str) -> Ladder:
    """The ladder with its one-sentence outcome."""
    right = [r for r in rungs if r.changes_outcome and r.status in ("pass", "fallback")]
    other = [r for r in rungs if r.changes_outcome and r not in right]
    first_bad = first_bad_release(rungs, version)
    parts = []
    if first_bad:
        parts.append(f"The first release that shows it after one that does not is {first_bad}.")
    if right:
        parts.append("Right with: " + ", ".join(r.name for r in right) + ".")
    if other:
        parts.append(
            "Something else comes of it with: "
            + ", ".join(f"{r.name} ({r.status})" for r in other)
            + "."
        )
    same = [r for r in rungs if r.changes_outcome is False]
    if same:
        parts.append("The same with: " + ", ".join(r.name for r in same) + ".")
    statement = " ".join(parts) or "No switch could be run."
    return Ladder(rungs=tuple(rungs), first_bad_release=first_bad, statement=statement)


def first_bad_release(rungs: Sequence[Rung], version: str) -> str | None:
    """The oldest release of the last unbroken row of bad ones, if a good one comes before it.

    `version` is the release under triage, which is bad. A release is good only where it ran and
    gave right values.
    """
    shown = {version: True}
    for rung in rungs:
        if rung.changed == "core version" and rung.changes_outcome is not None:
            number = rung.name.removeprefix("core ")
            if not rung.changes_outcome:
                shown[number] = True
            elif rung.status in ("pass", "fallback"):
                shown[number] = False
    order = sorted(shown, key=version_key)
    index = order.index(version)
    while index > 0 and shown[order[index - 1]]:
        index -= 1
    return order[index] if index > 0 else None


def _not_run(switch: Switch, why: str) -> Rung:
    return Rung(
        name=switch.name, changed=switch.changed, status="not_run", nrmse=None,
        changes_outcome=None, detail=why,
    )  # fmt: skip

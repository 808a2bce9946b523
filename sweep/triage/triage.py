"""The whole triage: reproduce, arbitrate, localise, accuse, climb the ladder, report."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sweep.bench import Bench, open_bench
from sweep.browser import find_browser
from sweep.catalog import CatalogEntry
from sweep.config import Backend, SweepConfig
from sweep.env import default_machine_label
from sweep.errors import EnvironmentProblem, ModelError, SourceError
from sweep.measure import measure_model
from sweep.paths import cache_dir
from sweep.prepare import Prepared, prepare
from sweep.record import Record, Result
from sweep.runtime import ensure_core
from sweep.scratch import remove_stale
from sweep.sources import FetchOptions, ModelCache
from sweep.triage import graph as graphs
from sweep.triage.accuse import Accusation, accuse
from sweep.triage.budget import Budget
from sweep.triage.delegation import find_on_cpu, finding
from sweep.triage.fault import Fault, fault_of
from sweep.triage.findings import DelegationFinding, Ladder, Report, Reproduction
from sweep.triage.lab import Lab, Trial, open_lab
from sweep.triage.ladder import Switch, climb, climb_batch, releases, summarise, switches
from sweep.triage.localise import Localised, failing_prefix, localise, run_singles
from sweep.triage.reproduce import reproduction
from sweep.triage.subject import Subject, open_subject, read_values
from sweep.triage.words import CommandFacts, compose

log = logging.getLogger(__name__)

INPUT_SETS = 4
MOST_CULPRITS = 4
"""Reproducers that are made; further operators that show the fault are only named."""


@dataclass(frozen=True)
class Request:
    """What is asked of a triage."""

    source: str
    model_id: str
    backend: Backend
    config: SweepConfig
    date: str
    minutes: float = 10
    climb: bool = True
    """Try other precisions, builds and releases."""


@dataclass
class Case:
    """Everything found so far. Steps fill it in; `words.compose` makes the report of it."""

    request: Request
    prepared: Prepared
    record: Record
    fault: Fault
    budget: Budget
    reproduction: Reproduction | None = None
    subject: Subject | None = None
    localised: Localised = field(default_factory=Localised)
    accusations: list[Accusation] = field(default_factory=list)
    delegation: DelegationFinding | None = None
    ladder: Ladder | None = None
    repro_ladder: Ladder | None = None
    notes: list[str] = field(default_factory=list)
    complete: bool = True

    @property
    def result(self) -> Result:
        """The record's result of the backend under triage."""
        return next(r for r in self.record.results if r.backend == self.request.backend)


async def run_triage(
    request: Request,
    *,
    browser: Path | None = None,
    headed: bool = False,
    machine_label: str | None = None,
    say: Callable[[str], None] = log.info,
    base_dir: Path | None = None,
    init_script: str | None = None,
) -> tuple[Report, tuple[Accusation, ...]]:
    """Finds browser and core, and triages one model.

    Raises:
        EnvironmentProblem: no browser, no core, or the backend is unavailable here.
        SourceError: the model cannot be had.
        ModelError: it is not a readable `.tflite`.
    """
    await asyncio.to_thread(remove_stale)
    core = await ensure_core(request.config.core_version, cache_dir())
    config = request.config.model_copy(update={"core_version": core.version})
    choice = await find_browser(browser, install=False)
    async with open_bench(
        config,
        core,
        choice,
        machine_label=machine_label or default_machine_label(),
        headed=headed,
        init_script=init_script,
    ) as bench:
        return await triage(bench, request, say=say, base_dir=base_dir or Path.cwd())


async def triage(
    bench: Bench, request: Request, *, say: Callable[[str], None] = log.info, base_dir: Path
) -> tuple[Report, tuple[Accusation, ...]]:
    """Triages one model on an open bench; see `run_triage`."""
    budget = Budget(request.minutes * 60)
    entry = CatalogEntry(model_id=request.model_id, source=request.source, license="not stated")
    with ModelCache() as cache:
        ready = await prepare(entry, base_dir, bench.config, cache, FetchOptions.from_env())
        if not isinstance(ready, Prepared):
            if ready.failure_class in ("fetch_failed", "checksum_mismatch"):
                raise SourceError(ready.message, ready.failure_class)
            raise ModelError(ready.message)
        async with open_lab(bench, request.backend) as lab:
            case = await _investigate(lab, request, ready, budget, say)
            report = compose(case, lab, CommandFacts.of(bench))
            return report, tuple(case.accusations)


async def _investigate(
    lab: Lab, request: Request, ready: Prepared, budget: Budget, say: Callable[[str], None]
) -> Case:
    say("Measuring the whole model")
    record = await measure_model(lab.bench, ready, request.date)
    lab.use_desktop = record.desktop is not None and record.desktop.status == "ok"
    case = Case(request, ready, record, Fault(kind="none", status="pass"), budget)
    if case.result.status == "unavailable":
        raise EnvironmentProblem(
            f"{request.backend} is not available here, so nothing can be triaged on it: "
            f"{case.result.reason} Run `litertjs-sweep doctor`."
        )
    wasm = next((r for r in record.results if r.backend == "wasm_xnnpack"), None)
    lab.wasm_agrees = (
        lab.use_desktop
        and request.backend != "wasm_xnnpack"
        and wasm is not None
        and wasm.status == "pass"
    )
    trials = [await lab.run(ready.path, ready.sets, fresh=True) for _ in range(2)]
    trial = _telling(trials)
    case.fault = fault_of(trial)
    if case.fault.kind == "none" and case.result.status in ("output_mismatch", "run_failed"):
        # It was there a moment ago: more tries before it is called gone.
        trials += [await lab.run(ready.path, ready.sets, fresh=True) for _ in range(3)]
        trial = _telling(trials)
        case.fault = fault_of(trial)
    if case.fault.kind == "none":
        case.reproduction = reproduction(trials, Fault(kind="none", status="pass"), len(ready.sets))
        return case
    case.reproduction = reproduction(trials, case.fault, len(ready.sets))
    say(f"{case.fault.status}: {trial.verdict.reason}")
    if case.fault.varies or not case.reproduction.reproduced:
        lab.repeats = 3
    signature = _signature(trial, ready)
    try:
        case.subject = open_subject(
            ready.path, ready.facts, signature, ready.sets, lab.bench.config.seed
        )
    except ModelError as error:
        case.notes.append(f"The model cannot be cut, so nothing was localised: {error}")
    input_set = min((c.input_set for c in trial.wrong), default=0)
    if case.subject is not None:
        await _localise(case, lab, trial, input_set, say)
    if request.climb:
        await _climb(case, lab, say)
    return case


def _telling(trials: Sequence[Trial]) -> Trial:
    """The trial that shows the gravest fault."""
    order = ("failure", "mismatch", "fallback", "none")
    return min(trials, key=lambda t: order.index(fault_of(t).kind))


def _signature(trial: Trial, ready: Prepared) -> str:
    worst = trial.worst
    if worst is not None:
        return worst.signature
    # What failed is the signature after the last that ran.
    done = {run.signature for run in trial.measurement.runs}
    keys = [s.key for s in ready.facts.signatures]
    return next((key for key in keys if key not in done), keys[0])


async def _localise(
    case: Case, lab: Lab, trial: Trial, input_set: int, say: Callable[[str], None]
) -> None:
    subject, fault, budget = case.subject, case.fault, case.budget
    assert subject is not None
    if lab.use_desktop:
        await read_values(subject, lab)
        if subject.unknown:
            case.notes.append(
                f"The reference gave no values of intermediate tensors: {subject.unknown}. "
                "Parts of the model were fed with drawn inputs."
            )
    windows: list[tuple[int, ...]] = []
    if fault.kind == "mismatch":
        say(f"Localising among {len(subject.graph.nodes)} operators")
        case.localised = await localise(subject, lab, fault, budget.part(0.6), input_set=input_set)
        windows = case.localised.windows
    elif fault.kind == "failure":
        say("Looking for the smallest part that fails")
        windows = await _localise_failure(case, lab, subject, fault, input_set)
    delegation = trial.console.delegation
    if delegation.fallback or trial.verdict.status == "fallback":
        say("Looking for operators that stay on the CPU")
        on_cpu, alike, done = await find_on_cpu(
            subject, lab, delegation, budget.part(0.4), input_set
        )
        case.delegation = finding(subject, delegation, on_cpu, alike, done)
        if fault.kind == "fallback":
            seen: set[str] = set()
            for node in on_cpu:
                op = subject.graph.nodes[node].op
                if op not in seen:
                    seen.add(op)
                    windows.append((node,))
    case.notes += case.localised.notes
    case.complete = case.complete and case.localised.complete
    families: dict[frozenset[str], int] = {}
    also: dict[int, list[int]] = {}
    rest: list[tuple[int, ...]] = []
    for window in windows:
        family = _family(subject, window)
        if family in families:
            # Shown by a run of its own, and of the same kind: one reproducer is enough.
            also.setdefault(families[family], []).extend(window)
            continue
        if len(case.accusations) >= MOST_CULPRITS:
            rest.append(window)
            continue
        if budget.left <= 0:
            case.complete = False
            case.notes.append("Not every suspect was shrunk: the time was up.")
            break
        names = " + ".join(subject.graph.nodes[n].op for n in window[:4])
        say(f"Shrinking {names}{' …' if len(window) > 4 else ''}")
        found = await accuse(
            subject, lab, fault, window, budget.part(0.5), case.request.date, input_set=input_set
        )
        if found is not None:
            families[family] = len(case.accusations)
            case.accusations.append(found)
    case.accusations = [
        replace(a, culprit=a.culprit.model_copy(update={"also_shown": tuple(also.get(i, ()))}))
        for i, a in enumerate(case.accusations)
    ]
    rank = {"high": 0, "medium": 1, "low": 2}
    boundary = case.localised.boundary
    suspect = subject.graph.producer.get(boundary) if boundary is not None else None
    case.accusations.sort(
        key=lambda a: (
            rank[a.culprit.confidence],
            suspect not in a.culprit.node_indices,
            a.culprit.node_indices,
        )
    )
    if rest:
        more = ", ".join(f"{n} ({subject.graph.nodes[n].op})" for w in rest for n in w[:1])
        case.notes.append(f"Operators that show it alone as well, not shrunk: {more}.")


def _family(subject: Subject, window: Sequence[int]) -> frozenset[str]:
    """Operators with these kinds, and with weights prepared by these kinds, fail alike."""
    graph = subject.graph
    return frozenset(graph.nodes[n].op for n in graphs.supports(graph, window))


async def _localise_failure(
    case: Case, lab: Lab, subject: Subject, fault: Fault, input_set: int
) -> list[tuple[int, ...]]:
    found = case.localised
    if case.prepared.facts.dynamic:
        fixed = subject.exposed((), (input_set,))
        if fixed is not None:
            trial = await lab.run(fixed.data, fixed.sets)
            found.observed.append(
                "The same model with its dynamic dimensions stored as the sizes that it is fed "
                f"with is {trial.verdict.status}: {trial.verdict.reason}"
            )
    candidate = await failing_prefix(subject, lab, fault, found, input_set)
    if found.boundary is None:
        everything = tuple(range(len(subject.graph.nodes)))
        return [everything] if everything else []
    await run_singles(subject, lab, fault, found, case.budget.part(0.4), input_set)
    suspect = subject.graph.producer[found.boundary]
    if any(suspect in w for w in found.windows):
        return found.windows
    # The operator alone does not fail: it takes what comes before it.
    return [candidate.operators, *found.windows] if candidate is not None else found.windows


async def _climb(case: Case, lab: Lab, say: Callable[[str], None]) -> None:
    if case.budget.left <= 0:
        case.notes.append("The ladder was not climbed: the time was up.")
        case.complete = False
        return
    say("Climbing the ladder: precision, JSPI, threads, releases")
    core = lab.bench.core.version
    versions, problem = await releases()
    if problem:
        case.notes.append(problem)
    leg = lab.bench.config.leg
    asked = switches(leg, core, versions)
    wrong = case.reproduction.wrong_sets if case.reproduction else ()
    sets = [case.prepared.sets[i] for i in (wrong[:1] or (0,))]
    part = case.budget.part(0.7)
    rungs = await climb(lab, case.prepared.path, sets, case.fault, leg, asked, part)
    if case.subject is not None and part.left > 0:
        rungs += await climb_batch(lab, case.subject, case.fault)
    case.ladder = summarise(rungs, core)
    first = next(iter(case.accusations), None)
    if first is not None and first.culprit.repro.status == case.fault.status:
        other = [s for s in asked if isinstance(s, Switch) and s.version is not None]
        fault = fault_of(first.shrunk.trial)
        rungs = await climb(
            lab, first.shrunk.data, first.shrunk.sets, fault, leg, other, case.budget.part(0.9)
        )
        case.repro_ladder = summarise(rungs, core)

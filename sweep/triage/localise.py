"""Where along the graph right turns into wrong, and which operators show the fault by themselves.

Prefixes find the boundary: models that end at a tensor, which is their only output. Windows accuse:
operators alone, fed with what the reference has for their inputs. A boundary by itself accuses
nobody, since a fault may need the neighbours that a delegate fuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sweep.tolerance import is_mismatch
from sweep.triage import graph as graphs
from sweep.triage import search
from sweep.triage.budget import Budget
from sweep.triage.fault import Fault, shows, trial_showing
from sweep.triage.findings import Exposure, TensorError
from sweep.triage.lab import Lab, Trial
from sweep.triage.subject import Candidate, Subject

MOST_EXPOSED = 160
"""Tensors exposed at once; of a longer graph an even choice of so many is plotted."""
MOST_EXPOSED_BYTES = 256 * 2**20


@dataclass
class Localised:
    """What the searches found."""

    errors: list[TensorError] = field(default_factory=list)
    exposure: Exposure | None = None
    boundary: int | None = None
    """The first wrong tensor: all it is computed from is right."""
    boundary_words: str | None = None
    singles_run: int = 0
    singles_right: int = 0
    windows: list[tuple[int, ...]] = field(default_factory=list)
    """Operators that show the fault when run by themselves, suspects first."""
    observed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    complete: bool = True


async def localise(
    subject: Subject, lab: Lab, fault: Fault, budget: Budget, *, input_set: int
) -> Localised:
    """Runs all searches for a fault of values, in the order of what they cost.

    Args:
        input_set: the one on which the whole model shows the fault.
    """
    found = Localised()
    await error_along_graph(subject, lab, fault, found, input_set)
    await find_boundary(subject, lab, fault, found, input_set)
    await run_singles(subject, lab, fault, found, budget.part(0.6), input_set)
    suspect = subject.graph.producer.get(found.boundary) if found.boundary is not None else None
    explained = suspect is not None and any(suspect in window for window in found.windows)
    if not explained and found.boundary is not None:
        await grow_window(subject, lab, fault, found, input_set)
    if found.boundary is None and not found.windows:
        await take_everything(subject, lab, fault, found, input_set)
    return found


async def take_everything(
    subject: Subject, lab: Lab, fault: Fault, found: Localised, input_set: int
) -> None:
    """Where no model with one output shows the fault: all operators with all outputs, to be shrunk.

    A tensor that is both an output and read by an operator is such a case.
    """
    everything = frozenset(range(len(subject.graph.nodes)))
    if await oracle_of_parts(subject, lab, fault, input_set)(everything):
        found.windows.append(tuple(sorted(everything)))
    else:
        found.notes.append("The model rebuilt from all its operators does not show the fault.")


def oracle_of_parts(
    subject: Subject, lab: Lab, fault: Fault, input_set: int
) -> search.Oracle[frozenset[int]]:
    """Whether a set of operators, fed with reference values, shows the fault."""
    known: dict[frozenset[int], bool] = {}

    async def bad(nodes: frozenset[int]) -> bool:
        candidate = subject.part(nodes, sets=(input_set,), any_dtype=fault.kind == "failure")
        if candidate is None:
            return False
        key = frozenset(candidate.operators)
        if key not in known:
            trial = await trial_showing(lab, fault, candidate.data, candidate.sets)
            known[key] = trial is not None
        return known[key]

    return bad


async def error_along_graph(
    subject: Subject, lab: Lab, fault: Fault, found: Localised, input_set: int
) -> None:
    """Exposes intermediate tensors, takes their errors, and sees what that does to the fault."""
    chosen = _affordable(subject, subject.computed())
    candidate = subject.exposed(chosen, (input_set,)) if chosen else None
    if candidate is None:
        found.notes.append("No intermediate tensor could be exposed.")
        return
    trial = await lab.run(candidate.data, candidate.sets)
    if trial.verdict.status in ("load_failed", "run_failed", "unavailable"):
        found.exposure = Exposure(
            effect="not run",
            statement="The model with its intermediate tensors exposed did not run: "
            + trial.verdict.reason,
        )
        return
    given = [c for c in trial.comparisons if c.input_set == 0]
    order = list(dict.fromkeys((*subject.graph.outputs, *chosen)))
    named = dict(zip(order, _names(trial), strict=False))
    own = {named[t] for t in subject.graph.outputs if t in named}
    by_name = {c.output: c for c in given}
    for tensor in sorted(named, key=lambda t: (subject.graph.producer.get(t, -1), t)):
        comparison = by_name.get(named[tensor])
        node = subject.graph.producer.get(tensor)
        if comparison is None or node is None:
            continue
        found.errors.append(
            TensorError(
                position=node,
                tensor=tensor,
                name=subject.graph.tensors[tensor].name,
                op=subject.graph.nodes[node].op,
                nrmse=comparison.facts.nrmse,
                max_abs=comparison.facts.max_abs,
                grade=comparison.judgement.grade,
                how="exposed",
            )
        )
    still = any(is_mismatch(c.judgement.grade) for c in given if c.output in own)
    added = [t for t in chosen if t not in subject.graph.outputs]
    if not added:
        return
    with_them = f"With {plural(len(added), 'intermediate tensor')} as further outputs"
    if still:
        found.exposure = Exposure(
            effect="none",
            statement=f"{with_them} the model's own outputs are still wrong.",
        )
    else:
        found.exposure = Exposure(
            effect="heals",
            statement=f"{with_them} the model's own outputs are right.",
            tensors=tuple(added),
        )


async def find_boundary(
    subject: Subject, lab: Lab, fault: Fault, found: Localised, input_set: int
) -> None:
    """Bisection over prefixes, then up the graph until all parents are right."""
    known: dict[int, bool] = {}

    async def bad(tensor: int) -> bool:
        if tensor not in known:
            candidate = subject.prefix((tensor,), (input_set,))
            if candidate is None:
                known[tensor] = False
            else:
                trial = await lab.run(candidate.data, candidate.sets)
                known[tensor] = shows(fault, trial)
                _note_cut(subject, found, tensor, trial)
        return known[tensor]

    computed = subject.computed()
    wrong_output = None
    for tensor in subject.graph.outputs:
        if tensor in computed and await bad(tensor):
            wrong_output = tensor
            break
    if wrong_output is None:
        found.boundary_words = (
            "No output alone shows the fault: a model that ends at one of them is right. "
            "The fault needs several outputs together."
        )
        return
    above = set(graphs.ancestors(subject.graph, (wrong_output,)))
    line = [t for t in computed if subject.graph.producer[t] in above and t != wrong_output]
    line.append(wrong_output)
    hint = _first_wrong(found.errors, set(line))
    if hint is not None and await bad(hint):
        start = hint
    else:
        start = await search.first_bad(line, bad)
    tensor = await search.descend(start, subject.parents, bad)
    created = [
        e.tensor
        for e in found.errors
        if e.how == "exposed"
        and e.grade in ("divergent", "broken")
        and known.get(e.tensor) is False
    ]
    if created:
        found.exposure = Exposure(
            effect="creates",
            statement="Tensors that are wrong when exposed are right in a model that ends there: "
            "being output and read by a further operator is what makes them wrong.",
            tensors=tuple(created),
        )
    found.boundary = tensor
    node = subject.graph.nodes[subject.graph.producer[tensor]]
    parents = subject.parents(tensor)
    names = ", ".join(repr(subject.graph.tensors[t].name) for t in parents) or "the inputs"
    found.boundary_words = (
        f"A model that ends at tensor {tensor} {subject.graph.tensors[tensor].name!r} "
        f"(operator {node.index}, {node.op}) is wrong; models that end at what it is computed from "
        f"({names}) are right."
    )


async def run_singles(
    subject: Subject,
    lab: Lab,
    fault: Fault,
    found: Localised,
    budget: Budget,
    input_set: int,
) -> None:
    """Every kind of operator alone, fed with reference values, the suspects first."""
    graph = subject.graph
    fixed = graphs.constant_nodes(graph)
    bad = oracle_of_parts(subject, lab, fault, input_set)
    first = graph.producer.get(found.boundary) if found.boundary is not None else None
    near = first if first is not None else len(graph.nodes)
    order = sorted(
        (n for n in graph.nodes if n.index not in fixed),
        key=lambda n: (n.index != first, abs(n.index - near)),
    )
    seen: set[str] = set()
    for node in order:
        kind = subject.kind(node)
        if kind in seen:
            continue
        if budget.left <= 0:
            found.notes.append("Not every operator was run alone: the time was up.")
            found.complete = False
            break
        if subject.part((node.index,), sets=(input_set,)) is None:
            continue
        seen.add(kind)
        found.singles_run += 1
        if await bad(frozenset((node.index,))):
            found.windows.append((node.index,))
        else:
            found.singles_right += 1


async def grow_window(
    subject: Subject, lab: Lab, fault: Fault, found: Localised, input_set: int
) -> None:
    """Wider and wider around the boundary, until the fault returns."""
    graph = subject.graph
    assert found.boundary is not None
    start = frozenset((graph.producer[found.boundary],))
    bad = oracle_of_parts(subject, lab, fault, input_set)
    upstream = frozenset(graphs.ancestors(graph, (found.boundary,)))
    limit = frozenset(range(len(graph.nodes)))

    def up(nodes: frozenset[int]) -> frozenset[int]:
        reads = {t for n in nodes for t in graph.nodes[n].inputs if t >= 0}
        return nodes | {graph.producer[t] for t in reads if t in graph.producer}

    def around(nodes: frozenset[int]) -> frozenset[int]:
        writes = {t for n in nodes for t in graph.nodes[n].outputs}
        return (up(nodes) | {c for t in writes for c in graph.consumers.get(t, ())}) & limit

    window = await search.grow(start, lambda s: up(s) & (upstream | s), bad)
    if window is None:
        window = await search.grow(start, around, bad)
    if window is None:
        found.notes.append(
            "No set of operators fed with reference values shows the fault, although the model "
            "that ends at the boundary does."
        )
        return
    found.windows.insert(0, tuple(sorted(window)))


def plural(count: int, noun: str) -> str:
    """`1 tensor`, `2 tensors`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _affordable(subject: Subject, tensors: Sequence[int]) -> list[int]:
    """All, or an even choice of them."""
    step = -(-len(tensors) // MOST_EXPOSED)
    chosen = list(tensors[::step]) if step > 1 else list(tensors)
    known = subject.values[0] if subject.values else {}
    total, kept = 0, []
    for tensor in chosen:
        total += known[tensor].nbytes if tensor in known else 0
        if total > MOST_EXPOSED_BYTES:
            break
        kept.append(tensor)
    return kept


def _names(trial: Trial) -> list[str]:
    assert trial.facts is not None
    return [tensor.name for tensor in trial.facts.signatures[0].outputs]


def _first_wrong(errors: Sequence[TensorError], among: set[int]) -> int | None:
    for error in errors:
        if error.tensor in among and error.grade in ("divergent", "broken"):
            return error.tensor
    return None


def _note_cut(subject: Subject, found: Localised, tensor: int, trial: Trial) -> None:
    """Adds a point to the plot."""
    comparison = trial.worst or next(iter(trial.comparisons), None)
    node = subject.graph.producer.get(tensor)
    if comparison is None or node is None:
        return
    found.errors.append(
        TensorError(
            position=node,
            tensor=tensor,
            name=subject.graph.tensors[tensor].name,
            op=subject.graph.nodes[node].op,
            nrmse=comparison.facts.nrmse,
            max_abs=comparison.facts.max_abs,
            grade=comparison.judgement.grade,
            how="cut",
        )
    )


async def failing_prefix(
    subject: Subject, lab: Lab, fault: Fault, found: Localised, input_set: int
) -> Candidate | None:
    """The smallest prefix that fails to load or to run, and its boundary."""
    graph = subject.graph
    known: dict[int, bool] = {}

    async def bad(tensor: int) -> bool:
        if tensor not in known:
            candidate = subject.prefix((tensor,), (input_set,))
            known[tensor] = candidate is not None and shows(
                fault, await lab.run(candidate.data, candidate.sets)
            )
        return known[tensor]

    line = [t for n in graph.nodes for t in n.outputs if graph.tensors[t].dtype != "resource"]
    outputs = [t for t in graph.outputs if t in graph.producer]
    start = None
    for tensor in outputs:
        if await bad(tensor):
            start = tensor
            break
    if start is None:
        found.boundary_words = (
            "No model that ends at one output fails: the fault needs the whole model."
        )
        return None
    above = set(graphs.ancestors(graph, (start,)))
    among = [t for t in line if graph.producer[t] in above and t != start]
    tensor = await search.first_bad([*among, start], bad)

    def parents(t: int) -> list[int]:
        reads = graph.nodes[graph.producer[t]].inputs
        return [p for p in dict.fromkeys(reads) if p in graph.producer]

    tensor = await search.descend(tensor, parents, bad)
    found.boundary = tensor
    node = graph.nodes[graph.producer[tensor]]
    found.boundary_words = (
        f"The smallest prefix that fails ends at tensor {tensor} {graph.tensors[tensor].name!r}, "
        f"the output of operator {node.index} ({node.op}); models that end before it do not fail "
        "so."
    )
    return subject.prefix((tensor,), (input_set,))

"""Second looks: what got worse is measured again, old and new release in turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from sweep.config import Backend, Frozen
from sweep.record import Record, Result, Status
from sweep.releases.diff import SweepDiff
from sweep.releases.statistics import LatencyChange, compare_latency

Verdict = Literal["confirmed", "not_confirmed", "flaky"]

Measure = Callable[[str, str], Awaitable[Record]]
"""(core version, model id) → a new record, from fresh pages, that is not stored."""


class Confirmation(Frozen):
    """What the second look at one candidate gave."""

    model_id: str
    backend: Backend
    leg: str
    kind: Literal["status", "latency"]
    verdict: Verdict
    old_statuses: tuple[Status | None, ...]
    new_statuses: tuple[Status | None, ...]
    """Per round; old and new were measured in turn."""
    latency: LatencyChange | None = None
    """Of the samples of all rounds together; None for a change of status."""
    sentence: str


class Candidate(Frozen):
    """A change for the worse that one sweep of each release showed."""

    model_id: str
    backend: Backend
    leg: str
    kind: Literal["status", "latency"]


def candidates(diff: SweepDiff) -> tuple[Candidate, ...]:
    """What must be looked at twice: regressions, and latencies that grew."""
    worse = [
        Candidate(model_id=c.model_id, backend=c.backend, leg=c.leg, kind="status")
        for c in diff.statuses
        if c.kind == "regression"
    ]
    slower = [
        Candidate(model_id=c.model_id, backend=c.backend, leg=c.leg, kind="latency")
        for c in diff.latency
        if c.change.verdict == "slower"
    ]
    return (*worse, *slower)


async def confirm(
    found: Sequence[Candidate],
    old_version: str,
    new_version: str,
    measure: Measure,
    *,
    rounds: int = 2,
) -> tuple[Confirmation, ...]:
    """Measures every candidate's model `rounds` times on both releases, interleaved.

    Interleaving makes a machine that grows slower hit both releases alike.
    """
    models = dict.fromkeys(candidate.model_id for candidate in found)
    old: dict[str, list[Record]] = {model: [] for model in models}
    new: dict[str, list[Record]] = {model: [] for model in models}
    for model in models:
        for _ in range(rounds):
            old[model].append(await measure(old_version, model))
            new[model].append(await measure(new_version, model))
    return tuple(
        judge(candidate, old[candidate.model_id], new[candidate.model_id]) for candidate in found
    )


def judge(candidate: Candidate, old: Sequence[Record], new: Sequence[Record]) -> Confirmation:
    """The verdict on one candidate from its repeated measurements (pure)."""
    before = [_result(record, candidate.backend) for record in old]
    after = [_result(record, candidate.backend) for record in new]
    old_statuses = tuple(result.status if result else None for result in before)
    new_statuses = tuple(result.status if result else None for result in after)
    latency = None
    if candidate.kind == "latency":
        latency = compare_latency(
            [s for r in before if r and r.latency for s in r.latency.samples_ms],
            [s for r in after if r and r.latency for s in r.latency.samples_ms],
        )
        verdict: Verdict = "confirmed" if latency.verdict == "slower" else "not_confirmed"
        sentence = latency.reason
    elif len(set(old_statuses)) > 1 or len(set(new_statuses)) > 1:
        verdict = "flaky"
        sentence = f"not the same in every round: {_listed(old_statuses, new_statuses)}"
    elif old_statuses[0] == new_statuses[0]:
        verdict = "not_confirmed"
        sentence = f"both releases gave {old_statuses[0]} when measured in turn"
    else:
        verdict = "confirmed"
        sentence = f"seen again in every round: {_listed(old_statuses, new_statuses)}"
    return Confirmation(
        model_id=candidate.model_id,
        backend=candidate.backend,
        leg=candidate.leg,
        kind=candidate.kind,
        verdict=verdict,
        old_statuses=old_statuses,
        new_statuses=new_statuses,
        latency=latency,
        sentence=sentence,
    )


def _result(record: Record, backend: Backend) -> Result | None:
    return next((r for r in record.results if r.backend == backend), None)


def _listed(old: Sequence[Status | None], new: Sequence[Status | None]) -> str:
    def side(statuses: Sequence[Status | None]) -> str:
        return ", ".join(status or "-" for status in statuses)

    return f"old {side(old)}; new {side(new)}"

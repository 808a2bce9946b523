"""Second looks: what got worse is measured again, old and new release in turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from sweep.config import Backend, Frozen
from sweep.record import NOT_FETCHED, Record, Result, Status
from sweep.releases.diff import RANK, SweepDiff, diff_sweeps
from sweep.releases.statistics import LatencyChange, compare_latency

Kind = Literal["status", "latency"]

LookVerdict = Literal[
    "confirmed",  # worse in every round
    "not_confirmed",  # not worse when measured in turn
    "flaky",  # worse in some rounds, or by outcomes that change from round to round
    "not_measured",  # a round gave nothing to judge by
]

Measure = Callable[[str, str], Awaitable[Record]]
"""(core version, model id) → a new record, from fresh pages, that is not stored."""


class Candidate(Frozen):
    """A change for the worse that one sweep of each release showed."""

    model_id: str
    backend: Backend
    leg: str
    kind: Kind


class Confirmation(Frozen):
    """What the second look at one candidate gave."""

    model_id: str
    backend: Backend
    leg: str
    kind: Kind
    verdict: LookVerdict
    old_statuses: tuple[Status | None, ...]
    new_statuses: tuple[Status | None, ...]
    """Per round; old and new were measured in turn."""
    latency: LatencyChange | None = None
    """Of the samples of all rounds together; None for a change of status."""
    sentence: str

    @property
    def candidate(self) -> Candidate:
        """What was looked at."""
        return Candidate(model_id=self.model_id, backend=self.backend, leg=self.leg, kind=self.kind)


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

    Old, new, new, old, …: a machine that grows slower hits both releases alike.
    """
    models = dict.fromkeys(candidate.model_id for candidate in found)
    old: dict[str, list[Record]] = {model: [] for model in models}
    new: dict[str, list[Record]] = {model: [] for model in models}
    for model in models:
        for number in range(rounds):
            turn = [(old, old_version), (new, new_version)]
            for side, version in turn if number % 2 == 0 else reversed(turn):
                side[model].append(await measure(version, model))
    return tuple(
        judge(candidate, old[candidate.model_id], new[candidate.model_id]) for candidate in found
    )


def judge(candidate: Candidate, old: Sequence[Record], new: Sequence[Record]) -> Confirmation:
    """The verdict on one candidate from its repeated measurements, one record a round (pure)."""
    before = [_result(record, candidate.backend) for record in old]
    after = [_result(record, candidate.backend) for record in new]
    old_statuses = tuple(result.status if result else None for result in before)
    new_statuses = tuple(result.status if result else None for result in after)
    latency: LatencyChange | None = None
    verdict: LookVerdict
    if candidate.kind == "latency":
        latency = compare_latency(_samples(before), _samples(after))
        verdict, sentence = _judge_latency(latency, before, after)
    elif any(_unmeasured(result) for result in (*before, *after)):
        verdict = "not_measured"
        sentence = f"not measured in every round: {_listed(old_statuses, new_statuses)}"
    else:
        worse = [_is_worse(a, b, candidate.backend) for a, b in zip(old, new, strict=True)]
        verdict, sentence = _judge_statuses(worse, old_statuses, new_statuses)
    return Confirmation(
        **candidate.model_dump(),
        verdict=verdict,
        old_statuses=old_statuses,
        new_statuses=new_statuses,
        latency=latency,
        sentence=sentence,
    )


def _judge_statuses(
    worse: Sequence[bool], old: Sequence[Status | None], new: Sequence[Status | None]
) -> tuple[LookVerdict, str]:
    listed = _listed(old, new)
    best_new = max(RANK[status] for status in new if status)
    worst_old = min(RANK[status] for status in old if status)
    if all(worse) and best_new < worst_old:
        return "confirmed", f"worse in every round: {listed}"
    if not any(worse) and len(set(old)) == len(set(new)) == 1:
        return "not_confirmed", f"not worse when measured in turn: {listed}"
    return "flaky", f"not the same in every round: {listed}"


def _judge_latency(
    pooled: LatencyChange, before: Sequence[Result | None], after: Sequence[Result | None]
) -> tuple[LookVerdict, str]:
    """Slower over all samples, and in each round: rounds have pages and moods of their own."""
    if pooled.verdict == "not_comparable":
        return "not_measured", pooled.reason
    if pooled.verdict != "slower":
        return "not_confirmed", pooled.reason
    rounds = [
        a is not None
        and b is not None
        and a.latency_p50_ms is not None
        and b.latency_p50_ms is not None
        and b.latency_p50_ms > a.latency_p50_ms
        for a, b in zip(before, after, strict=True)
    ]
    if all(rounds):
        return "confirmed", pooled.reason
    return "flaky", f"slower in {sum(rounds)} of {len(rounds)} rounds only; {pooled.reason}"


def _is_worse(old: Record, new: Record, backend: Backend) -> bool:
    """By the rules of the diff, so that a second look calls worse what the first did."""
    return any(
        change.kind == "regression" and change.backend == backend
        for change in diff_sweeps([old], [new]).statuses
    )


def _result(record: Record, backend: Backend) -> Result | None:
    return next((r for r in record.results if r.backend == backend), None)


def _unmeasured(result: Result | None) -> bool:
    return (
        result is None
        or result.status in (None, "unavailable")
        or result.failure_class in NOT_FETCHED
    )


def _samples(results: Sequence[Result | None]) -> list[float]:
    return [s for r in results if r and r.runs and r.latency for s in r.latency.samples_ms]


def _listed(old: Sequence[Status | None], new: Sequence[Status | None]) -> str:
    def side(statuses: Sequence[Status | None]) -> str:
        return ", ".join(status or "-" for status in statuses)

    return f"old {side(old)}; new {side(new)}"

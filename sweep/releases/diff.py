"""The difference between two sweeps, model by model and backend by backend (pure).

What counts as worse: the order of `STATUSES`, with three reservations. A result that was not
measured (`unavailable`, a model that could not be fetched) says nothing, so neither going there nor
coming back is a change for the worse or the better. `unverified` says that values are unknown: only
against a run that failed is it better or worse. And a verdict on values that was reached on another
model file, other inputs or another tolerance is `unclear` beside the old one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from sweep.config import Backend, Frozen
from sweep.record import NOT_FETCHED, STATUSES, Record, Result, Status
from sweep.releases.outcomes import Outcome, Sibling, compare_siblings, varying_outcomes
from sweep.releases.sides import environment_differences, pair_records
from sweep.releases.statistics import LatencyChange, compare_latency
from sweep.tolerance import Grade

ChangeKind = Literal[
    "regression",
    "improvement",
    "failure_class",  # fails as before, for another reason
    "unclear",  # another verdict, but not one that the release can be blamed or praised for
    "unavailable",  # not measured on one side
    "new",
    "gone",
]

RANK: dict[Status, int] = {status: rank for rank, status in enumerate(STATUSES)}
GRADES: tuple[Grade, ...] = ("exact", "rounding", "precision", "divergent", "broken")
OTHER_MODEL, OTHER_INPUTS = "the model file", "the inputs"
SNR_STEP_DB = 6.0
"""Smallest change of the signal-to-noise ratio that is listed: the error doubled or halved."""


class _Item(Frozen):
    model_id: str
    backend: Backend
    leg: str


class StatusChange(_Item):
    """Another verdict than before, or a result that only one side has."""

    kind: ChangeKind
    old: Status | None
    new: Status | None
    old_failure_class: str | None = None
    new_failure_class: str | None = None
    reason: str | None = None
    """Of the new verdict; of the old one where there is no new."""
    differs: tuple[str, ...] = ()
    """What else differs between the two: model file, inputs, settings, environment."""


class DelegationChange(_Item):
    """Operators that moved between GPU and CPU. Only what both sides reported is compared."""

    old_ops_on_gpu: int | None
    old_ops_on_cpu: int | None
    new_ops_on_gpu: int | None
    new_ops_on_cpu: int | None
    newly_supported: tuple[str, ...]
    newly_unsupported: tuple[str, ...]
    old_full: bool | None
    new_full: bool | None


class NumericChange(_Item):
    """Another grade, or an error that at least doubled or halved."""

    better: bool
    old_grade: Grade
    new_grade: Grade
    """The worst, against the references that both sides have."""
    old_snr_db: float | None
    """The smallest over all comparisons."""
    new_snr_db: float | None


class LatencyDiff(_Item):
    """A latency that changed (`slower`, `faster`), or could not be compared and why."""

    change: LatencyChange
    software: bool
    """On a software adapter: says nothing of a GPU."""


class SweepDiff(Frozen):
    """All that differs between two sweeps."""

    old_label: str
    new_label: str
    compared: int
    """Results (model × backend × leg) that both sides have."""
    unchanged: int
    """Of these, those with the same verdict."""
    statuses: tuple[StatusChange, ...] = ()
    delegation: tuple[DelegationChange, ...] = ()
    numerics: tuple[NumericChange, ...] = ()
    latency: tuple[LatencyDiff, ...] = ()
    latency_not_comparable: tuple[LatencyDiff, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    """Of the models whose outcome depends on core version, build, JSPI or threads."""
    siblings: tuple[Sibling, ...] = ()
    """Variants that differ from their parent in the new sweep, and did not in the old."""
    old_not_reported: tuple[str, ...] = ()
    new_not_reported: tuple[str, ...] = ()
    """Facts that a side's core cannot give: absent there, and no change."""

    @property
    def empty(self) -> bool:
        """Nothing differs."""
        return not (
            self.statuses
            or self.delegation
            or self.numerics
            or self.latency
            or self.latency_not_comparable
            or self.siblings
        )

    def kinds(self) -> frozenset[str]:
        """What `--fail-on` can name of this diff: kinds of status changes, `slower`, `faster`."""
        return frozenset(c.kind for c in self.statuses) | {c.change.verdict for c in self.latency}


def diff_sweeps(
    old: Sequence[Record],
    new: Sequence[Record],
    *,
    old_label: str = "old",
    new_label: str = "new",
) -> SweepDiff:
    """Compare two sweeps. Either may be partial, and may hold several records of a model."""
    statuses: list[StatusChange] = []
    delegation: list[DelegationChange] = []
    numerics: list[NumericChange] = []
    latency: list[LatencyDiff] = []
    compared = unchanged = 0
    used_old: list[Record] = []
    used_new: list[Record] = []
    for model_id, leg, first, second in pair_records(old, new):
        used_old += [first] if first else []
        used_new += [second] if second else []
        before = {r.backend: r for r in first.results} if first else {}
        after = {r.backend: r for r in second.results} if second else {}
        for backend in sorted(before.keys() | after.keys()):
            a, b = before.get(backend), after.get(backend)
            item = _Item(model_id=model_id, backend=backend, leg=leg)
            if a is None or b is None:
                statuses.append(_one_sided(item, a, b))
                continue
            assert first is not None
            assert second is not None
            compared += 1
            change = _status_change(item, first, second, a, b)
            unchanged += change is None
            statuses += [change] if change else []
            delegation += _delegation_change(item, a, b)
            numerics += _numeric_change(item, first, second, a, b)
            latency += _latency_diff(item, first, second, a, b)
    known = {(s.model_id, s.backend, s.kind) for s in compare_siblings(used_old)}
    return SweepDiff(
        old_label=old_label,
        new_label=new_label,
        compared=compared,
        unchanged=unchanged,
        statuses=tuple(statuses),
        delegation=tuple(delegation),
        numerics=tuple(numerics),
        latency=tuple(d for d in latency if d.change.verdict in ("slower", "faster")),
        latency_not_comparable=tuple(d for d in latency if d.change.verdict == "not_comparable"),
        outcomes=varying_outcomes([*used_old, *used_new]),
        siblings=tuple(
            s for s in compare_siblings(used_new) if (s.model_id, s.backend, s.kind) not in known
        ),
        old_not_reported=_not_reported(used_old),
        new_not_reported=_not_reported(used_new),
    )


def _one_sided(item: _Item, old: Result | None, new: Result | None) -> StatusChange:
    there = new or old
    assert there is not None
    return StatusChange(
        **item.model_dump(),
        kind="new" if new else "gone",
        old=old.status if old else None,
        new=new.status if new else None,
        old_failure_class=old.failure_class if old else None,
        new_failure_class=new.failure_class if new else None,
        reason=there.reason,
    )


def _status_change(
    item: _Item, first: Record, second: Record, old: Result, new: Result
) -> StatusChange | None:
    values = _value_differences(first, second)
    kind = _kind(old, new, other_model=OTHER_MODEL in values, other_values=bool(values))
    if kind is None:
        return None
    return StatusChange(
        **item.model_dump(),
        kind=kind,
        old=old.status,
        new=new.status,
        old_failure_class=old.failure_class,
        new_failure_class=new.failure_class,
        reason=new.reason,
        differs=(*values, *environment_differences(old.env, new.env, item.backend)),
    )


def _kind(old: Result, new: Result, *, other_model: bool, other_values: bool) -> ChangeKind | None:
    """How the verdict changed; None when it did not.

    `other_values`: the values, or what was asked of them, cannot be held against each other.
    """
    if old.status == new.status:
        both = old.failure_class and new.failure_class
        return "failure_class" if both and old.failure_class != new.failure_class else None
    if any(r.status == "unavailable" or r.failure_class in NOT_FETCHED for r in (old, new)):
        return "unavailable"
    if old.status is None or new.status is None or other_model:
        return "unclear"
    pair = {old.status, new.status}
    failed = pair & {"load_failed", "run_failed"}
    if not failed and ("unverified" in pair or (other_values and "output_mismatch" in pair)):
        return "unclear"
    return "regression" if RANK[new.status] < RANK[old.status] else "improvement"


def _value_differences(old: Record, new: Record) -> tuple[str, ...]:
    """What differs between two records so that their values cannot be held against each other."""
    found: list[str] = []
    if old.model and new.model and old.model.sha256 != new.model.sha256:
        found.append(OTHER_MODEL)
    if old.inputs and new.inputs:
        if old.inputs != new.inputs:
            found.append(OTHER_INPUTS)
    elif old.config.input_seed != new.config.input_seed:
        found.append(f"input_seed: {old.config.input_seed} → {new.config.input_seed}")
    for name in ("tolerance_policy", "tolerance_abs", "tolerance_rel"):
        before, after = getattr(old.config, name), getattr(new.config, name)
        if before != after:
            found.append(f"{name}: {before} → {after}")
    return tuple(found)


def _delegation_change(item: _Item, old: Result, new: Result) -> list[DelegationChange]:
    a, b = old.delegation, new.delegation
    full = (
        None not in (old.full_delegation, new.full_delegation)
        and old.full_delegation != new.full_delegation
    )
    moved = False
    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    if a and b:
        moved = any(
            None not in (x, y) and x != y
            for x, y in ((a.ops_on_gpu, b.ops_on_gpu), (a.ops_on_cpu, b.ops_on_cpu))
        )
        before, after = _unsupported(old), _unsupported(new)
        if before is not None and after is not None:
            gained, lost = tuple(sorted(before - after)), tuple(sorted(after - before))
    if not (full or moved or gained or lost):
        return []
    return [
        DelegationChange(
            **item.model_dump(),
            old_ops_on_gpu=a.ops_on_gpu if a else None,
            old_ops_on_cpu=a.ops_on_cpu if a else None,
            new_ops_on_gpu=b.ops_on_gpu if b else None,
            new_ops_on_cpu=b.ops_on_cpu if b else None,
            newly_supported=gained,
            newly_unsupported=lost,
            old_full=old.full_delegation,
            new_full=new.full_delegation,
        )
    ]


def _unsupported(result: Result) -> frozenset[str] | None:
    """Operators the GPU refused; None where the runtime did not say (which is not "none")."""
    facts = result.delegation
    if facts is None:
        return None
    said = facts.unsupported or facts.ops_on_cpu is not None or facts.fully_accelerated
    return frozenset(op.op for op in facts.unsupported) if said else None


def _numeric_change(
    item: _Item, first: Record, second: Record, old: Result, new: Result
) -> list[NumericChange]:
    if {OTHER_MODEL, OTHER_INPUTS} & set(_value_differences(first, second)):
        return []
    shared = {c.against for c in old.comparisons} & {c.against for c in new.comparisons}
    old_grade, old_snr = _worst(old, shared)
    new_grade, new_snr = _worst(new, shared)
    if old_grade is None or new_grade is None:
        return []
    better = GRADES.index(new_grade) < GRADES.index(old_grade)
    if old_grade == new_grade:
        # No ratio: an output was exact, or it is not of numbers.
        if old_snr is None or new_snr is None or abs(old_snr - new_snr) < SNR_STEP_DB:
            return []
        better = new_snr > old_snr
    return [
        NumericChange(
            **item.model_dump(),
            better=better,
            old_grade=old_grade,
            new_grade=new_grade,
            old_snr_db=old_snr,
            new_snr_db=new_snr,
        )
    ]


def _worst(result: Result, against: Collection[str]) -> tuple[Grade | None, float | None]:
    """Worst grade and smallest SNR (dB) of the comparisons against the given references."""
    chosen = [c for c in result.comparisons if c.against in against]
    grade = max((c.judgement.grade for c in chosen), key=GRADES.index, default=None)
    ratios = (c.facts.snr_db for c in chosen if c.facts.snr_db is not None)
    return grade, min(ratios, default=None)


def _latency_diff(
    item: _Item, first: Record, second: Record, old: Result, new: Result
) -> list[LatencyDiff]:
    """Nothing where a side has no latency, or both are the very same measurement."""
    if old.latency_p50_ms is None or new.latency_p50_ms is None or old == new:
        return []
    differing = list(environment_differences(old.env, new.env, item.backend))
    if OTHER_MODEL in _value_differences(first, second):
        differing.append(OTHER_MODEL)
    if differing:
        change = LatencyChange(
            verdict="not_comparable",
            reason="; ".join(differing),
            old_median_ms=old.latency_p50_ms,
            new_median_ms=new.latency_p50_ms,
        )
    else:
        change = compare_latency(
            old.latency.samples_ms if old.latency else (),
            new.latency.samples_ms if new.latency else (),
        )
    software = item.backend != "wasm_xnnpack" and "software" in (
        old.env.adapter_class,
        new.env.adapter_class,
    )
    return [LatencyDiff(**item.model_dump(), change=change, software=software)]


def _not_reported(records: Sequence[Record]) -> tuple[str, ...]:
    return tuple(sorted({f for r in records for x in r.results for f in x.not_reported}))

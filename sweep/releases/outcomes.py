"""Outcomes per build, and models beside their variants, within sweeps (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from sweep.config import Backend, Frozen
from sweep.record import Record, Result, Status
from sweep.releases.sides import environment_differences
from sweep.releases.statistics import LatencyChange, compare_latency
from sweep.store import leg_of, version_key

SIBLING_SLOWDOWN = 2.0
"""How many times slower than its parent a variant must be to be a finding."""
WORKING: frozenset[Status | None] = frozenset({"pass", "fallback"})


class Outcome(Frozen):
    """What came of one model on one backend with one build of the runtime."""

    model_id: str
    backend: Backend
    core_version: str
    wasm_file: str | None
    jspi: bool | None
    threads: int | None
    """None: the core does not say."""
    leg: str
    status: Status | None
    failure_class: str | None


class Sibling(Frozen):
    """A variant that does worse than the model it is a variant of, in the same sweep."""

    model_id: str
    parent: str
    backend: Backend
    leg: str
    kind: Literal["status", "slower"]
    status: Status | None
    parent_status: Status | None
    latency: LatencyChange | None = None
    """The parent's samples as `old`, the variant's as `new`."""


def varying_outcomes(records: Sequence[Record]) -> tuple[Outcome, ...]:
    """The (core version, build, JSPI, threads) → outcome table.

    Only of models × backends whose status is not the same everywhere; by model, backend, version.
    """
    grouped: defaultdict[tuple[str, str], set[Outcome]] = defaultdict(set)
    for record in records:
        for result in record.results:
            env = result.env
            grouped[record.model_id, result.backend].add(
                Outcome(
                    model_id=record.model_id,
                    backend=result.backend,
                    core_version=env.litertjs_core_version,
                    wasm_file=env.wasm_file,
                    jspi=env.jspi,
                    threads=env.threads,
                    leg=leg_of(record),
                    status=result.status,
                    failure_class=result.failure_class,
                )
            )
    return tuple(
        outcome
        for _, group in sorted(grouped.items())
        if len({o.status for o in group}) > 1
        for outcome in sorted(
            group,
            key=lambda o: (version_key(o.core_version), o.leg, o.wasm_file or "", o.status or ""),
        )
    )


def compare_siblings(records: Sequence[Record]) -> tuple[Sibling, ...]:
    """Variants that fail where their parent works, or are at least twice as slow.

    A variant is compared with the record of its parent from the same core version and leg; its
    latency only in an equal environment.
    """
    by_key = {_key(record, record.model_id): record for record in records}
    found: list[Sibling] = []
    for record in sorted(records, key=lambda r: r.model_id):
        parent = by_key.get(_key(record, record.variant_of)) if record.variant_of else None
        if parent is None or parent is record:
            continue
        of_parent = {r.backend: r for r in parent.results}
        for result in record.results:
            other = of_parent.get(result.backend)
            if other is not None:
                found += _findings(record, parent, result, other)
    return tuple(found)


def _key(record: Record, model_id: str) -> tuple[str, str, str]:
    return model_id, record.results[0].env.litertjs_core_version, leg_of(record)


def _findings(record: Record, parent: Record, result: Result, other: Result) -> list[Sibling]:
    base = Sibling(
        model_id=record.model_id,
        parent=parent.model_id,
        backend=result.backend,
        leg=leg_of(record),
        kind="status",
        status=result.status,
        parent_status=other.status,
    )
    found: list[Sibling] = []
    if other.status in WORKING and result.status not in (*WORKING, "unavailable", "unverified"):
        found.append(base)
    if (
        result.latency
        and other.latency
        and not environment_differences(other.env, result.env, result.backend)
    ):
        change = compare_latency(other.latency.samples_ms, result.latency.samples_ms)
        if change.verdict == "slower" and (change.ratio or 0) >= SIBLING_SLOWDOWN:
            found.append(base.model_copy(update={"kind": "slower", "latency": change}))
    return found

"""What the dashboard's index keeps of one record."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from sweep.config import Backend
from sweep.env import Environment
from sweep.record import STATUSES, Record, Result
from sweep.views.site_environment import EnvironmentTable

UNCLASSIFIED = "unclassified"
"""Shown for results read from the 1.0 format that were never classified."""
STATUS_NAMES: tuple[str, ...] = (*STATUSES, UNCLASSIFIED)
BACKENDS: tuple[Backend, ...] = ("wasm_xnnpack", "webgpu_mldrift", "webnn")
GRADES = ("exact", "rounding", "precision", "divergent", "broken")


class ResultSummary(NamedTuple):
    """What the index keeps of one result. `env` is a position in the environment table."""

    backend: int
    status: int
    failure_class: str | None
    share: float | None
    grade: int | None
    p50: float | None
    ci_low: float | None
    ci_high: float | None
    first_run: float | None
    samples: int
    env: int
    example: bool


class RecordSummary(NamedTuple):
    """What the index keeps of one record. `place` is its path below the data root, sans `.json`."""

    place: str
    core: str
    date: str
    model_id: str
    source: str
    license: str
    notes: str | None
    tags: tuple[str, ...]
    variant_of: str | None
    operators: tuple[str, ...]
    bytes: int | None
    file: str | None
    """sha256 of the model."""
    basis: str
    """Equal where inputs and tolerance are: only then can verdicts on values be compared."""
    results: tuple[ResultSummary, ...]


def delegation_share(result: Result) -> float | None:
    """Operators on the GPU ÷ all operators, 0…1; None for wasm and where nothing was reported."""
    if result.backend == "wasm_xnnpack":
        return None
    facts = result.delegation
    if facts is not None and facts.ops_on_gpu is not None and facts.ops_on_cpu is not None:
        total = facts.ops_on_gpu + facts.ops_on_cpu
        return round(facts.ops_on_gpu / total, 4) if total else None
    return 1.0 if result.full_delegation else None


def summarise(record: Record, place: str, table: EnvironmentTable) -> RecordSummary:
    """Fold one record into what the index needs of it.

    `place` is `<core>/<date>[/<leg>]/<model_id>`: the store has checked it against the content.
    """
    core, day = place.split("/")[:2]
    return RecordSummary(
        place=place,
        core=core,
        date=day,
        model_id=record.model_id,
        source=record.source,
        license=record.license,
        notes=record.notes,
        tags=record.tags,
        variant_of=record.variant_of,
        operators=tuple(o.op for o in record.model.operators) if record.model else (),
        bytes=record.model.bytes if record.model else None,
        file=record.model.sha256 if record.model else None,
        basis=_basis(record),
        results=tuple(_summarise_result(r, record, table) for r in record.results),
    )


def _basis(record: Record) -> str:
    config = record.config
    asked = (config.tolerance_policy, config.tolerance_abs, config.tolerance_rel)
    made = [entry.model_dump_json() for entry in record.inputs] or [str(config.input_seed)]
    return hashlib.sha256("\n".join([repr(asked), *made]).encode()).hexdigest()[:16]


def _summarise_result(result: Result, record: Record, table: EnvironmentTable) -> ResultSummary:
    latency = result.latency
    status = result.status or UNCLASSIFIED
    return ResultSummary(
        backend=BACKENDS.index(result.backend),
        status=STATUS_NAMES.index(status),
        failure_class=result.failure_class,
        share=delegation_share(result),
        grade=GRADES.index(result.grade) if result.grade else None,
        p50=_short(result.latency_p50_ms),
        ci_low=_short(latency.ci99_low_ms) if latency else None,
        ci_high=_short(latency.ci99_high_ms) if latency else None,
        first_run=_short(latency.first_run_ms) if latency else None,
        samples=len(latency.samples_ms) if latency else 0,
        env=table.add(_with_adapter(result.env, record)),
        example=result.provenance == "example",
    )


def _with_adapter(env: Environment, record: Record) -> Environment:
    """A wasm result measured beside a webgpu one in the same browser is of the same environment."""
    if env.webgpu_adapter is not None:
        return env
    for other in record.results:
        e = other.env
        same = (e.machine_label, e.browser, e.browser_version, e.headless, e.leg, e.precision)
        if e.webgpu_adapter is not None and same == (
            env.machine_label, env.browser, env.browser_version, env.headless, env.leg,
            env.precision,
        ):  # fmt: skip
            return env.model_copy(
                update={
                    "webgpu_adapter": e.webgpu_adapter,
                    "adapter_class": e.adapter_class,
                    "adapter_is_fallback": e.adapter_is_fallback,
                }
            )
    return env


def _short(value: float | None) -> float | None:
    """Five significant digits are more than a latency deserves, and they keep the index small."""
    return None if value is None else float(f"{value:.5g}")

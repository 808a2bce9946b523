"""One model: its jobs on every backend, the desktop reference, the verdicts, the record."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.bench import Bench
from sweep.cause import all_non_finite
from sweep.classify import (
    SUSPICIOUS_FLAGS,
    Verdict,
    VerdictContext,
    agrees_with,
    classify,
    fell_back,
)
from sweep.conditions import Conditions
from sweep.config import Backend, SweepConfig
from sweep.console import ConsoleFacts, read_console
from sweep.latency import summarise
from sweep.prepare import Prepared, Unprepared
from sweep.protocol import Job, Measurement, TimedRuns
from sweep.record import (
    CorePackage,
    DesktopReference,
    Record,
    RecordConfig,
    Result,
)
from sweep.reference import DesktopRun, measure_noise_floor
from sweep.reference_worker import PACKAGE
from sweep.secrets import redact
from sweep.tolerance import NoiseFloor, is_mismatch
from sweep.verify import (
    Outputs,
    SetKey,
    Verified,
    measured_outputs,
    precision_in_use,
    verify,
)

MOST_RUNS = 3
"""Samples that may be taken for each one asked for, while they scatter."""

ACCIDENTS = frozenset({"browser_crash", "page_crash", "device_lost"})
"""Failure classes that the machine may cause without the model: once is not enough to tell."""

DESKTOP_TIMEOUT = 300.0
"""Seconds for one run of the desktop reference."""


@dataclass(frozen=True)
class Desktop:
    """What the desktop reference gave for all input sets."""

    reference: DesktopReference
    outputs: dict[SetKey, Outputs] | None
    floors: Mapping[str, Mapping[str, NoiseFloor]]


@dataclass(frozen=True)
class _Case:
    """One model on one bench, ready to be measured on any backend."""

    bench: Bench
    prepared: Prepared
    desktop: Desktop
    model_url: str


@dataclass(frozen=True)
class BackendOutcome:
    """One backend's measurement with everything that was concluded from it."""

    measurement: Measurement
    console: ConsoleFacts
    verified: Verified
    verdict: Verdict
    conditions: Conditions
    confirmed: bool | None


async def measure_model(
    bench: Bench, prepared: Prepared | Unprepared, date: str, desktop: Desktop | None = None
) -> Record:
    """Measures one model on the configured backends and returns its record.

    Several models may be measured on one bench at a time: their jobs take turns in the browser, and
    one model is compared while another's job runs, though not while that is timed.

    Args:
        desktop: what the desktop reference gave, where it was run ahead; None: it is run here.
    """
    config = bench.config
    if isinstance(prepared, Unprepared):
        return _unprepared_record(bench, prepared, date)
    if desktop is None:
        desktop = await run_desktop(bench, prepared)
    outcomes: dict[Backend, BackendOutcome] = {}
    wasm: Mapping[SetKey, Outputs] | None = None
    with bench.server.offer(prepared.path, kept=True) as url:
        case = _Case(bench, prepared, desktop, url)
        for backend in _order(prepared.entry.backends or config.backends):
            outcome = await _measure_backend(case, backend, wasm, outcomes)
            outcomes[backend] = outcome
            if backend == "wasm_xnnpack" and _sound(outcome):
                wasm = measured_outputs(outcome.measurement, prepared.facts)
    async with bench.gate.working():
        record = _record(bench, prepared, desktop, outcomes, date)
        _discard_outputs(outcomes.values())
    return record


def _order(backends: Sequence[Backend]) -> list[Backend]:
    """wasm first: it is the reference of the others."""
    return sorted(backends, key=lambda backend: (backend != "wasm_xnnpack", backend))


def _sound(outcome: BackendOutcome) -> bool:
    """Whether a wasm run may serve as a reference: it ran, and nothing said it did not."""
    return outcome.measurement.error is None and not outcome.console.fatal


async def run_desktop(bench: Bench, prepared: Prepared) -> Desktop:
    """Runs the desktop reference on all input sets and measures the noise floors on the first."""
    if bench.desktop is None:
        skipped = DesktopReference(package=PACKAGE, version=None, status="skipped")
        return Desktop(skipped, None, {})
    outputs: dict[SetKey, Outputs] = {}
    floors: Mapping[str, Mapping[str, NoiseFloor]] = {}
    run: DesktopRun | None = None
    for index, inputs in enumerate(prepared.sets):
        async with bench.gate.working():
            run = await bench.desktop.run(prepared.path, inputs, timeout=DESKTOP_TIMEOUT)
        if run.status != "ok":
            break
        outputs.update({(key, index): values for key, values in run.outputs.items()})
        if index == 0:
            async with bench.gate.working():
                floors = await measure_noise_floor(
                    bench.desktop,
                    prepared.path,
                    inputs,
                    precision_in_use(prepared.facts, bench.config.leg.precision),
                    base=run,
                    timeout=DESKTOP_TIMEOUT,
                )
    assert run is not None, "there is at least one input set"
    reference = DesktopReference(
        package=run.package, version=run.version, status=run.status, error=run.error
    )
    return Desktop(reference, outputs if run.status == "ok" else None, floors)


async def _measure_backend(
    case: _Case,
    backend: Backend,
    wasm: Mapping[SetKey, Outputs] | None,
    outcomes: Mapping[Backend, BackendOutcome],
) -> BackendOutcome:
    """Measures once; whatever is not a clean pass in a reused page is measured again in a fresh.

    So is what may have been an accident (a process that the system killed), in whatever page.
    """
    fresh = case.bench.config.isolation != "reuse"
    outcome = await _measure_once(case, backend, wasm, outcomes, fresh=fresh)
    clean = outcome.verdict.status == "pass" and not SUSPICIOUS_FLAGS & set(outcome.verdict.flags)
    accident = outcome.verdict.failure_class in ACCIDENTS
    if clean or (outcome.measurement.fresh_page and not accident):
        return outcome
    _discard_outputs([outcome])
    again = await _measure_once(case, backend, wasm, outcomes, fresh=True)
    same = (again.verdict.status, again.verdict.failure_class) == (
        outcome.verdict.status,
        outcome.verdict.failure_class,
    )
    return BackendOutcome(
        again.measurement, again.console, again.verified, again.verdict, again.conditions, same
    )


async def _measure_once(
    case: _Case,
    backend: Backend,
    wasm: Mapping[SetKey, Outputs] | None,
    outcomes: Mapping[Backend, BackendOutcome],
    *,
    fresh: bool,
) -> BackendOutcome:
    bench = case.bench
    job = job_of(bench.config, case.prepared, backend, model_url=case.model_url)
    async with bench.turn:
        if fresh:
            await bench.recycle(backend)
        conditions_now = bench.watch.begin()
        measurement = await bench.session(backend).run(job)
        conditions = conditions_now()
    async with bench.gate.working():
        return await _judge(case, backend, measurement, conditions, wasm, outcomes)


async def _judge(
    case: _Case,
    backend: Backend,
    measurement: Measurement,
    conditions: Conditions,
    wasm: Mapping[SetKey, Outputs] | None,
    outcomes: Mapping[Backend, BackendOutcome],
) -> BackendOutcome:
    """Compares what a job brought back, and classifies it."""
    bench, prepared, desktop = case.bench, case.prepared, case.desktop
    console = read_console(measurement.console, dropped=measurement.console_dropped)
    reference = None if backend == "wasm_xnnpack" else wasm
    verified = await asyncio.to_thread(
        verify,
        measurement,
        prepared.facts,
        bench.config,
        wasm=reference,
        desktop=desktop.outputs,
        floors=desktop.floors,
    )
    wasm_outcome = outcomes.get("wasm_xnnpack")
    verdict = classify(
        measurement,
        console,
        verified.comparisons,
        VerdictContext(
            backend=backend,
            wasm_sound=wasm is not None,
            wasm_status=wasm_outcome.verdict.status if wasm_outcome else None,
            wasm_failure_class=wasm_outcome.verdict.failure_class if wasm_outcome else None,
            model_bytes=prepared.facts.bytes,
            desktop_status=desktop.reference.status,
            wasm_agrees_with_desktop=_matches_desktop(wasm_outcome),
            graph_computes=prepared.computes,
            identical_to_wasm=verified.identical_to_wasm,
            input_independent=verified.input_independent,
            pattern_kind=verified.pattern,
            stability=verified.stability,
            mismatch_after_first_run=verified.mismatch_after_first_run,
            uncompared_all_zero=verified.uncompared_all_zero,
            uncompared_non_finite=verified.uncompared_non_finite,
            software_adapter=bench.environment(measurement).adapter_class == "software",
        ),
    )
    return BackendOutcome(measurement, console, verified, verdict, conditions, None)


def _matches_desktop(outcome: BackendOutcome | None) -> bool | None:
    """Whether a backend's outputs agree with the desktop reference's; None: not compared.

    What lay in the outputs of a run that computed nothing agrees with nothing, nor disagrees.
    """
    if outcome is None or not outcome.verdict.runs:
        return None
    # Where nothing is finite on either side there is nothing to agree on.
    against = [
        c
        for c in outcome.verified.comparisons
        if c.against == "desktop" and (c.facts.problem or not all_non_finite(c))
    ]
    if not against:
        return None
    return not any(is_mismatch(c.judgement.grade) for c in against)


def job_of(
    config: SweepConfig, prepared: Prepared, backend: Backend, *, model_url: str | None = None
) -> Job:
    """What the page is asked to do with a model; `model_url`: where the server offers its file."""
    return Job(
        model_id=prepared.entry.model_id,
        backend=backend,
        model_path=prepared.path,
        model_url=model_url,
        signature_keys=tuple(s.key for s in prepared.facts.signatures),
        inputs=prepared.sets,
        num_threads=config.leg.num_threads if backend == "wasm_xnnpack" else None,
        precision=config.leg.precision,
        warmup_runs=config.warmup_runs,
        timed=timed_runs(config),
        timeouts=config.timeouts,
    )


def timed_runs(config: SweepConfig) -> TimedRuns | None:
    """How a job is timed; None for a sweep of correctness only."""
    if not config.latency:
        return None
    asked = config.timed_runs
    return TimedRuns(
        floor_runs=min(asked, config.min_timed_runs),
        min_runs=asked,
        max_runs=asked * MOST_RUNS if config.target_half_width else asked,
        budget_ms=config.timed_budget * 1000,
        extra_budget_ms=config.extra_budget * 1000,
        relative_half_width=config.target_half_width,
    )


def _record(
    bench: Bench,
    prepared: Prepared,
    desktop: Desktop,
    outcomes: Mapping[Backend, BackendOutcome],
    date: str,
) -> Record:
    entry = prepared.entry
    webgpu = outcomes.get("webgpu_mldrift")
    return Record(
        model_id=entry.model_id,
        source=entry.source,
        license=entry.license,
        input_spec=prepared.input_spec,
        notes=entry.notes,
        config=record_config(bench.config),
        results=tuple(
            _result(bench, backend, outcomes[backend], date) for backend in sorted(outcomes)
        ),
        tags=entry.tags,
        variant_of=entry.variant_of,
        model=prepared.facts,
        core=_core_package(bench),
        inputs=prepared.inputs,
        desktop=desktop.reference,
        agrees_with=agrees_with(
            _matches_desktop(outcomes.get("wasm_xnnpack")), _matches_desktop(webgpu)
        ),
    )


def _result(bench: Bench, backend: Backend, outcome: BackendOutcome, date: str) -> Result:
    measurement, verdict = outcome.measurement, outcome.verdict
    env = bench.environment(measurement)
    latency = summarise(
        measurement.timings,
        conditions=outcome.conditions,
        cores=env.cpu_count,
        software=backend == "webgpu_mldrift" and env.adapter_class == "software",
    )
    ran = verdict.runs
    flags: Any = verdict.flags
    if outcome.confirmed is False:
        flags = (*flags, "not_confirmed_in_fresh_page")
    if latency.noise and latency.samples_ms and ran:
        flags = (*flags, "noisy_timing")
    return Result(
        backend=backend,
        loads=verdict.loads,
        runs=ran,
        failure_class=verdict.failure_class,
        error=verdict.error,
        full_delegation=verdict.full_delegation,
        output_match=verdict.output_match,
        max_abs_diff=verdict.max_abs_diff,
        max_rel_diff=verdict.max_rel_diff,
        latency_p50_ms=latency.p50_ms if ran else None,
        delegation_evidence=tuple(f"{e.level}: {e.text}" for e in outcome.console.evidence),
        env=env,
        date=date,
        provenance=bench.config.provenance,
        status=verdict.status,
        reason=verdict.reason,
        cause=verdict.cause,
        flags=flags,
        verified_against=verdict.verified_against,
        grade=verdict.grade,
        delegation=outcome.console.delegation.model_copy(
            update={
                "fully_accelerated": measurement.fully_accelerated,
                "accelerator": measurement.accelerator,
                "fallback": fell_back(measurement, outcome.console) if verdict.loads else None,
            }
        ),
        evidence=outcome.console.evidence,
        gpu_errors=measurement.gpu_errors,
        signatures=measurement.signatures,
        comparisons=outcome.verified.comparisons,
        stability=outcome.verified.stability,
        latency=latency,
        stage_reached=measurement.reached,
        failed_stage=measurement.error.stage if measurement.error else None,
        fresh_page=measurement.fresh_page,
        confirmed=outcome.confirmed,
        not_reported=verdict.not_reported,
    )


def record_config(config: SweepConfig) -> RecordConfig:
    """The record's `config` block."""
    return RecordConfig(
        warmup_runs=config.warmup_runs,
        timed_runs=config.timed_runs,
        tolerance_abs=config.tolerance_abs,
        tolerance_rel=config.tolerance_rel,
        input_seed=config.seed,
        input_sets=config.input_sets,
        input_generator=config.input_generator,
        tolerance_policy=config.tolerance_policy,
        leg=config.leg,
        timeouts=config.timeouts,
        latency=config.latency,
        target_half_width=config.target_half_width,
        extra_budget=config.extra_budget,
        timed_budget=config.timed_budget,
        min_timed_runs=config.min_timed_runs,
    )


def _core_package(bench: Bench) -> CorePackage:
    core = bench.core
    return CorePackage(
        version=core.version,
        integrity=core.integrity,
        wasm_utils_version=core.wasm_utils_version,
        wasm_utils_integrity=core.wasm_utils_integrity,
    )


def _unprepared_record(bench: Bench, unprepared: Unprepared, date: str) -> Record:
    """A record that says why nothing could be measured: the failure is a result, too."""
    entry = unprepared.entry
    nothing = Measurement(backend="wasm_xnnpack", reached=None)
    message = redact(unprepared.message)
    return Record(
        model_id=entry.model_id,
        source=entry.source,
        license=entry.license,
        input_spec=entry.input_spec or "",
        notes=entry.notes,
        config=record_config(bench.config),
        results=tuple(
            Result(
                backend=backend,
                loads=False,
                runs=False,
                failure_class=unprepared.failure_class,
                error=message,
                full_delegation=None,
                output_match=None,
                max_abs_diff=None,
                max_rel_diff=None,
                latency_p50_ms=None,
                delegation_evidence=(),
                env=bench.environment(nothing),
                date=date,
                provenance=bench.config.provenance,
                status="load_failed",
                reason=message,
            )
            for backend in sorted(entry.backends or bench.config.backends)
        ),
        tags=entry.tags,
        variant_of=entry.variant_of,
        core=_core_package(bench),
    )


def _discard_outputs(outcomes: Any) -> None:
    """Removes received tensors: they may be hundreds of megabytes."""
    for outcome in outcomes:
        for run in outcome.measurement.runs:
            for tensor in run.outputs:
                shutil.rmtree(tensor.path.parent, ignore_errors=True)

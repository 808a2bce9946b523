"""Measurements, comparisons and contexts for tests of the verdict, by what is special in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from sweep.classify import Verdict, VerdictContext, classify
from sweep.compare import OutputComparison, SideFacts, WorstElement
from sweep.config import Backend
from sweep.console import read_console
from sweep.protocol import (
    ConsoleLine,
    ErrorKind,
    GpuError,
    Measurement,
    OutputTensor,
    RuntimeFacts,
    SetRun,
    Stage,
    StageError,
)
from sweep.record import ComparisonRecord
from sweep.tolerance import Grade, NoiseFloor, OutputJudgement

WASM: Backend = "wasm_xnnpack"
WEBGPU: Backend = "webgpu_mldrift"

NRMSE: dict[Grade, float] = {
    "exact": 0.0, "rounding": 2e-7, "precision": 4e-4, "divergent": 0.05, "broken": 1.1,
}  # fmt: skip


def side(
    *, nan: int = 0, inf: int = 0, all_zero: bool = False, rms: float | None = 1.0
) -> SideFacts:
    return SideFacts(
        nan=nan, pos_inf=inf, neg_inf=0, all_zero=all_zero, constant=all_zero,
        min=None if rms is None else -1.0, max=None if rms is None else 1.0,
        rms=0.0 if all_zero else rms,
    )  # fmt: skip


def comparison(
    grade: Grade = "rounding",
    against: Literal["wasm", "desktop"] = "wasm",
    *,
    output: str = "out",
    signature: str = "",
    input_set: int = 0,
    elements: int = 100,
    measured: SideFacts | None = None,
    reference: SideFacts | None = None,
    nonfinite_positions_differ: bool = False,
    strict: bool | None = None,
    max_abs: float | None = None,
    max_rel: float | None = None,
    pearson: float | None = None,
    floor: str | None = None,
    problem: str | None = None,
    worst: tuple[float, float] | None = None,
) -> ComparisonRecord:
    bad = grade in ("divergent", "broken")
    size = NRMSE[grade] if max_abs is None else max_abs
    return ComparisonRecord(
        signature=signature,
        input_set=input_set,
        output=output,
        dtype="float32",
        shape=(1, elements),
        against=against,
        facts=OutputComparison(
            problem=problem,
            elements=elements,
            max_abs=None if problem else size,
            mean_abs=None,
            rmse=None,
            max_rel=max_rel,
            nrmse=None if problem else NRMSE[grade],
            cosine=None,
            pearson=pearson,
            snr_db=None,
            strict_outside=None,
            strict_outside_fraction=None,
            strict_match=(not bad) if strict is None else strict,
            worst=None
            if worst is None
            else WorstElement(index=(0, 1), measured=worst[0], reference=worst[1]),
            measured=measured or side(),
            reference=reference or side(),
            nonfinite_positions_differ=nonfinite_positions_differ,
            identical=grade == "exact",
            lsb_max=None,
            argmax_agree=None,
            top5_overlap=None,
            log_error_histogram=(),
            batch=(),
        ),
        judgement=OutputJudgement(
            policy="calibrated",
            grade=grade,
            match=not bad,
            threshold_nrmse=1e-3,
            floor=None
            if floor is None
            else NoiseFloor(
                kernel_nrmse=1e-7, kernel_max_abs=1e-7, perturb_nrmse=1e-3, perturb_max_abs=1e-3,
                precision=floor,
            ),
            reason="",
        ),
    )  # fmt: skip


def measurement(
    backend: Backend = WEBGPU,
    *,
    error: tuple[Stage, ErrorKind, str] | None = None,
    lines: tuple[ConsoleLine, ...] = (),
    outputs: tuple[str, ...] = ("out",),
    sets: int = 1,
    fully_accelerated: bool | None = True,
    accelerator: str | None = None,
    gpu_errors: tuple[GpuError, ...] = (),
    adapter: bool = True,
) -> Measurement:
    ran = error is None
    loaded = ran or error is None or error[0] not in ("init", "load")
    return Measurement(
        backend=backend,
        reached="outputs" if ran else "load" if loaded else "init",
        error=StageError(stage=error[0], kind=error[1], message=error[2]) if error else None,
        runtime=RuntimeFacts(
            cross_origin_isolated=True,
            user_agent="",
            adapter={"vendor": "google", "architecture": "swiftshader"} if adapter else None,
        ),
        fully_accelerated=fully_accelerated if loaded else None,
        accelerator=(accelerator or ("wasm" if backend == WASM else "webgpu")) if loaded else None,
        runs=tuple(
            SetRun(
                signature="",
                input_set=number,
                outputs=tuple(
                    OutputTensor(name=name, dtype="float32", shape=(1, 100), path=Path("out.bin"))
                    for name in outputs
                ),
                second_same=True,
                last_same=True,
            )
            for number in range(sets)
        )
        if ran
        else (),
        console=lines,
        gpu_errors=gpu_errors,
    )


def console_line(text: str, stage: Stage = "first_run", level: str = "error") -> ConsoleLine:
    return ConsoleLine(level=level, text=text, stage=stage)


def context(backend: Backend = WEBGPU, **known: Any) -> VerdictContext:
    """A sweep in which all went well: wasm ran clean and agrees with the desktop reference."""
    facts: dict[str, Any] = {
        "wasm_sound": backend != WASM,
        "wasm_status": "pass" if backend != WASM else None,
        "desktop_status": "ok",
        "wasm_agrees_with_desktop": True if backend != WASM else None,
        **known,
    }
    return VerdictContext(backend=backend, **facts)


def judge(measured: Measurement, *comparisons: ComparisonRecord, **known: Any) -> Verdict:
    return classify(
        measured,
        read_console(measured.console, dropped=measured.console_dropped),
        comparisons,
        context(measured.backend, **known),
    )

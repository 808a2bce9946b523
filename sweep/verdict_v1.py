"""Verdicts of imported 1.0 records: what their few facts allow to be said, and no more.

Three ways in which 1.0 verdicts went wrong are undone here: a result without a comparison is never
`pass`, a run whose console says that nothing was computed is `run_failed` whatever its values, and
a comparison against such a reference is no comparison.
"""

from __future__ import annotations

import re
from typing import Any

from sweep.config import Backend
from sweep.record import Flag, Record, Result, Status

REFERENCE: Backend = "wasm_xnnpack"

_NOT_COMPUTED = re.compile(
    r"Node number \d+ \(.*\) failed to (prepare|invoke)|[Ff]ailed to (allocate tensors|invoke)"
    r"|Encountered unresolved custom op|Failed to set custom allocation"
)
_INVALID_GPU_WORK = re.compile(
    r"Invalid (CommandBuffer|BindGroup|ComputePipeline|ShaderModule)|is invalid due to a previous"
    r"|Dispatch workgroup count .* exceeds|While (encoding|calling|validating)"
)
_NO_WEBGPU = re.compile(r"no WebGPU (device|adapter)|WebGPU is not (supported|available)", re.I)
_NOT_FINITE = re.compile(r"non-?finite|\bNaN\b|\binf(inity)?\b", re.I)
_SOFTWARE = re.compile(r"swiftshader|llvmpipe|lavapipe|basic render", re.I)


def judge_v1(record: Record) -> Record:
    """Set status, reason and flags of every result of a record that was read from 1.0."""
    reference = next((r for r in record.results if r.backend == REFERENCE), None)
    problem = None if reference is None else _reference_problem(reference)
    results = tuple(
        result.model_copy(update=_verdict(result, problem, reference is None))
        for result in record.results
    )
    return record.model_copy(update={"results": results})


def _reference_problem(reference: Result) -> str | None:
    """Why the wasm run of this record cannot serve as a reference; None when it can."""
    if not (reference.loads and reference.runs):
        return f"the wasm reference did not run ({reference.failure_class or 'no class given'})"
    line = _first(_NOT_COMPUTED, reference)
    return f"the wasm reference computed nothing ({line})" if line else None


def _verdict(result: Result, reference_problem: str | None, no_reference: bool) -> dict[str, Any]:
    status, reason = _status(result, reference_problem, no_reference)
    flags: list[Flag] = []
    compared = result.backend != REFERENCE and result.runs
    if compared and (no_reference or reference_problem):
        flags.append("reference_missing")
    if result.error and result.runs and _NOT_FINITE.search(result.error):
        flags.append("non_finite")
    software = result.backend != REFERENCE and _is_software(result)
    if software:
        flags.append("software_adapter")
    update: dict[str, Any] = {"status": status, "reason": reason, "flags": tuple(flags)}
    if status in ("pass", "fallback", "output_mismatch") and result.output_match is not None:
        update["verified_against"] = ("wasm",)
    if _first(_INVALID_GPU_WORK, result) and result.runs:
        update["cause"] = "gpu_validation_error"
    elif status == "unverified" and reference_problem and result.output_match is not None:
        update["cause"] = "reference_invalid"
    if result.env.webgpu_adapter is not None:
        adapter_class = "software" if _is_software(result) else "hardware"
        update["env"] = result.env.model_copy(update={"adapter_class": adapter_class})
    return update


def _status(result: Result, reference_problem: str | None, alone: bool) -> tuple[Status, str]:
    said = f": {result.error.splitlines()[0]}" if result.error else ""
    name = result.failure_class or "no failure class given"
    if result.failure_class == "backend_unavailable" or (
        not result.runs and result.error and _NO_WEBGPU.search(result.error)
    ):
        return "unavailable", f"The environment has no {result.backend}{said}"
    if not result.loads:
        return "load_failed", f"Did not load ({name}){said}"
    if not result.runs:
        return "run_failed", f"Did not run ({name}){said}"
    if line := _first(_NOT_COMPUTED, result):
        return "run_failed", f"run() resolved although nothing was computed: {line}"
    if result.backend == REFERENCE:
        return "pass", "Ran, and is the reference of this record; was itself compared with nothing."
    if reference_problem:
        return "unverified", f"Nothing to compare with: {reference_problem}."
    if alone:
        return "unverified", "Nothing to compare with: the record has no wasm reference."
    if result.output_match is None:
        return "unverified", f"The outputs were not compared{said or '; the record says not why'}"
    if not result.output_match:
        return "output_mismatch", _mismatch(result)
    if line := _first(_INVALID_GPU_WORK, result):
        return "unverified", f"The browser reported invalid GPU work: {line}"
    if result.full_delegation is False:
        return "fallback", "The outputs match; not every operator ran on the accelerator."
    return "pass", "The outputs match the wasm reference by the element rule."


def _mismatch(result: Result) -> str:
    text = (
        f"Outside the element rule: max abs diff {result.max_abs_diff}, "
        f"max rel diff {result.max_rel_diff}"
    )
    if (
        result.max_abs_diff
        and result.max_rel_diff is not None
        and result.max_rel_diff == result.max_abs_diff / 1e-9
    ):
        text += " (the reference is 0 where the error is largest: it may have computed nothing)"
    return text + "."


def _first(pattern: re.Pattern[str], result: Result) -> str | None:
    return next((line for line in result.delegation_evidence if pattern.search(line)), None)


def _is_software(result: Result) -> bool:
    adapter = result.env.webgpu_adapter
    return adapter is not None and bool(
        _SOFTWARE.search(f"{adapter.architecture} {adapter.device} {adapter.description}")
    )

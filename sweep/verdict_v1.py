"""Verdicts of imported 1.0 records: what their few facts allow to be said, and no more.

Three ways in which 1.0 verdicts went wrong are undone here: a result without a comparison is never
`pass`, a run whose console says that nothing was computed is `run_failed` whatever its values, and
a comparison against such a reference is no comparison.
"""

from __future__ import annotations

import re
from typing import Any

from sweep.config import Backend
from sweep.console import ConsoleFacts, Delegation, read_console
from sweep.env import adapter_class
from sweep.protocol import ConsoleLine
from sweep.record import Flag, Record, Result, Status

REFERENCE: Backend = "wasm_xnnpack"

_NO_WEBGPU = re.compile(r"no WebGPU (device|adapter)|WebGPU is not (supported|available)", re.I)
_NOT_FINITE = re.compile(r"non-?finite|\bNaN\b|\binf(inity)?\b", re.I)
_LEVEL = re.compile(r"(error|warning|log|info|debug): ")


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
    fatal = _console(reference).fatal
    return f"the wasm reference computed nothing ({fatal[0].text})" if fatal else None


def _console(result: Result) -> ConsoleFacts:
    """The kept console lines (`level: text`), read as those of a live job are.

    1.0 does not say in which stage a line came. As of `load`, a failed delegation that the runtime
    undid afterwards does not count as a failure, and every other fatal line does.
    """
    lines = []
    for text in result.delegation_evidence:
        level = _LEVEL.match(text)
        lines.append(
            ConsoleLine(
                level=level[1] if level else "error",
                text=text[level.end() :] if level else text,
                stage="load",
            )
        )
    return read_console(lines)


def _verdict(result: Result, reference_problem: str | None, no_reference: bool) -> dict[str, Any]:
    console = _console(result)
    status, reason = _status(result, console, reference_problem, no_reference)
    adapter = result.env.webgpu_adapter
    # 1.0 writes null both for "no adapter" and for "not asked": that is not known, not `none`.
    kind = None if adapter is None else adapter_class(adapter.model_dump(), None)
    flags: list[Flag] = []
    if result.backend != REFERENCE and result.runs and (no_reference or reference_problem):
        flags.append("reference_missing")
    if result.error and result.runs and _NOT_FINITE.search(result.error):
        flags.append("non_finite")
    if result.backend != REFERENCE and kind == "software":
        flags.append("software_adapter")
    update: dict[str, Any] = {
        "status": status,
        "reason": reason,
        "flags": tuple(flags),
        "env": result.env.model_copy(update={"adapter_class": kind}),
        "delegation": _delegation(result, console),
    }
    if status in ("pass", "fallback", "output_mismatch") and result.output_match is not None:
        update["verified_against"] = ("wasm",)
    if console.gpu_validation and result.runs:
        update["cause"] = "gpu_validation_error"
    elif status == "unverified" and reference_problem and result.output_match is not None:
        update["cause"] = "reference_invalid"
    return update


def _delegation(result: Result, console: ConsoleFacts) -> Delegation | None:
    """Where the operators ran, as far as the kept lines say; nothing for the reference."""
    if result.backend == REFERENCE or not result.loads:
        return None
    return console.delegation.model_copy(update={"fully_accelerated": result.full_delegation})


def _status(
    result: Result, console: ConsoleFacts, reference_problem: str | None, alone: bool
) -> tuple[Status, str]:
    said = f": {result.error.splitlines()[0]}" if result.error else ""
    name = result.failure_class or "no failure class given"
    gpu = result.backend != REFERENCE
    if result.failure_class == "backend_unavailable" or (
        gpu and not result.runs and result.error and _NO_WEBGPU.search(result.error)
    ):
        return "unavailable", f"The environment has no {result.backend}{said}"
    if not result.loads:
        return "load_failed", f"Did not load ({name}){said}"
    if not result.runs:
        return "run_failed", f"Did not run ({name}){said}"
    if console.fatal:
        return "run_failed", f"run() resolved, but nothing was computed: {console.fatal[0].text}"
    if result.backend == REFERENCE:
        return "pass", "Ran, and is the reference of this record; was itself compared with nothing."
    compared = not (reference_problem or alone) and result.output_match is not None
    if console.gpu_validation and not (compared and result.output_match is False):
        # What the refused commands should have written may be left over: agreement proves nothing.
        line = console.gpu_validation[0].text
        return "run_failed", f"The browser refused GPU commands of this run: {line}"
    if reference_problem:
        return "unverified", f"Nothing to compare with: {reference_problem}."
    if alone:
        return "unverified", "Nothing to compare with: the record has no wasm reference."
    if result.output_match is None:
        return "unverified", f"The outputs were not compared{said or '; the record says not why'}"
    if not result.output_match:
        return "output_mismatch", _mismatch(result)
    if result.full_delegation is False or console.delegation.fallback:
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

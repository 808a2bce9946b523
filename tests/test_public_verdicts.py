"""How public 1.0 verdicts went wrong: each case, with the facts of its record, comes out right.

Model names and numbers are those of published 1.0 records where there is one; the 1.0 verdict is
told in each docstring.
"""

from __future__ import annotations

from typing import Any

import pytest

from sweep.console import read_console
from sweep.protocol import GpuError
from tests.make_verdicts import WASM, comparison, console_line, judge, measurement, side

NOT_ALLOCATED = console_line("ERROR: [litert_compiled_model.cc:164] Failed to allocate tensors")
NO_DESKTOP = {"desktop_status": "skipped", "wasm_agrees_with_desktop": None}


def test_a_reference_that_allocated_nothing_is_no_reference() -> None:
    """1.0: wasm runs; webgpu output_match false, max_rel = max_abs / 1e-9."""
    wasm = judge(
        measurement(WASM, lines=(NOT_ALLOCATED.model_copy(update={"count": 13}),)),
        comparison("exact", "desktop"),
    )
    assert (wasm.status, wasm.failure_class) == ("run_failed", "run_error")

    known = {"wasm_sound": False, "wasm_status": wasm.status,
             "wasm_failure_class": wasm.failure_class}  # fmt: skip
    alone = judge(measurement(), **known, **NO_DESKTOP)
    assert (alone.status, alone.cause) == ("unverified", "reference_invalid")
    assert alone.output_match is None
    assert "reference_missing" in alone.flags
    arbitrated = judge(
        measurement(), comparison("rounding", "desktop"), **known, wasm_agrees_with_desktop=None
    )
    assert (arbitrated.status, arbitrated.verified_against) == ("pass", ("desktop",))


def test_the_gpu_is_not_blamed_against_zeros() -> None:
    """The same where nothing was logged: the tell-tale is a reference of zeros only."""
    zeros = comparison("broken", reference=side(all_zero=True), max_abs=4.25, max_rel=4.25 / 1e-9)
    alone = judge(measurement(), zeros, **NO_DESKTOP)
    assert (alone.status, alone.cause) == ("unverified", "reference_invalid")
    # The desktop reference may well confirm zeros: then they are the model's, and the GPU is off.
    confirmed = judge(
        measurement(), zeros, comparison("broken", "desktop", reference=side(all_zero=True))
    )
    assert confirmed.status == "output_mismatch"


@pytest.mark.parametrize("seen_by", ["console", "event"])
def test_invalid_gpu_commands_on_every_run(seen_by: str) -> None:
    """1.0: fully delegated, with a latency."""
    text = (
        "Dispatch workgroup count Y (66752) exceeds max compute workgroups per dimension (65535)."
    )
    measured = (
        measurement(lines=(console_line(text, "timed", "warning"),) * 13)
        if seen_by == "console"
        else measurement(gpu_errors=(GpuError(kind="validation", message=text, count=13),))
    )
    right = judge(measured, comparison("exact"), comparison("exact", "desktop"))
    assert (right.status, right.failure_class, right.cause, right.runs) == (
        "run_failed", "backend_error", "gpu_validation_error", False,
    )  # fmt: skip
    wrong = judge(measured, comparison("broken"), comparison("broken", "desktop"))
    assert (wrong.status, wrong.cause) == ("output_mismatch", "gpu_validation_error")


def test_no_reference_is_never_a_pass() -> None:
    """moge-2, 2026-08-13. 1.0: wasm timed out, webgpu fully delegated and compared with nothing."""
    wasm = judge(measurement(WASM, error=("first_run", "timeout", "run timed out after 60000ms")))
    assert (wasm.status, wasm.failure_class, wasm.loads) == ("run_failed", "timeout", True)
    known = {"wasm_sound": False, "wasm_status": wasm.status,
             "wasm_failure_class": wasm.failure_class}  # fmt: skip
    webgpu = judge(measurement(), **known, **NO_DESKTOP)
    assert (webgpu.status, webgpu.cause, webgpu.full_delegation) == ("unverified", None, True)
    assert webgpu.verified_against == ()


def test_nan_on_both_sides_is_not_a_fallback() -> None:
    """1.0: fallback, as NaN never compared unequal."""
    nan = side(nan=100, rms=None)
    got = judge(
        measurement(fully_accelerated=False),
        comparison("exact", measured=nan, reference=nan),
        comparison("exact", "desktop", measured=nan, reference=nan),
    )
    assert (got.status, got.cause, got.verified_against) == ("unverified", "nan_both", ())
    assert "non_finite" in got.flags


def test_nan_on_the_gpu_only_is_a_mismatch() -> None:
    """1.0: not a mismatch."""
    facts: dict[str, Any] = {
        "measured": side(nan=100, rms=None),
        "nonfinite_positions_differ": True,
    }
    got = judge(measurement(), comparison("broken", **facts),
                comparison("broken", "desktop", **facts))  # fmt: skip
    assert (got.status, got.failure_class, got.cause) == (
        "output_mismatch", "non_finite", "nan_gpu_only",
    )  # fmt: skip


def test_a_fatal_line_after_a_hundred_others_counts() -> None:
    """lfm2.5-encoder-230m, 2026-08-13. 1.0: evidence ends at 100 lines, and so did the scan."""
    header = console_line("ERROR: Following operations are not supported by GPU delegate:", "load")
    names = [f"Lfm2DecoderLayer_{i % 14}/reshape;{i}" for i in range(140)]
    reshapes = [
        console_line(f"RESHAPE: Tensor dimensions must be less than 5. {name}", "load")
        for name in names
    ]
    counts = console_line(
        "604 operations will run on the GPU, and the remaining 331 operations will run on the CPU.",
        "load",
    )
    fatal = console_line("ERROR: Node number 512 (TfLiteXNNPackDelegate) failed to invoke.")
    lines = (header, *reshapes, counts, fatal)
    got = judge(measurement(lines=lines), comparison("exact"), comparison("exact", "desktop"))
    assert got.status == "run_failed"
    facts = read_console(lines)
    assert len(facts.evidence) == 143
    assert (facts.delegation.ops_on_gpu, facts.delegation.ops_on_cpu) == (604, 331)
    assert [u.tensor for u in facts.delegation.unsupported] == names


def test_evidence_has_the_same_bytes_at_another_time() -> None:
    """parakeet-tdt_ctc-0.6b-ja, 2026-08-28. 1.0: one line eleven times, by its timestamps."""
    mismatch = (
        " 755312 gpu_model_builder.cc:3820] Shape mismatch in GpuModelBuilder::UpdateOutputTensors"
        "(output of convolution1x1(conv_generic)). Requested shape:{bhwdc, {63, 1, 1, 1, 1024}}"
    )
    times = ("19:20:35.020999", "19:20:35.153999", "19:20:36.804999")
    one = read_console([console_line(f"W0828 {t} {mismatch}", "load", "warning") for t in times])
    two = read_console(
        [console_line(f"W0901 0{t[1:]} {mismatch}", "load", "warning") for t in times]
    )
    assert one == two
    (line,) = one.evidence
    assert line.count == 3
    assert line.text.startswith("W gpu_model_builder.cc:3820] Shape mismatch")


@pytest.mark.parametrize(
    ("bytes_", "failure_class"), [(1_200_000_000, "memory_ceiling"), (2_175_808, "compile_error")]
)
def test_an_abort_from_memory(bytes_: int, failure_class: str) -> None:
    """qwen3-embedding-0.6b, 2026-08-28. 1.0: compile_error."""
    message = "RuntimeError: Aborted(). Build with -sASSERTIONS for more info."
    got = judge(
        measurement(error=("load", "aborted", message), lines=(console_line("Aborted()", "load"),)),
        model_bytes=bytes_,
    )
    assert (got.status, got.failure_class) == ("load_failed", failure_class)


def test_a_null_adapter_is_the_environment() -> None:
    """1.0: a failure of the model."""
    message = "Error: WebGPU was requested but no WebGPU device is set in the environment."
    got = judge(measurement(error=("load", "exception", message), adapter=False))
    assert (got.status, got.failure_class, got.cause) == (
        "unavailable",
        "backend_unavailable",
        None,
    )


def test_a_404_is_not_a_bad_model() -> None:
    """1.0: parse_error, as the body of the 404 was handed to the runtime."""
    got = judge(measurement(error=("load", "transport", "TransportError: HTTP 404 for the model")))
    assert (got.status, got.failure_class) == ("load_failed", "fetch_failed")


def test_int8_on_the_cpu_against_floats_on_the_gpu() -> None:
    """1.0: a mismatch that could not be otherwise at 1e-5/1e-3.

    The strict rule stays on record, the calibrated grade decides the status.
    """
    facts: dict[str, Any] = {
        "strict": False,
        "floor": "quantized",
        "max_abs": 0.0181,
        "max_rel": 0.42,
    }
    got = judge(
        measurement(),
        comparison("precision", **facts),
        comparison("precision", "desktop", **facts),
    )
    assert (got.status, got.grade, got.output_match) == ("pass", "precision", False)
    assert (got.max_abs_diff, got.max_rel_diff) == (0.0181, 0.42)


def test_the_repaired_and_the_broken_decoder_differ() -> None:
    """sam2.1-hiera-tiny-mask-decoder, 2026-08-13. 1.0: both output_match false."""
    broken = judge(measurement(), comparison("broken", max_abs=4.8058624267578125, strict=False))
    repaired = judge(
        measurement(), comparison("rounding", max_abs=4.1961669921875e-05, strict=False)
    )
    assert broken.output_match is repaired.output_match is False
    assert (broken.status, repaired.status) == ("output_mismatch", "pass")


def test_a_partial_delegation_is_a_fallback_only_with_right_values() -> None:
    """movinet-a0-stream, 2026-08-28: 71 operators on the GPU, 384 on the CPU, max_rel 0.15."""
    lines = (
        console_line("ERROR: Following operations are not supported by GPU delegate:", "load"),
        console_line("RELU_0_TO_1: Not supported op RELU_0_TO_1", "load"),
        console_line("71 operations will run on the GPU, and the remaining 384 operations will run"
                     " on the CPU.", "load"),
    )  # fmt: skip
    measured = measurement(fully_accelerated=False, lines=lines)
    right = judge(measured, comparison("precision", strict=False, max_abs=0.0393))
    assert (right.status, right.output_match, right.full_delegation) == ("fallback", False, False)
    assert right.reason.startswith("384 of 455 operators ran on the CPU; agrees with wasm")
    wrong = judge(measured, comparison("divergent", max_abs=0.0393))
    assert (wrong.status, wrong.cause) == ("output_mismatch", "partial_delegation")

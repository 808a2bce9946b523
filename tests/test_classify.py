"""The verdict, rule by rule: every status, failure class, cause and flag."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from sweep.classify import VerdictContext, agrees_with, classify
from sweep.console import read_console
from sweep.failure import LARGE_MODEL
from sweep.protocol import ErrorKind, GpuError, Measurement, Stage, StageError
from sweep.record import Cause, Flag, StabilityRecord, Status
from tests.make_verdicts import (
    WASM,
    WEBGPU,
    comparison,
    console_line,
    context,
    judge,
    measurement,
    side,
)
from tests.test_console import console_lines, recording

RIGHT = (comparison("rounding"), comparison("rounding", "desktop"))
WRONG = (comparison("broken"), comparison("broken", "desktop"))
INVALID = GpuError(kind="validation", message="[Invalid CommandBuffer] is invalid.\n - While …")
PARTIAL = console_line(
    "66 operations will run on the GPU, and the remaining 138 operations will run on the CPU.",
    "load",
)
FATAL = console_line("ERROR: Node number 3 (X) failed to invoke.")


# --- statuses


def test_pass_names_what_it_was_verified_against() -> None:
    both = judge(measurement(), *RIGHT)
    assert (both.status, both.verified_against) == ("pass", ("wasm", "desktop"))
    assert (both.grade, both.cause, both.failure_class) == ("rounding", None, None)
    assert (both.full_delegation, both.output_match) == (True, True)
    assert both.reason == (
        "Output agrees with wasm and desktop (rounding, normalised RMSE up to 2e-07, 1 output)"
    )
    alone = judge(measurement(), RIGHT[0], desktop_status="skipped", wasm_agrees_with_desktop=None)
    assert (alone.status, alone.verified_against) == ("pass", ("wasm",))


def test_wrong_values_are_a_mismatch_with_numbers() -> None:
    got = judge(
        measurement(),
        comparison("broken", output="prob", worst=(0.237, 0.998), max_abs=0.761),
        comparison("broken", "desktop", output="prob", max_abs=0.761, worst=(0.237, 0.998)),
        comparison("rounding", output="box"),
        comparison("rounding", "desktop", output="box"),
    )
    assert (got.status, got.cause, got.grade) == ("output_mismatch", "unknown", "broken")
    assert got.runs
    assert (got.output_match, got.max_abs_diff) == (False, 0.761)
    assert "'prob' differs from wasm" in got.reason
    assert "0.237 instead of 0.998 at [0, 1]" in got.reason


@pytest.mark.parametrize("grade", ["divergent", "broken"])
def test_partial_delegation_with_wrong_values_is_a_mismatch(grade: Any) -> None:
    got = judge(
        measurement(fully_accelerated=False, lines=(PARTIAL,)),
        comparison(grade),
        comparison(grade, "desktop"),
    )
    assert (got.status, got.cause) == ("output_mismatch", "partial_delegation")
    assert got.full_delegation is False


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"fully_accelerated": False}, "A part of the model ran on the CPU"),
        ({"fully_accelerated": None, "lines": (PARTIAL,)}, "138 of 204 operators ran on the CPU"),
        # after a whole-model fallback isFullyAccelerated reads true
        ({"fully_accelerated": True, "accelerator": "wasm"}, "The whole model fell back to wasm"),
        ({"fully_accelerated": True, "lines": (PARTIAL,)}, "138 of 204 operators ran on the CPU"),
    ],
)
def test_fallback_however_it_shows(facts: dict[str, Any], said: str) -> None:
    got = judge(measurement(**facts), *RIGHT)
    assert (got.status, got.full_delegation) == ("fallback", False)
    assert got.verified_against == ("wasm", "desktop")
    assert got.reason.startswith(said)


def test_fallback_needs_values_that_were_verified() -> None:
    got = judge(
        measurement(fully_accelerated=False), wasm_sound=False, wasm_status="run_failed",
        desktop_status="crashed", wasm_agrees_with_desktop=None,
    )  # fmt: skip
    assert got.status == "unverified"


def test_early_releases_may_pass_without_saying_where_they_ran() -> None:
    got = judge(measurement(fully_accelerated=None), *RIGHT)
    assert (got.status, got.full_delegation) == ("pass", None)
    assert got.not_reported == ("isFullyAccelerated",)


def test_wasm_is_held_against_the_desktop_reference() -> None:
    right = judge(measurement(WASM, fully_accelerated=False), comparison("exact", "desktop"))
    assert (right.status, right.verified_against) == ("pass", ("desktop",))
    assert (right.full_delegation, right.output_match, right.max_abs_diff) == (None, None, None)
    wrong = judge(measurement(WASM), comparison("broken", "desktop"))
    assert wrong.status == "output_mismatch"
    assert wrong.flags == ("reference_disagrees_with_desktop",)


@pytest.mark.parametrize("desktop", ["skipped", "failed", "crashed", "timeout", "ok"])
def test_a_reference_does_not_prove_itself(desktop: str) -> None:
    got = judge(measurement(WASM), desktop_status=desktop)
    assert (got.status, got.verified_against, got.grade) == ("unverified", (), None)
    assert ("desktop_failed" in got.flags) is (desktop in ("failed", "crashed", "timeout"))


# --- references


def test_wasm_that_disagrees_with_the_desktop_is_not_the_reference() -> None:
    known = {"wasm_status": "output_mismatch", "wasm_agrees_with_desktop": False}
    right = judge(measurement(), comparison("broken"), comparison("rounding", "desktop"), **known)
    assert (right.status, right.verified_against) == ("pass", ("desktop",))
    assert right.flags == ("reference_disagrees_with_desktop",)
    # the 1.0 field stays what it always was: the comparison with wasm
    assert right.output_match is False
    wrong = judge(measurement(), comparison("exact"), comparison("broken", "desktop"), **known)
    assert (wrong.status, wrong.verified_against) == ("output_mismatch", ("desktop",))


def test_agreement_with_one_of_two_sound_references_is_enough() -> None:
    got = judge(measurement(), comparison("divergent"), comparison("precision", "desktop"))
    assert (got.status, got.verified_against) == ("pass", ("desktop",))
    other = judge(measurement(), comparison("precision"), comparison("divergent", "desktop"))
    assert (other.status, other.verified_against) == ("pass", ("wasm",))


def test_one_reference_must_carry_all_outputs() -> None:
    got = judge(
        measurement(outputs=("a", "b")),
        comparison("broken", output="a"),
        comparison("rounding", output="b"),
        comparison("rounding", "desktop", output="a"),
        comparison("broken", "desktop", output="b"),
    )
    assert got.status == "output_mismatch"


def test_an_output_that_nobody_compared_forbids_pass() -> None:
    got = judge(measurement(outputs=("a", "b")), comparison(output="a"))
    assert got.status == "unverified"
    assert got.reason == "1 outputs could not be compared with wasm"
    sets = judge(measurement(sets=2), comparison(), comparison("rounding", "desktop"),
                 comparison("rounding", "desktop", input_set=1))  # fmt: skip
    assert (sets.status, sets.verified_against) == ("pass", ("desktop",))


def test_incomparable_outputs_are_no_agreement() -> None:
    empty = comparison("exact", elements=0, problem="empty")
    assert judge(measurement(), empty).status == "unverified"
    other_shape = comparison("broken", problem="shape (1, 3) against (1, 4)")
    got = judge(measurement(), other_shape)
    assert got.status == "output_mismatch"
    assert "cannot be compared with wasm: shape (1, 3)" in got.reason


def test_the_desktop_steps_in_for_a_failed_wasm_run() -> None:
    known = {"wasm_sound": False, "wasm_status": "run_failed", "wasm_agrees_with_desktop": None}
    got = judge(measurement(), comparison("rounding", "desktop"), **known)
    assert (got.status, got.verified_against) == ("pass", ("desktop",))
    assert "reference_missing" in got.flags
    assert judge(measurement(), comparison("broken", "desktop"), **known).status == (
        "output_mismatch"
    )


@pytest.mark.parametrize(
    ("wasm", "webgpu", "expected"),
    [
        (True, True, "both"),
        (True, False, "wasm"),
        (False, True, "webgpu"),
        (False, False, "neither"),
        (True, None, "wasm"),
        (None, True, "webgpu"),
        (False, None, None),
        (None, False, None),
        (None, None, None),
    ],
)
def test_agrees_with(wasm: bool | None, webgpu: bool | None, expected: str | None) -> None:
    assert agrees_with(wasm, webgpu) == expected


# --- console and GPU outrank values


@pytest.mark.parametrize("backend", [WASM, WEBGPU])
def test_fatal_lines_outrank_any_agreement(backend: Any) -> None:
    got = judge(
        measurement(backend, lines=(FATAL, FATAL)),
        comparison("exact"),
        comparison("exact", "desktop"),
    )
    assert (got.status, got.failure_class, got.runs) == ("run_failed", "run_error", False)
    assert got.error == "ERROR: Node number 3 (X) failed to invoke."
    assert (got.output_match, got.verified_against, got.grade) == (None, (), None)


def test_validation_errors_forbid_pass_and_explain_a_mismatch() -> None:
    line = console_line("[Invalid BindGroup (unlabeled)] is invalid due to a previous error.\n")
    for measured in (measurement(gpu_errors=(INVALID,)), measurement(lines=(line,))):
        right = judge(measured, *RIGHT)
        assert (right.status, right.failure_class) == ("run_failed", "backend_error")
        wrong = judge(measured, *WRONG)
        assert wrong.status == "output_mismatch"
        assert right.cause == wrong.cause == "gpu_validation_error"
        alone = judge(measured, wasm_sound=False, desktop_status="skipped")
        assert alone.status == "run_failed"
    fell_back = measurement(gpu_errors=(INVALID,), fully_accelerated=False)
    assert judge(fell_back, *RIGHT).status == "run_failed"


@pytest.mark.parametrize(
    ("kind", "failure_class", "cause"),
    [
        ("validation", "backend_error", "gpu_validation_error"),
        ("internal", "backend_error", "unknown"),
        ("out-of-memory", "memory_ceiling", "unknown"),
    ],
)
def test_whatever_the_gpu_refused_forbids_pass(kind: Any, failure_class: str, cause: str) -> None:
    got = judge(measurement(gpu_errors=(GpuError(kind=kind, message="why\n - While"),)), *RIGHT)
    assert (got.status, got.failure_class, got.cause) == ("run_failed", failure_class, cause)
    assert got.error == "why"


def test_a_lost_device_fails_the_run_and_an_orderly_unload_does_not() -> None:
    lost = GpuError(kind="device_lost", message="unknown: A valid external Instance reference …")
    got = judge(measurement(gpu_errors=(lost,)), *RIGHT)
    assert (got.status, got.failure_class) == ("run_failed", "device_lost")
    destroyed = GpuError(kind="device_lost", message="destroyed: Device was destroyed.")
    assert judge(measurement(gpu_errors=(destroyed,)), *RIGHT).status == "pass"


def test_no_outputs() -> None:
    for measured in (measurement(outputs=()), measurement(sets=0)):
        got = judge(measured)
        assert (got.status, got.failure_class, got.runs) == ("run_failed", "no_output", False)


# --- failure classes

FAILURES: list[tuple[str, Stage, ErrorKind, str, dict[str, Any], Status]] = [
    ("init_failed", "init", "exception", "Error: LiteRT is already loading / loaded.", {},
     "load_failed"),
    ("init_failed", "init", "transport", "Error: a script could not be loaded", {}, "load_failed"),
    ("backend_unavailable", "load", "exception",
     "Error: WebGPU was requested but no WebGPU device is set in the environment.", {},
     "unavailable"),
    ("backend_unavailable", "init", "exception", "Error: No GPU adapter found.", {}, "unavailable"),
    ("backend_unavailable", "init", "no_webgpu", "no adapter", {}, "unavailable"),
    ("backend_unavailable", "init", "not_offered", "this release has no threaded build", {},
     "unavailable"),
    ("backend_unavailable", "load", "exception",
     "TypeError: Cannot read properties of null (reading 'limits')", {"adapter": False},
     "unavailable"),
    ("fetch_failed", "load", "transport", "TransportError: HTTP 404 for the model", {},
     "load_failed"),
    ("fetch_failed", "load", "exception", "Error: HTTP 404 Not Found", {}, "load_failed"),
    ("no_output", "outputs", "transport", "TransportError: upload refused", {}, "run_failed"),
    ("parse_error", "load", "exception", "Error: Failed to load model from buffer", {},
     "load_failed"),
    ("parse_error", "load", "exception", "Error: Failed to build interpreter.", {}, "load_failed"),
    ("unsupported_dtype", "load", "exception", "Error: Element type INT8 is not supported.", {},
     "load_failed"),
    ("unsupported_dtype", "first_run", "exception", "Error: Tensor type not supported: 9", {},
     "run_failed"),
    ("unsupported_dtype", "load", "exception", "Error: Failed to load model from buffer",
     {"lines": (console_line(
         "ERROR: [flatbuffer_to_litert.cc:132] Element type (13) not currently supported",
         "load"),)},
     "load_failed"),
    ("dynamic_shape", "first_run", "exception",
     "Error: TensorBuffer ranked tensor type Float32[1, 3] does not match expected ranked tensor"
     " type Float32[-1, 3]", {}, "run_failed"),
    ("dynamic_shape", "first_run", "exception",
     "Error: TensorBuffer ranked tensor type Float32[1, 8, 3] does not match expected ranked tensor"
     " type Float32[1, -1, 3]", {}, "run_failed"),
    ("dynamic_shape", "first_run", "exception", "RangeError: Invalid typed array length: -6", {},
     "run_failed"),
    ("compile_error", "load", "exception",
     "Error: ERROR: [third_party/odml/litert/litert_web.cc:245]\n└ ERROR: [./compiled.h:70]", {},
     "load_failed"),
    ("compile_error", "load", "exception", "RuntimeError: memory access out of bounds", {},
     "load_failed"),
    ("compile_error", "load", "aborted", "RuntimeError: Aborted(). Build with -sASSERTIONS", {},
     "load_failed"),
    ("memory_ceiling", "load", "aborted", "RuntimeError: Aborted(OOM). Build with -sASSERTIONS", {},
     "load_failed"),
    ("memory_ceiling", "load", "exception", "RangeError: Array buffer allocation failed", {},
     "load_failed"),
    ("memory_ceiling", "load", "aborted", "RuntimeError: Aborted()",
     {"lines": (console_line("Cannot enlarge memory arrays to size 2147487744 bytes", "load"),)},
     "load_failed"),
    ("memory_ceiling", "first_run", "exception", "OperationError: mapAsync failed",
     {"gpu_errors": (GpuError(kind="out-of-memory", message="Not enough memory"),)}, "run_failed"),
    ("device_lost", "first_run", "exception",
     "AbortError: Failed to execute 'mapAsync' on 'GPUBuffer': The Device was lost before mapping"
     " was resolved.", {}, "run_failed"),
    ("device_lost", "load", "exception",
     "RangeError: Failed to execute 'createBuffer' on 'GPUDevice': createBuffer failed",
     {"gpu_errors": (GpuError(kind="device_lost", message="unknown: GPU process gone"),)},
     "load_failed"),
    ("backend_error", "first_run", "exception",
     "OperationError: Failed to execute 'mapAsync' on 'GPUBuffer': invalid", {}, "run_failed"),
    ("run_error", "first_run", "exception", "ReferenceError: Asyncify is not defined", {},
     "run_failed"),
    ("page_crash", "load", "page_crash", "the page crashed during stage load", {}, "load_failed"),
    ("page_crash", "timed", "page_crash", "the page crashed during stage timed", {}, "run_failed"),
    ("browser_crash", "init", "browser_crash", "the browser ended", {}, "load_failed"),
    ("timeout", "init", "timeout", "stage init did not end within 60 s", {}, "load_failed"),
    ("timeout", "load", "timeout", "stage load did not end within 120 s", {}, "load_failed"),
    ("timeout", "first_run", "timeout", "stage first_run did not end within 120 s", {},
     "run_failed"),
]  # fmt: skip


@pytest.mark.parametrize(("failure_class", "stage", "kind", "message", "facts", "status"), FAILURES)
def test_failure_class(
    failure_class: str,
    stage: Stage,
    kind: ErrorKind,
    message: str,
    facts: dict[str, Any],
    status: Status,
) -> None:
    got = judge(measurement(error=(stage, kind, message), **facts))
    assert (got.failure_class, got.status) == (failure_class, status)
    assert got.error == message
    assert got.loads is (status == "run_failed")
    assert not got.runs
    assert got.cause == (None if status == "unavailable" else "unknown")


def test_every_failure_class_of_the_design_is_in_a_test() -> None:
    designed = {
        "init_failed", "backend_unavailable", "fetch_failed", "checksum_mismatch", "parse_error",
        "unsupported_dtype", "dynamic_shape", "compile_error", "memory_ceiling", "backend_error",
        "run_error", "no_output", "non_finite", "device_lost", "page_crash", "browser_crash",
        "timeout",
    }  # fmt: skip
    elsewhere = {"checksum_mismatch", "non_finite"}  # below
    assert {f[0] for f in FAILURES} | elsewhere == designed


@pytest.mark.parametrize("failure_class", ["checksum_mismatch", "fetch_failed", "parse_error"])
def test_a_model_that_never_reached_the_page(failure_class: str) -> None:
    got = classify(
        Measurement(backend=WASM, reached=None),
        read_console([]),
        (),
        VerdictContext(
            backend=WASM, wasm_sound=False, failure_class=failure_class, failure_message="why"
        ),
    )
    assert (got.status, got.failure_class, got.error) == ("load_failed", failure_class, "why")


def test_missing_webgpu_is_the_environment_but_on_wasm_it_is_the_release() -> None:
    message = "ReferenceError: GPUBuffer is not defined"
    gpu = judge(measurement(error=("first_run", "exception", message), adapter=False))
    assert gpu.status == "unavailable"
    wasm = judge(measurement(WASM, error=("first_run", "exception", message), adapter=False))
    assert (wasm.status, wasm.failure_class) == ("run_failed", "run_error")


def test_a_bare_abort_is_memory_only_for_a_large_file() -> None:
    aborted = measurement(error=("load", "aborted", "RuntimeError: Aborted()."))
    large = judge(aborted, model_bytes=LARGE_MODEL)
    assert large.failure_class == "memory_ceiling"
    assert "256 MiB" in large.reason
    assert judge(aborted, model_bytes=2_175_808).failure_class == "compile_error"


def test_a_failure_is_explained_by_the_console() -> None:
    got = judge(
        measurement(
            error=("load", "exception", "Error: ERROR: [litert_web.cc:245]\n└ ERROR: [x.h:70]"),
            lines=(
                console_line("ERROR: Encountered unresolved custom op: Foo.", "load"),
                console_line("ERROR: Node number 0 (Foo) failed to prepare.", "load"),
            ),
        )
    )
    assert got.failure_class == "compile_error"
    assert "the console said: ERROR: Encountered unresolved custom op: Foo." in got.reason


def test_validation_errors_are_the_cause_of_a_failed_load() -> None:
    got = judge(measurement(error=("load", "exception", "Error: [x.h:70]"), gpu_errors=(INVALID,)))
    assert (got.failure_class, got.cause) == ("compile_error", "gpu_validation_error")
    ran = judge(measurement(error=("timed", "exception", "Error: x"), gpu_errors=(INVALID,)))
    assert ran.failure_class == "backend_error"


# --- causes

NAN = side(nan=3)


def _bad(**facts: Any) -> tuple[Any, ...]:
    grade = facts.pop("grade", "broken")
    return (comparison(grade, **facts), comparison(grade, "desktop", **facts))


CAUSES: list[tuple[Cause, Measurement, tuple[Any, ...], dict[str, Any]]] = [
    ("gpu_validation_error", measurement(gpu_errors=(INVALID,)), WRONG, {"pattern_kind": "zeros"}),
    ("nan_gpu_only", measurement(), _bad(measured=NAN, nonfinite_positions_differ=True), {}),
    ("unstable_across_runs", measurement(), WRONG, {"mismatch_after_first_run": True}),
    ("unstable_across_runs", measurement(), WRONG,
     {"stability": (StabilityRecord(signature="", input_set=0, second_same=True, last_same=False,
                                    spread_max_abs=0.5),)}),
    ("zero_output", measurement(), WRONG, {"pattern_kind": "zeros"}),
    ("zero_output", measurement(fully_accelerated=False), _bad(measured=side(all_zero=True)), {}),
    ("scale_error", measurement(), WRONG, {"pattern_kind": "scaled"}),
    ("permuted_output", measurement(), WRONG, {"pattern_kind": "permuted"}),
    ("permuted_output", measurement(), WRONG, {"pattern_kind": "shifted"}),
    ("quantization_noise", measurement(), _bad(grade="divergent", floor="quantized", pearson=0.998),
     {}),
    ("precision", measurement(), _bad(grade="divergent", floor="fp16", pearson=0.9995), {}),
    ("partial_delegation", measurement(fully_accelerated=False), WRONG, {"pattern_kind": "none"}),
    ("unknown", measurement(), WRONG, {"pattern_kind": "slice_only"}),
    ("unknown", measurement(), _bad(grade="divergent", floor="fp32", pearson=0.9995), {}),
    ("unknown", measurement(), _bad(grade="broken", floor="quantized", pearson=0.2), {}),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "measured", "compared", "known"), CAUSES)
def test_cause(
    cause: Cause, measured: Measurement, compared: tuple[Any, ...], known: dict[str, Any]
) -> None:
    got = judge(measured, *compared, **known)
    assert (got.status, got.cause) == ("output_mismatch", cause)


def test_every_cause_is_in_a_test() -> None:
    assert {c[0] for c in CAUSES} | {"reference_invalid", "nan_both"} == set(get_args(Cause))


def test_reference_invalid_is_not_a_reference_that_timed_out() -> None:
    known = {"wasm_sound": False, "wasm_status": "run_failed", "desktop_status": "crashed",
             "wasm_agrees_with_desktop": None}  # fmt: skip
    silent = judge(measurement(), wasm_failure_class="run_error", **known)
    assert (silent.status, silent.cause) == ("unverified", "reference_invalid")
    late = judge(measurement(), wasm_failure_class="timeout", **known)
    assert (late.status, late.cause) == ("unverified", None)
    assert late.reason == (
        "Ran, but nothing to compare with: the wasm run is run_failed,"
        " and the desktop reference crashed"
    )


def test_non_finite_values() -> None:
    both = side(nan=100, rms=None)
    some = side(nan=3)
    nothing = judge(measurement(), comparison("exact", measured=both, reference=both))
    assert (nothing.status, nothing.cause) == ("unverified", "nan_both")
    assert nothing.output_match is None
    rest = judge(measurement(), comparison("exact", measured=some, reference=some))
    assert (rest.status, rest.flags) == ("pass", ("non_finite",))
    only_gpu = judge(measurement(), *_bad(measured=some, nonfinite_positions_differ=True))
    assert (only_gpu.status, only_gpu.failure_class, only_gpu.cause) == (
        "output_mismatch", "non_finite", "nan_gpu_only",
    )  # fmt: skip
    assert "3 non-finite elements instead of 0" in only_gpu.reason
    only_wasm = _bad(reference=some, nonfinite_positions_differ=True)[0]
    invalid = judge(measurement(), only_wasm, desktop_status="skipped",
                    wasm_agrees_with_desktop=None)  # fmt: skip
    assert (invalid.status, invalid.cause) == ("unverified", "reference_invalid")
    saved = judge(measurement(), only_wasm, comparison("rounding", "desktop"),
                  wasm_agrees_with_desktop=False)  # fmt: skip
    assert (saved.status, saved.verified_against) == ("pass", ("desktop",))


# --- flags

UNSTABLE = (StabilityRecord(signature="", input_set=0, second_same=False, last_same=True),)
ZERO = side(all_zero=True)


@pytest.mark.parametrize(
    ("flag", "compared", "known"),
    [
        ("suspect_fallback", (comparison("exact"),), {"identical_to_wasm": True}),
        ("nondeterministic", RIGHT, {"stability": UNSTABLE}),
        ("input_independent", RIGHT, {"input_independent": True}),
        ("all_zero", (comparison("exact", measured=ZERO, reference=ZERO),), {}),
        ("software_adapter", RIGHT, {"software_adapter": True}),
        ("desktop_failed", RIGHT[:1], {"desktop_status": "crashed"}),
        ("reference_missing", RIGHT[1:], {"wasm_sound": False, "wasm_status": "load_failed"}),
        ("reference_disagrees_with_desktop", RIGHT[1:], {"wasm_agrees_with_desktop": False}),
    ],
)
def test_flags_that_leave_a_pass_a_pass(
    flag: Flag, compared: tuple[Any, ...], known: dict[str, Any]
) -> None:
    got = judge(measurement(), *compared, **known)
    assert got.status == "pass"
    assert flag in got.flags
    assert flag not in judge(measurement(), *RIGHT).flags


def test_bit_identity_is_suspicious_only_where_rounding_may_differ() -> None:
    exact = comparison("exact")
    moved = judge(measurement(), exact, identical_to_wasm=True, graph_computes=False)
    assert moved.flags == ()
    known_fallback = judge(measurement(accelerator="wasm"), exact, identical_to_wasm=True)
    assert (known_fallback.status, known_fallback.flags) == ("fallback", ())
    wasm = judge(measurement(WASM), comparison("exact", "desktop"), identical_to_wasm=True)
    assert wasm.flags == ()


def test_a_driver_that_is_right_only_the_first_time() -> None:
    got = judge(
        measurement(),
        *RIGHT,
        comparison("broken"),
        comparison("broken", "desktop"),
        mismatch_after_first_run=True,
        stability=UNSTABLE,
    )
    assert (got.status, got.cause) == ("output_mismatch", "unstable_across_runs")
    assert got.flags == ("mismatch_after_first_run", "nondeterministic")
    assert "a later one on the same input was not" in got.reason


def test_a_failed_run_has_no_flags_of_its_values() -> None:
    got = judge(measurement(lines=(FATAL,)), *WRONG, identical_to_wasm=True, stability=UNSTABLE)
    assert got.flags == ()


# --- real runs

NO_WASM = {"wasm_sound": False, "wasm_status": "load_failed", "desktop_status": "failed",
           "wasm_agrees_with_desktop": None}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "status", "failure_class", "full_delegation"),
    [
        ("2.5.3.wasm.lrt_add_10x10", "pass", None, None),
        ("2.5.3.webgpu.lrt_add_10x10", "pass", None, True),
        ("2.5.3.wasm.lrt_fallback_model", "pass", None, None),
        ("2.5.3.webgpu.lrt_fallback_model", "fallback", None, False),
        ("2.5.2.webgpu.lrt_fallback_model", "fallback", None, False),
        ("2.5.3.webgpu.lrt_l2_norm_composite", "fallback", None, False),
        ("2.5.3.webgpu.lrt_fallback_model.nojspi", "run_failed", "run_error", False),
        ("2.0.0.webgpu.lrt_fallback_model", "load_failed", "compile_error", None),
        ("0.1.1.webgpu.lrt_fallback_model", "load_failed", "compile_error", None),
        ("0.1.1.webgpu.lrt_add_10x10", "pass", None, None),
        ("2.0.0.webgpu.lrt_add_10x10", "pass", None, None),
        ("2.5.3.webgpu.lrt_multi_signature_model", "pass", None, True),
        ("2.5.3.wasm.alexa", "load_failed", "unsupported_dtype", None),
        ("2.5.3.webgpu.alexa", "load_failed", "unsupported_dtype", None),
        ("2.0.0.wasm.alexa", "load_failed", "unsupported_dtype", None),
        ("0.1.1.wasm.alexa", "run_failed", "unsupported_dtype", None),
        ("2.5.3.wasm.lrt_dynamic_string_custom_ops", "load_failed", "unsupported_dtype", None),
        ("2.5.3.webgpu.lrt_torchaudio_conformer", "load_failed", "unsupported_dtype", None),
        ("2.5.3.wasm.sine_float", "run_failed", "dynamic_shape", None),
        ("2.5.3.webgpu.sine_float", "run_failed", "dynamic_shape", True),
        ("2.5.3.wasm.lrt_max_unpooling_2d_valid", "run_failed", "run_error", None),
        ("2.5.2.wasm.lrt_max_unpooling_2d_valid", "run_failed", "run_error", None),
        ("2.0.0.wasm.lrt_max_unpooling_2d_valid", "run_failed", "run_error", None),
        ("0.1.1.wasm.lrt_max_unpooling_2d_valid", "load_failed", "compile_error", None),
        ("2.5.3.webgpu.lrt_max_unpooling_2d_valid", "load_failed", "compile_error", None),
        ("2.5.3.wasm.lrt_simple_add_op.sm8750", "run_failed", "run_error", None),
        ("2.5.3.wasm.face_landmark_with_attention", "run_failed", "run_error", None),
        ("2.5.3.webgpu.face_landmark_with_attention", "load_failed", "compile_error", None),
        ("0.1.1.webgpu.selfie_segmentation", "load_failed", "compile_error", None),
        ("0.2.1.webgpu.hand_landmark_sparse", "load_failed", "compile_error", None),
        ("2.5.3.webgpu.lrt_add_10x10.nogpu", "unavailable", "backend_unavailable", None),
        ("2.5.3.wasm.truncated", "load_failed", "parse_error", None),
        ("2.5.3.wasm.notfound", "load_failed", "parse_error", None),
        ("0.1.1.wasm.truncated", "load_failed", "parse_error", None),
        ("0.2.1.wasm.truncated", "load_failed", "compile_error", None),
    ],
)
def test_recorded_runs_with_right_values(
    name: str, status: Status, failure_class: str | None, full_delegation: bool | None
) -> None:
    """What the recorded console and error make of a run whose values, if any, agree."""
    data = recording(name)
    error = data["error"]
    plain = measurement(data["backend"], outputs=() if error else ("out",))
    measured = plain.model_copy(
        update={
            "error": StageError.model_validate(error) if error else None,
            "fully_accelerated": data["fully_accelerated"],
            "accelerator": data["accelerator"],
            "console": tuple(console_lines(data)),
        }
    )
    compared = () if error else RIGHT
    got = classify(
        measured,
        read_console(measured.console),
        [c for c in compared if measured.backend == WEBGPU or c.against == "desktop"],
        context(measured.backend),
    )
    assert (got.status, got.failure_class) == (status, failure_class)
    assert got.full_delegation is full_delegation

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sweep.errors import RecordError
from sweep.record import Record
from sweep.record_v1 import dump_v1, js_number, to_v1
from sweep.store import dump_record, parse_record, read_record
from tests.make_records import make_record

ENV = {
    "browser": "chromium",
    "browser_version": "151.0.1",
    "headless": True,
    "os": "macOS",
    "litertjs_core_version": "2.5.3",
    "machine_label": "bench",
    "webgpu_adapter": {"vendor": "apple", "architecture": "metal-3"},
}


def result(backend: str = "webgpu_mldrift", **more: Any) -> dict[str, Any]:
    gpu = backend != "wasm_xnnpack"
    return {
        "backend": backend, "loads": True, "runs": True, "failure_class": None, "error": None,
        "full_delegation": True if gpu else None, "output_match": True if gpu else None,
        "max_abs_diff": 1e-7 if gpu else None, "max_rel_diff": 0.5 if gpu else None,
        "latency_p50_ms": 5.25, "delegation_evidence": [], "env": ENV, "date": "2026-08-13",
        "provenance": "measured", **more,
    }  # fmt: skip


def v1(*results: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "schema_version": "1.0", "model_id": "m", "source": "m.tflite", "license": "mit",
        "input_spec": "1x4:float32",
        "config": {"warmup_runs": 3, "timed_runs": 10, "tolerance_abs": 1e-5,
                   "tolerance_rel": 1e-3, "input_seed": 42},
        "results": list(results), **more,
    }  # fmt: skip


def parse(value: dict[str, Any]) -> Record:
    return parse_record(json.dumps(value).encode())


def through_2_0(value: dict[str, Any]) -> dict[str, Any]:
    """1.0 → 2.0 → its file → 2.0 → 1.0."""
    return to_v1(parse_record(dump_record(parse(value))))


WASM = result("wasm_xnnpack")
INVALID = "warning: [Invalid CommandBuffer] is invalid due to a previous error."
LOST = "error: ERROR: Failed to allocate tensors"


def test_fields_survive_the_way_there_and_back() -> None:
    bare = result()
    del bare["failure_class"], bare["error"]
    no_adapter = {k: v for k, v in ENV.items() if k != "webgpu_adapter"}
    value = v1(
        result("wasm_xnnpack", runs=False, failure_class="wasm_memory_ceiling", error="a\nb"),
        result("webgpu_mldrift", runs=False, failure_class="memory_ceiling"),
        {**bare, "delegation_evidence": ["same", "same"]},
        result(env={**no_adapter, "os_version": "27", "jspi": False}),
        result(env={**ENV, "webgpu_adapter": None}, error="tensor count differs"),
        result(failure_class="something_new", loads=False, runs=False),
        notes="",
    )
    assert through_2_0(value) == value
    del value["notes"]
    assert through_2_0(value) == value
    assert parse(value).results[0].failure_class == "memory_ceiling"


def test_real_records_come_back_byte_for_byte(shared_dir: Path) -> None:
    schema = json.loads((shared_dir / "records" / "sweep_result-1.0.schema.json").read_text())
    paths = sorted((shared_dir / "records").glob("*/*/*/*.json"))
    assert len(paths) == 14
    for path in paths:
        record = parse_record(dump_record(read_record(path)))
        assert dump_v1(record) == path.read_bytes(), path
        jsonschema.validate(to_v1(record), schema)


def test_real_records_get_honest_verdicts(shared_dir: Path) -> None:
    def statuses(name: str) -> dict[str, str | None]:
        (path,) = (shared_dir / "records" / "sweep").rglob(f"{name}.json")
        return {r.backend: r.status for r in read_record(path).results}

    assert statuses("moge-2") == {"wasm_xnnpack": "run_failed", "webgpu_mldrift": "unverified"}
    assert statuses("sam2.1-hiera-tiny-mask-decoder__sam2_tiny_mask_decoder_fp16") == {
        "wasm_xnnpack": "pass",
        "webgpu_mldrift": "output_mismatch",
    }
    assert statuses("qwen3-tts-12hz-0.6b-base__mtp_fp32")["webgpu_mldrift"] == "fallback"
    assert statuses("3ddfa-v2")["webgpu_mldrift"] == "pass"


def test_2_0_records_can_be_said_in_1_0(shared_dir: Path) -> None:
    schema = json.loads((shared_dir / "records" / "sweep_result-1.0.schema.json").read_text())
    for index, status in enumerate(("pass", "fallback", "run_failed", "unavailable")):
        record = Record.model_validate(make_record("m", index=index, statuses=("pass", status)))
        value = to_v1(record)
        jsonschema.validate(value, schema)
        assert value["results"][0]["latency_p50_ms"] == record.results[0].latency_p50_ms


@pytest.mark.parametrize(
    ("wasm", "webgpu", "status", "cause"),
    [
        (WASM, result(), "pass", None),
        (WASM, result(full_delegation=False), "fallback", None),
        (WASM, result(output_match=False), "output_mismatch", None),
        (WASM, result(output_match=False, full_delegation=False), "output_mismatch", None),
        (WASM, result(output_match=None, error="non-finite values"), "unverified", None),
        (WASM, result(delegation_evidence=[LOST]), "run_failed", None),
        (WASM, result(runs=False, failure_class="run_error"), "run_failed", None),
        (WASM, result(loads=False, runs=False, failure_class="compile_error"), "load_failed", None),
        (WASM, result(loads=False, runs=False, failure_class="backend_unavailable"),
         "unavailable", None),
        (WASM, result(loads=False, runs=False, failure_class="compile_error",
                      error="WebGPU was requested but no WebGPU device is set in the environment."),
         "unavailable", None),
        # The reference failed, said so, or is missing: whatever was compared proves nothing.
        (result("wasm_xnnpack", runs=False, failure_class="timeout"), result(output_match=None),
         "unverified", None),
        (result("wasm_xnnpack", delegation_evidence=[LOST]), result(output_match=False),
         "unverified", "reference_invalid"),
        (None, result(), "unverified", None),
        # Commands that the GPU refused: agreement proves nothing, disagreement stays one.
        (WASM, result(delegation_evidence=[INVALID]), "run_failed", "gpu_validation_error"),
        (WASM, result(delegation_evidence=[INVALID], output_match=False),
         "output_mismatch", "gpu_validation_error"),
        (None, result(delegation_evidence=[INVALID], output_match=False),
         "run_failed", "gpu_validation_error"),
        # The runtime went back to the CPU: its failed attempt to delegate is no failure.
        (WASM, result(full_delegation=False, delegation_evidence=[
            "error: ERROR: Node number 3 (X) failed to prepare.",
            "error: ERROR: Restored original execution plan after delegate application failure.",
         ]), "fallback", None),
    ],
)  # fmt: skip
def test_verdicts_say_no_more_than_the_record(
    wasm: dict[str, Any] | None, webgpu: dict[str, Any], status: str, cause: str | None
) -> None:
    record = parse(v1(*([wasm] if wasm else []), webgpu))
    assert record.results[-1].status == status
    assert record.results[-1].cause == cause


def test_a_reference_that_computed_nothing_did_not_run() -> None:
    record = parse(v1(result("wasm_xnnpack", delegation_evidence=[LOST]), result()))
    assert record.results[0].status == "run_failed"
    assert "Failed to allocate" in (record.results[0].reason or "")


def test_zeros_as_reference_are_pointed_out() -> None:
    record = parse(v1(WASM, result(output_match=False, max_abs_diff=0.3, max_rel_diff=0.3 / 1e-9)))
    assert "may have computed nothing" in (record.results[1].reason or "")


def test_software_adapters_are_marked() -> None:
    swift = {**ENV, "webgpu_adapter": {"vendor": "google", "architecture": "swiftshader"}}
    record = parse(v1(WASM, result(env=swift)))
    assert record.results[1].env.adapter_class == "software"
    assert record.results[1].flags == ("software_adapter",)
    assert record.results[0].env.adapter_class == "hardware"


@pytest.mark.parametrize(
    ("change", "location"),
    [
        ({"notes": None}, "notes"),
        ({"input_spec": ""}, "input_spec"),
        ({"results": []}, "results"),
        ({"surprise": 1}, "surprise"),
        ({"results": [{k: v for k, v in WASM.items() if k != "env"}]}, "results.0.env"),
        ({"results": [result(env={**ENV, "jspi": None})]}, "results.0.env.jspi"),
        ({"results": [result(status="pass")]}, "results.0.status"),
    ],
)
def test_1_0_is_read_strictly(change: dict[str, Any], location: str) -> None:
    with pytest.raises(RecordError, match=f"{location}: "):
        parse({**v1(WASM), **change})


def test_numbers_are_spelled_as_in_javascript() -> None:
    known = {
        1e-5: "0.00001", 1e-6: "0.000001", 1e-7: "1e-7", 1.5e-7: "1.5e-7", 52.0: "52", 0.0: "0",
        1e21: "1e+21", 1e20: "100000000000000000000", 123.25: "123.25",
        10099.350182687609: "10099.350182687609", -2.5: "-2.5", 5e-324: "5e-324",
        1.7976931348623157e308: "1.7976931348623157e+308", 1200.0: "1200",
    }  # fmt: skip
    assert {value: js_number(value) for value in known} == known


def test_numbers_are_spelled_as_node_spells_them() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    draw = random.Random(1)
    values = [math.ldexp(draw.uniform(-1, 1), draw.randrange(-80, 80)) for _ in range(2000)]
    script = "process.stdout.write(JSON.parse(require('fs').readFileSync(0)).map(String).join())"
    done = subprocess.run(
        [node, "-e", script], input=json.dumps(values), capture_output=True, text=True, check=True
    )
    assert done.stdout.split(",") == [js_number(value) for value in values]

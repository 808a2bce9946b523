"""Whole sweeps of models built here, in a real headless Chromium."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from sweep.bench import Bench, open_bench
from sweep.browser import find_browser
from sweep.catalog import CatalogEntry
from sweep.config import SweepConfig
from sweep.measure import measure_model
from sweep.paths import cache_dir
from sweep.prepare import prepare
from sweep.record import Record
from sweep.runtime import ensure_core
from sweep.sources import FetchOptions, ModelCache
from tests import tflite_builder as build

pytestmark = pytest.mark.browser

MODELS = {
    "add": build.add_model(),
    "flatten": build.fully_connected_model((1, 2, 2, 4)),
    "one-pixel": build.fully_connected_model((1, 1, 1, 16)),
    "log-softmax": build.log_softmax_model(),
    "custom": build.custom_op_model(),
    "int8": build.add_model(dtype="int8", constant=2),
    "not-a-number": build.square_root_model(),
    "two-signatures": build.two_signature_model(),
    "gather": build.gather_model(),
    "quantized": build.quantized_model(),
}


async def sweep_all(
    directory: Path, models: dict[str, bytes], **config: object
) -> dict[str, Record]:
    """Records of the models, measured one after the other on one bench."""
    core = await ensure_core(str(config.pop("core", "2.5.3")), cache_dir())
    script = config.pop("init_script", None)
    asked = SweepConfig.model_validate(
        {"core_version": core.version, "timed_runs": 3, "warmup_runs": 1, **config}
    )
    choice = await find_browser()
    records = {}
    async with open_bench(
        asked, core, choice, machine_label="test", init_script=str(script) if script else None
    ) as bench:
        for model_id, data in models.items():
            records[model_id] = await sweep_one(bench, directory, model_id, data)
    return records


async def sweep_one(bench: Bench, directory: Path, model_id: str, data: bytes) -> Record:
    (directory / f"{model_id}.tflite").write_bytes(data)
    entry = CatalogEntry(model_id=model_id, source=f"{model_id}.tflite", license="Apache-2.0")
    with ModelCache(directory / "cache") as cache:
        ready = await prepare(entry, directory, bench.config, cache, FetchOptions())
        return await measure_model(bench, ready, "2026-01-02")


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    return asyncio.run(sweep_all(tmp_path_factory.mktemp("models"), MODELS))


def verdicts(record: Record) -> tuple[str | None, str | None]:
    wasm, webgpu = record.results
    return wasm.status, webgpu.status


@pytest.mark.parametrize(
    ("model_id", "expected"),
    [
        ("add", ("pass", "pass")),
        ("flatten", ("pass", "output_mismatch")),
        ("one-pixel", ("pass", "pass")),
        ("log-softmax", ("pass", "fallback")),
        ("custom", ("run_failed", "load_failed")),
        ("int8", ("load_failed", "load_failed")),
        ("not-a-number", ("unverified", "unverified")),
        ("two-signatures", ("pass", "pass")),
        ("gather", ("pass", "fallback")),
        ("quantized", ("pass", "pass")),
    ],
)
def test_verdicts(records: dict[str, Record], model_id: str, expected: tuple[str, str]) -> None:
    found = verdicts(records[model_id])
    assert found == expected, [r.reason for r in records[model_id].results]


def test_a_pass_names_its_references_and_its_numbers(records: dict[str, Record]) -> None:
    wasm, webgpu = records["add"].results
    assert wasm.verified_against == ("desktop",)
    assert webgpu.verified_against == ("wasm", "desktop")
    assert webgpu.full_delegation is True
    assert webgpu.latency is not None
    assert len(webgpu.latency.samples_ms) >= 3
    assert webgpu.latency_p50_ms == np.median(webgpu.latency.samples_ms).round(4)
    assert records["add"].agrees_with == "both"
    assert webgpu.env.wasm_file == "litert_wasm_jspi_internal.wasm"
    assert webgpu.env.cross_origin_isolated is True
    assert webgpu.env.adapter_class in ("software", "hardware")


def test_a_mismatch_carries_its_worst_element_and_was_seen_in_a_fresh_page(
    records: dict[str, Record],
) -> None:
    webgpu = records["flatten"].results[1]
    assert webgpu.full_delegation is True
    assert webgpu.output_match is False
    assert webgpu.fresh_page is True
    assert webgpu.confirmed is True
    worst = webgpu.comparisons[0].facts.worst
    assert worst is not None
    assert abs(worst.measured - worst.reference) == webgpu.comparisons[0].facts.max_abs
    assert records["flatten"].agrees_with == "wasm"


def test_partial_delegation_is_in_fields(records: dict[str, Record]) -> None:
    facts = records["log-softmax"].results[1].delegation
    assert facts is not None
    assert facts.fallback is True
    assert facts.ops_on_cpu == 1
    assert [op.op for op in facts.unsupported] == ["LOG_SOFTMAX"]


def test_failures_say_their_class(records: dict[str, Record]) -> None:
    custom, refused = records["custom"].results, records["int8"].results[0]
    assert custom[0].failure_class == "run_error"
    assert "NO_SUCH_OP" in (custom[0].error or "")
    assert custom[0].loads is True
    assert custom[0].runs is False
    assert refused.failure_class == "unsupported_dtype"


def test_every_signature_is_run_and_compared(records: dict[str, Record]) -> None:
    record = records["two-signatures"]
    seen = {(c.signature, c.input_set) for c in record.results[1].comparisons}
    assert seen == {(key, n) for key in ("double", "next") for n in (0, 1)}


def test_a_silent_failure_is_not_agreement(records: dict[str, Record]) -> None:
    """Both backends may give the same left-over memory: the console decides."""
    assert all(r.status != "pass" for r in records["custom"].results)
    assert records["custom"].results[0].latency_p50_ms is None


def test_a_second_sweep_gives_the_same_bytes_apart_from_times(
    tmp_path: Path, records: dict[str, Record]
) -> None:
    again = asyncio.run(sweep_all(tmp_path, {"add": MODELS["add"], "flatten": MODELS["flatten"]}))

    def timeless(record: Record) -> dict[str, object]:
        raw = record.model_dump(mode="json")
        for result in raw["results"]:
            for name in ("latency", "latency_p50_ms", "flags", "fresh_page", "confirmed"):
                del result[name]
        return raw

    for model_id, record in again.items():
        assert timeless(record) == timeless(records[model_id])


def test_strict_policy_is_stored_beside_the_calibrated_one(records: dict[str, Record]) -> None:
    comparison = records["add"].results[1].comparisons[0]
    assert comparison.judgement.policy == "calibrated"
    assert comparison.facts.strict_match is True


@pytest.mark.parametrize("core", ["0.1.1", "2.0.0"])
def test_older_cores_run_through_the_same_page(tmp_path: Path, core: str) -> None:
    models = {name: MODELS[name] for name in ("add", "log-softmax")}
    found = asyncio.run(sweep_all(tmp_path, models, core=core))
    assert verdicts(found["add"]) == ("pass", "pass")
    webgpu = found["add"].results[1]
    assert webgpu.full_delegation is None
    assert "isFullyAccelerated" in webgpu.not_reported
    assert webgpu.env.jspi is False
    assert verdicts(found["log-softmax"]) == ("pass", "load_failed")


def test_without_webgpu_wasm_still_works(tmp_path: Path) -> None:
    leg = {"name": "no-webgpu", "webgpu": False}
    found = asyncio.run(sweep_all(tmp_path, {"add": MODELS["add"]}, leg=leg))
    wasm, webgpu = found["add"].results
    assert wasm.status == "pass"
    assert (webgpu.status, webgpu.failure_class) == ("unavailable", "backend_unavailable")
    assert webgpu.env.adapter_class == "none"


def test_threads_are_recorded(tmp_path: Path) -> None:
    leg = {"name": "threads", "threads": True}
    found = asyncio.run(sweep_all(tmp_path, {"add": MODELS["add"]}, leg=leg))
    wasm = found["add"].results[0]
    assert wasm.status == "pass"
    assert wasm.env.wasm_file == "litert_wasm_threaded_internal.wasm"
    assert (wasm.env.threads or 0) > 1


def test_right_only_the_first_time_is_a_mismatch(tmp_path: Path) -> None:
    """A fault injected into the page: from the third read-back on, one value of 8 is changed."""
    script = """
    const map = GPUBuffer.prototype.getMappedRange;
    let reads = 0;
    GPUBuffer.prototype.getMappedRange = function (...args) {
      const range = map.apply(this, args);
      if (range.byteLength >= 32 && this.usage & GPUBufferUsage.MAP_READ && ++reads > 1) {
        new Float32Array(range)[3] += 5;
      }
      return range;
    };
    """
    found = asyncio.run(
        sweep_all(tmp_path, {"add": MODELS["add"]}, init_script=script, input_sets=1)
    )
    webgpu = found["add"].results[1]
    assert webgpu.status == "output_mismatch", webgpu.reason
    assert "mismatch_after_first_run" in webgpu.flags
    assert webgpu.cause == "unstable_across_runs"


def test_gpu_validation_errors_forbid_a_pass(tmp_path: Path) -> None:
    """A fault injected into the page: a command that the device refuses, beside right values."""
    script = """
    const submit = GPUQueue.prototype.submit;
    const request = GPUAdapter.prototype.requestDevice;
    GPUAdapter.prototype.requestDevice = async function (...args) {
      const device = await request.apply(this, args);
      device.queue.fault = () => device.createBuffer({size: 3, usage: 0xffff});
      return device;
    };
    GPUQueue.prototype.submit = function (...args) {
      if (this.fault) { const f = this.fault; this.fault = null; f(); this.fault = f; }
      return submit.apply(this, args);
    };
    """
    found = asyncio.run(sweep_all(tmp_path, {"add": MODELS["add"]}, init_script=script))
    webgpu = found["add"].results[1]
    assert webgpu.status == "run_failed", webgpu.reason
    assert webgpu.cause == "gpu_validation_error"
    assert webgpu.gpu_errors

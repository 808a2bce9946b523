"""Synthetic, schema-valid records (provenance `example`) for tests and benchmarks.

Nothing here was measured: the records only have the shapes and the variety of real ones. The same
arguments give the same bytes on every machine.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from sweep.record import Record

Json = dict[str, Any]

CORES = ("0.1.1", "0.2.1", "2.0.0", "2.5.2", "2.5.3")
FIRST_DAY = date(2026, 1, 5)

_FAMILIES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("mobilenet-v3", ("vision", "classification"), ("CONV_2D", "DEPTHWISE_CONV_2D", "HARD_SWISH")),
    ("efficientdet-lite", ("vision", "detection"), ("CONV_2D", "CONCATENATION", "LOGISTIC")),
    ("hand-landmark", ("vision", "landmarks"), ("CONV_2D", "PRELU", "DENSIFY", "RESHAPE")),
    ("deeplab-v3", ("vision", "segmentation"), ("CONV_2D", "RESIZE_BILINEAR", "ADD")),
    ("whisper-encoder", ("audio", "transformer"), ("BATCH_MATMUL", "SOFTMAX", "GELU", "ADD")),
    ("sentence-encoder", ("text", "transformer"), ("GATHER", "BATCH_MATMUL", "SOFTMAX", "TANH")),
    ("wake-word", ("audio", "keyword"), ("CONV_2D", "FULLY_CONNECTED", "LEAKY_RELU")),
    ("mask-decoder", ("vision", "segmentation"), ("TRANSPOSE_CONV", "BATCH_MATMUL", "SCATTER_ND")),
    ("super-resolution", ("vision",), ("CONV_2D", "DEPTH_TO_SPACE", "ADD")),
    ("gesture-embedder", ("vision", "embedding"), ("FULLY_CONNECTED", "L2_NORMALIZATION", "MEAN")),
)
_VARIANTS = ("fp32", "fp16", "int8", "tiny", "large")
_FAILURES = {
    "load_failed": ("unsupported_dtype", "Error: Element type INT8 is not supported.", "load"),
    "run_failed": ("run_error", "Node number 3 (SCATTER_ND) failed to invoke.", "first_run"),
    "unavailable": ("backend_unavailable", "WebGPU was requested but no device is set.", "init"),
}
_GRADE = {"pass": "rounding", "fallback": "rounding", "output_mismatch": "divergent"}

RIGS: tuple[Json, ...] = (
    {"machine_label": "ci-linux-2core", "os": "Linux", "os_version": "6.12", "arch": "x86_64",
     "cpu": "Example CPU @ 2.50GHz", "cpu_count": 2, "adapter_class": "software",
     "adapter_is_fallback": True, "sandbox": False,
     "webgpu_adapter": {"vendor": "google", "architecture": "swiftshader", "device": "0xc0de",
                        "description": "SwiftShader Device (LLVM 16.0.0)"}},
    {"machine_label": "mac-studio-m4-max", "os": "macOS", "os_version": "27.0.0", "arch": "arm64",
     "cpu": "Apple M4 Max", "cpu_count": 16, "adapter_class": "hardware",
     "adapter_is_fallback": False, "sandbox": True,
     "webgpu_adapter": {"vendor": "apple", "architecture": "metal-3", "device": "",
                        "description": ""}},
)  # fmt: skip


def model_names(count: int) -> list[str]:
    """`count` distinct model ids, in the order of the catalog."""
    names = []
    for i in range(count):
        family = _FAMILIES[i % len(_FAMILIES)][0]
        lap = i // len(_FAMILIES)
        suffix = _VARIANTS[lap % len(_VARIANTS)]
        lap //= len(_VARIANTS)
        names.append(f"{family}-{suffix}" + (f"-{lap:03d}" if lap else ""))
    return names


def make_record(
    model_id: str,
    *,
    index: int = 0,
    core: str = "2.5.3",
    day: date = FIRST_DAY,
    browser_version: str = "156.0.7204.1",
    rig: int = 0,
    step: int = 0,
    steps: int = 1,
    statuses: tuple[str, str] | None = None,
) -> Json:
    """One record as JSON data, with a wasm and a webgpu result.

    `index` picks family and numbers, `step` of `steps` is the place in the history (faults heal as
    it grows), `statuses` fixes the (wasm, webgpu) verdicts instead of drawing them.
    """
    rng = random.Random(f"{model_id}/{rig}")
    now = random.Random(f"{model_id}/{rig}/{step}")
    family, tags, ops = _FAMILIES[index % len(_FAMILIES)]
    wasm, webgpu = statuses or _draw(rng, step, steps)
    environment = {
        **RIGS[rig],
        "browser": "chromium", "browser_version": browser_version, "headless": True,
        "jspi": core.startswith("2.5"), "litertjs_core_version": core, "threads": 1,
        "cross_origin_isolated": True, "clock_resolution_us": 5.0, "leg": "default",
        "wasm_file": "litert_wasm_jspi_internal.wasm" if core.startswith("2.5") else
        "litert_wasm_internal.wasm", "precision": "default", "relaxed_simd": True,
        "webgpu_features": ["core-features-and-limits", "depth-clip-control"],
        "webgpu_limits": {"maxBufferSize": 1073741824, "maxTextureDimension2D": 8192},
        "browser_flags": ["--enable-unsafe-webgpu", "--enable-features=Vulkan"],
        "sweep_version": "0.1.0", "playwright_version": "1.65.0",
    }  # fmt: skip
    base = 2.0 + rng.random() ** 3 * 180
    gpu_factor = (3.0 if rig == 0 else 0.2) * (0.6 + rng.random())
    results = [
        _result("wasm_xnnpack", wasm, environment, day, base, now, ops, None),
        _result("webgpu_mldrift", webgpu, environment, day, base * gpu_factor, now, ops,
                None if core.startswith("0.") else webgpu in ("pass", "output_mismatch")),
    ]  # fmt: skip
    return {
        "schema_version": "2.0",
        "model_id": model_id,
        "source": f"https://models.example/{family}/{model_id}.tflite",
        "license": "Apache-2.0",
        "input_spec": "1x224x224x3:float32",
        "notes": "A synthetic record: nothing was measured.",
        "config": {
            "warmup_runs": 3, "timed_runs": 10, "tolerance_abs": 1e-5, "tolerance_rel": 1e-3,
            "input_seed": 42, "input_sets": 2, "input_generator": "2.0",
            "tolerance_policy": "calibrated", "latency": True,
        },
        "results": results,
        "tags": sorted(tags),
        "model": _model_facts(model_id, ops, rng),
        "core": {"version": core, "integrity": "sha512-example", "wasm_utils_version": "2.5.3",
                 "wasm_utils_integrity": "sha512-example"},
        "inputs": [{"signature": "serving_default", "name": "image", "dtype": "float32",
                    "shape": [1, 224, 224, 3], "rule": "uniform [-1, 1]",
                    "sha256": ["0" * 64, "1" * 64]}],
        "desktop": {"package": "ai-edge-litert", "version": "2.3.0", "status": "ok"},
        "agrees_with": "wasm" if webgpu == "output_mismatch" else "both",
    }  # fmt: skip


def make_hostile_record(core: str = "2.5.3", day: date = FIRST_DAY) -> Json:
    """A record whose every free text tries to become markup or script."""
    attack = "<img src=x onerror=\"window.pwned='{}'\"></script><script>pwned='{}'</script>"
    record = make_record("hostile-model", index=2, core=core, day=day,
                         statuses=("pass", "fallback"))  # fmt: skip
    record["notes"] = attack.format("notes", "notes")
    record["source"] = "javascript:window.pwned='source'"
    record["license"] = attack.format("license", "license")
    record["tags"] = [attack.format("tag", "tag"), "__proto__"]
    record["model"]["description"] = attack.format("description", "description")
    record["model"]["operators"].append(
        {"op": attack.format("op", "op"), "custom": True, "count": 1}
    )
    record["inputs"][0]["rule"] = attack.format("rule", "rule")
    for result in record["results"]:
        result["reason"] = attack.format("reason", "reason")
        result["failure_class"] = attack.format("class", "class")
        result["error"] = attack.format("error", "error")
        result["env"]["machine_label"] = attack.format("machine", "machine")
        result["delegation_evidence"] = [attack.format("console", "console") + "\u2028\u202e"]
        result["evidence"] = [
            {"level": "error", "text": attack.format("line", "line"), "stage": "load", "count": 2}
        ]
        for comparison in result["comparisons"]:
            comparison["output"] = attack.format("output", "output")
    return record


def iter_records(
    models: int, sweeps: int, *, rigs: tuple[int, ...] = (0,), seed_day: date = FIRST_DAY
) -> Iterator[tuple[str, Json]]:
    """(path below the data root, record) for a whole data set, sweep by sweep.

    A model joins the catalog at its own sweep and some sweeps miss some models, as in real life.
    """
    names = model_names(models)
    for step in range(sweeps):
        core = CORES[min(step * len(CORES) // max(sweeps, 1), len(CORES) - 1)]
        for rig in rigs:
            day = seed_day + timedelta(days=14 * step + rig)
            browser = f"{150 + step // 3}.0.{7100 + step // 3}.{rig}"
            for index, name in enumerate(names):
                if step < sweeps - 1 and (index * 7 + step) % 23 == 0:
                    continue
                record = make_record(
                    name, index=index, core=core, day=day, browser_version=browser, rig=rig,
                    step=step, steps=sweeps,
                )  # fmt: skip
                yield f"{core}/{day.isoformat()}/{name}.json", record


def write_records(root: Path, models: int, sweeps: int, *, rigs: tuple[int, ...] = (0,)) -> int:
    """Write a data set below `root` (like `data/sweep`); the number of records is returned."""
    count = 0
    for relative, record in iter_records(models, sweeps, rigs=rigs):
        if count % 500 == 0:
            Record.model_validate(record)
        write_record(root, relative, record)
        count += 1
    return count


def write_record(root: Path, relative: str, record: Json) -> Path:
    """Write one record in the form of the store: sorted keys, 2-space indent, final newline."""
    path = root / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, sort_keys=True, indent=2) + "\n", encoding="utf-8")
    return path


def _draw(rng: random.Random, step: int, steps: int) -> tuple[str, str]:
    fate = rng.random()
    turn = rng.randrange(1, max(steps, 2))
    later = step >= turn
    wasm = "pass" if fate < 0.94 else "run_failed" if fate < 0.97 else "load_failed"
    if wasm != "pass":
        return wasm, "unverified" if fate > 0.985 else wasm
    gpu = rng.random()
    if gpu < 0.55:
        return wasm, "pass"
    if gpu < 0.68:
        return wasm, "fallback" if later else "run_failed"
    if gpu < 0.78:
        return wasm, "fallback"
    if gpu < 0.86:
        return wasm, "output_mismatch"
    if gpu < 0.92:
        return wasm, "pass" if later else "output_mismatch"
    if gpu < 0.95:
        return wasm, "output_mismatch" if later else "pass"
    return wasm, "load_failed" if gpu < 0.985 else "unavailable"


def _result(
    backend: str, status: str, environment: Json, day: date, center: float, now: random.Random,
    ops: tuple[str, ...], full: bool | None,
) -> Json:  # fmt: skip
    ran = status in ("pass", "fallback", "output_mismatch", "unverified")
    gpu = backend != "wasm_xnnpack"
    failure, message, stage = _FAILURES.get(status, (None, None, None))
    samples = [round(center * (1 + abs(now.gauss(0, 0.03))), 4) for _ in range(10)] if ran else []
    ordered = sorted(samples)
    p50 = (ordered[4] + ordered[5]) / 2 if ran else None
    on_cpu = 7 if status == "fallback" else 0
    delegation = None
    if gpu and ran:
        refused = [{"op": ops[-1], "reason": "Operation is not supported.", "count": on_cpu}]
        delegation = {
            "fully_accelerated": full, "accelerator": "webgpu", "ops_on_gpu": 60 - on_cpu,
            "ops_on_cpu": on_cpu, "partitions": 3 if on_cpu else 1,
            "unsupported": refused if on_cpu else [], "fallback": bool(on_cpu),
            "evidence": [f"{60 - on_cpu} operations will run on the GPU, and the remaining "
                         f"{on_cpu} operations will run on the CPU."] if on_cpu else [],
        }  # fmt: skip
    evidence = [
        {"level": "warning", "stage": "load", "count": 1,
         "text": "Model not fully compiled for webgpu. Partially delegating to WASM execution."}
    ] if on_cpu and gpu else []  # fmt: skip
    if message:
        evidence.append({"level": "error", "text": message, "stage": stage, "count": 2})
    compared = [_comparison(k, status, now) for k in range(2)] if ran and gpu else []
    worst = max((c["facts"]["max_abs"] for c in compared), default=None)
    flags = ["software_adapter"] if gpu and environment["adapter_class"] == "software" else []
    return {
        "backend": backend,
        "loads": status not in ("load_failed", "unavailable"),
        "runs": ran,
        "failure_class": failure,
        "error": message,
        "full_delegation": full if gpu and ran else None,
        "output_match": status in ("pass", "fallback") if compared else None,
        "max_abs_diff": worst,
        "max_rel_diff": worst * 7 if worst is not None else None,
        "latency_p50_ms": p50,
        "delegation_evidence": [f"error: {e['text']}" for e in evidence],
        "env": environment,
        "date": day.isoformat(),
        "provenance": "example",
        "status": status,
        "reason": f"A synthetic {status}.",
        "cause": "unknown" if status == "output_mismatch" else None,
        "flags": flags,
        "verified_against": ["wasm", "desktop"] if compared else ["desktop"] if ran else [],
        "grade": _GRADE.get(status),
        "delegation": delegation,
        "evidence": evidence,
        "comparisons": compared,
        "latency": {
            "samples_ms": samples, "p50_ms": p50, "p90_ms": ordered[8], "min_ms": ordered[0],
            "mean_ms": sum(samples) / 10, "stdev_ms": 0.1, "ci99_low_ms": ordered[0],
            "ci99_high_ms": ordered[9], "batch": 1, "warmup_ms": samples[:3],
            "first_run_ms": center * 2.5, "compile_ms": 40.0, "fetch_ms": 3.0, "init_ms": 350.0,
            "load_average": 0.4,
        } if ran else None,
        "stage_reached": "outputs" if ran else None,
        "failed_stage": stage,
        "fresh_page": True,
        "confirmed": True if status in ("output_mismatch", "run_failed", "load_failed") else None,
    }  # fmt: skip


def _comparison(input_set: int, status: str, now: random.Random) -> Json:
    wrong = status == "output_mismatch"
    scale = 0.4 if wrong else 3e-7
    nrmse = scale * (0.5 + now.random())
    histogram = [12, 3, 40, 220, 510, 180, 30, 5, 0, 0, 0, 0, 0]
    if wrong:
        histogram = [0, 0, 1, 2, 6, 14, 40, 120, 280, 410, 120, 7, 0]
    side = {"nan": 0, "pos_inf": 0, "neg_inf": 0, "all_zero": False, "constant": False,
            "min": -2.1, "max": 3.4, "rms": 1.0}  # fmt: skip
    grade = _GRADE.get(status, "rounding")
    return {
        "signature": "serving_default", "input_set": input_set, "output": "logits",
        "dtype": "float32", "shape": [1, 1000], "against": "wasm",
        "facts": {
            "problem": None, "elements": 1000, "max_abs": nrmse * 6, "mean_abs": nrmse * 0.7,
            "rmse": nrmse, "max_rel": nrmse * 40, "nrmse": nrmse,
            "cosine": 0.71 if wrong else 0.9999999, "pearson": 0.69 if wrong else 0.9999999,
            "snr_db": 5.2 if wrong else 128.0, "strict_outside": 480 if wrong else 0,
            "strict_outside_fraction": 0.48 if wrong else 0.0, "strict_match": not wrong,
            "worst": {"index": [0, 417], "measured": 2.5 if wrong else 1.0000003,
                      "reference": 1.0},
            "measured": side, "reference": side, "nonfinite_positions_differ": False,
            "identical": False, "lsb_max": None, "argmax_agree": not wrong,
            "top5_overlap": 0.4 if wrong else 1.0, "log_error_histogram": histogram, "batch": [],
        },
        "judgement": {
            "policy": "calibrated", "grade": grade, "match": not wrong, "threshold_nrmse": 1e-3,
            "floor": {"kernel_nrmse": 2e-7, "kernel_max_abs": 1e-6, "perturb_nrmse": 4e-7,
                      "perturb_max_abs": 2e-6, "precision": "fp32"},
            "reason": f"nRMSE {nrmse:.2e} against a bound of 1e-3.",
        },
    }  # fmt: skip


def _model_facts(model_id: str, ops: tuple[str, ...], rng: random.Random) -> Json:
    tensor = {"name": "image", "tensor_name": "serving_default_image:0", "tensor_index": 0,
              "dtype": "float32", "shape": [1, 224, 224, 3], "shape_signature": None}  # fmt: skip
    output = {**tensor, "name": "logits", "tensor_name": "StatefulPartitionedCall:0",
              "tensor_index": 99, "shape": [1, 1000]}  # fmt: skip
    return {
        "sha256": f"{rng.getrandbits(256):064x}",
        "bytes": rng.randrange(40_000, 90_000_000),
        "description": f"Synthetic {model_id}",
        "signatures": [{"key": "serving_default", "subgraph": 0, "inputs": [tensor],
                        "outputs": [output]}],
        "operators": [{"op": op, "custom": False, "count": rng.randrange(1, 40)}
                      for op in sorted(ops)],
        "subgraphs": 1,
        "weight_dtypes": {"float32": 4_000_000},
        "dynamic": False,
        "metadata": ["min_runtime_version"],
    }  # fmt: skip

"""Every status, failure class, cause and flag, come about in a real browser.

Models whose description names a fault of `live_faults.js` are struck by it in the page: the GPU
runs an altered kernel, one backend is given another model, a read is late, an upload goes astray.
The other models are what they are. All share one bench, as in a sweep.

What is seen where (`here`: a case below; else a part of the name of a test in that file):

    unavailable                   test_sweep_browser.py  without_webgpu_wasm_still_works
    load_failed                   here
    run_failed                    here
    output_mismatch               here
    fallback                      here
    unverified                    here
    pass                          here

    init_failed                   faults/test_page_faults.py  core_with_a_broken_wasm
    backend_unavailable           test_sweep_browser.py  without_webgpu_wasm_still_works
    fetch_failed                  here
    checksum_mismatch             here
    parse_error                   here
    unsupported_dtype             test_sweep_browser.py  failures_say_their_class
    dynamic_shape                 here
    compile_error                 here
    memory_ceiling                here
    backend_error                 here
    run_error                     here
    no_output                     here
    non_finite                    here
    device_lost                   faults/test_browser_faults.py  killed_gpu_process_is_told
    page_crash                    faults/test_browser_faults.py  death_at_every_try
    browser_crash                 faults/test_browser_faults.py  death_at_every_try
    timeout                       here

    gpu_validation_error          here
    reference_invalid             here
    zero_output                   here
    nan_gpu_only                  here
    nan_both                      here
    unstable_across_runs          test_sweep_browser.py  right_only_the_first_time
    scale_error                   here
    permuted_output               here
    quantization_noise            here
    precision                     here
    partial_delegation            here
    unknown                       here

    suspect_fallback              here
    mismatch_after_first_run      test_sweep_browser.py  right_only_the_first_time
    nondeterministic              here
    input_independent             here
    all_zero                      here
    reference_disagrees_with_desktop  here
    noisy_timing                  here
    software_adapter              here
    not_confirmed_in_fresh_page   faults/test_browser_faults.py  death_that_does_not_come_again
    reference_missing             here
    desktop_failed                here
"""

from __future__ import annotations

import ast
import asyncio
import base64
import dataclasses
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from ai_edge_litert import schema_py_generated as schema

from sweep.bench import Bench, open_bench
from sweep.browser import find_browser
from sweep.catalog import CatalogEntry
from sweep.classify import SUSPICIOUS_FLAGS
from sweep.config import Backend, Leg, Precision, SweepConfig, Timeouts
from sweep.measure import measure_model
from sweep.paths import cache_dir
from sweep.prepare import prepare
from sweep.record import STATUSES, Cause, Flag, Record, Result
from sweep.runtime import ensure_core
from sweep.sources import FetchOptions, ModelCache
from tests import tflite_builder as build
from tests.tflite_builder import ModelBuilder

pytestmark = pytest.mark.browser

TESTS = Path(__file__).parent
SURROUNDINGS = {"software_adapter", "noisy_timing"}
"""Flags that speak of the machine."""


@dataclass(frozen=True)
class Expected:
    """What one backend's result must say; `flags` are all but those of the surroundings."""

    status: str
    failure_class: str | None = None
    cause: str | None = None
    flags: frozenset[str] = frozenset()
    against: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Case:
    """A model, how it is swept, and its results."""

    model: bytes
    wasm: Expected
    webgpu: Expected
    desktop: bool = True
    precision: Precision = "default"
    timed: bool = False
    seconds: float | None = None
    """That a first run may take."""
    sha256: str | None = None


def expected(
    status: str,
    failure_class: str | None = None,
    cause: str | None = None,
    *flags: str,
    against: tuple[str, ...] | None = None,
) -> Expected:
    return Expected(status, failure_class, cause, frozenset(flags), against)


def struck(fault: str, model: bytes | None = None) -> bytes:
    """A model that names its fault; y = x + 2 over 16 channels by default."""
    tree = schema.ModelT.InitFromPackedBuf(model or build.add_model((1, 16)), 0)
    tree.description = f"fault:{fault}"
    return build.packed(tree)


def cancelling_model(height: float = 100.0) -> bytes:
    """y = MAX_POOL_2D(x + height, 1×1) − height: the steps of float16 at `height` remain."""
    b = ModelBuilder()
    shape = (1, 4, 4, 8)
    x, up, pooled, y = (b.tensor(name, shape) for name in ("x", "up", "pooled", "y"))
    plus, minus = b.tensor("plus", (1,), data=[height]), b.tensor("minus", (1,), data=[-height])
    pool = schema.Pool2DOptionsT()
    pool.filterHeight = pool.filterWidth = pool.strideH = pool.strideW = 1
    b.op("ADD", [x, plus], [up], ("AddOptions", schema.AddOptionsT()))
    b.op("MAX_POOL_2D", [up], [pooled], ("Pool2DOptions", pool))
    b.op("ADD", [pooled, minus], [y], ("AddOptions", schema.AddOptionsT()))
    b.signature("serving_default", {"x": x}, {"y": y})
    return b.build()


def without_outputs() -> bytes:
    """x + 2, in a signature that has no outputs."""
    b = ModelBuilder()
    x, y = b.tensor("x", (1, 8)), b.tensor("y", (1, 8))
    b.op("ADD", [x, b.tensor("c", (1,), data=[2.0])], [y], ("AddOptions", schema.AddOptionsT()))
    b.signature("serving_default", {"x": x}, {})
    return b.build()


def nothing_left() -> bytes:
    """y = 0 · x."""
    b = ModelBuilder()
    x, y = b.tensor("x", (1, 16)), b.tensor("y", (1, 16))
    b.op("MUL", [x, b.tensor("c", (1,), data=[0.0])], [y], ("MulOptions", schema.MulOptionsT()))
    b.signature("serving_default", {"x": x}, {"y": y})
    return b.build()


def of_any_height() -> bytes:
    """A dynamic first dimension of known rank, as converters write it."""
    tree = schema.ModelT.InitFromPackedBuf(build.dynamic_model(), 0)
    for tensor in tree.subgraphs[0].tensors:
        tensor.hasRank = True
    return build.packed(tree)


TWINS = {
    "wasm-nan": ("wasm", build.add_model((1, 16), constant=float("nan"))),
    "wasm-zeros": ("wasm", nothing_left()),
    "wasm-custom": ("wasm", build.custom_op_model((1, 16))),
    "wasm-garbage": ("wasm", b"<!doctype html><title>404</title>"),
}
"""What a backend is given instead of the model that names the fault."""

ALTERED_KERNELS = (
    "nan", "zeros", "scaled", "permuted", "unlike", "deaf", "partial-unlike", "noise", "not-wgsl",
)  # fmt: skip
FRESH: dict[str, Backend] = {
    # The runtime keeps compiled kernels: an altered one would be the next model's, too.
    **dict.fromkeys(ALTERED_KERNELS, "webgpu_mldrift"),
    # In a fresh page it need not hang twice.
    "wasm-hangs": "wasm_xnnpack",
}
"""Cases that get a page of their own on one backend."""

PASS = expected("pass")
FC = build.fully_connected_model((1, 16))
NO_OUTPUT = expected("run_failed", "no_output", "unknown")
UNPREPARED = {
    name: expected("load_failed", name)
    for name in ("fetch_failed", "checksum_mismatch", "parse_error")
}
DISAGREES = "reference_disagrees_with_desktop"

CASES: dict[str, Case] = {
    "as-it-is": Case(FC, expected("pass", against=("desktop",)),
                     expected("pass", against=("wasm", "desktop"))),
    # Kernels of the GPU that are wrong.
    "nan": Case(struck("nan"), PASS,
                expected("output_mismatch", "non_finite", "nan_gpu_only", "non_finite")),
    "zeros": Case(struck("zeros"), PASS,
                  expected("output_mismatch", None, "zero_output", "all_zero",
                           "input_independent")),
    "scaled": Case(struck("scaled"), PASS, expected("output_mismatch", None, "scale_error")),
    "permuted": Case(struck("permuted"), PASS,
                     expected("output_mismatch", None, "permuted_output")),
    "unlike": Case(struck("unlike"), PASS, expected("output_mismatch", None, "unknown")),
    "deaf": Case(struck("deaf"), PASS,
                 expected("output_mismatch", None, "unknown", "input_independent")),
    "partial": Case(build.log_softmax_model(), PASS, expected("fallback")),
    "partial-unlike": Case(struck("unlike", build.log_softmax_model()), PASS,
                           expected("output_mismatch", None, "partial_delegation")),
    "noise": Case(struck("noise", build.quantized_model()), PASS,
                  expected("output_mismatch", None, "quantization_noise")),
    "not-wgsl": Case(struck("not-wgsl"), PASS,
                     expected("output_mismatch", None, "gpu_validation_error", "all_zero",
                              "input_independent")),
    # A GPU that is right, but …
    "refused": Case(struck("refused"), PASS,
                    expected("run_failed", "backend_error", "gpu_validation_error")),
    "drifting": Case(struck("drifting"), PASS, expected("pass", None, None, "nondeterministic")),
    "silent-cpu": Case(struck("silent-cpu", FC), PASS,
                       expected("pass", None, None, "suspect_fallback")),
    "starved": Case(struck("starved"), PASS, expected("run_failed", "memory_ceiling", "unknown")),
    "late": Case(struck("late"), PASS, PASS, timed=True),
    # What models are.
    "float16": Case(cancelling_model(), PASS, expected("output_mismatch", None, "precision"),
                    precision="fp16"),
    "square-root": Case(build.square_root_model(),
                        expected("unverified", None, "nan_both", "non_finite"),
                        expected("unverified", None, "nan_both", "non_finite")),
    "nothing-left": Case(nothing_left(), expected("pass", None, None, "all_zero"),
                         expected("pass", None, None, "all_zero")),
    "custom": Case(build.custom_op_model(),
                   expected("run_failed", "run_error", "unknown", "desktop_failed"),
                   expected("load_failed", "compile_error", "unknown", "desktop_failed")),
    "any-height": Case(of_any_height(), expected("run_failed", "dynamic_shape", "unknown"),
                       expected("run_failed", "dynamic_shape", "unknown")),
    "without-outputs": Case(without_outputs(), NO_OUTPUT, NO_OUTPUT),
    "lost-outputs": Case(struck("lost-outputs"), NO_OUTPUT, NO_OUTPUT),
    # A wasm reference that is wrong beside a GPU that is right.
    "wasm-nan": Case(struck("wasm-nan"),
                     expected("output_mismatch", "non_finite", "unknown", "non_finite",
                              DISAGREES, "input_independent"),
                     expected("pass", None, None, DISAGREES, against=("desktop",))),
    "wasm-nan-alone": Case(struck("wasm-nan"), expected("unverified", None, None, "non_finite"),
                           expected("unverified", None, "reference_invalid"), desktop=False),
    "wasm-zeros": Case(struck("wasm-zeros"),
                       expected("output_mismatch", None, "zero_output", "all_zero", DISAGREES),
                       expected("pass", None, None, DISAGREES, against=("desktop",))),
    "wasm-zeros-alone": Case(struck("wasm-zeros"), expected("unverified", None, None, "all_zero"),
                             expected("unverified", None, "reference_invalid"), desktop=False),
    "wasm-custom": Case(struck("wasm-custom"), expected("run_failed", "run_error", "unknown"),
                        expected("pass", None, None, "reference_missing",
                                 against=("desktop",))),
    "wasm-custom-alone": Case(struck("wasm-custom"),
                              expected("run_failed", "run_error", "unknown"),
                              expected("unverified", None, "reference_invalid",
                                       "reference_missing"), desktop=False),
    "wasm-hangs": Case(struck("wasm-hangs"), expected("run_failed", "timeout", "unknown"),
                       expected("unverified", None, None, "reference_missing"), desktop=False,
                       seconds=4),
    "wasm-garbage": Case(struck("wasm-garbage"), expected("load_failed", "parse_error", "unknown"),
                         expected("pass", None, None, "reference_missing",
                                  against=("desktop",))),
    # Models that never come to the page.
    "no-such-file": Case(b"", UNPREPARED["fetch_failed"], UNPREPARED["fetch_failed"]),
    "another-file": Case(FC, UNPREPARED["checksum_mismatch"], UNPREPARED["checksum_mismatch"],
                         sha256="0" * 64),
    "no-model": Case(b"<!doctype html><title>404</title>", UNPREPARED["parse_error"],
                     UNPREPARED["parse_error"]),
}  # fmt: skip


def page_script() -> str:
    twins = {name: [on, base64.b64encode(data).decode()] for name, (on, data) in TWINS.items()}
    script = (TESTS / "live_faults.js").read_text("utf-8")
    assert script.count("const TWINS = {};") == 1
    return script.replace("const TWINS = {};", f"const TWINS = {json.dumps(twins)};")


async def measure_all(directory: Path) -> dict[str, Record]:
    core = await ensure_core("2.5.3", cache_dir())
    config = SweepConfig(core_version=core.version, latency=False, warmup_runs=1)
    async with open_bench(
        config,
        core,
        await find_browser(),
        machine_label="classes",
        init_script=page_script(),
    ) as bench:
        with ModelCache(directory / "cache") as cache:
            return {
                name: await measure_case(bench, directory, cache, name, case)
                for name, case in CASES.items()
            }


async def measure_case(
    bench: Bench, directory: Path, cache: ModelCache, name: str, case: Case
) -> Record:
    if case.model:
        (directory / f"{name}.tflite").write_bytes(case.model)
    entry = CatalogEntry(
        model_id=name, source=f"{name}.tflite", license="Apache-2.0", sha256=case.sha256
    )
    asked = bench.config.model_copy(
        update={
            "leg": Leg(precision=case.precision),
            "latency": case.timed,
            "timeouts": Timeouts(first_run=case.seconds) if case.seconds else Timeouts(),
        }
    )
    if name in FRESH:
        await bench.recycle(FRESH[name])
    # Its pages are the same ones: what differs here is said to them with every job.
    its_bench = dataclasses.replace(
        bench, config=asked, desktop=bench.desktop if case.desktop else None
    )
    ready = await prepare(entry, directory, asked, cache, FetchOptions())
    record = await measure_model(its_bench, ready, "2026-01-02")
    if name in FRESH:
        await bench.recycle(FRESH[name])
    return record


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    return asyncio.run(measure_all(tmp_path_factory.mktemp("classes")))


def said(result: Result) -> str:
    return f"{result.backend}: {result.status} {result.reason} {result.evidence}"


@pytest.mark.parametrize("name", CASES)
def test_the_result_says_what_was_done_to_it(records: dict[str, Record], name: str) -> None:
    for result, wanted in zip(
        records[name].results, (CASES[name].wasm, CASES[name].webgpu), strict=True
    ):
        found = (result.status, result.failure_class, result.cause)
        assert found == (wanted.status, wanted.failure_class, wanted.cause), said(result)
        assert set(result.flags) - SURROUNDINGS == wanted.flags, said(result)
        assert result.reason or result.status == "pass"
        if wanted.against is not None:
            assert result.verified_against == wanted.against, said(result)
        if result.status == "pass":
            assert result.verified_against, said(result)


def test_what_is_no_clean_pass_was_seen_in_a_fresh_page(records: dict[str, Record]) -> None:
    measured = [r for record in records.values() for r in record.results if r.evidence]
    doubtful = [r for r in measured if r.status != "pass" or SUSPICIOUS_FLAGS & set(r.flags)]
    assert len(doubtful) > 30
    for result in doubtful:
        assert result.fresh_page is True, said(result)
        assert result.confirmed is not False, said(result)
    # Those whose page had served other models before were measured twice.
    assert records["silent-cpu"].results[1].confirmed is True
    assert sum(r.confirmed is True for r in doubtful) > 5
    assert not any(r.confirmed for r in measured if r not in doubtful)


def test_facts_beside_the_verdicts(records: dict[str, Record]) -> None:
    nan = records["nan"].results[1]
    assert {c.facts.measured.nan for c in nan.comparisons} == {1}
    assert {c.facts.reference.nan for c in nan.comparisons} == {0}
    drift = records["drifting"].results[1]
    assert 0 < max(s.spread_max_abs or 0 for s in drift.stability) < 1e-5
    starved = records["starved"].results[1]
    assert {e.kind for e in starved.gpu_errors} == {"out-of-memory"}
    assert records["float16"].results[1].env.precision == "fp16"
    assert records["wasm-nan"].agrees_with == "webgpu"
    assert records["wasm-nan-alone"].agrees_with is None
    assert records["zeros"].agrees_with == "wasm"
    assert records["as-it-is"].agrees_with == "both"
    assert "NO_SUCH_OP" in (records["wasm-custom"].results[0].error or "")


def test_a_software_adapter_is_flagged(records: dict[str, Record]) -> None:
    webgpu = records["as-it-is"].results[1]
    assert ("software_adapter" in webgpu.flags) == (webgpu.env.adapter_class == "software")
    assert webgpu.env.adapter_class != "none"


def test_noisy_timing_is_flagged_where_something_was_timed(records: dict[str, Record]) -> None:
    wasm = records["late"].results[0]
    assert wasm.latency is not None
    assert max(wasm.latency.samples_ms) > 2 * min(wasm.latency.samples_ms)
    assert any("50 % above the median" in reason for reason in wasm.latency.noise)
    assert "noisy_timing" in wasm.flags
    untimed = [r for name in CASES if name != "late" for r in records[name].results]
    assert not [said(r) for r in untimed if "noisy_timing" in r.flags]


# The table above.


def table() -> dict[str, str]:
    rows = re.findall(r"^ {4}([a-z_]+)  +(\S.*)$", __doc__ or "", re.MULTILINE)
    assert len({name for name, _ in rows}) == len(rows)
    return dict(rows)


def strings(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def failure_classes() -> set[str]:
    """Every failure class that the source code can give."""
    found: set[str] = set()
    package = TESTS.parent / "sweep"
    for path in (package / n for n in ("failure.py", "classify.py", "prepare.py", "errors.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            given: list[ast.AST | None] = []
            if isinstance(node, ast.keyword) and node.arg == "failure_class":
                given = [node.value]
            elif isinstance(node, ast.FunctionDef) and node.name.startswith("_class_"):
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Return) and isinstance(inner.value, ast.IfExp):
                        given += [inner.value.body, inner.value.orelse]
                    elif isinstance(inner, ast.Return):
                        given.append(inner.value)
                    elif isinstance(inner, ast.Compare) and "error.kind" in ast.unparse(inner):
                        given += [c for c in inner.comparators if isinstance(c, ast.Tuple)]
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "Unprepared":
                given = [*node.args]
            for value in given:
                if value is not None:
                    found |= set(strings(value))
    return found


def test_failure_classes_are_found_in_the_source() -> None:
    found = failure_classes()
    assert {"compile_error", "timeout", "non_finite", "parse_error", "device_lost"} <= found
    assert all(re.fullmatch("[a-z_]+", name) for name in found), found


def test_everything_that_a_record_can_say_has_its_place_in_the_table() -> None:
    names: set[str] = {*STATUSES, *get_args(Cause), *get_args(Flag), *failure_classes()}
    assert names <= set(table())


def test_the_table_tells_the_truth() -> None:
    seen: set[Any] = set(SURROUNDINGS)
    for case in CASES.values():
        for wanted in (case.wasm, case.webgpu):
            seen |= {wanted.status, wanted.failure_class, wanted.cause, *wanted.flags}
    for name, where in table().items():
        if where == "here":
            assert name in seen, name
            continue
        file, part = where.split()
        tree = ast.parse((TESTS / file).read_text("utf-8"))
        tests = [
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name.startswith("test_")
        ]
        assert any(part in test for test in tests), f"{name}: no test {part!r} in {file}"

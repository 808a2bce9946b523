"""Every status, failure class, cause and flag, come about in a real browser.

Models whose description names a fault of `live_faults.js` are struck by it in the page: the GPU
runs an altered kernel, one backend is given another model, a read is late, an upload goes astray.
The other models are what they are. All share one bench, as in a sweep.

What is seen where (`here`: a case of `live_cases.py`; else part of the name of a test in a file):

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
from pathlib import Path
from typing import Any, get_args

import pytest

from sweep.bench import Bench, open_bench
from sweep.browser import find_browser
from sweep.catalog import CatalogEntry
from sweep.classify import SUSPICIOUS_FLAGS
from sweep.config import Leg, SweepConfig, Timeouts
from sweep.measure import measure_model
from sweep.paths import cache_dir
from sweep.prepare import prepare
from sweep.record import STATUSES, Cause, Flag, Record, Result
from sweep.runtime import ensure_core
from sweep.sources import FetchOptions, ModelCache
from tests.live_cases import CASES, FRESH, TWINS, Case

browser = pytest.mark.browser

TESTS = Path(__file__).parent
SURROUNDINGS = {"software_adapter", "noisy_timing"}
"""Flags that speak of the machine."""


def page_script() -> str:
    """The faults, with the models that are given instead of others."""
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


@browser
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


@browser
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


@browser
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


@browser
def test_a_software_adapter_is_flagged(records: dict[str, Record]) -> None:
    webgpu = records["as-it-is"].results[1]
    assert ("software_adapter" in webgpu.flags) == (webgpu.env.adapter_class == "software")
    assert webgpu.env.adapter_class != "none"


@browser
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

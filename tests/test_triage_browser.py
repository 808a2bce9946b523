"""Whole triages in a real headless Chromium: a fault of the release, and faults put into a page.

The injected ones change one WGSL shader, or one buffer, of a real run: a fault that only fused
operators show, NaN from a width on, and a result that changes from run to run.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from sweep.bench import open_bench
from sweep.browser import find_browser
from sweep.config import Leg, SweepConfig
from sweep.paths import cache_dir
from sweep.runtime import ensure_core
from sweep.triage.accuse import Accusation
from sweep.triage.findings import Report
from sweep.triage.graph import read
from sweep.triage.triage import Request, triage
from sweep.triage.write import write_report
from tests import tflite_builder as build

pytestmark = pytest.mark.browser

Found = tuple[Report, tuple[Accusation, ...]]


def altered_shader(condition: str, change: str) -> str:
    """An init script that changes the WGSL of the shaders that meet a condition."""
    return f"""
      const make = GPUDevice.prototype.createShaderModule;
      GPUDevice.prototype.createShaderModule = function (descriptor) {{
        const code = descriptor.code;
        if (!({condition})) return make.call(this, descriptor);
        return make.call(this, {{...descriptor, code: {change}}});
      }};
    """


FUSED_ONLY = altered_shader(
    "code.includes('exp(') && code.includes('sin(')", "code.replace('sin(', 'cos(')"
)
NAN_FROM_WIDTH_6 = altered_shader(
    "/[^a-z]exp\\(/.test(code)",
    "code.replace(/([^a-z])exp\\((\\w+)\\)/g, "
    "'$1select(exp($2), sqrt(-1.0 - abs($2)), vec4<bool>(X >= 5))')",
)
EVERY_OTHER_READBACK = """
  let readbacks = 0;
  const mapped = GPUBuffer.prototype.getMappedRange;
  GPUBuffer.prototype.getMappedRange = function (...range) {
    const bytes = mapped.apply(this, range);
    if ((this.usage & GPUBufferUsage.MAP_READ) && readbacks++ % 2 === 1) {
      new Float32Array(bytes, 0, 1)[0] += 1;
    }
    return bytes;
  };
"""


def chain(*ops: str, shape: tuple[int, ...] = (1, 4, 8, 4)) -> bytes:
    """y = … op₂(op₁(x)); MUL multiplies by x."""
    b = build.ModelBuilder()
    tensors = [b.tensor(f"t{i}", shape) for i in range(len(ops) + 1)]
    for i, op in enumerate(ops):
        if op == "MUL":
            b.op(op, [tensors[i], tensors[0]], [tensors[i + 1]], schema.MulOptionsT())
        else:
            b.op(op, [tensors[i]], [tensors[i + 1]])
    b.signature("serving_default", {"x": tensors[0]}, {"y": tensors[-1]})
    return b.build()


def flattening() -> bytes:
    """y = FULLY_CONNECTED(|x|, W, b) of a 2×2 image, then a 2-D FULLY_CONNECTED: one is wrong."""
    rng = np.random.default_rng(5)
    b = build.ModelBuilder()
    x, a = b.tensor("x", (1, 2, 2, 4)), b.tensor("a", (1, 2, 2, 4))
    w, h = b.tensor("w", (6, 16), data=rng.standard_normal((6, 16))), b.tensor("h", (1, 6))
    v, y = b.tensor("v", (3, 6), data=rng.standard_normal((3, 6))), b.tensor("y", (1, 3))
    b.op("ABS", [x], [a])
    for inputs, output in (([a, w, -1], h), ([h, v, -1], y)):
        b.op("FULLY_CONNECTED", inputs, [output], schema.FullyConnectedOptionsT())
    b.signature("serving_default", {"x": x}, {"y": y})
    return b.build()


def triaged(folder: Path, data: bytes, script: str | None = None, **options: Any) -> Found:
    """A triage of 2.5.3 without the ladder."""

    async def work() -> Found:
        (folder / "m.tflite").write_bytes(data)
        core = await ensure_core("2.5.3", cache_dir())
        config = SweepConfig(
            core_version="2.5.3", latency=False, warmup_runs=1, input_sets=2, **options
        )
        request = Request(
            source="./m.tflite",
            model_id="m",
            backend="webgpu_mldrift",
            config=config,
            date="2026-01-02",
            minutes=2,
            climb=False,
        )
        choice = await find_browser()
        async with open_bench(
            config, core, choice, machine_label="test", init_script=script
        ) as bench:
            return await triage(bench, request, base_dir=folder)

    return asyncio.run(work())


@pytest.fixture(scope="module")
def flattened(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return triaged(tmp_path_factory.mktemp("flatten"), flattening())


def test_the_operator_that_is_wrong_is_named_and_its_right_neighbours_too(flattened: Found) -> None:
    report, found = flattened
    assert report.reproduced
    assert report.stable
    assert [c.node_indices for c in report.culprits] == [(1,)]
    culprit = report.culprits[0]
    assert (culprit.op, culprit.confidence) == ("FULLY_CONNECTED", "high")
    assert culprit.repro.operators == 1
    assert culprit.repro.status == "output_mismatch"
    assert culprit.repro.wasm_status == "pass"
    (shape,) = culprit.repro.inputs.values()
    assert len(shape) == 4
    assert shape[1] * shape[2] > 1
    outcome = {c.name: c.status for c in culprit.repro.controls}
    assert outcome["2-D input"] == outcome["1×1 spatial"] == "pass"
    assert report.arbitration is not None
    assert report.arbitration.alone == "webgpu"
    assert report.singles_run == 3
    assert report.singles_right == 2
    assert len(found[0].files.data) < 1500


def test_part_of_the_input_is_seen_to_be_never_read(flattened: Found) -> None:
    (dependence,) = flattened[0].culprits[0].repro.dependence
    assert dependence.measured_uses < dependence.reference_uses == dependence.elements
    assert all(index[1:3] != (0, 0) for index in dependence.unused)


def test_the_error_along_the_graph_turns_at_the_culprit(flattened: Found) -> None:
    exposed = {e.position: e.grade for e in flattened[0].error_along_graph if e.how == "exposed"}
    assert exposed[0] in ("exact", "rounding")
    assert {exposed[1], exposed[2]} <= {"divergent", "broken"}


def test_what_is_written_is_whole_and_says_nothing_of_this_machine(
    flattened: Found, tmp_path: Path
) -> None:
    report, found = flattened
    write_report(report, found, tmp_path / "m", Leg())
    names = {p.relative_to(tmp_path / "m").as_posix() for p in (tmp_path / "m").rglob("*.*")}
    assert {"report.html", "report.md", "report.json", "repro.tflite", "repro.html", "README.md",
            "inputs/set0-0.npy", "expected/set1-0.npy"} <= names  # fmt: skip
    texts = [p.read_text() for p in (tmp_path / "m").glob("*.*") if p.suffix != ".tflite"]
    assert not any(str(tmp_path) in text or str(Path.cwd()) in text for text in texts)
    assert "<script" not in (tmp_path / "m/report.html").read_text()
    assert Report.model_validate_json((tmp_path / "m/report.json").read_text()) == report
    x = np.load(tmp_path / "m/inputs/set0-0.npy")
    expected = np.load(tmp_path / "m/expected/set0-0.npy")
    graph = read(tmp_path / "m/repro.tflite")
    assert x.shape == graph.tensors[graph.inputs[0]].shape
    assert expected.shape == graph.tensors[graph.outputs[0]].shape


def test_a_fault_of_fused_operators_takes_all_of_them(tmp_path: Path) -> None:
    model = chain("ABS", "SQRT", "EXP", "MUL", "SIN", "NEG")
    report, _ = triaged(tmp_path, model, FUSED_ONLY)
    assert report.status == "output_mismatch"
    assert report.exposure is not None
    assert report.exposure.effect == "heals"
    assert report.singles_right == report.singles_run > 0
    culprit = report.culprits[0]
    assert culprit.confidence == "medium"
    assert {"EXP", "SIN"} <= set(culprit.op.split(" + "))
    assert len(culprit.node_indices) <= 3
    assert any("fusion" in line for line in report.inferred)


def test_nan_from_a_size_on_is_shrunk_to_that_size(tmp_path: Path) -> None:
    report, _ = triaged(tmp_path, chain("ABS", "EXP", "SIN", shape=(1, 2, 7, 1)), NAN_FROM_WIDTH_6)
    culprit = report.culprits[0]
    assert culprit.op == "EXP"
    assert culprit.repro.pattern == "nan"
    (shape,) = culprit.repro.inputs.values()
    assert sorted(shape)[-1] == 6
    assert sorted(shape)[:-1] == [1, 1, 1]
    smaller = [c for c in culprit.repro.controls if c.name == "smaller"]
    assert {c.status for c in smaller} == {"pass"}


def test_a_result_that_changes_from_run_to_run_is_called_nondeterministic(tmp_path: Path) -> None:
    report, _ = triaged(tmp_path, chain("SIN", shape=(1, 4)), EVERY_OTHER_READBACK)
    assert report.status == "output_mismatch"
    assert report.stable is False
    assert any("nondeterministic" in line for line in report.observed)


def test_an_operator_that_stays_on_the_cpu(tmp_path: Path) -> None:
    report, _ = triaged(tmp_path, build.log_softmax_model())
    assert (report.kind, report.status) == ("fallback", "fallback")
    assert report.delegation is not None
    assert [o.op for o in report.delegation.on_cpu] == ["LOG_SOFTMAX"]
    assert report.delegation.transfers == 1
    assert report.culprits[0].repro.operators == 1
    assert any("LOG_SOFTMAX: " in line for line in report.culprits[0].evidence)


def test_the_smallest_prefix_that_fails(tmp_path: Path) -> None:
    b = build.ModelBuilder()
    x, m, n, y = (b.tensor(name, (1, 4)) for name in ("x", "m", "n", "y"))
    b.op("SIN", [x], [m])
    b.op("NO_SUCH_OP", [m], [n])
    b.op("COS", [n], [y])
    b.signature("serving_default", {"x": x}, {"y": y})
    report, _ = triaged(tmp_path, b.build())
    assert report.kind == "failure"
    assert report.boundary is not None
    assert "operator 1 (NO_SUCH_OP)" in report.boundary
    assert [c.node_indices for c in report.culprits] == [(1,)]
    assert report.culprits[0].repro.status == report.status


def test_a_healthy_model_has_no_culprit(tmp_path: Path) -> None:
    report, found = triaged(tmp_path, build.add_model())
    assert (report.kind, report.reproduced, report.culprits, found) == ("none", False, (), ())

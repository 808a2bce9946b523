"""The few rules that the dashboard has in JavaScript too, held against the Python they repeat."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweep.console import page_patterns, read_console
from sweep.mulberry import tensor_1_0
from sweep.paths import resource_dir
from sweep.protocol import ConsoleLine
from sweep.record import STATUSES, Record
from sweep.releases.diff import diff_sweeps
from sweep.views.site_environment import EnvironmentTable
from sweep.views.site_index import build_index
from sweep.views.site_summary import summarise
from tests.make_records import make_record

SOURCE = resource_dir("static") / "src"


def _node(script: str, given: object, tmp_path: Path) -> Any:
    """Run a module that exports `answer(given)`."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on PATH")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    for name in ("transition.js", "check/inputs.js", "check/console.js", "check/compare.js"):
        (tmp_path / Path(name).name).write_text((SOURCE / name).read_text("utf-8"))
    (tmp_path / "given.json").write_text(json.dumps(given))
    (tmp_path / "main.js").write_text(
        "import {readFileSync} from 'node:fs';\n" + script +
        "\nconst given = JSON.parse(readFileSync('given.json', 'utf8'));"
        "\nconsole.log(JSON.stringify(answer(given)));\n"
    )  # fmt: skip
    done = subprocess.run([node, "main.js"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_transitions(tmp_path: Path) -> None:
    """Every pair of statuses, with other classes, model files, inputs and tolerances."""
    cases = []
    days = (date(2026, 1, 1), date(2026, 2, 1))
    twists: tuple[dict[str, Any], ...] = (
        {}, {"file": "f" * 64}, {"rule": "other"}, {"tolerance": 1e-2}, {"class": "fetch_failed"},
        {"class": "timeout"}, {"class": None},
    )  # fmt: skip
    for old, new in itertools.product(STATUSES, STATUSES):
        for twist in twists:
            before = make_record("m", core="2.5.2", day=days[0], statuses=("pass", old))
            after = make_record("m", core="2.5.3", day=days[1], statuses=("pass", new))
            if "file" in twist:
                after["model"]["sha256"] = twist["file"]
            if "rule" in twist:
                after["inputs"][0]["rule"] = twist["rule"]
            if "tolerance" in twist:
                after["config"]["tolerance_rel"] = twist["tolerance"]
            if "class" in twist:
                after["results"][1]["failure_class"] = twist["class"]
            cases.append((Record.model_validate(before), Record.model_validate(after)))
    given, expected = [], []
    for first, second in cases:
        table = EnvironmentTable()
        places = (f"2.5.2/{days[0]}/m", f"2.5.3/{days[1]}/m")
        index = build_index(
            [summarise(first, places[0], table), summarise(second, places[1], table)], table
        )
        head = index.files["index"]
        given.append(
            {
                "statuses": head["statuses"],
                "classes": head["classes"],
                "sides": [index.files["slice/0"], index.files["slice/1"]],
            }
        )
        found = {c.backend: c.kind for c in diff_sweeps([first], [second]).statuses}
        expected.append(found.get("webgpu_mldrift", "same"))
    script = """
import {transition} from './transition.js';
const side = (s) => ({...s, status: [...s.status].map(Number)});
const answer = (list) => list.map((g) => transition(g, ...g.sides.map(side), 1));
"""
    assert _node(script, given, tmp_path) == expected
    kinds = {"regression", "improvement", "failure_class", "unclear", "unavailable", "same"}
    assert set(expected) == kinds


def test_inputs(tmp_path: Path) -> None:
    script = """
import {makeInput} from './inputs.js';
const answer = (list) => list.map(([n, shape, type]) => [...makeInput(42, n, shape, type)]);
"""
    cases = [(0, (3, 5), "float32"), (1, (40,), "int32"), (2, (2, 2, 9), "uint8")]
    for (n, shape, dtype), values in zip(cases, _node(script, cases, tmp_path), strict=True):
        assert np.array_equal(tensor_1_0(42, n, shape, dtype).ravel(), np.array(values, dtype))


LINES = [
    "INFO: Created TensorFlow Lite XNNPACK delegate for CPU.",
    "E0813 06:04:13.123456   12 interpreter.cc:70] Failed to allocate tensors 0x7ffe12",
    "ERROR: Following operations are not supported by GPU delegate:\n"
    "SCATTER_ND: Operation is not supported.\n"
    "66 operations will run on the GPU, and the remaining 138 operations will run on the CPU.",
    "ERROR: Node number 3 (ADD) failed to prepare.",
    "Restored original execution plan after delegate application failure.",
    "WARNING: [npu_registry.cc:34] NPU accelerator could not be loaded.",
    "[Invalid CommandBuffer] is invalid due to a previous error.",
    "%c[LiteRT]%c Model not fully compiled for webgpu. Partially delegating to WASM execution."
    " background: #FFA000; color: black; font-weight: bold;",
    "ERROR: Encountered unresolved custom op: DISPATCH_OP.",
    "plain chatter",
]


def test_console(tmp_path: Path) -> None:
    script = """
import {readConsole} from './console.js';
const answer = ({lines, patterns}) => readConsole(lines, patterns);
"""
    for stage in ("load", "first_run"):
        lines = [{"level": "error", "text": text, "stage": stage} for text in LINES]
        facts = read_console(ConsoleLine.model_validate(line) for line in lines)
        found = _node(script, {"lines": lines, "patterns": page_patterns()}, tmp_path)
        assert found["fatal"] == [line.text for line in facts.fatal]
        assert found["fatal"], "a case without a fatal line would prove nothing"
        assert found["invalid"] == [line.text for line in facts.gpu_validation]
        assert [e["text"] for e in found["evidence"]] == [e.text for e in facts.evidence]
        delegation = facts.delegation
        assert (found["gpu"], found["cpu"]) == (delegation.ops_on_gpu, delegation.ops_on_cpu)
        assert found["fallback"] is delegation.fallback is True
        assert [u["op"] for u in found["unsupported"]] == [u.op for u in delegation.unsupported]

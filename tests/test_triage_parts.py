"""Parts of the triage that need no browser: resizing, folding, borders, ladder, report texts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from sweep.console import read_console
from sweep.model import inspect_model
from sweep.protocol import Measurement
from sweep.reference import DesktopWorker, Kernels, desktop_worker
from sweep.triage import graph as graphs
from sweep.triage.controls import variants
from sweep.triage.delegation import borders
from sweep.triage.fault import Fault, gist, trial_showing
from sweep.triage.findings import Rung, TensorError
from sweep.triage.fold import fold_all
from sweep.triage.lab import Trial
from sweep.triage.ladder import batched, first_bad_release, summarise
from sweep.triage.plot import error_plot
from sweep.triage.resize import SizeRule, fed_shapes, resized, with_input_shapes
from sweep.triage.subject import Subject, draw, open_subject
from sweep.verdict import Verdict
from tests.tflite_builder import ModelBuilder, dynamic_model, fully_connected_model

Array = np.ndarray[Any, np.dtype[Any]]
FLOAT, INT8 = schema.TensorType.FLOAT32, schema.TensorType.INT8


@pytest.fixture
async def worker() -> AsyncIterator[DesktopWorker]:
    async with desktop_worker() as started:
        yield started


async def run(worker: DesktopWorker, folder: Path, data: bytes, **inputs: Array) -> Array | str:
    path = folder / "model.tflite"
    path.write_bytes(data)
    given = await worker.run(path, {"serving_default": inputs})
    if given.status != "ok":
        return given.error or ""
    return next(iter(given.outputs["serving_default"].values()))


async def test_a_size_that_a_flatten_made_follows_the_size_it_was_made_of(
    worker: DesktopWorker, tmp_path: Path
) -> None:
    data = fully_connected_model((1, 2, 2, 4))
    smaller = resized(data, SizeRule(old=4, new=1, multiples=1))
    assert smaller is not None
    assert fed_shapes(smaller) == {"x": (1, 2, 2, 1)}
    x = np.ones((1, 2, 2, 1), np.float32)
    value = await run(worker, tmp_path, smaller, x=x)
    # The weights are the first 4 of 16 columns, and the bias stays.
    rng = np.random.default_rng(7)
    w = rng.standard_normal((3, 16)).astype(np.float32)
    b = rng.standard_normal(3).astype(np.float32)
    assert isinstance(value, np.ndarray)
    np.testing.assert_allclose(value, (w[:, :4].sum(axis=1) + b)[None], rtol=1e-5)


def test_a_rule_that_changes_nothing_gives_no_model() -> None:
    assert resized(fully_connected_model((1, 2, 2, 4)), SizeRule(old=9, new=1)) is None


async def test_one_axis_alone_can_be_made_smaller(worker: DesktopWorker, tmp_path: Path) -> None:
    rule = SizeRule(old=2, new=1, multiples=1, axis=1)
    smaller = resized(fully_connected_model((1, 2, 2, 4)), rule)
    assert smaller is not None
    assert fed_shapes(smaller) == {"x": (1, 1, 2, 4)}
    value = await run(worker, tmp_path, smaller, x=np.ones((1, 1, 2, 4), np.float32))
    assert isinstance(value, np.ndarray)


async def test_inputs_take_other_shapes_without_touching_the_rest(
    worker: DesktopWorker, tmp_path: Path
) -> None:
    data = fully_connected_model((1, 2, 2, 4))
    x = np.arange(16, dtype=np.float32)
    flat = await run(worker, tmp_path, with_input_shapes(data, {"x": (1, 16)}), x=x.reshape(1, 16))
    deep = await run(worker, tmp_path, data, x=x.reshape(1, 2, 2, 4))
    np.testing.assert_array_equal(flat, deep)


def test_variants_hold_the_same_elements_and_differ_from_the_shape() -> None:
    found = dict(variants((1, 3, 3, 64)))
    assert found["2-D input"] == (1, 576)
    assert found["1×1 spatial"] == (1, 1, 1, 576)
    assert (1, 3, 3, 64) not in found.values()
    assert dict(variants((2, 8))) == {"1×1 spatial": (2, 1, 1, 8), "rank 4": (1, 1, 2, 8)}


def dequantized_model() -> bytes:
    """y = x · w, with w kept as float16 and dequantized in the graph."""
    b = ModelBuilder()
    x, w, y = b.tensor("x", (1, 2)), b.tensor("w", (1, 2)), b.tensor("y", (1, 2))
    half = b.tensor("half", (1, 2), "float16", data=[3.0, -0.5])
    b.op("DEQUANTIZE", [half], [w], schema.DequantizeOptionsT())
    b.op("MUL", [x, w], [y], schema.MulOptionsT())
    b.signature("serving_default", {"x": x}, {"y": y})
    return b.build()


async def test_folding_stores_what_the_graph_would_prepare(
    worker: DesktopWorker, tmp_path: Path
) -> None:
    class DesktopOnly:
        """The one thing that folding asks of a lab."""

        async def desktop(self, data: bytes, inputs: Any, *, kernels: Kernels) -> Any:
            path = tmp_path / "part.tflite"
            path.write_bytes(data)
            return dict((await worker.run(path, inputs, kernels=kernels)).outputs)

    data = dequantized_model()
    x = np.array([[2.0, 4.0]], np.float32)
    given = {"serving_default": {"x": x}}
    smaller = await fold_all(DesktopOnly(), data, given)  # type: ignore[arg-type]
    assert smaller is not None
    assert [n.op for n in graphs.read(smaller).nodes] == ["MUL"]
    np.testing.assert_array_equal(await run(worker, tmp_path, smaller, x=x), [[6.0, -2.0]])
    assert await fold_all(DesktopOnly(), smaller, given) is None  # type: ignore[arg-type]


def chain(*ops: str) -> bytes:
    b = ModelBuilder()
    tensors = [b.tensor(f"t{i}", (1, 4)) for i in range(len(ops) + 1)]
    for i, op in enumerate(ops):
        b.op(op, [tensors[i]], [tensors[i + 1]])
    b.signature("serving_default", {"x": tensors[0]}, {"y": tensors[-1]})
    return b.build()


@pytest.mark.parametrize(
    ("on_cpu", "expected"),
    [
        ([], (1, 0, 0)),
        ([1], (2, 2, 32)),
        ([0, 3], (1, 2, 32)),
        ([0, 1, 2, 3], (0, 0, 0)),
        ([0, 2], (2, 3, 48)),
    ],
)
def test_borders_between_gpu_and_cpu(on_cpu: list[int], expected: tuple[int, int, int]) -> None:
    graph = graphs.read(chain("EXP", "SIN", "COS", "ABS"))
    assert borders(graph, on_cpu) == expected


def rung(version: str, status: Any, changes: bool | None) -> Rung:
    return Rung(
        name=f"core {version}",
        changed="core version",
        status=status,
        nrmse=None,
        changes_outcome=changes,
    )


def test_the_first_bad_release_follows_a_good_one() -> None:
    bad, good = ("output_mismatch", False), ("pass", True)
    rungs = [rung("0.2.1", *good), rung("2.0.0", *bad), rung("2.10.0", *good)]
    assert first_bad_release(rungs, "2.5.3") == "2.0.0"
    assert first_bad_release([rung("2.0.0", *bad)], "2.5.3") is None
    # A release that cannot load the model says nothing about its values.
    assert first_bad_release([rung("2.0.0", "load_failed", True)], "2.5.3") is None
    assert "Right with: core 0.2.1, core 2.10.0." in summarise(rungs, "2.5.3").statement
    other = summarise([rung("2.0.0", "load_failed", True)], "2.5.3").statement
    assert "core 2.0.0 (load_failed)" in other
    assert "Right" not in other


def test_a_message_is_known_again_in_a_smaller_model() -> None:
    one = "Error: ERROR: [core/src/litert_web.cc:245]\nNode number 12 (EXP) failed to prepare."
    two = "Error: ERROR: [core/src/litert_web.cc:99]\nNode number 3 (EXP) failed to prepare."
    assert gist(one) == gist(two)
    assert gist(one) != gist(one.replace("EXP", "SIN"))


def test_the_plot_says_where_it_begins_and_escapes_names() -> None:
    def point(position: int, grade: str, nrmse: float | None) -> TensorError:
        return TensorError(
            position=position, tensor=position, name="<b>&", op="EXP", nrmse=nrmse, max_abs=0,
            grade=grade, how="exposed",
        )  # fmt: skip

    svg = error_plot([point(0, "rounding", 1e-7), point(1, "broken", None)], 1)
    assert "1 are wrong, the first after operator 1 (EXP)" in svg
    assert "<b>" not in svg
    assert svg.count('class="bad"') == 1
    assert error_plot([]) == ""


def subject_of(folder: Path, data: bytes) -> Subject:
    path = folder / "m.tflite"
    path.write_bytes(data)
    facts = inspect_model(path)
    sets = draw(folder, data, "m", 42, 2)
    return open_subject(path, facts, facts.signatures[0].key, sets, 42)


def test_two_inputs_become_a_batch_where_the_first_dimension_is_open(tmp_path: Path) -> None:
    made = batched(subject_of(tmp_path, dynamic_model()))
    assert made is not None
    data, sets = made
    assert fed_shapes(data) == {"x": (2, 4)}
    assert sets[0]["serving_default"]["x"].shape == (2, 4)
    assert batched(subject_of(tmp_path, fully_connected_model((1, 16)))) is None


def test_a_part_takes_along_what_the_page_cannot_be_fed(tmp_path: Path) -> None:
    b = ModelBuilder()
    x, y = b.tensor("x", (1, 4)), b.tensor("y", (1, 4))
    small, back = b.tensor("small", (1, 4), "int8"), b.tensor("back", (1, 4))
    b.op("SIN", [x], [y])
    for source, target, pair in ((y, small, (FLOAT, INT8)), (small, back, (INT8, FLOAT))):
        b.op("CAST", [source], [target], schema.CastOptionsT(*pair))
    b.signature("serving_default", {"x": x}, {"out": back})
    subject = subject_of(tmp_path, b.build())
    part = subject.part((2,))
    assert part is not None
    # The page takes no int8, so the CAST that makes it comes along, and its float input is drawn.
    assert part.operators == (1, 2)
    assert part.invented
    assert subject.parents(back) == (y,)


class TwoSided:
    """Stands for a lab whose two backends come out as told."""

    def __init__(self, webgpu: Any, wasm: Any) -> None:
        self.statuses = {"webgpu_mldrift": webgpu, "wasm_xnnpack": wasm}
        self.wasm_agrees = True

    async def run(self, model: bytes, sets: Any) -> Trial:
        return a_trial(self.statuses["webgpu_mldrift"])

    async def wasm_right(self, model: bytes, sets: Any) -> bool:
        return bool(self.statuses["wasm_xnnpack"] == "pass")


def a_trial(status: Any) -> Trial:
    verdict = Verdict(status=status, reason="", loads=True, runs=True)
    measured = Measurement(backend="webgpu_mldrift", reached="outputs")
    return Trial(verdict, measured, read_console(()), None, None, None)


@pytest.mark.parametrize(
    ("webgpu", "wasm", "shown"),
    [
        ("output_mismatch", "pass", True),
        # Both are off: another fault, or a model on which the references part.
        ("output_mismatch", "output_mismatch", False),
        ("pass", "pass", False),
    ],
)
async def test_a_smaller_model_must_keep_the_fault_on_one_side(
    webgpu: str, wasm: str, shown: bool
) -> None:
    lab: Any = TwoSided(webgpu, wasm)
    fault = Fault(kind="mismatch", status="output_mismatch")
    assert (await trial_showing(lab, fault, b"", ()) is not None) == shown

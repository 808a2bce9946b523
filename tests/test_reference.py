from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from ai_edge_litert import schema_py_generated as schema

from sweep import reference
from sweep.reference import DesktopWorker, desktop_worker, measure_noise_floor, perturb
from tests.graphs import Graph, Operator, Tensor, add, loop, pack, sine


def crashing() -> bytes:
    """A branch that is itself: the interpreter overflows its stack while it prepares."""
    graph = Graph(
        [
            Tensor("x", [2]),
            Tensor("c", [1], "bool", np.array([True])),
            Tensor("y", [2]),
        ],
        [Operator("IF", [1, 0], [2], schema.IfOptionsT(thenSubgraphIndex=1, elseSubgraphIndex=1))],
        [0],
        [2],
    )
    return pack(graph, graph)


def endless() -> bytes:
    """while 0 < 1: x += 1."""
    always = Graph(
        [
            Tensor("x", [2]),
            Tensor("zero", [1], data=np.zeros(1, np.float32)),
            Tensor("one", [1], data=np.ones(1, np.float32)),
            Tensor("c", [1], "bool"),
        ],
        [Operator("LESS", [1, 2], [3], schema.LessOptionsT())],
        [0],
        [3],
    )
    return pack(loop(1, 2, [2]), always, add(1))


X = {"x": np.array([0.5, -2.0], np.float32)}


@pytest.fixture
async def worker() -> AsyncIterator[DesktopWorker]:
    async with desktop_worker() as started:
        yield started


def write(directory: Path, data: bytes) -> Path:
    path = directory / "model.tflite"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("kernels", ["xnnpack", "builtin"])
async def test_runs_a_model_without_signatures_under_its_tensor_names(
    worker: DesktopWorker, tmp_path: Path, kernels: reference.Kernels
) -> None:
    path = write(tmp_path, pack(add(3)))
    run = await worker.run(path, {"": X}, kernels=kernels)
    assert (run.status, run.error, run.package) == ("ok", None, "ai-edge-litert")
    assert run.version is not None
    np.testing.assert_array_equal(run.outputs[""]["y"], np.array([3.5, 1.0], np.float32))


async def test_runs_every_signature_under_the_signatures_own_names(
    worker: DesktopWorker, tmp_path: Path
) -> None:
    data = pack(
        add(1)._replace(signature=("one", {"a": 0}, {"r": 2})),
        add(10)._replace(signature=("ten", {"b": 0}, {"s": 2})),
    )
    path = write(tmp_path, data)
    run = await worker.run(path, {"one": {"a": X["x"]}, "ten": {"b": X["x"]}})
    assert run.outputs["one"]["r"].tolist() == [1.5, -1.0]
    assert run.outputs["ten"]["s"].tolist() == [10.5, 8.0]


async def test_inputs_with_one_name_are_told_apart_as_the_inspection_does(
    worker: DesktopWorker, tmp_path: Path
) -> None:
    difference = Graph(
        [Tensor(name, [2]) for name in "xxy"],
        [Operator("SUB", [0, 1], [2], schema.SubOptionsT())],
        [0, 1],
        [2],
    )
    path = write(tmp_path, pack(difference))
    run = await worker.run(path, {"": {"x": X["x"], "x#2": np.ones(2, np.float32)}})
    assert run.outputs[""]["y"].tolist() == [-0.5, -3.0]


async def test_a_dynamic_dimension_takes_the_shape_of_the_value(
    worker: DesktopWorker, tmp_path: Path
) -> None:
    path = write(tmp_path, pack(sine([1, 3], [-1, 3])))
    x = np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)
    run = await worker.run(path, {"": {"x": x}})
    np.testing.assert_allclose(run.outputs[""]["y"], np.sin(x), atol=1e-6)


async def test_large_outputs_outlive_their_files(worker: DesktopWorker, tmp_path: Path) -> None:
    path = write(tmp_path, pack(sine([1000, 1000])))
    x = np.random.default_rng(0).uniform(-1, 1, (1000, 1000)).astype(np.float32)
    run = await worker.run(path, {"": {"x": x}})
    assert not list(worker.directory.iterdir())
    np.testing.assert_allclose(run.outputs[""]["y"], np.sin(x), atol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({"": {"z": X["x"]}}, "'x'"),
        ({"nope": X}, "no signature 'nope'"),
        ({"": {"x": np.zeros(2, np.int32)}}, "INT32"),
    ],
)
async def test_inputs_that_do_not_fit_are_refused_with_the_reason(
    worker: DesktopWorker, tmp_path: Path, inputs: reference.Inputs, reason: str
) -> None:
    run = await worker.run(write(tmp_path, pack(add(1))), inputs)
    assert run.status == "failed"
    assert reason in (run.error or "")
    assert run.outputs == {}


async def test_a_custom_operator_is_a_failure_that_names_it(
    worker: DesktopWorker, tmp_path: Path
) -> None:
    twirl = add(1)._replace(operators=[Operator("Twirl", [0, 1], [2])])
    run = await worker.run(write(tmp_path, pack(twirl)), {"": X})
    assert run.status == "failed"
    assert "unresolved custom op: Twirl" in (run.error or "")


async def test_bytes_that_are_no_model_are_a_failure(worker: DesktopWorker, tmp_path: Path) -> None:
    run = await worker.run(write(tmp_path, b"<html>404</html>"), {"": X})
    assert run.status == "failed"
    assert run.error


async def test_a_crash_is_survived_and_the_next_run_is_right(
    worker: DesktopWorker, tmp_path: Path
) -> None:
    run = await worker.run(write(tmp_path, crashing()), {"": X}, timeout=60)
    assert run.status == "crashed"
    assert "died (" in (run.error or "")
    if os.name == "posix":
        assert "SIGSEGV" in (run.error or "")
    again = await worker.run(write(tmp_path, pack(add(3))), {"": X})
    assert again.outputs[""]["y"].tolist() == [3.5, 1.0]


async def test_a_hang_is_ended_by_the_timeout(worker: DesktopWorker, tmp_path: Path) -> None:
    run = await worker.run(write(tmp_path, endless()), {"": X}, timeout=1)
    assert (run.status, run.error) == ("timeout", "the desktop reference did not end in 1 s")
    again = await worker.run(write(tmp_path, pack(add(3))), {"": X})
    assert again.status == "ok"


async def test_nothing_is_left_behind_when_cancelled_in_the_middle(tmp_path: Path) -> None:
    path = write(tmp_path, endless())
    started = asyncio.Event()
    directory: list[Path] = []

    async def work() -> None:
        async with desktop_worker() as worker:
            directory.append(worker.directory)
            started.set()
            await worker.run(path, {"": X}, timeout=60)

    task = asyncio.create_task(work())
    await started.wait()
    await asyncio.sleep(1)
    assert psutil.Process().children()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not directory[0].exists()
    assert not psutil.Process().children()
    gc.collect()  # an unclosed transport would warn, and warnings are errors


@pytest.mark.skipif(os.name != "posix", reason="memory limits are a POSIX facility")
async def test_a_model_that_asks_for_too_much_memory_costs_only_its_own_run(
    tmp_path: Path,
) -> None:
    elements = 500_000_000  # 2 GB of float32
    fill = Graph(
        [
            Tensor("x", []),
            Tensor("dims", [1], "int32", np.array([elements], np.int32)),
            Tensor("y", [elements]),
        ],
        [Operator("FILL", [1, 0], [2], schema.FillOptionsT())],
        [0],
        [2],
    )
    async with desktop_worker(memory_limit=600_000_000) as worker:
        run = await worker.run(write(tmp_path, pack(fill)), {"": {"x": np.array(1, np.float32)}})
        assert run.status in ("failed", "crashed")
        again = await worker.run(write(tmp_path, pack(add(3))), {"": X})
        assert again.status == "ok"


def test_perturbing_for_fp32_moves_each_value_by_one_ulp_and_both_ways() -> None:
    x = np.random.default_rng(1).normal(size=1000).astype(np.float32)
    x[7] = 0
    inputs = {"": {"x": x, "ids": np.arange(4, dtype=np.int32), "mask": np.ones(4, np.float32)}}
    moved = perturb(inputs, "fp32")
    assert moved is not None
    steps = moved[""]["x"].view(np.int32) - x.view(np.int32)
    assert steps[7] == 0
    assert set(np.delete(steps, 7).tolist()) == {-1, 1}
    assert 400 < (steps == 1).sum() < 600
    for same in ("ids", "mask"):
        np.testing.assert_array_equal(moved[""][same], inputs[""][same])
    again = perturb(inputs, "fp32")
    assert again is not None
    np.testing.assert_array_equal(again[""]["x"], moved[""]["x"])


def test_perturbing_for_fp16_rounds_and_never_overflows() -> None:
    x = np.array([0.1, 1e6, -3.0], np.float32)
    moved = perturb({"": {"x": x}}, "fp16")
    assert moved is not None
    assert moved[""]["x"].dtype == np.float32
    assert moved[""]["x"].tolist() == [float(np.float16(0.1)), 1e6, -3.0]


def test_integers_have_no_rounding_to_be_perturbed_by() -> None:
    assert perturb({"": {"ids": np.arange(4, dtype=np.int32)}}, "fp32") is None


async def test_the_noise_floor_is_that_of_rounding(worker: DesktopWorker, tmp_path: Path) -> None:
    path = write(tmp_path, pack(sine([100])))
    x = np.random.default_rng(0).uniform(-1, 1, 100).astype(np.float32)
    single = await measure_noise_floor(worker, path, {"": {"x": x}}, "fp32")
    half = await measure_noise_floor(worker, path, {"": {"x": x}}, "fp16")
    fp32, fp16 = single[""]["y"], half[""]["y"]
    assert fp32.perturb_nrmse is not None
    assert fp16.perturb_nrmse is not None
    assert fp32.kernel_nrmse is not None
    assert 1e-9 < fp32.perturb_nrmse < 2e-7
    assert 1e-5 < fp16.perturb_nrmse < 1e-3
    assert fp32.kernel_nrmse < 1e-6
    assert (fp32.precision, fp16.precision) == ("fp32", "fp16")


async def test_a_reference_that_is_not_finite_has_no_floor(
    worker: DesktopWorker, tmp_path: Path
) -> None:
    path = write(tmp_path, pack(add(np.inf)))
    floors = await measure_noise_floor(worker, path, {"": X}, "fp32")
    assert floors == {"": {}}


async def test_a_reference_that_fails_has_no_floor(worker: DesktopWorker, tmp_path: Path) -> None:
    floors = await measure_noise_floor(worker, write(tmp_path, b"no model"), {"": X}, "fp32")
    assert floors == {}


async def test_kernels_that_fail_leave_that_movement_unmeasured(
    worker: DesktopWorker, shared_dir: Path
) -> None:
    """Only XNNPACK knows this model's custom transposed convolution."""
    path = shared_dir / "models" / "selfie_segmentation.tflite"
    image = np.random.default_rng(0).uniform(0, 1, (1, 256, 256, 3)).astype(np.float32)
    base = await worker.run(path, {"": {"input_1": image}})
    assert base.status == "ok"
    floors = await measure_noise_floor(worker, path, {"": {"input_1": image}}, "fp32", base=base)
    (floor,) = floors[""].values()
    assert floor.kernel_nrmse is None
    assert floor.perturb_nrmse is not None
    assert floor.perturb_nrmse < 1e-4

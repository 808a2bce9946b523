from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from sweep import tflite
from sweep.errors import ModelError
from sweep.reference import DesktopWorker, Kernels, desktop_worker
from sweep.triage import graph as graphs
from sweep.triage.constants import replace_constants
from sweep.triage.cut import SIGNATURE, SubModel, cut, expose, op_model, prefix, window
from sweep.triage.rebuild import CutError, ModelFile, open_model
from tests.graphs import Graph, Operator, Tensor, add, less_than, loop, pack, sine, tree
from tests.tflite_builder import packed

Array = np.ndarray[Any, np.dtype[Any]]

X = np.array([[1.0, -2.0, 3.0]], np.float32)
LEFT = np.arange(6, dtype=np.float32).reshape(2, 3) + 1
RIGHT = np.arange(12, dtype=np.float32).reshape(4, 3) * -1
PERMUTATION = np.array([1, 0], np.int32)


def fork() -> Graph:
    """0 x → 1 two matrix products of s = sin x, the second with a dequantized weight.

    operators: 0 SIN, 1 FULLY_CONNECTED, 2 DEQUANTIZE, 3 FULLY_CONNECTED, 4 TRANSPOSE
    """
    return Graph(
        [
            Tensor("x", [1, 3]),
            Tensor("s", [1, 3]),
            Tensor("left/w", [2, 3], data=LEFT),
            Tensor("left/y", [1, 2]),
            Tensor("right/w16", [4, 3], "float16", RIGHT.astype(np.float16)),
            Tensor("right/w", [4, 3]),
            Tensor("right/y", [1, 4]),
            Tensor("permutation", [2], "int32", PERMUTATION),
            Tensor("t", [2, 1]),
        ],
        [
            Operator("SIN", [0], [1]),
            Operator("FULLY_CONNECTED", [1, 2, -1], [3], schema.FullyConnectedOptionsT()),
            Operator("DEQUANTIZE", [4], [5], schema.DequantizeOptionsT()),
            Operator("FULLY_CONNECTED", [1, 5, -1], [6], schema.FullyConnectedOptionsT()),
            Operator("TRANSPOSE", [3, 7], [8], schema.TransposeOptionsT()),
        ],
        [0],
        [8, 6],
    )


@pytest.fixture
async def worker() -> AsyncIterator[DesktopWorker]:
    async with desktop_worker() as started:
        yield started


def saved(data: bytes) -> Path:
    with tempfile.NamedTemporaryFile(suffix=".tflite", delete=False) as file:
        file.write(data)
    return Path(file.name)


async def run(
    worker: DesktopWorker, model: SubModel, values: dict[int, Array], kernels: Kernels = "builtin"
) -> dict[int, Array]:
    """Tensor index in the source → value, of the outputs."""
    path = saved(model.data)
    try:
        inputs = {SIGNATURE: {port.name: values[port.tensor] for port in model.inputs}}
        result = await worker.run(path, inputs, kernels=kernels)
    finally:
        path.unlink()
    assert result.status == "ok", result.error
    return {port.tensor: result.outputs[SIGNATURE][port.name] for port in model.outputs}


def structure(data: bytes) -> tuple[tflite.Graph, Any]:
    path = saved(data)
    try:
        return tflite.read_graph(path), open_model(data).tree
    finally:
        path.unlink()


# What a cut keeps, and what it leaves out.


async def test_a_prefix_has_only_what_its_output_needs(worker: DesktopWorker) -> None:
    data = pack(fork(), metadata={"min_runtime_version": b"2.3.0", "notes": b"n" * 999})
    left = prefix(data, 3)
    assert left.operators == (0, 1)
    assert [p.name for p in left.inputs] == ["x"]
    assert [p.name for p in left.outputs] == ["left/y"]
    checked, raw = structure(left.data)
    assert [o.name for o in checked.subgraphs[0].operators] == ["SIN", "FULLY_CONNECTED"]
    assert checked.subgraphs[0].operators[1].inputs == (1, 2, -1)
    assert len(raw.operatorCodes) == 2
    # The empty buffer, the weight, and the one piece of metadata that runtimes act upon.
    assert [b.size for b in checked.buffers] == [0, LEFT.nbytes, 5]
    assert checked.metadata == ("min_runtime_version",)
    assert [(s.key, s.inputs, s.outputs) for s in checked.signatures] == [
        (SIGNATURE, (("x", 0),), (("left/y", 3),))
    ]
    np.testing.assert_allclose((await run(worker, left, {0: X}))[3], np.sin(X) @ LEFT.T, rtol=1e-6)


async def test_a_window_takes_the_operators_along_that_prepare_its_weights(
    worker: DesktopWorker,
) -> None:
    alone = op_model(pack(fork()), 3)
    assert alone.operators == (2, 3)
    assert [p.tensor for p in alone.inputs] == [1]
    np.testing.assert_allclose((await run(worker, alone, {1: X}))[6], X @ RIGHT.T, rtol=1e-6)


def test_the_outputs_of_a_window_are_what_the_rest_reads() -> None:
    data = pack(fork())
    assert [p.tensor for p in window(data, 0, 1).outputs] == [1, 3]  # s is read by operator 3
    assert [p.tensor for p in window(data, 0, 4).outputs] == [6, 8]
    inner_output = fork()._replace(outputs=[8, 6, 3])  # left/y is read by the TRANSPOSE as well
    assert [p.tensor for p in window(pack(inner_output), 0, 4).outputs] == [3, 6, 8]
    assert [p.tensor for p in op_model(data, 4).inputs] == [3]


def test_exposing_keeps_the_models_own_inputs_and_outputs_first() -> None:
    exposed = expose(pack(fork()), [1, 3])
    assert [p.tensor for p in exposed.outputs] == [8, 6, 1, 3]
    assert exposed.operators == (0, 1, 2, 3, 4)
    with pytest.raises(CutError, match=r"no operator computes tensors \[2\]"):
        expose(pack(fork()), [2])


async def test_a_weight_can_be_made_an_input(worker: DesktopWorker) -> None:
    fed = cut(pack(fork()), operators=[1], inputs=[2, 1], outputs=[3])
    checked, _ = structure(fed.data)
    assert [b.size for b in checked.buffers] == [0]
    assert [p.name for p in fed.inputs] == ["left/w", "s"]
    values = {1: X, 2: np.ones((2, 3), np.float32)}
    assert (await run(worker, fed, values))[3].tolist() == [[2.0, 2.0]]


def test_the_same_cut_gives_the_same_bytes_and_cuts_can_be_cut() -> None:
    model = open_model(pack(fork()))
    first = prefix(model, 3)
    assert first.data == prefix(model, 3).data
    again = cut(first.data, operators=[0], outputs=[1])
    assert again.operators == (0,)
    assert structure(again.data)[0].subgraphs[0].operators[0].name == "SIN"


def test_weights_lie_on_16_bytes_and_a_shared_one_is_stored_once() -> None:
    model = tree(fork(), add(1), sine([1]), metadata={"reduced_precision_support": b"odd"})
    model.subgraphs[0].tensors[5].buffer = model.subgraphs[0].tensors[2].buffer
    model.subgraphs[0].tensors[5].shape = [2, 3]
    model.subgraphs[0].operators[3].outputs = [6]
    whole = cut(packed(model), operators=[0, 1, 3, 4], outputs=[8, 6])
    checked, _ = structure(whole.data)
    stored = [b for b in checked.buffers if b.size]
    assert sorted(b.size for b in stored) == [3, PERMUTATION.nbytes, LEFT.nbytes]
    assert [b.offset % 16 for b in stored] == [0, 0, 0]
    offset = next(b.offset for b in stored if b.size == LEFT.nbytes)
    assert whole.data[offset : offset + LEFT.nbytes] == LEFT.tobytes()


def test_names_are_made_unique() -> None:
    names = ["a", "a", "", "a"]
    graph = Graph(
        [Tensor(name, [1]) for name in names],
        [
            Operator("ADD", [0, 1], [2], schema.AddOptionsT()),
            Operator("SIN", [2], [3]),
        ],
        [0, 1],
        [3],
    )
    exposed = expose(pack(graph), [2])
    assert [p.name for p in exposed.inputs] == ["a", "a#2"]
    assert [p.name for p in exposed.outputs] == ["a#3", "tensor_2"]


def test_quantization_and_options_are_kept() -> None:
    graph = Graph(
        [
            Tensor("x", [1, 3], "int8", scale=[0.5], zero_point=[-3]),
            Tensor(
                "w",
                [2, 3],
                "int8",
                np.ones((2, 3), np.int8),
                scale=[0.1, 0.2],
                zero_point=[0, 0],
            ),
            Tensor("y", [1, 2], "int8", scale=[0.25], zero_point=[7]),
            Tensor("z", [1, 2], "int8", scale=[0.25], zero_point=[7]),
        ],
        [
            Operator(
                "FULLY_CONNECTED",
                [0, 1, -1],
                [2],
                schema.FullyConnectedOptionsT(
                    fusedActivationFunction=schema.ActivationFunctionType.RELU6, keepNumDims=True
                ),
            ),
            Operator("NEG", [2], [3], schema.NegOptionsT()),
        ],
        [0],
        [3],
    )
    part = op_model(pack(graph), 0)
    tensors = structure(part.data)[0].subgraphs[0].tensors
    assert [(t.scale, t.zero_point) for t in tensors] == [
        ((0.5,), (-3,)),
        (pytest.approx((0.1, 0.2)), (0, 0)),
        ((0.25,), (7,)),
    ]
    node = graphs.read(part.data).nodes[0]
    assert node.options["fusedActivationFunction"] == "RELU6"
    assert node.options["keepNumDims"] is True


async def test_weights_behind_the_flatbuffer_come_into_it(worker: DesktopWorker) -> None:
    model = tree(add(0))
    model.buffers[1] = schema.BufferT(offset=2**20, size=8)
    head = packed(model)
    data = head.ljust(2**20, b"\0") + np.array([10, 20], np.float32).tobytes()
    part = prefix(data, 2)
    assert len(part.data) < 1000
    value = (await run(worker, part, {0: np.array([1, 2], np.float32)}))[2]
    assert value.tolist() == [11.0, 22.0]


# Control flow and state.


async def test_called_subgraphs_come_along_under_new_numbers(worker: DesktopWorker) -> None:
    def step() -> Graph:
        return Graph(
            [
                Tensor("x", [1]),
                Tensor("c", [1], data=np.full(1, 3, np.float32)),
                Tensor("y", [1]),
            ],
            [Operator("ADD", [0, 1], [2], schema.AddOptionsT())],
            [0],
            [2],
        )

    data = pack(sine([1]), step(), add(5), less_than(10), loop(condition=3, body=1, shape=[1]))
    part = prefix(data, 1, subgraph=4)
    checked, _ = structure(part.data)
    assert [[o.name for o in g.operators] for g in checked.subgraphs] == [
        ["WHILE"],
        ["ADD"],
        ["LESS"],
    ]
    assert checked.subgraphs[0].operators[0].subgraphs == (2, 1)
    assert (await run(worker, part, {0: np.array([2], np.float32)}))[1].tolist() == [11.0]


def test_recursion_is_refused() -> None:
    with pytest.raises(CutError, match="subgraph 0 calls itself"):
        prefix(pack(loop(condition=1, body=0, shape=[1]), less_than(1)), 1)


def variable_graph() -> Graph:
    """handle; handle := 5; r = read handle; y = r + x."""
    return Graph(
        [
            Tensor("x", [2]),
            Tensor("handle", [], "resource"),
            Tensor("five", [2], data=np.full(2, 5, np.float32)),
            Tensor("r", [2]),
            Tensor("y", [2]),
        ],
        [
            Operator("VAR_HANDLE", [], [1], schema.VarHandleOptionsT(sharedName="v")),
            Operator("ASSIGN_VARIABLE", [1, 2], [], schema.AssignVariableOptionsT()),
            Operator("READ_VARIABLE", [1], [3], schema.ReadVariableOptionsT()),
            Operator("ADD", [3, 0], [4], schema.AddOptionsT()),
        ],
        [0],
        [4],
    )


async def test_what_is_written_to_a_variable_belongs_to_reading_it(worker: DesktopWorker) -> None:
    part = prefix(pack(variable_graph()), 4)
    assert part.operators == (0, 1, 2, 3)
    value = (await run(worker, part, {0: np.array([1, 2], np.float32)}))[4]
    assert value.tolist() == [6.0, 7.0]


def test_handles_do_not_cross_a_cut() -> None:
    data = pack(variable_graph())
    with pytest.raises(CutError, match=r"handles cannot cross a cut: 1 \('handle'\)"):
        cut(data, operators=[2], outputs=[3])
    assert op_model(data, 2).operators == (0, 2)


# What is refused.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"operators": [9], "outputs": [3]}, "no operator 9, subgraph 0 has 5"),
        ({"operators": [0], "outputs": [99]}, "no tensor 99"),
        ({"operators": [0], "outputs": [3]}, r"computes the outputs 3 \('left/y'\)"),
        ({"operators": [0], "outputs": []}, "without outputs"),
        ({"operators": [1], "inputs": [], "outputs": [3]}, r"also needs the inputs 1 \('s'\)"),
        ({"operators": [0, 1], "inputs": [0, 1], "outputs": [3]}, "computed inside the cut"),
        ({"operators": [0], "outputs": [1], "subgraph": 4}, "no subgraph 4"),
    ],
)
def test_cuts_that_make_no_sense_say_why(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(CutError, match=message):
        cut(pack(fork()), **arguments)


def test_what_would_be_lost_is_refused() -> None:
    external = tree(add(1))
    external.subgraphs[0].tensors[1].externalBuffer = 1
    with pytest.raises(CutError, match="weights lie in other files"):
        open_model(packed(external))
    unknown = tree(add(1))
    unknown.subgraphs[0].operators[0].builtinOptions = None
    unknown.subgraphs[0].operators[0].builtinOptionsType = 250
    with pytest.raises(CutError, match="operator 0 has options that the installed"):
        open_model(packed(unknown))


def test_files_that_are_no_models_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "page.tflite"
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(ModelError, match="HTML"):
        open_model(path)
    with pytest.raises(ModelError, match=r"not a \.tflite"):
        open_model(path.read_bytes())
    path.write_bytes(pack(fork())[:300])
    with pytest.raises(ModelError, match=r"page\.tflite"):
        open_model(path)


# The view.


def test_the_view_of_a_graph() -> None:
    graph = graphs.read(pack(fork()))
    assert graph.producer == {1: 0, 3: 1, 5: 2, 6: 3, 8: 4}
    assert graph.consumers[1] == (1, 3)
    assert graphs.constant_nodes(graph) == {2}
    assert graphs.ancestors(graph, [6]) == (0, 2, 3)
    assert graphs.boundary(graph, [1, 3]) == (1, 5)
    assert graphs.topological(graph)
    assert [graph.tensors[i].constant for i in (0, 2, 4, 5)] == [False, True, True, False]


def test_operators_before_what_they_read_are_noticed() -> None:
    graph = fork()
    turned = graph._replace(
        operators=[graph.operators[1], graph.operators[0], *graph.operators[2:]]
    )
    assert not graphs.topological(graphs.read(pack(turned)))


# Weights replaced by seeded constants.


def test_constants_are_replaced_but_not_what_decides_the_computation() -> None:
    epsilon, mask = np.array([1e-5], np.float32), np.array([0, -np.inf, 0], np.float32)
    packed4 = np.array([0x71, 0x17, 0x71, 0x11] * 8, np.uint8)
    quantized = np.arange(-50, 50, dtype=np.int8)
    data = pack(
        Graph(
            [
                *fork().tensors,
                Tensor("epsilon", [1], data=epsilon),
                Tensor("mask", [3], data=mask),
                Tensor("q", [100], "int8", quantized, scale=[0.1], zero_point=[0]),
                Tensor("q4", [64], "int4", packed4.tobytes(), scale=[0.1], zero_point=[0]),
                Tensor("table", [100], "int8", quantized),
            ],
            fork().operators,
            [0],
            [8, 6],
        )
    )

    def values(source: bytes, name: str, dtype: Any) -> Array:
        model = open_model(source).tree
        tensor = next(t for t in model.subgraphs[0].tensors if t.name == name.encode())
        found: Array = model.buffers[tensor.buffer].data.view(dtype)
        return found

    new = replace_constants(data, 7)
    assert new == replace_constants(data, 7)
    assert new != replace_constants(data, 8)
    weights: list[tuple[str, Any, Array]] = [
        ("left/w", np.float32, LEFT),
        ("right/w16", np.float16, RIGHT.astype(np.float16)),
        ("q", np.int8, quantized),
    ]
    for name, dtype, old in weights:
        drawn = values(new, name, dtype)
        assert drawn.size == old.size
        assert (drawn != old.ravel()).mean() > 0.8
        assert old.min() <= drawn.min() < drawn.max() <= old.max()
    assert set(values(new, "q4", np.uint8)) == {0x71, 0x17, 0x11}
    assert not np.array_equal(values(new, "q4", np.uint8), packed4)
    for name, dtype, same in [
        ("permutation", np.int32, PERMUTATION),
        ("epsilon", np.float32, epsilon),
        ("mask", np.float32, mask),
        ("table", np.int8, quantized),
    ]:
        np.testing.assert_array_equal(values(new, name, dtype), same)


# Real models.


def draw(tensor: tflite.Tensor, rng: np.random.Generator) -> Array:
    shape, dtype = [max(1, d) for d in tensor.shape], np.dtype(tensor.dtype)
    if dtype.kind == "f":
        return rng.uniform(-1, 1, shape).astype(dtype)
    # Wide integers may be indices: keep them legal.
    high = 2 if dtype.kind == "b" or dtype.itemsize >= 4 else 100
    return rng.integers(0, high, shape).astype(dtype)


@pytest.mark.parametrize("kernels", ["xnnpack", "builtin"])
async def test_a_cut_at_the_original_outputs_gives_the_same_bytes(
    worker: DesktopWorker, shared_dir: Path, kernels: Kernels
) -> None:
    ran, wrong = 0, []
    for path in sorted((shared_dir / "models").glob("*.tflite")):
        checked, model = tflite.read_graph(path), open_model(path)
        rng = np.random.default_rng(3)
        for signature in checked.signatures:
            tensors = checked.subgraphs[signature.subgraph].tensors
            if any(tensors[i].dtype == "string" for _, i in signature.inputs):
                continue
            values = {i: draw(tensors[i], rng) for _, i in signature.inputs}
            named = {name: values[i] for name, i in signature.inputs}
            original = await worker.run(path, {signature.key: named}, kernels=kernels)
            if original.status != "ok":
                continue
            ran += 1
            outputs = [i for _, i in signature.outputs]
            whole = graphs.read(model, signature.subgraph)
            for part in (
                prefix(model, outputs, subgraph=signature.subgraph),
                cut(
                    model,
                    operators=range(len(whole.nodes)),
                    inputs=whole.inputs,
                    outputs=outputs,
                    subgraph=signature.subgraph,
                ),
            ):
                got = await run(worker, part, values, kernels)
                for name, tensor in signature.outputs:
                    expected = original.outputs[signature.key][name]
                    same = got[tensor].shape == expected.shape
                    if not same or got[tensor].tobytes() != expected.tobytes():
                        wrong.append((path.name, signature.key, name, len(part.operators)))
    assert wrong == []
    assert ran >= 60


async def reference_values(
    worker: DesktopWorker, model: ModelFile, path: Path
) -> tuple[graphs.Graph, dict[int, Array]]:
    """The value of every computed tensor, all exposed at once."""
    graph = graphs.read(model)
    checked = tflite.read_graph(path).subgraphs[0].tensors
    values = {i: draw(checked[i], np.random.default_rng(i)) for i in graph.inputs}
    visible = [
        t
        for t in graph.producer
        if graph.tensors[t].dtype not in graphs.HANDLE_DTYPES | {"float16"}
    ]
    return graph, values | await run(worker, expose(model, visible), values)


REAL = ["rnet", "hand_landmark_sparse", "alexa", "lrt_simple_group_norm_op", "dummy_cv_model"]


@pytest.mark.parametrize("name", REAL)
async def test_prefixes_compute_what_the_whole_computes(
    worker: DesktopWorker, shared_dir: Path, name: str
) -> None:
    path = shared_dir / "models" / f"{name}.tflite"
    model = open_model(path)
    graph, values = await reference_values(worker, model, path)
    computed = [t for t in graph.producer if t in values]
    for tensor in computed[:: max(1, len(computed) // 8)]:
        part = prefix(model, tensor)
        assert len(part.operators) <= graph.producer[tensor] + 1
        got = (await run(worker, part, values))[tensor]
        np.testing.assert_array_equal(got, values[tensor])


@pytest.mark.parametrize("name", REAL)
async def test_windows_fed_with_reference_values_compute_what_the_whole_computes(
    worker: DesktopWorker, shared_dir: Path, name: str
) -> None:
    path = shared_dir / "models" / f"{name}.tflite"
    model = open_model(path)
    graph, values = await reference_values(worker, model, path)
    fixed = graphs.constant_nodes(graph)
    checked = 0
    for first in range(0, len(graph.nodes), max(1, len(graph.nodes) // 8)):
        for last in {first, min(first + 3, len(graph.nodes) - 1)}:
            inside = set(range(first, last + 1))
            if inside <= fixed or not graphs.results(graph, inside):
                continue
            if any(
                graph.tensors[t].dtype in graphs.HANDLE_DTYPES
                for n in inside
                for t in graph.nodes[n].inputs
                if t >= 0
            ):
                continue  # a window reads what state the run before it left
            part = window(model, first, last)
            assert not {p.tensor for p in part.inputs} & {
                t for n in fixed for t in graph.nodes[n].outputs
            }
            for tensor, got in (await run(worker, part, values)).items():
                if tensor in values:
                    checked += 1
                    np.testing.assert_array_equal(got, values[tensor])
    assert checked > 0


async def test_weights_replaced_by_constants_still_run_and_give_other_values(
    worker: DesktopWorker, shared_dir: Path
) -> None:
    path = shared_dir / "models" / "rnet.tflite"
    checked = tflite.read_graph(path)
    ((name, index),) = checked.signatures[0].inputs
    x = {"": {name: draw(checked.subgraphs[0].tensors[index], np.random.default_rng(0))}}
    original = await worker.run(path, x)
    other = saved(replace_constants(path, 1))
    try:
        replaced = await worker.run(other, x)
    finally:
        other.unlink()
    assert replaced.status == "ok"
    for output, value in original.outputs[""].items():
        assert not np.array_equal(replaced.outputs[""][output], value)

"""Inspection: facts of built and real models, and files that are not what they say."""

from __future__ import annotations

import hashlib
import json
import math
import struct
import time
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
import typer
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from sweep.cli.inspect import inspect_command
from sweep.errors import ModelError
from sweep.inputs import draw_inputs, plan_inputs
from sweep.model import ModelFacts, graph_computes, inspect_model, rounding_may_differ
from sweep.tflite import MAX_STRING, constant, read_graph
from tests import tflite_builder as build
from tests.tflite_builder import ModelBuilder


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "model.tflite"
    path.write_bytes(data)
    return path


def facts_of(tmp_path: Path, data: bytes) -> ModelFacts:
    return inspect_model(written(tmp_path, data))


def test_facts_of_a_quantized_model(tmp_path: Path) -> None:
    data = build.quantized_model()
    facts = facts_of(tmp_path, data)
    assert facts.sha256 == hashlib.sha256(data).hexdigest()
    assert (facts.bytes, facts.subgraphs, facts.dynamic) == (len(data), 1, False)
    assert facts.description == "built by a test"
    (signature,) = facts.signatures
    assert signature.key == "serving_default"
    assert [t.name for t in signature.inputs] == ["x", "y"]
    y = signature.inputs[1]
    assert (y.dtype, y.shape, y.tensor_index) == ("uint8", (1, 64), 1)
    assert y.quantization is not None
    assert y.quantization.scale == pytest.approx((0.03,))
    assert y.quantization.zero_point == (128,)
    assert [(o.op, o.custom, o.count) for o in facts.operators] == [("ADD", False, 1)]


def test_every_signature_with_its_subgraph(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, build.two_signature_model())
    assert [s.key for s in facts.signatures] == ["double", "next"]
    assert [s.subgraph for s in facts.signatures] == list(range(facts.subgraphs))
    assert [(o.op, o.count) for o in facts.operators] == [("ADD", 2)]


def test_a_dynamic_dimension_is_told_from_the_stored_one(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, build.dynamic_model())
    x = facts.signatures[0].inputs[0]
    assert (x.shape, x.shape_signature, facts.dynamic) == ((1, 4), (-1, 4), True)


def test_without_signatures_the_tensors_name_the_inputs(tmp_path: Path) -> None:
    b = ModelBuilder()
    x, x2, y = b.tensor("x", (2,)), b.tensor("x", (2,)), b.tensor("out:0", (2,))
    b.op("ADD", [x, x2], [y], schema.AddOptionsT())
    b.graph.inputs, b.graph.outputs = [x, x2], [y]
    (signature,) = facts_of(tmp_path, b.build()).signatures
    assert signature.key == ""
    # Names stay apart, so that each can be given its array.
    assert [t.name for t in signature.inputs] == ["x", "x#2"]
    assert [t.name for t in signature.outputs] == ["out:0"]


def test_custom_composite_and_weights_are_counted_once(tmp_path: Path) -> None:
    b = ModelBuilder()
    x, y, z = b.tensor("x", (4,)), b.tensor("y", (4,)), b.tensor("z", (4,))
    w = b.tensor("w", (8,), data=np.ones(8))
    shared = b.tensor("shared", (4,))
    b.graph.tensors[shared].buffer = b.graph.tensors[w].buffer
    b.op("MyOp", [x, w], [y])
    b.op("STABLEHLO_COMPOSITE", [y, shared], [z])
    options = schema.StableHLOCompositeOptionsT()
    options.name, options.decompositionSubgraphIndex = b"odml.rms_norm", 1
    b.graph.operators[1].builtinOptions2Type = schema.BuiltinOptions2.StableHLOCompositeOptions
    b.graph.operators[1].builtinOptions2 = options
    b.signature("", {"x": x}, {"z": z})
    b.subgraph()
    a, c = b.tensor("a", (4,)), b.tensor("c", (4,))
    b.op("RSQRT", [a], [c])
    b.graph.inputs, b.graph.outputs = [a], [c]
    path = written(tmp_path, b.build())
    facts = inspect_model(path)
    assert [(o.op, o.custom, o.count) for o in facts.operators] == [
        ("MyOp", True, 1),
        ("RSQRT", False, 1),
        ("STABLEHLO_COMPOSITE", False, 1),
    ]
    assert facts.weight_dtypes == {"float32": 32}
    assert read_graph(path).subgraphs[0].operators[1].composite == "odml.rms_norm"


def test_external_weights_behind_the_flatbuffer(tmp_path: Path) -> None:
    b = ModelBuilder()
    x, y = b.tensor("x", (4,)), b.tensor("y", (4,))
    w = b.tensor("w", (4,), data=np.zeros(4))
    b.op("ADD", [x, w], [y], schema.AddOptionsT())
    b.signature("", {"x": x}, {"y": y})
    buffer = b.model.buffers[b.graph.tensors[w].buffer]
    buffer.data, buffer.offset, buffer.size = None, 1 << 20, 16
    data = b.build().ljust(1 << 20, b"\0") + np.arange(4, dtype="<f4").tobytes()
    path = written(tmp_path, data)
    assert inspect_model(path).weight_dtypes == {"float32": 16}
    graph = read_graph(path)
    values = constant(graph, graph.subgraphs[0].tensors[w])
    assert values is not None
    assert values.tolist() == [0, 1, 2, 3]
    path.write_bytes(data[:-1])
    with pytest.raises(ModelError, match="truncated: the data of buffer 1 ends at byte 1048592"):
        inspect_model(path)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "only 0 bytes"),
        (b"\x1c\0\0\0TFL", "only 7 bytes"),
        (b"<!DOCTYPE html><html>Not found</html>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"),
        (b"PK\x03\x04" + bytes(60), "ZIP archive"),
        (b"\x1c\0\0\0TFL9" + bytes(60), "TFL9"),
        (b"\x1c\0\0\0TFL3", "not a well-formed"),
        (b"\xff\xff\xff\xffTFL3" + bytes(100), "not a well-formed"),
    ],
)
def test_what_is_no_model_is_named(tmp_path: Path, data: bytes, says: str) -> None:
    path = written(tmp_path, data)
    with pytest.raises(ModelError, match=says) as caught:
        inspect_model(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nowhere\.tflite: cannot be read"):
        inspect_model(tmp_path / "nowhere.tflite")


def test_indices_that_point_nowhere(tmp_path: Path) -> None:
    def damaged(change: Any) -> bytes:
        b = ModelBuilder()
        x, y = b.tensor("x", (2,)), b.tensor("y", (2,))
        b.op("NEG", [x], [y])
        b.signature("", {"x": x}, {"y": y})
        change(b)
        return b.build()

    def set_input(b: ModelBuilder) -> None:
        b.graph.operators[0].inputs = [9]

    def set_code(b: ModelBuilder) -> None:
        b.graph.operators[0].opcodeIndex = 4

    def set_buffer(b: ModelBuilder) -> None:
        b.graph.tensors[0].buffer = 7

    def set_signature(b: ModelBuilder) -> None:
        b.model.signatureDefs[0].inputs[0].tensorIndex = 5

    for change in (set_input, set_code, set_buffer, set_signature):
        with pytest.raises(ModelError, match="not a well-formed"):
            facts_of(tmp_path, damaged(change))
    assert facts_of(tmp_path, damaged(lambda b: None)).operators[0].op == "NEG"


def test_shared_tables_cannot_multiply(tmp_path: Path) -> None:
    """A small file whose subgraphs are all the same table, with many tensors that are one table."""
    packer = flatbuffers.Builder(1 << 16)
    name = packer.CreateString("x" * 1000)
    schema.TensorStart(packer)
    schema.TensorAddName(packer, name)
    tensor = schema.TensorEnd(packer)
    count = 4000
    schema.SubGraphStartTensorsVector(packer, count)
    for _ in range(count):
        packer.PrependUOffsetTRelative(tensor)
    tensors = packer.EndVector()
    schema.SubGraphStart(packer)
    schema.SubGraphAddTensors(packer, tensors)
    subgraph = schema.SubGraphEnd(packer)
    schema.ModelStartSubgraphsVector(packer, count)
    for _ in range(count):
        packer.PrependUOffsetTRelative(subgraph)
    subgraphs = packer.EndVector()
    schema.ModelStart(packer)
    schema.ModelAddSubgraphs(packer, subgraphs)
    packer.Finish(schema.ModelEnd(packer), file_identifier=b"TFL3")
    path = written(tmp_path, bytes(packer.Output()))
    started = time.monotonic()
    with pytest.raises(ModelError, match="not a well-formed"):
        inspect_model(path)
    assert time.monotonic() - started < 5


def test_a_claimed_length_is_not_allocated(tmp_path: Path) -> None:
    data = bytearray(build.add_model())
    at = data.index(b"built by a test") - 4
    for claimed in (MAX_STRING + 1, 0xFFFFFFF0):
        data[at : at + 4] = struct.pack("<I", claimed)
        with pytest.raises(ModelError, match="not a well-formed"):
            facts_of(tmp_path, bytes(data))


SMALL_MODELS = (build.gather_model(), build.two_signature_model(), build.quantized_model())


@settings(
    max_examples=300, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damaged_files_raise_nothing_but_model_errors(tmp_path: Path, data: st.DataObject) -> None:
    original = data.draw(st.sampled_from(SMALL_MODELS))
    damaged = bytearray(original)
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(8, len(original) - 4))
        word = data.draw(
            st.sampled_from([b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", bytes(4), b"\0\0\0\x80"])
            | st.binary(min_size=1, max_size=4)
        )
        damaged[at : at + len(word)] = word
    path = written(tmp_path, bytes(damaged[: data.draw(st.integers(0, len(original)))]))
    try:
        facts = inspect_model(path)
        graph_computes(path)
        plan = plan_inputs(path, facts)
        assert len(plan.items) == sum(len(s.inputs) for s in facts.signatures)
        if sum(math.prod(item.shape) for item in plan.items if item.drawable) < 1 << 20:
            draw_inputs(plan, model_id="m", seed=1, input_set=0)
    except ModelError:
        return


def test_computing_is_more_than_moving(tmp_path: Path) -> None:
    def model(middle: str, *, used: bool = True) -> Path:
        b = ModelBuilder()
        x, m, y = b.tensor("x", (1, 4)), b.tensor("m", (1, 4)), b.tensor("y", (4, 1))
        shape = b.tensor("shape", (2,), "int32", data=[4, 1])
        b.op(middle, [x], [m])
        b.op("RESHAPE", [m if used else x, shape], [y])
        b.signature("", {"x": x}, {"y": y})
        return written(tmp_path, b.build())

    assert not graph_computes(model("TRANSPOSE"))
    assert graph_computes(model("NEG"))
    assert graph_computes(model("NoSuchOp"))
    assert not graph_computes(model("NEG", used=False)), "what no output needs does not count"
    assert not rounding_may_differ(model("NEG")), "IEEE 754 leaves one right answer"
    assert rounding_may_differ(model("EXP"))


def test_constant_outputs_compute_nothing(tmp_path: Path) -> None:
    b = ModelBuilder()
    x, y = b.tensor("x", (2,)), b.tensor("y", (2,))
    one = b.tensor("one", (2,), data=[1, 1])
    b.op("EXP", [one], [y])
    b.signature("", {"x": x}, {"y": y})
    assert not graph_computes(written(tmp_path, b.build()))


def test_a_called_subgraph_counts(tmp_path: Path) -> None:
    def model(inner: str) -> Path:
        b = ModelBuilder()
        x, y = b.tensor("x", (2,)), b.tensor("y", (2,))
        b.op("CALL", [x], [y], schema.CallOptionsT(subgraph=1))
        b.signature("", {"x": x}, {"y": y})
        b.subgraph()
        a, c = b.tensor("a", (2,)), b.tensor("c", (2,))
        b.op(inner, [a], [c])
        b.graph.inputs, b.graph.outputs = [a], [c]
        return written(tmp_path, b.build())

    assert graph_computes(model("EXP"))
    assert not graph_computes(model("TRANSPOSE"))


@pytest.mark.parametrize(
    "data",
    [
        build.add_model(),
        build.fully_connected_model((1, 16)),
        build.gather_model(),
        build.two_signature_model(),
        build.dynamic_model(),
        build.quantized_model(),
    ],
)
def test_built_models_run_on_their_planned_inputs(tmp_path: Path, data: bytes) -> None:
    path = written(tmp_path, data)
    drawn = run_on_planned_inputs(path)
    assert set(drawn) == {s.key for s in inspect_model(path).signatures}


def run_on_planned_inputs(path: Path) -> dict[str, dict[str, Any]]:
    """Runs every signature in the interpreter that wrote none of this; returns the outputs."""
    plan = plan_inputs(path, inspect_model(path))
    drawn = draw_inputs(plan, model_id="m", seed=42, input_set=0)
    interpreter = Interpreter(model_path=str(path))
    return {key: interpreter.get_signature_runner(key)(**inputs) for key, inputs in drawn.items()}


def test_real_models_read_as_the_interpreter_reads_them(shared_dir: Path) -> None:
    paths = sorted((shared_dir / "models").glob("*.tflite"))
    assert len(paths) > 50
    for path in paths:
        facts = inspect_model(path)
        try:
            interpreter = Interpreter(model_path=str(path))
        except ValueError:  # a custom operator of another vendor
            continue
        tensors = {d["index"]: d for d in interpreter.get_input_details()}
        first = {t.tensor_index: t for t in facts.signatures[0].inputs}
        assert first.keys() == tensors.keys(), path.name
        for index, tensor in first.items():
            assert tensor.tensor_name == tensors[index]["name"], path.name
            assert tensor.shape == tuple(tensors[index]["shape"]), path.name
        signatures = interpreter.get_signature_list()
        if signatures:
            assert signatures == {
                s.key: {
                    "inputs": sorted(t.name for t in s.inputs),
                    "outputs": sorted(t.name for t in s.outputs),
                }
                for s in facts.signatures
            }, path.name


def run_inspect(*arguments: str) -> Any:
    app = typer.Typer()
    app.command("inspect")(inspect_command)
    return CliRunner().invoke(app, list(arguments))


def test_inspect_shows_facts_and_what_is_drawn(tmp_path: Path) -> None:
    path = written(tmp_path, build.gather_model(rows=11))
    result = run_inspect(str(path), "--json")
    assert result.exit_code == 0
    shown = json.loads(result.output)
    assert ModelFacts.model_validate_json(json.dumps(shown["model"])) == inspect_model(path)
    assert shown["inputs"][0]["rule"] == "int below 11 (feeds GATHER)"
    text = run_inspect(str(path)).output
    assert all(word in text for word in ("GATHER", "attention_mask", "1×6", "11 (feeds"))


def test_inspect_lets_no_control_characters_of_a_file_through(tmp_path: Path) -> None:
    b = ModelBuilder()
    x, y = b.tensor("x", (2,)), b.tensor("y", (2,))
    b.op("\x1b]0;gone\x07[red]Op", [x], [y])
    b.signature("", {"x": x}, {"y": y})
    output = run_inspect(str(written(tmp_path, b.build()))).output
    assert "\x1b]0" not in output
    assert "\x07" not in output
    assert "[red]Op" in output

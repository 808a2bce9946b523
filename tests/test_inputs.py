"""What is drawn for which input, and that it is the same everywhere."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from pydantic import ValidationError

from sweep.catalog import parse_input_spec
from sweep.errors import CatalogError
from sweep.input_rules import InputRule
from sweep.inputs import InputItem, InputPlan, draw_inputs, input_spec, plan_inputs
from sweep.model import inspect_model
from sweep.mulberry import tensor_1_0
from tests import tflite_builder as build
from tests.tflite_builder import ModelBuilder


def planned(tmp_path: Path, data: bytes | ModelBuilder, **how: Any) -> InputPlan:
    path = tmp_path / "model.tflite"
    path.write_bytes(data if isinstance(data, bytes) else data.build())
    return plan_inputs(path, inspect_model(path), **how)


def drawn(plan: InputPlan, input_set: int = 0, **how: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of the first signature."""
    sets = draw_inputs(plan, model_id="m", seed=42, input_set=input_set, **how)
    return sets[plan.signatures[0]]


def gather(axis: int = 0) -> Any:
    return schema.GatherOptionsT(axis=axis)


def one_input(
    shape: tuple[int, ...],
    dtype: str,
    then: Callable[[ModelBuilder, int], int],
    *,
    name: str = "x",
    **tensor: Any,
) -> ModelBuilder:
    """A model of one input; `then` adds operators and returns the output's index."""
    b = ModelBuilder()
    x = b.tensor(name, shape, dtype, **tensor)
    b.signature("serving_default", {name: x}, {"y": then(b, x)})
    return b


def only(plan: InputPlan) -> InputItem:
    (item,) = plan.items
    return item


def elementwise(name: str, *constants: float, first: bool = False) -> Callable[..., int]:
    """y = op(x, c), or op(c, x) with `first`."""

    def add(b: ModelBuilder, x: int) -> int:
        tensor = b.graph.tensors[x]
        y = b.tensor("y", tensor.shape)
        c = b.tensor("c", (len(constants),), data=list(constants))
        b.op(name, [c, x] if first else [x, c], [y])
        return y

    return add


# The stream


def test_the_bytes_are_pinned(tmp_path: Path) -> None:
    """They must not change with numpy, the platform or by accident: records depend on them."""
    plan = planned(tmp_path, build.gather_model())
    arrays = drawn(plan)
    assert arrays["ids"].tolist() == PINNED_IDS
    floats = drawn(planned(tmp_path, build.add_model(shape=(4, 1000))))["x"]
    assert floats.dtype == np.float32
    assert hashlib.sha256(floats.astype("<f4").tobytes()).hexdigest() == PINNED_FLOATS


PINNED_IDS = [[9, 8, 0, 9, 5, 2]]
PINNED_FLOATS = "3c3718d079b9ad6b1c848fa615037fda147ab3d7ae2392cd3817d50db7659b11"


def test_every_part_of_the_identity_moves_the_stream(tmp_path: Path) -> None:
    plan = planned(tmp_path, build.two_signature_model())
    base: dict[str, Any] = {"model_id": "m", "seed": 42, "input_set": 0}
    first = draw_inputs(plan, **base)["double"]["x"]
    assert np.array_equal(first, draw_inputs(plan, **base)["double"]["x"])
    others = [
        draw_inputs(plan, **(base | {"model_id": "n"}))["double"]["x"],
        draw_inputs(plan, **(base | {"seed": 43}))["double"]["x"],
        draw_inputs(plan, **(base | {"input_set": 1}))["double"]["x"],
        draw_inputs(plan, **base)["next"]["x"],
    ]
    assert all(not np.array_equal(first, other) for other in others)


def test_uniform_floats_fill_their_range(tmp_path: Path) -> None:
    x = drawn(planned(tmp_path, build.add_model(shape=(1000, 1100))))["x"]
    assert x.min() >= -1
    assert x.max() < 1
    assert x.min() < -0.9999
    assert x.max() > 0.9999
    assert abs(float(x.mean())) < 0.003
    assert (x != 0).all()
    # Chunks of the stream are not repeats of each other.
    assert np.unique(x).size > 0.95 * x.size


# Meaning by use


def test_an_index_stays_below_the_rows_of_its_table(tmp_path: Path) -> None:
    plan = planned(tmp_path, build.gather_model(rows=3))
    assert [i.rule for i in plan.items] == [
        "int below 3 (feeds GATHER)",
        "mask by its name: 0 or 1",
    ]
    for number in range(5):
        arrays = drawn(plan, number)
        assert set(arrays["ids"].reshape(-1)) <= {0, 1, 2}
        assert set(arrays["attention_mask"].reshape(-1)) == {0, 1}


def test_the_gathered_axis_decides(tmp_path: Path) -> None:
    def add(axis: int) -> Callable[[ModelBuilder, int], int]:
        def build_it(b: ModelBuilder, x: int) -> int:
            table = b.tensor("table", (50, 7), data=np.ones((50, 7)))
            y = b.tensor("y", (50, 4))
            b.op("GATHER", [table, x], [y], gather(axis))
            return y

        return build_it

    for axis, rows in ((0, 50), (1, 7), (-1, 7), (-2, 50)):
        item = only(planned(tmp_path, one_input((4,), "int32", add(axis))))
        assert (item.recipe.low, item.recipe.high) == (0, rows - 1), axis


def table_of(b: ModelBuilder, rows: int) -> int:
    return b.tensor("table", (rows, 2), data=np.ones((rows, 2)))


def test_indices_through_movement_casts_and_shifts(tmp_path: Path) -> None:
    def add(b: ModelBuilder, x: int) -> int:
        """GATHER(table of 100, 3 * int(x) + [2..5]): a float input that is an index in disguise."""
        flat, whole, tripled, shifted = (
            b.tensor("flat", (4,)),
            *(b.tensor(n, (4,), "int32") for n in ("whole", "tripled", "shifted")),
        )
        shape = b.tensor("shape", (1,), "int32", data=[4])
        three = b.tensor("three", (), "int32", data=3)
        steps = b.tensor("steps", (4,), "int32", data=[2, 3, 4, 5])
        y = b.tensor("y", (4, 2))
        b.op("RESHAPE", [x, shape], [flat])
        b.op("CAST", [flat], [whole])
        b.op("MUL", [three, whole], [tripled])
        b.op("ADD", [tripled, steps], [shifted])
        b.op("GATHER", [table_of(b, 100), shifted], [y], gather())
        return y

    plan = planned(tmp_path, one_input((2, 2), "float32", add))
    # 3x + 2 >= 0 and 3x + 5 <= 99: x in 0..31.
    assert (only(plan).recipe.low, only(plan).recipe.high) == (0, 31)
    x = drawn(plan)["x"]
    assert x.dtype == np.float32
    assert np.array_equal(x, np.floor(x))


def test_an_index_that_may_wrap_is_taken_as_it_is(tmp_path: Path) -> None:
    """id < 0 ? id + 9 : id, as converters write it, is below 9 and not below 0."""

    def add(b: ModelBuilder, x: int) -> int:
        zero, nine = (b.tensor(n, (), "int32", data=v) for n, v in (("zero", 0), ("nine", 9)))
        negative = b.tensor("negative", (4,), "bool")
        wrapped, picked = b.tensor("wrapped", (4,), "int32"), b.tensor("picked", (4,), "int32")
        y = b.tensor("y", (4, 2))
        b.op("LESS", [x, zero], [negative])
        b.op("ADD", [x, nine], [wrapped])
        b.op("SELECT_V2", [negative, wrapped, x], [picked])
        b.op("GATHER", [table_of(b, 9), picked], [y], gather())
        return y

    item = only(planned(tmp_path, one_input((4,), "int32", add)))
    assert (item.recipe.low, item.recipe.high) == (0, 8)


def test_the_smallest_table_decides(tmp_path: Path) -> None:
    def add(b: ModelBuilder, x: int) -> int:
        first, second = b.tensor("first", (4, 2)), b.tensor("y", (4, 2))
        b.op("EMBEDDING_LOOKUP", [x, table_of(b, 30522)], [first])
        b.op("EMBEDDING_LOOKUP", [x, table_of(b, 512)], [second])
        return second

    item = only(planned(tmp_path, one_input((4,), "int32", add)))
    assert item.rule == "int below 512 (feeds EMBEDDING_LOOKUP)"


@pytest.mark.parametrize("op", ["CALL", "IF"])
def test_uses_in_and_behind_called_subgraphs(tmp_path: Path, op: str) -> None:
    """The input passes through a subgraph and feeds a GATHER after it."""
    b = ModelBuilder()
    x, inner = b.tensor("x", (4,), "int32"), b.tensor("inner", (4,), "int32")
    condition = b.tensor("condition", (), "bool", data=True)
    y = b.tensor("y", (4, 2))
    if op == "CALL":
        b.op("CALL", [x], [inner], schema.CallOptionsT(subgraph=1))
    else:
        branch = schema.IfOptionsT(thenSubgraphIndex=1, elseSubgraphIndex=1)
        b.op("IF", [condition, x], [inner], branch)
    b.op("GATHER", [table_of(b, 6), inner], [y], gather())
    b.signature("serving_default", {"x": x}, {"y": y})
    b.subgraph()
    a, c = b.tensor("a", (4,), "int32"), b.tensor("c", (4,), "int32")
    shape = b.tensor("shape", (1,), "int32", data=[4])
    b.op("RESHAPE", [a, shape], [c])
    b.graph.inputs, b.graph.outputs = [a], [c]
    assert only(planned(tmp_path, b)).rule == "int below 6 (feeds GATHER)"


def test_masks_by_use(tmp_path: Path) -> None:
    def add(b: ModelBuilder, x: int) -> int:
        one, large = b.tensor("one", (), data=1.0), b.tensor("large", (), data=-1e9)
        asfloat, inverse, y = (b.tensor(n, (1, 6)) for n in ("f", "inverse", "y"))
        b.op("CAST", [x], [asfloat])
        b.op("SUB", [one, asfloat], [inverse])
        b.op("MUL", [inverse, large], [y])
        return y

    plan = planned(tmp_path, one_input((1, 6), "int32", add, name="args_1"))
    assert only(plan).rule == "mask by its use: 0 or 1"
    assert set(drawn(plan)["args_1"].reshape(-1)) == {0, 1}
    # 1 − x alone is arithmetic.
    plan = planned(tmp_path, one_input((1, 6), "float32", elementwise("SUB", 1, first=True)))
    assert only(plan).rule == "uniform in [-1, 1)"


def test_every_row_of_a_mask_shows_and_hides(tmp_path: Path) -> None:
    plan = planned(tmp_path, one_input((2, 3, 5, 1), "bool", elementwise("LOGICAL_NOT", 1)))
    for number in range(4):
        rows = drawn(plan, number)["x"][..., 0]
        assert rows.any(axis=-1).all()
        assert not rows.all(axis=-1).any()


def test_a_mask_that_is_added_to_scores_hides_by_a_large_negative(tmp_path: Path) -> None:
    b = ModelBuilder()
    scores, mask = b.tensor("scores", (1, 2, 8)), b.tensor("attention_mask", (1, 1, 8))
    total, y = b.tensor("total", (1, 2, 8)), b.tensor("y", (1, 2, 8))
    b.op("ADD", [scores, mask], [total])
    b.op("SOFTMAX", [total], [y])
    b.signature("", {"scores": scores, "attention_mask": mask}, {"y": y})
    plan = planned(tmp_path, b)
    assert set(drawn(plan)["attention_mask"].reshape(-1)) == {0.0, -1e4}
    assert plan.items[0].rule == "uniform in [-1, 1)"


def test_quantized_inputs_cover_their_range(tmp_path: Path) -> None:
    plan = planned(tmp_path, build.quantized_model())
    assert plan.items[0].rule == "uint8 over its whole range: real -2.4 to 2.7"
    values = np.concatenate([drawn(plan, n)["x"].reshape(-1) for n in range(40)])
    assert values.dtype == np.uint8
    assert (values.min(), values.max()) == (0, 255)


def test_a_quantized_domain_is_respected(tmp_path: Path) -> None:
    def add(b: ModelBuilder, x: int) -> int:
        y = b.tensor("y", (500,), "int8", scale=[0.1], zero_point=[0])
        b.op("RSQRT", [x], [y])
        return y

    plan = planned(tmp_path, one_input((500,), "int8", add, scale=[0.1], zero_point=[-20]))
    assert drawn(plan)["x"].min() > -20


def test_domains_of_floats(tmp_path: Path) -> None:
    def unary(name: str) -> Callable[[ModelBuilder, int], int]:
        def add(b: ModelBuilder, x: int) -> int:
            y = b.tensor("y", (1, 64))
            b.op(name, [x], [y])
            return y

        return add

    assert drawn(planned(tmp_path, one_input((1, 64), "float32", unary("LOG"))))["x"].min() >= 0.25
    rounds = drawn(planned(tmp_path, one_input((1, 64), "float32", unary("ROUND"))))["x"]
    assert np.unique(np.round(rounds)).size > 8
    divisor = planned(tmp_path, one_input((1, 64), "float32", elementwise("DIV", 1, first=True)))
    assert drawn(divisor)["x"].min() >= 0.25


@pytest.mark.parametrize(
    ("op", "constants", "high"),
    [
        ("SUB", (127.5,), 255),
        ("SUB", (123.7, 116.8, 103.9), 255),
        ("MUL", (1 / 255,), 255),
        ("DIV", (127.5,), 255),
        ("MUL", (2.0,), 1),
        ("SUB", (0.5,), 1),
    ],
)
def test_pixels_by_the_normalisation_at_the_entry(
    tmp_path: Path, op: str, constants: tuple[float, ...], high: float
) -> None:
    plan = planned(tmp_path, one_input((1, 16, 16, 3), "float32", elementwise(op, *constants)))
    x = drawn(plan)["x"]
    assert x.min() >= 0
    assert 0.98 * high < x.max() <= high
    # The same operator on what is no image says nothing of pixels.
    plan = planned(tmp_path, one_input((16, 3), "float32", elementwise(op, *constants)))
    assert only(plan).rule == "uniform in [-1, 1)"


def test_a_quantize_at_the_entry_gives_the_range(tmp_path: Path) -> None:
    def add(b: ModelBuilder, x: int) -> int:
        y = b.tensor("y", (1, 400), "uint8", scale=[0.5], zero_point=[10])
        b.op("QUANTIZE", [x], [y])
        return y

    plan = planned(tmp_path, one_input((1, 400), "float32", add))
    assert (only(plan).recipe.low, only(plan).recipe.high) == (-5, 122.5)


def shape_argument(name: str, data: tuple[int, ...], out: tuple[int, ...], size: int) -> Any:
    """A model whose int input is the second argument of an operator on a constant."""

    def add(b: ModelBuilder, x: int) -> int:
        values = b.tensor("values", data, data=np.ones(data))
        y = b.tensor("y", out)
        b.op(name, [values, x], [y])
        return y

    return one_input((size,), "int32", add)


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (shape_argument("RESHAPE", (2, 6), (3, 4), 2), [3, 4]),
        (shape_argument("RESHAPE", (2, 6), (1, 1), 2), [1, -1]),  # the stored shape is a guess
        (shape_argument("BROADCAST_TO", (1, 6), (3, 6), 2), [3, 6]),
        (shape_argument("TILE", (2, 3), (4, 3), 2), [2, 1]),
        (shape_argument("TRANSPOSE", (2, 3, 4), (4, 2, 3), 3), [2, 0, 1]),
        (shape_argument("SUM", (2, 3, 4), (4,), 2), [0, 1]),
        (shape_argument("RESIZE_BILINEAR", (1, 4, 4, 3), (1, 8, 9, 3), 2), [8, 9]),
    ],
)
def test_shapes_and_axes_are_legal(tmp_path: Path, model: ModelBuilder, values: list[int]) -> None:
    plan = planned(tmp_path, model)
    for number in (0, 1):
        assert drawn(plan, number)["x"].tolist() == values


def test_paddings_are_those_that_the_shapes_show(tmp_path: Path) -> None:
    def add(b: ModelBuilder, x: int) -> int:
        values = b.tensor("values", (2, 3), data=np.ones((2, 3)))
        y = b.tensor("y", (2, 6))
        b.op("PAD", [values, x], [y])
        return y

    plan = planned(tmp_path, one_input((2, 2), "int32", add))
    assert drawn(plan)["x"].tolist() == [[0, 0], [1, 2]]


def test_a_scalar_packed_into_a_shape_is_its_dimension(tmp_path: Path) -> None:
    def add(b: ModelBuilder, x: int) -> int:
        values = b.tensor("values", (2, 6), data=np.ones((2, 6)))
        two, shape = b.tensor("two", (), "int32", data=4), b.tensor("shape", (2,), "int32")
        y = b.tensor("y", (4, 3))
        b.op("PACK", [two, x], [shape])
        b.op("RESHAPE", [values, shape], [y])
        return y

    assert int(drawn(planned(tmp_path, one_input((), "int32", add)))["x"]) == 3


def test_starts_of_a_cache_update_stay_inside(tmp_path: Path) -> None:
    def add(b: ModelBuilder, x: int) -> int:
        cache = b.tensor("whole", (1, 16, 4), data=np.zeros((1, 16, 4)))
        update = b.tensor("update", (1, 3, 4), data=np.ones((1, 3, 4)))
        y = b.tensor("y", (1, 16, 4))
        b.op("DYNAMIC_UPDATE_SLICE", [cache, update, x], [y])
        return y

    plan = planned(tmp_path, one_input((3,), "int32", add))
    starts = np.stack([drawn(plan, n)["x"] for n in range(60)])
    assert starts.max(axis=0).tolist() == [0, 13, 0]
    assert starts.min() == 0


# Meaning by name


def test_a_state_is_zero_and_its_neighbour_is_not(tmp_path: Path) -> None:
    b = ModelBuilder()
    x, state = b.tensor("x", (1, 8)), b.tensor("gru_state_in", (1, 8))
    y = b.tensor("y", (1, 8))
    b.op("ADD", [x, state], [y])
    b.signature("", {"x": x, "gru_state_in": state}, {"y": y})
    plan = planned(tmp_path, b)
    assert plan.items[1].rule == "state: zeros"
    arrays = drawn(plan, 1)
    assert not arrays["gru_state_in"].any()
    assert arrays["x"].all()


@pytest.mark.parametrize("name", ["hidden_states", "x", "StatefulPartitionedCall_x", "c"])
def test_what_only_sounds_like_a_state_is_drawn(tmp_path: Path, name: str) -> None:
    b = ModelBuilder()
    x, other, y = b.tensor(f"{name}:0", (1, 8)), b.tensor("other", (1, 8)), b.tensor("y", (1, 8))
    b.op("ADD", [x, other], [y])
    b.signature("", {name: x, "other": other}, {"y": y})
    assert drawn(planned(tmp_path, b))[name].all()


def test_the_only_data_input_is_never_a_state(tmp_path: Path) -> None:
    plan = planned(tmp_path, one_input((1, 8), "float32", elementwise("ADD", 1), name="state"))
    assert drawn(plan)["state"].all()


def test_positions_count_up_inside_their_table(tmp_path: Path) -> None:
    def add(b: ModelBuilder, x: int) -> int:
        y = b.tensor("y", (1, 5, 2))
        b.op("GATHER", [table_of(b, 12), x], [y], gather())
        return y

    plan = planned(tmp_path, one_input((1, 5), "int32", add, name="position_ids"))
    for number in range(6):
        row = drawn(plan, number)["position_ids"][0]
        assert np.diff(row).tolist() == [1, 1, 1, 1]
        assert row.min() >= 0
        assert row.max() < 12


def test_small_draws_are_neither_constant_nor_zero(tmp_path: Path) -> None:
    def add(b: ModelBuilder, x: int) -> int:
        shape = tuple(b.graph.tensors[x].shape)
        y = b.tensor("y", (*shape, 2))
        b.op("GATHER", [table_of(b, 2), x], [y], gather())
        return y

    for number in range(12):
        single = drawn(planned(tmp_path, one_input((1,), "int32", add)), number)["x"]
        pair = drawn(planned(tmp_path, one_input((2,), "int32", add)), number)["x"]
        assert single.tolist() == [1]
        assert sorted(pair.tolist()) == [0, 1]


# Shapes, types, rules


def test_dynamic_dimensions(tmp_path: Path) -> None:
    data = build.dynamic_model()
    assert only(planned(tmp_path, data)).shape == (1, 4)
    assert only(planned(tmp_path, data, dims={"x": 3})).shape == (3, 4)
    assert only(planned(tmp_path, data, dims={"x": [5, 4]})).shape == (5, 4)
    with pytest.raises(CatalogError, match=r"\[5, 5\] does not fit \[-1, 4\]"):
        planned(tmp_path, data, dims={"x": [5, 5]})
    with pytest.raises(CatalogError, match=r"no input z.*Its inputs: x"):
        planned(tmp_path, data, dims={"z": 1})


def test_strings_are_planned_but_not_drawn(tmp_path: Path) -> None:
    model = one_input((3,), "string", elementwise("Normalize", 1)).build()
    plan = planned(tmp_path, model)
    assert not only(plan).drawable
    assert only(plan).rule == "string cannot be drawn"
    assert drawn(plan) == {}
    with pytest.raises(CatalogError, match="input x is string"):
        planned(tmp_path, model, rules={"x": InputRule(fill="ones")})


def test_a_shape_too_large_is_not_allocated(tmp_path: Path) -> None:
    plan = planned(tmp_path, one_input((2**31 - 1, 64), "float32", elementwise("ADD", 1)))
    assert not only(plan).drawable
    assert "549755813632 bytes" in only(plan).rule


@pytest.mark.parametrize("dtype", ["int64", "int8", "bool"])
def test_types_that_pages_lack_are_drawn_for_the_desktop(tmp_path: Path, dtype: str) -> None:
    x = drawn(planned(tmp_path, one_input((9,), dtype, elementwise("ADD", 1))))["x"]
    assert x.dtype == np.dtype(dtype)
    assert np.unique(x).size > 1


def test_rules_go_before_the_graph(tmp_path: Path) -> None:
    def ids(rule: InputRule) -> tuple[str, np.ndarray[Any, Any]]:
        plan = planned(tmp_path, build.gather_model(), rules={"ids": rule})
        return plan.items[0].rule, drawn(plan)["ids"]

    rule, values = ids(InputRule(fill="ones"))
    assert (rule, set(values.reshape(-1))) == ("catalog: filled with 1", {1})
    assert set(ids(InputRule(fill=4))[1].reshape(-1)) == {4}
    assert set(ids(InputRule(range=(5, 7)))[1].reshape(-1)) == {5, 6}
    np.save(tmp_path / "ids.npy", np.arange(6).reshape(1, 6))
    assert ids(InputRule(file="ids.npy"))[1].tolist() == [[0, 1, 2, 3, 4, 5]]


def test_normal_values_are_normal(tmp_path: Path) -> None:
    rules = {"x": InputRule(distribution="normal")}
    x = drawn(planned(tmp_path, build.add_model(shape=(100, 1000)), rules=rules))["x"]
    assert abs(float(x.mean())) < 0.02
    assert abs(float(x.std()) - 1) < 0.01
    assert 0.94 < float((np.abs(x) < 1.96).mean()) < 0.96


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (InputRule(fill=0.5), "ids is int32, which does not hold 0.5"),
        (InputRule(fill=2**31), "does not hold 2.14748e+09"),
        (InputRule(distribution="normal"), "a normal distribution is for floats"),
        (InputRule(distribution="uniform"), "give the range"),
        (InputRule(range=(0.1, 0.9)), "no integer lies in"),
        (InputRule(file="missing.npy"), "missing.npy cannot be read"),
    ],
)
def test_rules_that_do_not_fit_are_refused(tmp_path: Path, rule: InputRule, says: str) -> None:
    with pytest.raises(CatalogError) as caught:
        planned(tmp_path, build.gather_model(), rules={"ids": rule})
    assert says in str(caught.value)


def test_a_rule_file_of_another_shape_or_kind_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "five.npy", np.arange(5))
    np.save(tmp_path / "objects.npy", np.array([{}] * 6, dtype=object), allow_pickle=True)
    np.save(tmp_path / "halves.npy", np.full(6, 0.5))
    for name, says in (
        ("five.npy", r"has shape \[5\], the input \[1, 6\]"),
        ("objects.npy", "cannot be read"),
        ("halves.npy", "has values that int32 lacks"),
    ):
        with pytest.raises(CatalogError, match=says):
            planned(tmp_path, build.gather_model(), rules={"ids": InputRule(file=name)})


def test_an_image_file_is_resized_and_scaled(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:4] = (255, 51, 0)
    image.fromarray(pixels).save(tmp_path / "flag.png")
    rules = {"x": InputRule(file="flag.png")}
    for shape, top in (((1, 16, 16, 3), (0, 0, 0)), ((2, 3, 16, 16), (0, slice(None), 0, 0))):
        model = one_input(shape, "float32", elementwise("ADD", 1))
        x = drawn(planned(tmp_path, model, rules=rules))["x"]
        assert x.shape == shape
        assert x[top].tolist() == pytest.approx([1, 0.2, 0])
        assert not x[(0, -1, -1) if shape[-1] == 3 else (0, slice(None), -1, -1)].any()
    bytes_like = one_input((1, 16, 16, 3), "float32", elementwise("SUB", 127.5))
    x = drawn(planned(tmp_path, bytes_like, rules=rules))["x"]
    assert x[0, 0, 0].tolist() == [255, 51, 0]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "give one of"),
        ({"fill": "ones", "range": (0, 1)}, "fill and range do not go together"),
        ({"range": (1, 1)}, "is empty"),
        ({"range": (0, math.inf)}, "finite"),
        ({"distribution": "normal", "range": (0, 1)}, "no range"),
        ({"fill": "twos"}, "fill"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_rules_that_make_no_sense_are_no_rules(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        InputRule(**fields)


def test_the_1_0_generator_knows_positions_and_no_semantics(tmp_path: Path) -> None:
    plan = planned(tmp_path, build.gather_model())
    arrays = drawn(plan, generator="1.0")
    assert np.array_equal(arrays["ids"], tensor_1_0(42, 0, (1, 6), "int32"))
    assert np.array_equal(arrays["attention_mask"], tensor_1_0(42, 1, (1, 6), "int32"))
    ruled = planned(tmp_path, build.gather_model(), rules={"ids": InputRule(fill="zeros")})
    assert not drawn(ruled, generator="1.0")["ids"].any()


def test_the_spec_is_the_1_0_form(tmp_path: Path) -> None:
    plan = planned(tmp_path, build.gather_model())
    spec = input_spec(plan, "serving_default")
    assert spec == "1x6:int32;1x6:int32"
    assert parse_input_spec(spec) == (((1, 6), "int32"), ((1, 6), "int32"))


def test_real_models_run_on_their_inputs(shared_dir: Path) -> None:
    """Every model that the interpreter can run runs, and no output is not a number."""
    ran = 0
    for path in sorted((shared_dir / "models").glob("*.tflite")):
        plan = plan_inputs(path, inspect_model(path))
        if not all(item.drawable for item in plan.items):
            continue
        inputs = draw_inputs(plan, model_id=path.stem, seed=42, input_set=0)
        for name, array in inputs[plan.signatures[0]].items():
            assert np.unique(array).size > 1 or array.size == 1, (path.name, name)
        try:
            interpreter = Interpreter(model_path=str(path))
            interpreter.allocate_tensors()
        except (ValueError, RuntimeError):  # custom operators
            continue
        indices = {t.name: t.tensor_index for t in inspect_model(path).signatures[0].inputs}
        for name, array in inputs[plan.signatures[0]].items():
            interpreter.set_tensor(indices[name], array)
        interpreter.invoke()
        for detail in interpreter.get_output_details():
            output = interpreter.get_tensor(detail["index"])
            assert np.isfinite(output.astype(np.float64)).all(), path.name
        ran += 1
    assert ran > 40

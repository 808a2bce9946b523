"""Strangers' bytes: whatever they are, one clear error or an answer, soon and in little memory."""

from __future__ import annotations

import contextlib
import json
import resource
import struct
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweep.errors import ModelError, RecordError
from sweep.model import inspect_model, rounding_may_differ
from sweep.store import parse_record
from sweep.triage.cut import op_model, prefix
from tests.faults.models import scaling_model
from tests.make_records import make_record

MODEL = scaling_model(5)
QUICK = settings(
    max_examples=300,
    deadline=2000,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def inspect(path: Path, data: bytes) -> bool:
    """Whether the bytes were taken for a model."""
    path.write_bytes(data)
    try:
        inspect_model(path)
        rounding_may_differ(path)
    except ModelError:
        return False
    return True


@QUICK
@given(
    edits=st.lists(
        st.tuples(
            st.integers(0, len(MODEL) - 4),
            st.one_of(
                st.integers(0, 2**32 - 1),
                st.sampled_from([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFC, 4, 8]),
            ),
        ),
        min_size=1,
        max_size=6,
    ),
    cut=st.one_of(st.none(), st.integers(0, len(MODEL))),
)
def test_a_damaged_model_is_an_answer_or_a_model_error(
    tmp_path: Path, edits: list[tuple[int, int]], cut: int | None
) -> None:
    data = bytearray(MODEL)
    for offset, value in edits:
        struct.pack_into("<I", data, offset, value)
    inspect(tmp_path / "fuzzed.tflite", bytes(data[:cut]))


@QUICK
@given(data=st.binary(max_size=400))
def test_any_bytes_with_the_identifier_are_no_reason_to_crash(tmp_path: Path, data: bytes) -> None:
    inspect(tmp_path / "fuzzed.tflite", data[:4].ljust(4, b"\0") + b"TFL3" + data[4:])


def test_every_single_size_claim_is_disbelieved(tmp_path: Path) -> None:
    """Each word of a model set to a huge count, one after the other: no memory, no time."""
    assert inspect(tmp_path / "whole.tflite", MODEL)
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    for offset in range(0, len(MODEL) - 4, 4):
        for claim in (0x7FFFFFF0, 0xFFFFFFF0, 0x00FFFFFF):
            data = bytearray(MODEL)
            struct.pack_into("<I", data, offset, claim)
            inspect(tmp_path / "fuzzed.tflite", bytes(data))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200_000, f"{grown} KiB for a model of {len(MODEL)} bytes"
    assert time.monotonic() - started < 60


@QUICK
@given(
    edits=st.lists(
        st.tuples(st.integers(0, len(MODEL) // 4 - 1), st.sampled_from([0, 1, 2, 3, 7, 99, 2**31])),
        min_size=1,
        max_size=4,
    )
)
def test_cutting_a_damaged_model_gives_a_model_or_a_model_error(
    tmp_path: Path, edits: list[tuple[int, int]]
) -> None:
    data = bytearray(MODEL)
    for word, value in edits:
        struct.pack_into("<I", data, 4 * word, value)
    path = tmp_path / "fuzzed.tflite"
    path.write_bytes(data)
    for cut in (op_model, prefix):
        with contextlib.suppress(ModelError):
            cut(path, 0)


JSON_VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10),
        st.sampled_from(["1e999", "../..", "<script>", "2.0", "pass"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)  # fmt: skip


def test_the_record_that_is_fuzzed_is_one(record: bytes) -> None:
    assert parse_record(record).model_id == "fuzzed"


@pytest.fixture(scope="module")
def record() -> bytes:
    return json.dumps(make_record("fuzzed")).encode()


@QUICK
@given(data=st.data())
def test_a_record_with_anything_in_any_place_is_read_or_refused(
    record: bytes, data: st.DataObject
) -> None:
    value = json.loads(record)
    place = value
    for _ in range(data.draw(st.integers(0, 4))):
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        inner = [key for key in keys if isinstance(place[key], dict | list) and place[key]]
        if not inner:
            break
        place = place[data.draw(st.sampled_from(inner))]
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    place[data.draw(st.sampled_from(keys))] = data.draw(JSON_VALUES)
    with contextlib.suppress(RecordError):
        parse_record(json.dumps(value).encode())


@QUICK
@given(data=st.binary(max_size=300))
def test_any_bytes_are_read_as_a_record_or_refused(data: bytes) -> None:
    with pytest.raises(RecordError):
        parse_record(data)

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from sweep.errors import RecordError, StoreError
from sweep.record import Record
from sweep.store import (
    BadFile,
    StoredRecord,
    dump_record,
    iter_records,
    list_sweeps,
    parse_record,
    read_record,
    record_path,
    sweep_lock,
    version_key,
    write_record,
)
from tests.make_records import make_record


def example(model_id: str = "m", **more: object) -> Record:
    return Record.model_validate(make_record(model_id, **more))  # type: ignore[arg-type]


def test_a_record_survives_writing_and_reading(tmp_path: Path) -> None:
    record = example(statuses=("pass", "fallback"))
    path = write_record(tmp_path, record)
    assert path == tmp_path / "2.5.3" / "2026-01-05" / "m.json"
    assert read_record(path) == record
    assert path.read_bytes() == dump_record(read_record(path))
    assert [p.name for p in path.parent.iterdir()] == ["m.json"]


def test_the_form_of_the_file(tmp_path: Path) -> None:
    record = example().model_copy(update={"license": "Größe", "notes": None})
    text = dump_record(record).decode()
    assert text.endswith("}\n")
    assert "Größe" in text
    value = json.loads(text)
    assert list(value) == sorted(value)
    assert "notes" not in value
    assert value["results"][0]["failure_class"] is None
    assert text == json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def test_a_number_that_is_not_finite_is_never_written(tmp_path: Path) -> None:
    record = example()
    first = record.results[0].model_copy(update={"latency_p50_ms": float("nan")})
    with pytest.raises(RecordError, match="m cannot be written"):
        write_record(tmp_path, record.model_copy(update={"results": (first,)}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "part",
    [
        {"model_id": "../m"},
        {"model_id": "a/b"},
        {"model_id": ".m"},
        {"model_id": "M"},
        {"model_id": "x" * 201},
        {"core_version": ".."},
        {"core_version": "2.5.3/.."},
        {"date": "2026-1-5"},
        {"leg": "../x"},
    ],
)
def test_parts_that_would_escape_are_refused(tmp_path: Path, part: dict[str, str]) -> None:
    parts = {"core_version": "2.5.3", "date": "2026-01-05", "model_id": "m", **part}
    with pytest.raises(StoreError):
        record_path(tmp_path, **parts)


def test_a_link_out_of_the_store_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "root"
    root.mkdir()
    (root / "2.5.3").symlink_to(outside)
    with pytest.raises(StoreError, match="symbolic link"):
        write_record(root, example())
    assert list(outside.iterdir()) == []


def test_legs_have_their_own_place(tmp_path: Path) -> None:
    value = make_record("m")
    value["config"]["leg"] = {"name": "jspi-off", "jspi": False}
    path = write_record(tmp_path, Record.model_validate(value))
    write_record(tmp_path, example())
    assert path == tmp_path / "2.5.3" / "2026-01-05" / "jspi-off" / "m.json"
    assert [(s.leg, s.model_ids) for s in list_sweeps(tmp_path)] == [
        ("default", ("m",)),
        ("jspi-off", ("m",)),
    ]
    assert all(isinstance(found, StoredRecord) for found in iter_records(tmp_path))


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_record_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = write_record(tmp_path, example())
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if call == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(Path, "replace", full)
    changed = example().model_copy(update={"notes": "new"})
    with pytest.raises(StoreError, match=r"m\.json: No space left on device\. Free space"):
        write_record(tmp_path, changed)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["m.json"]


def test_a_file_where_a_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "2.5.3").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        write_record(tmp_path, example())


def test_another_environment_is_not_overwritten(tmp_path: Path) -> None:
    path = write_record(tmp_path, example(rig=0))
    before = path.read_bytes()
    with pytest.raises(StoreError, match="machine_label ci-linux-2core, now mac-studio-m4-max"):
        write_record(tmp_path, example(rig=1))
    software = make_record("m", rig=0)
    for result in software["results"]:
        result["env"] = {**result["env"], "adapter_class": "hardware"}
    with pytest.raises(StoreError, match="adapter_class software, now hardware"):
        write_record(tmp_path, Record.model_validate(software))
    assert path.read_bytes() == before
    write_record(tmp_path, example(rig=0).model_copy(update={"notes": "again"}))
    assert read_record(path).notes == "again"


def test_a_file_that_is_no_record_is_not_overwritten(tmp_path: Path) -> None:
    path = record_path(tmp_path, "2.5.3", "2026-01-05", "m")
    path.parent.mkdir(parents=True)
    path.write_text('{"schema_version": "3.0"}')
    with pytest.raises(StoreError, match="will not overwrite"):
        write_record(tmp_path, example())
    assert path.read_text() == '{"schema_version": "3.0"}'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 200_000, "nested too deeply|not JSON"),
        (b'{"schema_version": ' + b"9" * 6000 + b"}", "not JSON"),
        (b"[1]", "no schema_version"),
        (b'{"schema_version": "2.0", "x": NaN}', "no JSON number"),
        (b'{"schema_version": "2.0", "x": 1e999}', "range of a double"),
        (b'{"schema_version": "9.9"}', "not known here"),
        (b'{"schema_version": ["2.0"]}', "not known here"),
        (b'{"schema_version": "2.0"}', "model_id: Field required"),
    ],
)
def test_what_is_no_record_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=message) as caught:
        read_record(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value", "location"),
    [
        ("loads", "yes", "results.0.loads"),
        ("latency_p50_ms", "3", "results.0.latency_p50_ms"),
        ("surprise", 1, "results.0.surprise"),
        ("date", "2026-01-05T00", "results.0.date"),
    ],
)
def test_reading_is_strict(field: str, value: object, location: str) -> None:
    raw = make_record("m")
    raw["results"][0][field] = value
    with pytest.raises(RecordError, match=f"{location}: "):
        parse_record(json.dumps(raw).encode())


def test_huge_numbers_do_not_crash() -> None:
    raw = make_record("m")
    raw["results"][0]["latency_p50_ms"] = 10**400
    with pytest.raises(RecordError, match="too large"):
        parse_record(json.dumps(raw).encode())


def test_bad_files_are_named_and_the_others_read(tmp_path: Path) -> None:
    good = write_record(tmp_path, example("good"))
    (good.parent / "broken.json").write_text("{")
    # A record copied to another version's directory would show its numbers under the wrong core.
    strayed = tmp_path / "2.0.0" / "2026-01-05" / "good.json"
    strayed.parent.mkdir(parents=True)
    strayed.write_bytes(good.read_bytes())
    (good.parent / "other.json").write_bytes(good.read_bytes())
    (good.parent / ".half.tmp").write_text("{")
    (tmp_path / "README.md").write_text("x")
    found = list(iter_records(tmp_path))
    bad = {f.path: f.problem for f in found if isinstance(f, BadFile)}
    assert set(bad) == {strayed, good.parent / "broken.json", good.parent / "other.json"}
    assert "measured on core 2.5.3" in bad[strayed]
    assert "model_id is 'good'" in bad[good.parent / "other.json"]
    assert [f.record.model_id for f in found if isinstance(f, StoredRecord)] == ["good"]


def test_versions_sort_as_versions(tmp_path: Path) -> None:
    ordered = [
        "nightly", "0.9.0", "0.10.0", "2.0.0-alpha", "2.0.0-alpha.2", "2.0.0-alpha.10",
        "2.0.0-alpha.beta", "2.0.0-rc.1", "2.0.0", "2.0.10", "10.0.0",
    ]  # fmt: skip
    assert sorted(random.Random(1).sample(ordered, len(ordered)), key=version_key) == ordered
    for core in ("10.0.0", "9.0.0"):
        write_record(tmp_path, example(core=core))
    write_record(tmp_path, example(core="9.0.0", day=date(2025, 12, 31)))
    assert [(s.core_version, s.date) for s in list_sweeps(tmp_path)] == [
        ("9.0.0", "2025-12-31"),
        ("9.0.0", "2026-01-05"),
        ("10.0.0", "2026-01-05"),
    ]
    assert list_sweeps(tmp_path / "absent") == ()


HOLD = """
import sys, pathlib
from sweep.store import sweep_lock
with sweep_lock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_second_run_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match=f"process {other.pid} on .*running since 20"):
            sweep_lock(tmp_path).__enter__()
        other.kill()  # no clean-up runs: the note stays, the lock does not
        other.wait()
    assert (tmp_path / ".sweep.lock.json").is_file()
    with sweep_lock(tmp_path), pytest.raises(StoreError, match=f"process {os.getpid()} "):
        sweep_lock(tmp_path).__enter__()
    assert not (tmp_path / ".sweep.lock.json").exists()

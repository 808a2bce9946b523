from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sweep.errors import RecordError, StoreError, UsageError
from sweep.merge import merge_stores
from sweep.record import Record
from sweep.releases.confirm import Candidate, Confirmation
from sweep.releases.release_report import build_report, read_report, report_paths, write_report
from sweep.store import dump_json, list_sweeps, read_record, write_record
from tests.make_records import RIGS, make_record

DAY = date(2026, 2, 3)
MACHINE = RIGS[1]["machine_label"]


def record(model_id: str, **edits: Any) -> Record:
    statuses = edits.pop("statuses", ("pass", "pass"))
    raw = make_record(model_id, day=DAY, core=edits.pop("core", "2.5.3"), rig=edits.pop("rig", 1),
                      statuses=statuses)  # fmt: skip
    if leg := edits.pop("leg", None):
        raw["config"]["leg"] = {"name": leg}
    return Record.model_validate(raw | edits)


def store(directory: Path, *records: Record) -> Path:
    directory.mkdir(exist_ok=True)
    for one in records:
        write_record(directory, one)
    return directory


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()
    }


def test_shards_are_joined_byte_by_byte(tmp_path: Path) -> None:
    both = record("both")
    one = store(tmp_path / "one", record("a"), both)
    two = store(tmp_path / "two", record("b", leg="threads"), record("a", core="2.5.2"), both)
    out = tmp_path / "out"
    outcome = merge_stores([one, two, store(tmp_path / "none")], out)
    assert (outcome.written, outcome.same) == (4, 1)
    assert tree(out) == tree(one) | tree(two)
    assert [(s.core_version, s.leg, s.model_ids) for s in list_sweeps(out)] == [
        ("2.5.2", "default", ("a",)),
        ("2.5.3", "default", ("a", "both")),
        ("2.5.3", "threads", ("b",)),
    ]
    # Again, and into one of the shards themselves: nothing is written.
    assert merge_stores([one, two], out).written == 0
    before = tree(one)
    assert merge_stores([one], one).written == 0
    assert tree(one) == before


def test_another_environment_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    one = store(tmp_path / "one", record("a"), record("b"))
    two = store(tmp_path / "two", record("a", rig=0), record("c"))
    out = store(tmp_path / "out", record("d"))
    before = tree(out)
    with pytest.raises(StoreError, match=r"different environments: machine_label mac-.*, now ci-"):
        merge_stores([one, two], out)
    assert tree(out) == before


def test_two_measurements_in_one_environment_are_refused(tmp_path: Path) -> None:
    one = store(tmp_path / "one", record("a"))
    two = store(tmp_path / "two", record("a", notes="another"))
    with pytest.raises(StoreError, match="two measurements in one environment"):
        merge_stores([one, two], tmp_path / "out")
    with pytest.raises(StoreError, match="two measurements"):
        merge_stores([one], two)


def test_a_record_of_a_lost_model_gives_way(tmp_path: Path) -> None:
    raw = record("a").model_dump(mode="json")
    for result in raw["results"]:
        result |= {"status": "load_failed", "failure_class": "fetch_failed", "runs": False}
    lost = store(tmp_path / "lost", Record.model_validate(raw))
    measured = store(tmp_path / "measured", record("a"))
    for name, order in (("x", [lost, measured]), ("y", [measured, lost])):
        merge_stores(order, tmp_path / name)
        assert tree(tmp_path / name) == tree(measured)
    merge_stores([measured], lost)
    assert tree(lost) == tree(measured)


def test_what_is_no_record_stops_the_merge(tmp_path: Path) -> None:
    one = store(tmp_path / "one", record("a"), record("b"))
    next(one.rglob("b.json")).write_text("{}")
    with pytest.raises(StoreError, match=r"b\.json: not a sweep record"):
        merge_stores([one], tmp_path / "out")
    assert list_sweeps(tmp_path / "out") == ()
    with pytest.raises(UsageError, match="no directory"):
        merge_stores([tmp_path / "two"], tmp_path / "out")


def worse(model_id: str) -> tuple[Record, Record]:
    return (
        record(model_id, core="2.5.2"),
        record(model_id, core="2.5.3", statuses=("pass", "run_failed")),
    )


def look(model_id: str) -> Confirmation:
    return Confirmation(
        **Candidate(
            model_id=model_id, backend="webgpu_mldrift", leg="default", kind="status"
        ).model_dump(),
        verdict="confirmed",
        old_statuses=("pass",),
        new_statuses=("run_failed",),
        sentence="worse in every round",
    )


def test_reports_are_made_anew_and_second_looks_kept(tmp_path: Path) -> None:
    shards = []
    for name, day in (("a", "2026-02-04"), ("b", "2026-02-05")):
        shard = store(tmp_path / name, *worse(name), *(worse("seen-once") if name == "b" else ()))
        mine = [read_record(path) for path in shard.rglob("*.json")]
        write_report(
            shard,
            build_report(mine, "2.5.2", "2.5.3", date=day, machine_label=MACHINE, rounds=2,
                         looked=[look(name)]),
        )  # fmt: skip
        shards.append(shard)
    out = tmp_path / "out"
    outcome = merge_stores(shards, out)
    as_json, as_markdown = report_paths(out, MACHINE, "2.5.2", "2.5.3")
    assert outcome.reports == (as_markdown,)
    report = read_report(as_json)
    assert report is not None
    assert (report.date, report.models, report.rounds) == ("2026-02-05", 3, 2)
    assert [c.model_id for c in report.diff.statuses] == ["a", "b", "seen-once"]
    assert [c.model_id for c in report.confirmed] == ["a", "b"]
    assert report.called == {"regression"}
    text = as_markdown.read_text()
    assert "| seen-once | webgpu_mldrift | status | not looked at | - |" in text
    before = tree(out)
    merge_stores(shards, out)
    assert tree(out) == before


def test_a_report_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    one = store(tmp_path / "one", record("a"))
    path = report_paths(one, MACHINE, "2.5.2", "2.5.3")[0]
    path.parent.mkdir(parents=True)
    path.write_bytes(dump_json({"old": "2.5.2"}))
    with pytest.raises(RecordError, match=r"2\.5\.2\.\.2\.5\.3\.json is no release report"):
        merge_stores([one], tmp_path / "out")

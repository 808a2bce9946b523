from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sweep.record import Record
from sweep.releases.confirm import Confirmation
from sweep.releases.release_report import (
    ReleaseReport,
    build_report,
    carried,
    read_report,
    report_markdown,
    report_paths,
    same_finding,
    write_report,
)
from sweep.validate import record_files
from tests.make_records import RIGS, make_record

OLD, NEW, MACHINE = "2.5.2", "2.5.3", RIGS[1]["machine_label"]


def record(model_id: str, core: str, webgpu: str = "pass", **edits: Any) -> Record:
    raw = make_record(model_id, rig=edits.pop("rig", 1), core=core, statuses=("pass", webgpu),
                      day=edits.pop("day", date(2026, 2, 3)))  # fmt: skip
    for result in raw["results"]:
        result |= edits.pop("result", {})
        if result["latency"] and (factor := edits.get("factor")):
            samples = [factor * (0.98 + 0.002 * ((7 * i) % 20)) for i in range(20)]
            result["latency"] |= {"samples_ms": samples}
    edits.pop("factor", None)
    return Record.model_validate(raw | edits)


def report(*records: Record, rounds: int = 2, looked: list[Confirmation] | None = None,
           day: str = "2026-02-04") -> ReleaseReport:  # fmt: skip
    return build_report(
        records, OLD, NEW, date=day, machine_label=MACHINE, rounds=rounds, looked=looked or []
    )


def look(model_id: str, verdict: str) -> Confirmation:
    return Confirmation.model_validate(
        {
            "model_id": model_id, "backend": "webgpu_mldrift", "leg": "default", "kind": "status",
            "verdict": verdict, "old_statuses": ["pass"], "new_statuses": ["run_failed"],
            "sentence": f"{model_id} was looked at",
        }
    )  # fmt: skip


WORSE = [record("m", OLD), record("m", NEW, "run_failed")]


@pytest.mark.parametrize(
    ("verdict", "called", "says"),
    [
        ("confirmed", {"regression"}, "regressions: 1 confirmed of 1 seen"),
        ("flaky", set(), "regressions: 0 confirmed of 1 seen"),
        ("not_confirmed", set(), "regressions: 0 confirmed of 1 seen"),
        ("not_measured", set(), "regressions: 0 confirmed of 1 seen"),
    ],
)
def test_only_what_was_seen_again_is_called_a_regression(
    verdict: str, called: set[str], says: str
) -> None:
    found = report(*WORSE, looked=[look("m", verdict)])
    assert found.called == called
    text = report_markdown(found)
    assert says in text
    assert (
        f"| m | webgpu_mldrift | status | {verdict.replace('_', ' ')} | m was looked at |" in text
    )
    assert "## Regressions" not in text
    assert "## Worse in one sweep of each (1)" in text


def test_without_second_looks_everything_counts_and_the_report_says_so() -> None:
    assert report(*WORSE).called == frozenset()
    single = report(*WORSE, rounds=0)
    assert single.called == {"regression"}
    assert "No second looks were asked for" in report_markdown(single)
    assert "regressions: 1 seen, none looked at again" in report_markdown(single)
    # One that did not stand up to the second look of an earlier run still does not count.
    assert report(*WORSE, rounds=0, looked=[look("m", "flaky")]).called == frozenset()


def test_legs_that_a_release_does_not_offer_are_no_regression() -> None:
    away = {"status": "unavailable", "failure_class": "backend_unavailable", "loads": False}
    found = report(record("m", OLD), record("m", NEW, "unavailable", result=away), rounds=0)
    assert [(c.kind, c.new) for c in found.diff.statuses] == [("unavailable", "unavailable")] * 2
    assert found.called == frozenset()


def test_a_second_look_is_kept_while_what_it_looked_at_stands() -> None:
    earlier = report(*WORSE, looked=[look("m", "confirmed")])
    assert carried(earlier, report(*WORSE, record("n", NEW)).diff) == earlier.confirmations
    healed = report(WORSE[0], record("m", NEW))
    assert carried(earlier, healed.diff) == ()
    otherwise = report(WORSE[0], record("m", NEW, "load_failed"))
    assert carried(earlier, otherwise.diff) == ()
    assert report(WORSE[0], record("m", NEW), looked=[look("m", "confirmed")]).confirmations == ()


def test_a_report_is_of_one_machine_and_one_pair() -> None:
    found = report(
        record("m", OLD), record("m", NEW), record("x", NEW, rig=0), record("y", "2.0.0")
    )
    assert (found.models, found.diff.compared, found.diff.empty) == (1, 2, True)
    assert len(found.environments) == 2
    assert all(MACHINE in line for line in found.environments)


def test_variants_are_shown_whether_the_old_sweep_had_them_or_not() -> None:
    def pair(core: str) -> list[Record]:
        return [
            record("parent", core, factor=10.0),
            record("twin", core, factor=210.0, variant_of="parent"),
        ]

    found = report(*pair(OLD), *pair(NEW))
    assert found.diff.siblings == ()
    assert {(s.model_id, s.parent, s.backend, s.kind) for s in found.siblings} == {
        ("twin", "parent", "wasm_xnnpack", "slower"),
        ("twin", "parent", "webgpu_mldrift", "slower"),
    }
    text = report_markdown(found)
    assert "## Variants worse than their parent (2)" in text
    assert "| twin | parent | wasm_xnnpack | 21.0× slower |" in text
    # Only the newest record of a model counts.
    again = record("twin", NEW, factor=10.0, variant_of="parent", day=date(2026, 2, 9))
    assert report(*pair(OLD), *pair(NEW), again).siblings == ()


def test_a_report_comes_back_as_it_was_written(tmp_path: Path) -> None:
    found = report(*WORSE, record("k", OLD, factor=10.0), record("k", NEW, factor=13.0),
                   looked=[look("m", "flaky")])  # fmt: skip
    as_json, as_markdown = write_report(tmp_path, found)
    assert read_report(as_json) == found
    assert as_markdown.read_text() == report_markdown(found)
    assert same_finding(found, found.model_copy(update={"date": "2027-01-01"}))
    assert not same_finding(found, found.model_copy(update={"confirmations": ()}))
    assert read_report(as_json.with_name("none.json")) is None
    as_json.write_text("{}")
    assert read_report(as_json) is None
    # Reports lie in the store, and are no records.
    assert record_files([tmp_path]) == ()


def test_machines_have_reports_of_their_own(tmp_path: Path) -> None:
    paths = {report_paths(tmp_path, label, OLD, NEW)[0] for label in ("a", "b", "../../etc", "ä")}
    assert len(paths) == 4
    assert all(path.is_relative_to(tmp_path / "reports") for path in paths)
    assert all(".." not in path.parts for path in paths)

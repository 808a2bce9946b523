from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from sweep.cli.main import app
from sweep.errors import UsageError
from sweep.record import Record
from sweep.views.report import GITHUB_LIMIT, make_report, render
from sweep.views.report_select import select_records
from tests.make_records import make_hostile_record, make_record, write_record

DAY = date(2026, 3, 1)


def _records(*statuses: str) -> list[Record]:
    return [
        Record.model_validate(make_record(f"m{n}", index=n, day=DAY, statuses=("pass", status)))
        for n, status in enumerate(statuses)
    ]


def test_counts_are_most_serious_first() -> None:
    report = make_report(_records("pass", "output_mismatch", "unavailable", "pass"))
    assert list(report.counts().items()) == [
        ("unavailable", 1), ("output_mismatch", 1), ("pass", 6),
    ]  # fmt: skip
    assert "8 results of 4 models: 1 unavailable, 1 output_mismatch, 6 pass." in render(
        report, "md"
    )


def test_markdown_marks_software_latency_and_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = make_hostile_record(day=DAY)
    hostile["results"][1]["reason"] = "a | b\n| c | <b>"
    text = render(make_report([Record.model_validate(hostile)]), "md")
    rows = [line for line in text.splitlines() if line.startswith("| hostile-model")]
    assert len(rows) == 2, "a newline in a reason must not make a row"
    assert "(software adapter)" in rows[1]
    assert "(software adapter)" not in rows[0], "wasm is not timed on an adapter"
    assert r"a \| b \| c \| \<b\>" in rows[1]


def test_html_escapes_and_runs_nothing() -> None:
    text = render(make_report([Record.model_validate(make_hostile_record(day=DAY))]), "html")
    assert "<img" not in text
    assert "<script" not in text
    assert "&lt;img src=x" in text
    assert "default-src 'none'" in text


def test_json_holds_every_row() -> None:
    value = json.loads(render(make_report(_records("fallback"), ["x.json: not JSON"]), "json"))
    assert value["counts"] == {"fallback": 1, "pass": 1}
    assert [row["status"] for row in value["rows"]] == ["pass", "fallback"]
    assert value["bad"] == ["x.json: not JSON"]


def test_junit_maps_verdicts() -> None:
    records = _records("pass", "output_mismatch", "load_failed", "unavailable", "unverified")
    root = ElementTree.fromstring(render(make_report(records, ["bad.json: torn"]), "junit"))
    assert {k: root.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "11", "failures": "1", "errors": "2", "skipped": "2",
    }  # fmt: skip
    webgpu = next(suite for suite in root if suite.get("name") == "webgpu_mldrift")
    kinds = [[e.tag for e in case if e.tag != "properties"] for case in webgpu]
    assert kinds == [[], ["failure"], ["error"], ["skipped"], ["skipped"]]
    case = webgpu[0]
    p50 = records[0].results[1].latency_p50_ms
    assert p50 is not None
    assert float(case.get("time", "nan")) == pytest.approx(p50 / 1000, abs=1e-6)
    properties = {p.get("name"): p.get("value") for p in case.iter("property")}
    assert properties["software_adapter"] == "true"


def test_junit_survives_characters_that_xml_has_not() -> None:
    record = make_hostile_record(day=DAY)
    record["results"][1] |= {"status": "run_failed", "reason": "a\x00b\x1b[31m\ufffe <&>\ud7ff"}
    root = ElementTree.fromstring(
        render(make_report([Record.model_validate(record)]), "junit").encode()
    )
    error = root.find(".//error")
    assert error is not None
    assert error.get("message") == "a\ufffdb\ufffd[31m\ufffd <&>\ud7ff"


def test_github_annotations_cannot_smuggle_commands() -> None:
    record = make_record("m", day=DAY, statuses=("pass", "output_mismatch"))
    record["results"][1]["reason"] = "x\n::set-output name=a::b\r%0A::error::c"
    text = render(make_report([Record.model_validate(record)]), "github")
    assert len(text.splitlines()) == 1
    assert text.startswith("::error title=m on webgpu_mldrift%3A output_mismatch::")
    assert "x%0A::set-output name=a::b%0D%250A::error::c" in text


def test_github_says_what_it_leaves_out() -> None:
    report = make_report(_records(*["output_mismatch"] * 8, *["load_failed"] * 7, "fallback"))
    lines = render(report, "github").splitlines()
    errors = [line for line in lines if line.startswith("::error")]
    assert len(errors) == GITHUB_LIMIT
    assert sum("load_failed" in line for line in errors) == 7, "most serious first"
    assert "title=6 more::" in errors[-1]
    assert [line for line in lines if not line.startswith("::error")] == [
        line for line in lines if line.startswith("::notice") and "fallback" in line
    ]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    for core, day, status in (
        ("2.9.0", "2026-05-01", "pass"),
        ("2.10.0", "2026-02-01", "pass"),
        ("2.10.0", "2026-03-01", "output_mismatch"),
    ):
        record = make_record("m", core=core, day=date.fromisoformat(day), statuses=("pass", status))
        write_record(root, f"{core}/{day}/m.json", record)
    return root


@pytest.mark.parametrize(
    ("what", "status"),
    [(None, "output_mismatch"), ("2.10.0", "output_mismatch"), ("2.10.0@2026-02-01", "pass"),
     ("2.9.0", "pass")],
)  # fmt: skip
def test_selection(data: Path, what: str | None, status: str) -> None:
    records, bad = select_records(data, what)
    assert [r.results[1].status for r in records] == [status]
    assert bad == []


def test_selection_of_paths_and_of_nothing(data: Path, tmp_path: Path) -> None:
    (data / "2.9.0" / "2026-05-01" / "torn.json").write_text('{"schema_version": ')
    records, bad = select_records(data, str(data / "2.9.0"))
    assert len(records) == len(bad) == 1
    assert "torn.json" in bad[0]
    with pytest.raises(UsageError, match=r"It has: 2\.9\.0@2026-05-01, 2\.10\.0@2026-02-01"):
        select_records(data, "2.11.0")
    with pytest.raises(UsageError, match="holds no records"):
        select_records(tmp_path / "empty", None)


def test_command(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run: Any = CliRunner().invoke
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    done = run(app, ["report", "--data", str(data), "--format", "github"])
    assert done.exit_code == 0
    assert done.stdout.startswith("::error title=m on webgpu_mldrift")
    assert "| m | webgpu_mldrift | output_mismatch |" in summary.read_text("utf-8")
    failing = ["report", "--data", str(data), "--fail-on", "output_mismatch", "--format", "json"]
    assert run(app, failing).exit_code == 4
    out = tmp_path / "junit.xml"
    assert run(app, ["report", "--data", str(data), "--format", "junit", "-o", str(out)])
    assert ElementTree.parse(out).getroot().get("failures") == "1"
    wrong = run(app, ["report", "--data", str(data), "--format", "yaml"])
    assert isinstance(wrong.exception, UsageError)

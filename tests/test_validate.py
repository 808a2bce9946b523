from __future__ import annotations

import json
from pathlib import Path

import typer
from typer.testing import CliRunner

from sweep.cli.validate import validate_command
from sweep.record import Record
from sweep.record_v1 import dump_v1
from sweep.store import read_record, write_record
from sweep.validate import validate_paths
from tests.make_records import make_record

app = typer.Typer()
app.command()(validate_command)


def test_each_file_has_its_result(tmp_path: Path) -> None:
    good = write_record(tmp_path / "data", Record.model_validate(make_record("good")))
    run = CliRunner().invoke(app, [str(tmp_path / "data")])
    assert run.exit_code == 0, run.output
    assert f"valid {good} (2.0)" in run.output

    (good.parent / "broken.json").write_text("{")
    (good.parent / "renamed.json").write_bytes(good.read_bytes())
    (good.parent / ".hidden.json").write_text("{")
    run = CliRunner().invoke(app, [str(tmp_path / "data"), "--json"])
    assert run.exit_code == 1
    found = {Path(c["path"]).name: c["problem"] for c in json.loads(run.output)}
    assert set(found) == {"good.json", "broken.json", "renamed.json"}
    assert found["good.json"] is None
    assert "not JSON" in found["broken.json"]
    assert "not the file's name" in found["renamed.json"]

    run = CliRunner().invoke(app, [str(good.parent / "renamed.json")])
    assert run.exit_code == 0
    run = CliRunner().invoke(app, [str(tmp_path / "absent.json")])
    assert run.exit_code == 1
    assert "no such file" in run.output


def test_the_version_is_that_of_the_file(tmp_path: Path) -> None:
    record = Record.model_validate(make_record("m", statuses=("pass", "pass")))
    old = tmp_path / "m.json"
    old.write_bytes(dump_v1(record))
    imported = write_record(tmp_path / "data", read_record(old))
    assert [c.schema_version for c in validate_paths([old, imported])] == ["1.0", "2.0"]


def test_a_directory_without_records_is_no_success(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, [str(tmp_path)]).exit_code == 1

"""The schedules that ship: workflows, systemd units, crontab. Their scripts are run, not read."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from sweep.cli.main import app
from sweep.record import Record
from sweep.releases.release_report import build_report, write_report
from sweep.store import list_sweeps, read_record, write_record
from tests.make_records import RIGS, make_record

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
UNITS = ROOT / "deploy" / "systemd"
PINNED = re.compile(r"^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")


def test_actions_are_pinned_by_commit_and_say_their_version() -> None:
    uses = [
        line.split("uses:")[1].strip()
        for path in WORKFLOWS
        for line in path.read_text().splitlines()
        if "uses:" in line
    ]
    assert len(uses) >= 12
    assert [line for line in uses if not PINNED.match(line)] == []
    # One version of each action in all workflows.
    assert len(set(uses)) == len({line.split("@")[0] for line in uses})


def test_no_job_may_write_but_the_one_that_reports() -> None:
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {}
        for name, job in workflow["jobs"].items():
            writes = {key for key, value in job["permissions"].items() if value == "write"}
            assert writes == ({"contents", "pull-requests"} if name == "report" else set())


def sweep_workflow() -> dict[str, Any]:
    workflow: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/sweep.yml").read_text())
    return workflow


def script(job: str, name: str) -> str:
    for step in sweep_workflow()["jobs"][job]["steps"]:
        if step.get("name") == name:
            text: str = step["run"]
            return text
    raise AssertionError(f"{job} has no step {name!r}")


def run_script(text: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """As the runner does it with `shell: bash`."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text],
        cwd=cwd, env=os.environ | env, capture_output=True, text=True, check=False,
    )  # fmt: skip


def git(directory: Path, *args: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", *args], cwd=directory, check=True,
        capture_output=True,
    )  # fmt: skip


def record(model_id: str, core: str, webgpu: str = "pass") -> Record:
    raw = make_record(model_id, core=core, rig=1, statuses=("pass", webgpu), day=date(2026, 2, 3))
    return Record.model_validate(raw)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A runner's directory: `records` is the data's checkout, `.venv/bin` has the command."""
    command = tmp_path / ".venv/bin/litertjs-sweep"
    command.parent.mkdir(parents=True)
    command.write_text(
        f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} "
        '-c "from sweep.cli.main import main; main()" "$@"\n'
    )
    command.chmod(0o755)
    records = tmp_path / "records"
    records.mkdir()
    git(records, "init", "--quiet")
    write_record(records / "data/sweep", record("before", "2.5.2"))
    shutil.copy(ROOT / ".gitignore", records)
    git(records, "add", ".")
    git(records, "commit", "--quiet", "--message=x")
    return tmp_path


def test_a_shard_hands_over_what_is_new_only(workspace: Path) -> None:
    store = workspace / "records/data/sweep"
    write_record(store, record("after", "2.5.3"))
    (store / ".sweep.lock").touch()
    assert run_script(script("shard", "New records and reports only"), workspace).returncode == 0
    handed = [p.relative_to(workspace / "new") for p in (workspace / "new").rglob("*.*")]
    assert [str(p) for p in handed if p.suffix == ".json"] == [
        "data/sweep/2.5.3/2026-02-03/after.json"
    ]
    assert not list((workspace / "new").rglob(".sweep*"))


def test_a_shard_without_news_hands_over_nothing(workspace: Path) -> None:
    done = run_script(script("shard", "New records and reports only"), workspace)
    assert done.returncode == 0, done.stderr
    assert list((workspace / "new").iterdir()) == []


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [("0", 0, ""), ("1", 0, "::warning::"), ("4", 4, "::error::A regression was confirmed"),
     ("3", 3, "::error::The sweep did not"), ("", 1, "::error::The sweep did not")],
)  # fmt: skip
def test_what_comes_of_a_shard(tmp_path: Path, status: str, code: int, says: str) -> None:
    done = run_script(script("shard", "What came of it"), tmp_path, STATUS=status)
    assert (done.returncode, done.stdout.startswith(says)) == (code, True)


def test_shards_are_joined_and_reported(workspace: Path) -> None:
    for number, model_id in enumerate(("a", "b"), 1):
        store = workspace / f"shards/records-{number}/data/sweep"
        for one in (record(model_id, "2.5.2"), record(model_id, "2.5.3", "run_failed")):
            write_record(store, one)
        mine = [read_record(path) for path in store.rglob("*.json")]
        write_report(
            store,
            build_report(mine, "2.5.2", "2.5.3", date="2026-02-04", rounds=2,
                         machine_label=RIGS[1]["machine_label"]),
        )  # fmt: skip
    output, summary = workspace / "output", workspace / "summary"
    env = {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary)}
    joined = run_script(script("report", "Join the shards"), workspace, **env)
    assert joined.returncode == 0, joined.stderr
    assert output.read_text() == "changed=true\n"
    names = {s.core_version: s.model_ids for s in list_sweeps(workspace / "records/data/sweep")}
    assert names == {"2.5.2": ("a", "b", "before"), "2.5.3": ("a", "b")}
    reported = run_script(script("report", "Report"), workspace, **env)
    assert reported.returncode == 0, reported.stderr
    body = (workspace / "body.md").read_text()
    assert body.startswith("# @litertjs/core 2.5.2 → 2.5.3")
    assert "| a | webgpu\\_mldrift" in body or "| a | webgpu_mldrift" in body
    assert "regressions: 0 confirmed of 2 seen" in body
    assert body in summary.read_text()
    assert "run_failed" in summary.read_text()


def test_nothing_to_join_is_said_and_changes_nothing(workspace: Path) -> None:
    output, summary = workspace / "output", workspace / "summary"
    output.touch()
    done = run_script(
        script("report", "Join the shards"), workspace, GITHUB_OUTPUT=str(output),
        GITHUB_STEP_SUMMARY=str(summary),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert output.read_text() == ""
    assert summary.read_text().startswith("Nothing new")


def options_of(command: str) -> set[str]:
    """Long options of a command line of ours, all of which must exist."""
    words = shlex.split(command)
    start = words.index("release-sweep")
    return {word for word in words[start:] if word.startswith("--")}


def known_options() -> set[str]:
    command = typer.main.get_command(app)
    context = typer.Context(command)
    release_sweep = command.get_command(context, "release-sweep")  # type: ignore[attr-defined]
    return {name for parameter in release_sweep.params for name in parameter.opts}


def test_schedules_use_options_that_exist() -> None:
    service = (UNITS / "litertjs-sweep.service").read_text()
    (start,) = re.findall(r"^ExecStart=(.*)$", service, re.M)
    crontab = (ROOT / "deploy/crontab.example").read_text().splitlines()[-1]
    workflow = script("shard", "Sweep").replace("(", " release-sweep ").replace(")", " ")
    for command in (start, crontab, workflow):
        options = options_of(command.replace("\n", " "))
        assert {"--profile", "--out"} <= options
        assert options <= known_options()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for unit in UNITS.iterdir():
        # The program is not installed where the unit has it.
        text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.M)
        (tmp_path / unit.name).write_text(text)
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    # What it does not understand is only a warning to it.
    about_ours = [line for line in verified.stderr.splitlines() if "litertjs-sweep" in line]
    assert (verified.returncode, about_ours) == (0, [])


def test_the_crontab_line_is_one() -> None:
    line = (ROOT / "deploy/crontab.example").read_text().splitlines()[-1]
    minute, hour, day, month, weekday, command = line.split(maxsplit=5)
    assert (hour, day, month, weekday) == ("*", "*", "*", "*")
    assert 0 <= int(minute) < 60
    assert "%" not in command, "cron reads it as a line break"

"""Signals and kills: the sweep itself dies, and what it has measured does not."""

from __future__ import annotations

import collections
import functools
import json
import os
import random
import signal
import time
from pathlib import Path

import psutil
import pytest

from sweep.browser import BrowserChoice
from sweep.runtime import CoreFiles
from sweep.scratch import remove_stale
from sweep.state import life, read_state
from sweep.store import BadFile, StoredRecord, iter_records
from tests.faults.conftest import wait_for
from tests.faults.models import catalog_text, write_models
from tests.faults.sweeping import alive, fork_server, run_options, sweeping

pytestmark = [
    pytest.mark.browser,
    pytest.mark.usefixtures("core", "browser"),
    pytest.mark.skipif(os.name != "posix", reason="signals are sent as POSIX has them"),
]

KILLS = 30


def make_catalog(directory: Path, count: int) -> Path:
    entries = write_models(directory, {f"m{i:03}": 3 + i for i in range(count)})
    path = directory / "catalog.toml"
    path.write_text(catalog_text(entries))
    return path


def records_in(out: Path) -> dict[str, bytes]:
    """Record bytes by model id; fails on anything that is no whole and valid record."""
    found = {}
    for item in iter_records(out):
        assert not isinstance(item, BadFile), item.problem
        assert isinstance(item, StoredRecord)
        found[item.record.model_id] = item.path.read_bytes()
    return found


def events(log_file: Path, kind: str) -> list[str]:
    """Model ids of the events of one kind, in order."""
    if not log_file.exists():
        return []
    lines = log_file.read_text("utf-8").splitlines()
    # A killed process may have left half a line.
    parsed = [json.loads(line) for line in lines if line.endswith("}")]
    return [line["model_id"] for line in parsed if line.get("event") == kind]


def is_gone(process: psutil.Process) -> bool:
    return not alive(process)


def has_measured(log_file: Path) -> bool:
    return bool(events(log_file, "done"))


def browsers_under(scratch: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if any(a.startswith(f"--user-data-dir={scratch}") for a in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if alive(process)]


@pytest.mark.timeout(480)
def test_thirty_kills_lose_nothing_and_nothing_is_measured_twice(
    tmp_path: Path, scratch: Path
) -> None:
    """SIGKILL at random moments; the seed is printed, so that a failure can be had again."""
    seed = int(os.environ.get("FAULTS_SEED", time.time_ns() % 10**9))
    print("FAULTS_SEED", seed)
    draw = random.Random(seed)
    catalog, out = make_catalog(tmp_path, 90), tmp_path / "out"
    logs = []
    before: dict[str, bytes] = {}
    with fork_server() as server:
        for trial in range(KILLS):
            log_file = tmp_path / f"events-{trial}.jsonl"
            logs.append(log_file)
            argv = run_options(catalog, out, "--skip-existing", log_file=log_file)
            running = server.start(argv, tmp_path / f"{trial}.log")
            if trial % 3 == 0:  # anywhere while starting
                time.sleep(draw.uniform(0, 1.5))
            else:  # anywhere while measuring
                assert wait_for(functools.partial(has_measured, log_file), 30), running.output()
                time.sleep(draw.uniform(0, 0.3))
            assert alive(running.process), running.output()
            running.process.kill()
            # A killed process holds its lock until the system has taken it down.
            assert wait_for(functools.partial(is_gone, running.process))
            after = records_in(out)
            # What was there is there, byte for byte; and this run measured nothing of it again.
            assert {name: after.get(name) for name in before} == before
            assert not set(events(log_file, "done")) & set(before)
            before = after
        assert wait_for(lambda: not browsers_under(scratch))
        assert before, "no kill came late enough to see a record"
        assert len(before) < 90, "every kill came too late"
        state = read_state(out)
        assert life(state) == "killed"
        last = tmp_path / "last.jsonl"
        argv = run_options(catalog, out, "--skip-existing", log_file=last)
        running = server.start(argv, tmp_path / "last.log")
        assert wait_for(lambda: not alive(running.process), 150), running.output()
    assert "90 records in" in running.output()
    assert sorted(events(last, "skipped")) == sorted(before)
    done = events(last, "done")
    assert len(done) == len(set(done)) == 90 - len(before)
    assert set(records_in(out)) == {f"m{i:03}" for i in range(90)}
    times = collections.Counter(model for log in [*logs, last] for model in events(log, "done"))
    assert max(times.values()) == 1
    assert life(read_state(out)) == "ended"
    left = [p for p in out.rglob("*") if p.is_file() and p.suffix not in (".json", ".lock")]
    assert left == []
    # Directories of the killed runs are gone, too: each start has removed those before it.
    assert [path for path in scratch.iterdir() if path.name.startswith("litertjs")] == []


def test_one_interrupt_finishes_the_model_two_stop_now(tmp_path: Path, scratch: Path) -> None:
    catalog = make_catalog(tmp_path, 60)
    for number, group in ((signal.SIGINT, True), (signal.SIGTERM, False)):
        out = tmp_path / f"out-{number}"
        with sweeping(run_options(catalog, out), tmp_path / f"{number}.log") as running:
            running.wait_for_output("[2/60]")
            # A terminal sends Ctrl-C to driver and browser as well.
            if group:
                os.killpg(running.process.pid, number)
            else:
                running.process.send_signal(number)
            assert running.end() == 130, running.output()
            assert "Stopped as asked" in running.output()
        assert 2 <= len(records_in(out)) < 60
        assert life(read_state(out)) == "ended"
        assert list(scratch.iterdir()) == []
    out = tmp_path / "twice"
    with sweeping(run_options(catalog, out), tmp_path / "twice.log") as running:
        running.wait_for_output("[1/60]")
        family = running.process.children(recursive=True)
        os.killpg(running.process.pid, signal.SIGINT)
        time.sleep(0.05)
        os.killpg(running.process.pid, signal.SIGINT)
        assert running.end(15) == 130, running.output()
        assert "Traceback" not in running.output()
    assert not [process for process in family if alive(process)]
    assert 1 <= len(records_in(out)) < 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_starting_leaves_nothing(
    number: signal.Signals, tmp_path: Path, scratch: Path
) -> None:
    catalog, out = make_catalog(tmp_path, 3), tmp_path / "out"
    with sweeping(run_options(catalog, out), tmp_path / "log") as running:
        assert wait_for((out / ".sweep.lock.json").exists, 30), running.output()
        running.process.send_signal(number)
        assert running.end(20) == 130, running.output()
        assert "Traceback" not in running.output()
    assert list(scratch.iterdir()) == []


def test_the_second_sweep_on_a_directory_is_refused_with_who_holds_it(
    tmp_path: Path, scratch: Path
) -> None:
    catalog, out = make_catalog(tmp_path, 400), tmp_path / "out"
    with sweeping(run_options(catalog, out), tmp_path / "first.log") as first:
        first.wait_for_output("[1/400]")
        with sweeping(run_options(catalog, out), tmp_path / "second.log") as second:
            assert second.end() == 1
            said = " ".join(second.output().split())
        assert f"{out} is in use by process {first.process.pid}" in said
        assert "Traceback" not in said
        first.process.send_signal(signal.SIGTERM)
        assert first.end() == 130


def test_a_browser_that_hangs_dies_with_a_killed_sweep(tmp_path: Path, scratch: Path) -> None:
    catalog, out = make_catalog(tmp_path, 90), tmp_path / "out"
    with sweeping(run_options(catalog, out), tmp_path / "log") as running:
        running.wait_for_output("[1/90]")
        browser = browsers_under(scratch)
        assert browser
        for process in browser:
            process.suspend()  # it cannot hear that its pipe has closed
        running.process.kill()
        running.end()
        time.sleep(0.5)
        assert [path.name for path in scratch.iterdir() if path.name.startswith("litertjs")]
        # What the next sweep does first:
        removed = remove_stale(scratch)
        assert removed
    assert wait_for(lambda: not browsers_under(scratch))


def test_a_dead_reader_of_the_progress_does_not_end_the_sweep(
    tmp_path: Path, scratch: Path
) -> None:
    import subprocess
    import sys

    from tests.faults.sweeping import ROOT

    catalog, out = make_catalog(tmp_path, 6), tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "sweep.cli.main", *run_options(catalog, out)],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stderr.readline().startswith(b"[1/6]")
    process.stderr.close()
    process.wait(60)
    assert len(records_in(out)) == 6


def test_fixtures_are_real(core: CoreFiles, browser: BrowserChoice) -> None:
    """The sweeps above run on a verified release and a working browser, not on stand-ins."""
    assert core.integrity
    assert browser.executable.is_file()

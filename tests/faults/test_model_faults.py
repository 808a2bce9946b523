"""Files that are not what was asked for, npm that is not there, ports that are taken, lies in the
store: the sweep goes on and says so."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.browser import BrowserChoice
from sweep.catalog import CatalogEntry
from sweep.cli.sweeping import exit_code
from sweep.errors import EnvironmentProblem
from sweep.orchestrate import sweep_models
from sweep.paths import CACHE_ENV
from sweep.runtime import CoreFiles
from sweep.secrets import public_environ
from sweep.server import serve_pages
from sweep.sources import FetchOptions, ModelCache, fetch_model, parse_source
from tests.faults.conftest import DATE, PASSED, VERSION, rig, statuses
from tests.faults.downloads import misbehaving
from tests.faults.models import scaling_model
from tests.faults.sweeping import ROOT


@pytest.mark.browser
@pytest.mark.usefixtures("scratch")
async def test_files_that_are_no_models_have_records_that_say_so(
    core: CoreFiles, browser: BrowserChoice, tmp_path: Path
) -> None:
    good = scaling_model(5)
    truth = hashlib.sha256(good).hexdigest()
    files: dict[str, tuple[bytes | None, str | None, str]] = {
        "absent": (None, None, "fetch_failed"),
        "corrupt": (good[:100] + bytes(len(good) - 100), None, "parse_error"),
        "empty": (b"", None, "parse_error"),
        "good": (good, truth, "pass"),
        "html": (b"<!doctype html><title>404 Not Found</title>", None, "parse_error"),
        "truncated": (good[: len(good) // 2], None, "parse_error"),
        "wrong": (good + b"\0", truth, "checksum_mismatch"),
    }
    entries = []
    for name, (content, sha256, _) in files.items():
        if content is not None:
            (tmp_path / f"{name}.tflite").write_bytes(content)
        entries.append(
            CatalogEntry(model_id=name, source=f"{name}.tflite", license="MIT", sha256=sha256)
        )
    async with rig(core, browser, tmp_path) as made:
        with ModelCache(tmp_path / "cache") as cache:
            outcome = await sweep_models(
                [made.bench], entries, tmp_path,
                date=DATE, out=made.out, cache=cache, fetch_options=FetchOptions(),
            )  # fmt: skip
    records = {record.model_id: record for record in outcome.records}
    for name, (_, _, expected) in files.items():
        status = PASSED if expected == "pass" else {"wasm_xnnpack": f"load_failed:{expected}"}
        assert statuses(records[name]) == status
    assert truth in (records["wrong"].results[0].error or "")
    assert exit_code(outcome, ()) == 1


@pytest.mark.browser
@pytest.mark.usefixtures("scratch")
async def test_a_failed_fetch_never_replaces_a_measured_record(
    core: CoreFiles, browser: BrowserChoice, tmp_path: Path
) -> None:
    async with rig(core, browser, tmp_path) as made:
        await made.sweep({"only": 5})
        path = made.out / VERSION / DATE / "only.json"
        measured = path.read_bytes()
        (tmp_path / "only.tflite").unlink()
        outcome, _ = await made.sweep({"only": -1})
        assert path.read_bytes() == measured
        assert "The record of before stays" in outcome.failed["only"]
        assert exit_code(outcome, ()) == 1
        # And where only the failed fetch is on record, resuming tries again.
        path.unlink()
        await made.sweep({"only": -1})
        assert json.loads(path.read_bytes())["results"][0]["failure_class"] == "fetch_failed"
        outcome, records = await made.sweep({"only": 5}, skip_existing=True)
        assert outcome.skipped == 0
        assert statuses(records["only"]) == PASSED
        outcome, _ = await made.sweep({"only": 5}, skip_existing=True)
        assert outcome.skipped == 1


@pytest.mark.parametrize("stall", [False, True], ids=["reset", "stalled"])
async def test_a_download_that_breaks_off_goes_on_where_it_was(stall: bool, tmp_path: Path) -> None:
    body = scaling_model(5) + bytes(300_000)
    with misbehaving(body) as server, ModelCache(tmp_path / "cache") as cache:
        server.cut_after, server.stall = 100_000, stall
        source = parse_source(server.url, tmp_path, allow_insecure=True)
        options = FetchOptions(
            allow_insecure=True, allow_private=True, stall_timeout=0.5, retry_wait=0.01
        )
        fetched = await fetch_model(source, sha256=None, cache=cache, options=options)
        assert fetched.path.read_bytes() == body
        assert server.ranges == [None, "bytes=100000-"]


async def test_a_taken_port_is_said_with_its_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EnvironmentProblem, match=rf"127\.0\.0\.1:{port}.*another port"):
            async with serve_pages(port):
                pytest.fail("two servers on one port")
    async with serve_pages() as first, serve_pages() as second:  # the sweep's own choice
        assert first.origin != second.origin


def command(*argv: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sweep.cli.main", *argv],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False, env=environ,
    )  # fmt: skip


def test_without_npm_a_release_that_is_not_there_is_an_environment_problem(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(scaling_model(5))
    environ = {**public_environ(), "PATH": str(tmp_path), CACHE_ENV: str(tmp_path / "cache")}
    done = command("model", str(tmp_path / "m.tflite"), "--core", VERSION, "--out",
                   str(tmp_path / "out"), environ=environ)  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "npm was not found on PATH" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.browser
def test_without_npm_a_release_that_is_there_is_swept(
    core: CoreFiles, browser: BrowserChoice, tmp_path: Path
) -> None:
    (tmp_path / "m.tflite").write_bytes(scaling_model(5))
    environ = {**os.environ, "PATH": str(tmp_path)}
    done = command("model", str(tmp_path / "m.tflite"), "--core", core.version, "--out",
                   str(tmp_path / "out"), "--no-latency", "--backend", "wasm_xnnpack",
                   "--browser", str(browser.executable), environ=environ)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "out").rglob("m.json"))) == 1


@pytest.mark.parametrize("view", ["site", "report", "status", "card", "diff", "validate"])
def test_foreign_files_in_the_store_are_named_and_crash_no_view(view: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    day = store / VERSION / DATE
    day.mkdir(parents=True)
    (day / "empty.json").touch()
    (day / "binary.json").write_bytes(b"\xff\xfe\0\0" * 100)
    (day / "deep.json").write_text("[" * 100_000)
    (day / "other.json").write_text('{"schema_version": "9.9"}')
    (day / "list.json").write_text("[1, 2]")
    (day / "half.json").write_text('{"schema_version": "2.0", "model_id": "half", "results": [')
    (day / "a directory.json").mkdir()
    (day / "loop.json").symlink_to(day / "loop.json")
    (day / "UPPER case.json").write_text("{}")
    os.mkfifo(day / "pipe.json")
    (store / "not-a-version!").mkdir()
    (store / VERSION / "yesterday").mkdir()
    (store / ".sweep.state.json").write_text("{broken")
    arguments = {
        "site": ["site", str(tmp_path / "site"), "--data", str(store)],
        "report": ["report", "--data", str(store)],
        "status": ["status", str(store)],
        "card": ["card", "half", "--data", str(store)],
        "diff": ["diff", str(day), str(day)],
        "validate": ["validate", str(store)],
    }[view]
    done = command(*arguments, environ=public_environ())
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    assert "internal error" not in said
    assert "No such option" not in said, said
    if view == "validate":
        assert done.returncode == 1
        assert all(name in said for name in ("empty", "binary", "deep", "other", "list", "half"))
    if view == "status":
        assert done.returncode == 1
        assert ".sweep.state.json cannot be read" in " ".join(said.split())

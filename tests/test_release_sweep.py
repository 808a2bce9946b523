"""Release sweeps in a real browser, of small models built here, on real releases."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sweep.errors import EnvironmentProblem
from sweep.paths import cache_dir
from sweep.record import Record
from sweep.runtime import ensure_core
from sweep.store import list_sweeps, read_record, write_record
from tests import tflite_builder as build
from tests.make_records import make_record

CLI = [sys.executable, "-c", "from sweep.cli.main import main; main()"]
FAST = ["--runs", "8", "--machine-label", "test"]
ROOT = Path(__file__).parents[1]


def need_releases(*versions: str) -> None:
    """Skips, saying why, where a release is neither cached nor to be had."""
    for version in versions:
        try:
            asyncio.run(ensure_core(version, cache_dir()))
        except EnvironmentProblem as problem:
            pytest.skip(f"@litertjs/core {version} cannot be had here: {problem}")


@dataclass
class Store:
    """A catalog and the data directory that is swept into."""

    directory: Path
    models: dict[str, bytes]
    extra: dict[str, str] = field(default_factory=dict)
    """More TOML per model."""

    def __post_init__(self) -> None:
        lines = []
        for model_id, data in self.models.items():
            (self.directory / f"{model_id}.tflite").write_bytes(data)
            lines += ["[[model]]", f'model_id = "{model_id}"', f'source = "{model_id}.tflite"',
                      'license = "Apache-2.0"', self.extra.get(model_id, "")]  # fmt: skip
        self.catalog.write_text("\n".join(lines))

    @property
    def catalog(self) -> Path:
        return self.directory / "catalog.toml"

    @property
    def out(self) -> Path:
        return self.directory / "out"

    def command(self, *args: str) -> list[str]:
        return [*CLI, "release-sweep", str(self.catalog), "--out", str(self.out), *FAST, *args]

    def run(self, *args: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*args), capture_output=True, text=True, timeout=timeout, check=False,
            cwd=self.directory, env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    def swept(self) -> dict[tuple[str, str], list[str]]:
        """(core version, leg) → `date model`, sorted."""
        found: dict[tuple[str, str], list[str]] = {}
        for sweep in list_sweeps(self.out):
            names = [f"{sweep.date} {model_id}" for model_id in sweep.model_ids]
            found.setdefault((sweep.core_version, sweep.leg), []).extend(names)
        return found

    def report(self, old: str, new: str) -> dict[str, Any]:
        path = self.out / "reports" / "test" / f"{old}..{new}.json"
        report: dict[str, Any] = json.loads(path.read_bytes())
        return report

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.out)): path.read_bytes()
            for path in self.out.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        }


@pytest.mark.browser
@pytest.mark.network
def test_sweeps_what_is_missing_reports_and_then_does_nothing(tmp_path: Path) -> None:
    need_releases("2.0.0", "2.5.3")
    # LOG_SOFTMAX is not for the GPU: 2.0.0 refuses the model, 2.5.3 falls back.
    store = Store(tmp_path, {"add": build.add_model(), "log-softmax": build.log_softmax_model()})
    hook = f"cat >> {tmp_path / 'hook.json'}"
    versions = ["--versions", "2.5.3,2.0.0", "--on-change", hook]

    first = store.run(*versions, "--date", "2026-01-02")
    assert first.returncode == 0, first.stdout + first.stderr
    assert store.swept() == {
        ("2.0.0", "default"): ["2026-01-02 add", "2026-01-02 log-softmax"],
        ("2.5.3", "default"): ["2026-01-02 add", "2026-01-02 log-softmax"],
    }
    report = store.report("2.0.0", "2.5.3")
    assert json.loads((tmp_path / "hook.json").read_text()) == report
    changes = {(s["model_id"], s["backend"], s["kind"]) for s in report["diff"]["statuses"]}
    assert changes == {("log-softmax", "webgpu_mldrift", "improvement")}
    of = {s["model_id"]: s for s in report["diff"]["statuses"]}
    assert (of["log-softmax"]["old"], of["log-softmax"]["new"]) == ("load_failed", "fallback")
    # What 2.0.0 has no API for is not reported, and no change.
    assert report["diff"]["old_not_reported"] == ["isFullyAccelerated"]
    assert report["diff"]["new_not_reported"] == []
    assert report["diff"]["delegation"] == []

    before = store.files()
    again = store.run(*versions, "--date", "2026-01-03")
    assert again.returncode == 0
    assert "Nothing new" in again.stdout
    assert store.files() == before
    assert json.loads((tmp_path / "hook.json").read_text()) == report


@pytest.mark.browser
@pytest.mark.network
def test_a_killed_run_is_taken_up_on_another_day(tmp_path: Path) -> None:
    need_releases("2.0.0", "2.5.3")
    models = {f"add-{n}": build.add_model(constant=n) for n in range(2, 6)}
    store = Store(tmp_path, models)
    choice = ["--versions", "2.0.0,2.5.3", "--rounds", "0"]
    with subprocess.Popen(
        store.command(*choice, "--date", "2026-01-02"),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, start_new_session=True,
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 120
        while not list(store.out.rglob("add-*.json")) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    done = {path: path.read_bytes() for path in store.out.rglob("add-*.json")}
    assert 0 < len(done) < 8, "killed too late to tell"

    rest = store.run(*choice, "--date", "2026-01-05")
    assert rest.returncode == 0, rest.stdout + rest.stderr
    assert {path: path.read_bytes() for path in done} == done
    swept = store.swept()
    for version in ("2.0.0", "2.5.3"):
        names = [name.split()[1] for name in swept[version, "default"]]
        assert sorted(names) == sorted(models), "each model once, whatever the date"
    dates = {name.split()[0] for names in swept.values() for name in names}
    assert dates == {"2026-01-02", "2026-01-05"}
    assert store.report("2.0.0", "2.5.3")["diff"]["compared"] == 8
    leftovers = list(store.out.rglob(".writing-*"))
    assert leftovers == []


@pytest.mark.browser
@pytest.mark.network
def test_a_real_regression_is_confirmed_and_ends_with_four(tmp_path: Path) -> None:
    """Core 2.0.0 needs WebGPU even for wasm (`GPUBuffer is not defined`); 0.2.1 did not."""
    need_releases("0.2.1", "2.0.0")
    store = Store(tmp_path, {"add": build.add_model()})
    profile = tmp_path / "cpu.toml"
    profile.write_text('name = "cpu"\n[[leg]]\nname = "no-webgpu"\nwebgpu = false\n')
    choice = ["--versions", "0.2.1,2.0.0", "--profile", str(profile), "--fail-on", "regression"]
    # Interrupted at the second look: what was swept stays, and no report claims anything.
    with subprocess.Popen(
        store.command(*choice, "--date", "2026-01-02"), stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "measuring 1 models again" in line:
                process.send_signal(signal.SIGINT)
    assert process.returncode == 130, "".join(said)
    assert not (store.out / "reports").exists()
    swept = store.swept()

    found = store.run(*choice, "--date", "2026-01-03")
    assert found.returncode == 4, found.stdout + found.stderr
    assert store.swept() == swept
    report = store.report("0.2.1", "2.0.0")
    (look,) = report["confirmations"]
    assert (look["model_id"], look["backend"], look["leg"], look["verdict"]) == (
        "add", "wasm_xnnpack", "no-webgpu", "confirmed",
    )  # fmt: skip
    assert look["old_statuses"] == ["pass"] * 2
    assert look["new_statuses"] == ["run_failed"] * 2
    # WebGPU was not offered on either side, which is no change and no regression.
    record = read_record(store.out / "2.0.0/2026-01-02/no-webgpu/add.json")
    assert {r.backend: r.status for r in record.results}["webgpu_mldrift"] == "unavailable"
    # Said once: there is nothing new the next time.
    assert store.run(*choice, "--date", "2026-01-04").returncode == 0


@pytest.mark.browser
@pytest.mark.network
def test_a_build_that_a_release_does_not_have_is_unavailable(tmp_path: Path) -> None:
    """Core 0.1.1 has no threaded build: nothing is measured on the plain one instead."""
    need_releases("0.1.1", "2.5.3")
    store = Store(tmp_path, {"add": build.add_model()})
    profile = tmp_path / "threads.toml"
    profile.write_text('name = "t"\n[[leg]]\nname = "threads"\nthreads = true\n')
    found = store.run("--versions", "0.1.1,2.5.3", "--profile", str(profile), "--date",
                      "2026-01-02", "--fail-on", "regression")  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    old = read_record(store.out / "0.1.1/2026-01-02/threads/add.json")
    assert {(r.status, r.failure_class) for r in old.results} == {
        ("unavailable", "backend_unavailable")
    }
    assert all("no threaded build" in (r.reason or "") for r in old.results)
    new = read_record(store.out / "2.5.3/2026-01-02/threads/add.json")
    assert {r.status for r in new.results} == {"pass"}
    assert "threaded" in (new.results[0].env.wasm_file or "")
    kinds = {s["kind"] for s in store.report("0.1.1", "2.5.3")["diff"]["statuses"]}
    assert kinds == {"unavailable"}


@pytest.mark.browser
@pytest.mark.network
def test_a_model_that_could_not_be_fetched_is_swept_once_it_can(tmp_path: Path) -> None:
    need_releases("2.5.3")
    data = build.add_model(constant=3)
    pinned = {"lost": f'sha256 = "{hashlib.sha256(data).hexdigest()}"'}
    store = Store(tmp_path, {"add": build.add_model(), "lost": b"another file"}, pinned)
    choice = ["--versions", "2.5.3"]
    assert store.run(*choice, "--date", "2026-01-02").returncode == 1
    still = store.run(*choice, "--date", "2026-01-03")
    assert "lost still cannot be fetched" in still.stdout
    assert store.swept() == {("2.5.3", "default"): ["2026-01-02 add", "2026-01-02 lost"]}
    (tmp_path / "lost.tflite").write_bytes(data)
    assert store.run(*choice, "--date", "2026-01-04").returncode == 0
    assert store.swept()["2.5.3", "default"][2:] == ["2026-01-04 lost"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--fail-on", "mismatch"], "it takes `regression` and `slower` here"),
        (["--since", "two"], "is not a version"),
        (["--all", "--since", "2.0.0"], "choose one of --versions, --since and --all"),
        (["--profile", "nightly"], "There is no profile 'nightly'"),
        (["--only", "x"], "has no model x"),
        (["--shard", "3/2"], "is no shard"),
    ],
)
def test_usage_errors_end_with_two(tmp_path: Path, args: list[str], says: str) -> None:
    store = Store(tmp_path, {"add": build.add_model()})
    found = store.run(*args)
    assert found.returncode == 2
    assert says in " ".join((found.stdout + found.stderr).split())
    assert not store.out.exists()


@pytest.mark.network
def test_a_version_that_was_never_published(tmp_path: Path) -> None:
    need_releases("2.5.3")
    store = Store(tmp_path, {"add": build.add_model()})
    found = store.run("--versions", "2.5.3,9.9.9")
    assert (found.returncode, store.out.exists()) in ((2, False), (3, False))
    assert "9.9.9" in found.stderr or found.returncode == 3


@pytest.mark.network
def test_releases_lists_what_is_published_cached_and_swept(tmp_path: Path) -> None:
    need_releases("2.5.3")
    write_record(tmp_path, Record.model_validate(make_record("m", core="2.5.3")))
    command = [*CLI, "releases", "--data", str(tmp_path), "--json"]
    found = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    if found.returncode == 3:
        pytest.skip(f"the registry cannot be reached: {found.stderr}")
    releases = {release["version"]: release for release in json.loads(found.stdout)}
    assert releases["2.5.3"]["cached"]
    assert releases["2.5.3"]["swept"] == ["2026-01-05"]
    assert list(releases)[:3] == ["0.1.1", "0.2.1", "2.0.0"]
    assert releases["0.2.1"]["swept"] == []
    assert releases["0.2.1"]["published"].startswith("20")

"""`setup`, `doctor`, the exit codes of the console script, and what a wheel holds."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import sweep.cli
from sweep.browser import BROWSER_ENV, find_browser
from sweep.cli import main as cli
from sweep.doctor import webgpu_check
from sweep.errors import CatalogError, EnvironmentProblem, ModelError, SweepError
from sweep.paths import CACHE_ENV
from sweep.probe import BrowserFacts
from tests.test_runtime import Registry, registry

__all__ = ["registry"]  # the fixture

ROOT = Path(__file__).parents[1]


def run(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sweep.cli.main", *args],
        capture_output=True, text=True, timeout=120, cwd=ROOT, check=False,
        env={**os.environ, "COLUMNS": "200", **environ},
    )  # fmt: skip


# --- setup ---------------------------------------------------------------------------------------


def test_setup_installs_once_and_then_works_offline(registry: Registry, tmp_path: Path) -> None:
    browser = tmp_path / "my-browser"
    browser.write_text("#!/bin/sh\necho Chromium 150.1.2\n")
    browser.chmod(0o755)
    environ = {BROWSER_ENV: str(browser), CACHE_ENV: str(tmp_path / "cache")}
    missing = run("setup", "--offline", **environ)
    assert missing.returncode == 3
    assert "no release is cached" in missing.stderr
    assert "Traceback" not in missing.stderr
    done = run("setup", "--core", "0.10.0", "--core", "latest", **environ)
    assert done.returncode == 0, done.stderr
    assert f"chromium 150.1.2, explicit: {browser}" in done.stdout
    assert "0.10.0 with wasm-utils 0.4.0" in done.stdout
    assert "1.1.0 with wasm-utils 1.0.3" in done.stdout
    registry.offline()
    assert run("setup", "--offline", **environ).returncode == 0


# --- exit codes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EnvironmentProblem("no browser [here]"), 3),
        (CatalogError("line 3 [here]"), 2),
        (ModelError("not a model [here]"), 1),
        (ZeroDivisionError("oh no [here]"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_become_messages_and_exit_codes(
    error: BaseException,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails() -> None:
        raise error

    monkeypatch.setattr(cli, "app", fails)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code
    out, err = capsys.readouterr()
    assert out == ""
    assert str(error) in err  # with its brackets: they are no markup
    assert "Traceback" not in err
    assert ("please report" in err) == (
        isinstance(error, Exception) and not isinstance(error, SweepError)
    )


def test_usage_errors_are_2_and_version_is_told() -> None:
    wrong = run("setup", "--colour")
    assert wrong.returncode == 2
    assert "--colour" in wrong.stderr
    version = run("--version")
    assert (version.returncode, version.stdout) == (0, f"litertjs-sweep {sweep.__version__}\n")


def test_a_traceback_goes_to_the_log_file_only(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    environ = {CACHE_ENV: str(tmp_path)}
    failed = run("--log-file", str(log), "setup", "--browser", "/nowhere", **environ)
    assert failed.returncode == 3
    assert "Traceback" not in failed.stderr
    assert "Traceback" in log.read_text()


def test_every_command_is_registered() -> None:
    """A module of the CLI that defines a command is reachable, and the table has no dead lines."""
    defined = set()
    for module in pkgutil.iter_modules(sweep.cli.__path__, "sweep.cli."):
        for name in vars(importlib.import_module(module.name)):
            if name.endswith("_command"):
                defined.add(f"{module.name}:{name}")
    registered = set(cli.COMMANDS.values())
    assert {place for place in registered if place.endswith("_command")} == defined
    helped = run("--help")
    assert helped.returncode == 0, helped.stderr
    assert all(f" {name} " in helped.stdout for name in cli.COMMANDS)
    assert "--core" in run("setup", "-h").stdout


# --- doctor --------------------------------------------------------------------------------------

FACTS = BrowserFacts(
    version="156.0.1",
    cross_origin_isolated=True,
    shared_array_buffer=True,
    jspi=True,
    webgpu_api=True,
    adapter={"vendor": "nvidia", "architecture": "ampere"},
    adapter_is_fallback=False,
    adapter_class="hardware",
    device_error=None,
    shader_f16=True,
    webnn=False,
    hardware_concurrency=8,
)


def test_webgpu_checks_tell_hardware_software_and_nothing_apart() -> None:
    good = webgpu_check(FACTS, "Linux")
    assert (good.health, good.found) == ("ok", "nvidia ampere, hardware, shader-f16")
    soft = webgpu_check(FACTS.model_copy(update={"adapter_class": "software"}), "Linux")
    assert soft.health == "warn"
    assert "SOFTWARE" in soft.found
    none = webgpu_check(FACTS.model_copy(update={"adapter": None}), "Linux")
    assert none.health == "warn"
    assert "no adapter" in none.found
    assert "mesa-vulkan-drivers" in (none.remedy or "")
    no_device = webgpu_check(FACTS.model_copy(update={"device_error": "OperationError"}), "Darwin")
    assert "OperationError" in no_device.found


@pytest.mark.browser
async def test_doctor_on_this_machine(registry: Registry, tmp_path: Path) -> None:
    # The registry's PATH has no browser and no node; the real one is named.
    os.environ["PATH"] = f"{os.environ['PATH']}{os.pathsep}{os.defpath}"
    try:
        browser = (await find_browser()).executable
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))
    environ = {BROWSER_ENV: str(browser), CACHE_ENV: str(tmp_path / "cache")}
    first = run("doctor", "--json", **environ)
    assert first.returncode == 0, first.stderr + first.stdout
    found = json.loads(first.stdout)
    assert found["can_sweep"] is True
    assert found["browser_facts"]["cross_origin_isolated"] is True
    assert found["browser_facts"]["shared_array_buffer"] is True
    assert found["browser_facts"]["adapter_class"] in ("hardware", "software", "none")
    assert found["cores_published"][0] == "0.9.1"
    health = {check["name"]: check["health"] for check in found["checks"]}
    assert (health["browser"], health["core versions cached"]) == ("ok", "warn")
    registry.offline()
    table = run("doctor", **environ)
    assert table.returncode == 3  # nothing cached, and nothing can be fetched
    assert "FAIL core versions published: npm view failed" in table.stdout


# --- packaging -----------------------------------------------------------------------------------


def test_a_wheel_holds_the_page_the_dashboard_and_the_catalogs(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        "from sweep.paths import resource_dir\n"
        "print(*map(resource_dir, ('web_harness', 'static', 'configs')), sep='\\n')"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    for installed, name in zip(printed, ("web_harness", "static", "configs"), strict=True):
        assert Path(installed) == tmp_path / "site" / "sweep" / f"_{name}"
        shipped = {p.relative_to(installed) for p in Path(installed).rglob("*") if p.is_file()}
        tracked = subprocess.run(
            ["git", "ls-files", "-z", name], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.split("\0")
        assert {Path(p).relative_to(name) for p in tracked if p} <= shipped
        assert shipped

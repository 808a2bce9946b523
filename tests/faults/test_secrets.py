"""Tokens and passwords of the user's environment: nowhere in records, logs, outputs or the page."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from sweep.browser import BrowserChoice
from sweep.orchestrate import Event
from sweep.runtime import CoreFiles
from tests.faults.conftest import rig
from tests.faults.models import scaling_model
from tests.faults.sweeping import run_options, sweeping

SENTINEL = "s3cr3tSentinel"
SECRETS = {
    "HF_TOKEN": f"hf_{SENTINEL}Hub",
    "NPM_TOKEN": f"npm_{SENTINEL}Npm",
    "npm_config__authToken": f"{SENTINEL}Config",
    "https_proxy": f"http://user{SENTINEL}:pass{SENTINEL}@127.0.0.1:1",
    "HTTPS_PROXY": f"http://user{SENTINEL}:pass{SENTINEL}@127.0.0.1:1",
    "GITHUB_TOKEN": f"ghp_{SENTINEL}",
}
CATALOG = """
[catalog]
name = "secrets"
[[model]]
model_id = "good"
source = "good.tflite"
license = "MIT"
[[model]]
model_id = "through-the-proxy"
source = "https://models.example/x.tflite"
license = "MIT"
[[model]]
model_id = "hub"
source = "hf:nobody/nothing/x.tflite@main"
license = "MIT"
"""


@pytest.mark.browser
@pytest.mark.usefixtures("core", "browser")
def test_a_sweep_that_fails_to_fetch_tells_no_secret(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "good.tflite").write_bytes(scaling_model(5))
    catalog, out = tmp_path / "catalog.toml", tmp_path / "out"
    catalog.write_text(CATALOG)
    argv = run_options(catalog, out, "--only", "good,through-the-proxy", log_file=tmp_path / "log")
    environ = {**SECRETS, "HF_HUB_DISABLE_TELEMETRY": "1"}
    with sweeping(["--verbose", *argv], tmp_path / "output", environ) as running:
        assert running.end(110) == 1, running.output()
    records = list(out.rglob("*.json"))
    assert {path.stem for path in records} >= {"good", "through-the-proxy"}
    for path in [*records, tmp_path / "log", tmp_path / "output"]:
        assert path.read_bytes()
        assert SENTINEL.encode() not in path.read_bytes(), path.read_text()
    assert b"fetch_failed" in (out / "2.5.3/2026-12-01/through-the-proxy.json").read_bytes()


@pytest.mark.browser
@pytest.mark.usefixtures("scratch")
async def test_neither_browser_nor_interpreter_is_given_a_secret(
    core: CoreFiles, browser: BrowserChoice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    seen: set[str] = set()

    def look(event: Event) -> None:
        if event.kind != "done":
            return
        for process in [made.browser_process(), *made.browser_process().children(recursive=True)]:
            seen.add("browser")
            assert SENTINEL not in str(process.environ())
        for process in psutil.Process().children():
            if "sweep.reference_worker" in process.cmdline():
                seen.add("interpreter")
                assert SENTINEL not in str(process.environ())

    async with rig(core, browser, tmp_path) as made:
        await made.sweep({"only": 5}, on_event=look)
    assert seen == {"browser", "interpreter"}

"""A bench with real Chromium whose pages, processes and disk can be made to fail."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from playwright.async_api import Page

from sweep.bench import Bench, open_bench
from sweep.browser import BrowserChoice, find_browser
from sweep.config import SweepConfig, Timeouts
from sweep.errors import EnvironmentProblem
from sweep.orchestrate import Event, SweepOutcome, sweep_models
from sweep.paths import cache_dir
from sweep.record import Record
from sweep.runtime import CoreFiles, ensure_core
from sweep.sources import FetchOptions, ModelCache
from tests.faults.models import write_models

VERSION = "2.5.3"
DATE = "2026-12-01"
VICTIM = 13
"""Width of the model that faults strike; by it the page knows it."""
WIDTHS = {"before": 5, "victim": VICTIM, "after": 7}
HERE = "fault injection: here"
CONFIG = SweepConfig(
    core_version=VERSION,
    backends=("wasm_xnnpack",),
    latency=False,
    warmup_runs=1,
    input_sets=1,
    timeouts=Timeouts(init=20, load=20, first_run=20, warmup=20, timed=20, outputs=20),
)


@pytest.fixture(scope="session")
def core() -> CoreFiles:
    try:
        return asyncio.run(ensure_core(VERSION, cache_dir()))
    except EnvironmentProblem as problem:
        pytest.skip(f"no @litertjs/core to inject faults into: {problem}")


@pytest.fixture(scope="session")
def browser() -> BrowserChoice:
    try:
        return asyncio.run(find_browser())
    except EnvironmentProblem as problem:
        pytest.skip(f"no browser to inject faults into: {problem}")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """All temporary files of a test, its processes' too; nothing may be left of either.

    `tmp_path` is asked for first, so that it lies elsewhere. The path is short for sockets.
    """
    with tempfile.TemporaryDirectory(prefix="f", ignore_cleanup_errors=True) as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        monkeypatch.setenv("TMPDIR", directory)
        yield Path(directory)
        assert wait_for(lambda: not living_children()), living_children()
        assert [path.name for path in Path(directory).iterdir()] == []


def living_children() -> list[str]:
    """Command lines of the processes that this one has started and that still run."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if child.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(child.cmdline())[:200])
    return found


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> bool:
    """Whether something becomes true in time."""
    deadline = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return met


def at_step(step: str, fault: str) -> str:
    """A page script: on the victim, JavaScript `fault` runs just before a step of the harness.

    The page's own code and the runtime stay as they are; `hit` tells how often it struck here.
    """
    return f"""(() => {{
      const native = {{instantiate: WebAssembly.instantiate,
                       instantiateStreaming: WebAssembly.instantiateStreaming}};
      const imports = [];
      for (const name of Object.keys(native)) WebAssembly[name] = (source, given) => {{
        imports.push(given);
        return native[name].call(WebAssembly, source, given);
      }};
      const devices = [];
      if (globalThis.GPUAdapter) {{
        const request = GPUAdapter.prototype.requestDevice;
        GPUAdapter.prototype.requestDevice = async function (...args) {{
          const device = await request.apply(this, args);
          devices.push(device);
          return device;
        }};
      }}
      let harness, victim = false, onGpu = false;
      Object.defineProperty(globalThis, 'litertSweep', {{
        get: () => harness,
        set(real) {{
          harness = {{...real}};
          for (const step of Object.keys(real)) harness[step] = async (job) => {{
            if (step === 'load') onGpu = job.accelerator === 'webgpu';
            // Small outputs would not be posted.
            if ({step!r} === 'postOutputs') job = {{...job, inline: 0}};
            if (victim && step === {step!r}) {{ {fault} }}
            const answer = await real[step](job);
            if (step === 'load') {{
              victim = answer.ok && answer.value.signatures[0].inputs[0].shape.at(-1) === {VICTIM};
            }}
            return answer;
          }};
        }},
      }});
    }})();"""


def pause(milliseconds: int = 60_000, where: str = "true") -> str:
    """JavaScript that tells the test that the moment has come, and waits to be struck."""
    return (
        f"if ({where}) {{ console.info({HERE!r});"
        f" await new Promise((r) => setTimeout(r, {milliseconds})); }}"
    )


@dataclass
class Rig:
    """A bench, the models to sweep with it, and a hand to strike with."""

    bench: Bench
    models: Path
    out: Path
    strike: Callable[[Page], object] | None = None
    """Called whenever a page says that the moment has come."""
    strikes: int = 0
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def browser_process(self) -> psutil.Process:
        """The browser's main process."""
        found = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                line = process.cmdline()
                main = not any(argument.startswith("--type=") for argument in line)
                if main and any(argument.startswith("--user-data-dir=") for argument in line):
                    found.append(process)
        assert len(found) == 1, found
        return found[0]

    def helper(self, kind: str) -> psutil.Process:
        """A helper process of the browser: `gpu-process`, `renderer`, `utility`."""
        for process in self.browser_process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # of one that has just ended
                if f"--type={kind}" in process.cmdline():
                    return process
        raise AssertionError(f"no {kind}")

    def driver_process(self) -> psutil.Process:
        """The Playwright driver."""
        return next(p for p in psutil.Process().children() if "run-driver" in p.cmdline())

    def watch(self) -> None:
        """Has every browser of the bench report the moments."""
        launch = self.bench.host.launch

        async def launch_and_watch() -> object:
            running = await launch()
            running.context.on("console", lambda m: self._on_console(m.page, m.text))
            return running

        self.bench.host.launch = launch_and_watch

    def _on_console(self, page: Page | None, text: str) -> None:
        if text == HERE and self.strike is not None and page is not None:
            self.strikes += 1
            struck = self.strike(page)
            if asyncio.iscoroutine(struck):
                self._tasks.append(asyncio.ensure_future(struck))

    async def sweep(
        self,
        widths: dict[str, int] | None = None,
        *,
        on_event: Callable[[Event], None] = lambda _: None,
        skip_existing: bool = False,
    ) -> tuple[SweepOutcome, dict[str, Record]]:
        """Sweeps the tiny models; returns the outcome and the records by model id."""
        entries = write_models(self.models, widths or WIDTHS)
        with ModelCache(self.models / "cache") as cache:
            outcome = await sweep_models(
                [self.bench],
                entries,
                self.models,
                date=DATE,
                out=self.out,
                cache=cache,
                fetch_options=FetchOptions(),
                skip_existing=skip_existing,
                on_event=on_event,
            )
        return outcome, {record.model_id: record for record in outcome.records}


@contextlib.asynccontextmanager
async def rig(
    core: CoreFiles,
    browser: BrowserChoice,
    tmp_path: Path,
    script: str | None = None,
    config: SweepConfig = CONFIG,
) -> AsyncIterator[Rig]:
    """A bench whose pages run `script` first."""
    async with open_bench(
        config, core, browser, machine_label="faults", init_script=script
    ) as bench:
        made = Rig(bench, tmp_path, tmp_path / "out")
        made.watch()
        yield made


def statuses(record: Record) -> dict[str, str]:
    """Backend → status, or status:failure_class where there is one."""
    return {
        r.backend: f"{r.status}:{r.failure_class}" if r.failure_class else str(r.status)
        for r in record.results
    }


BOTH = CONFIG.model_copy(update={"backends": ("wasm_xnnpack", "webgpu_mldrift")})
PASSED = {"wasm_xnnpack": "pass"}
BOTH_PASSED = {"wasm_xnnpack": "pass", "webgpu_mldrift": "pass"}

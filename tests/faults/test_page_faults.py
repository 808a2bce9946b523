"""What a page and the runtime in it can do to a sweep: hang, abort, flood, lose, starve."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from sweep.browser import BrowserChoice
from sweep.cli.sweeping import exit_code
from sweep.config import Timeouts
from sweep.console_log import MAX_CONSOLE_LINES, ConsoleLog
from sweep.runtime import CoreFiles
from tests.faults.conftest import BOTH, BOTH_PASSED, CONFIG, PASSED, at_step, rig, statuses
from tests.faults.models import scaling_model

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("scratch")]

IMPATIENT = CONFIG.model_copy(
    update={"timeouts": Timeouts(init=30, load=20, first_run=2, warmup=2, timed=20, outputs=20)}
)

# The runtime's own abort function, found among what its wasm imports: this is a real `Aborted()`,
# after which the module refuses every further call.
ABORT = """
  for (const given of imports) for (const space of Object.values(given ?? {}))
    for (const fn of Object.values(space))
      if (typeof fn === 'function' && /abort\\(/.test(String(fn)) && fn.length === 0) fn();
"""


@pytest.mark.parametrize(
    ("fault", "status", "said"),
    [
        ("for (;;) {}", "run_failed:timeout", "did not end within 2 s"),
        ("await new Promise(() => {});", "run_failed:timeout", "did not end within 2 s"),
        (ABORT, "run_failed:run_error", "Aborted("),
    ],
    ids=["hung in synchronous code", "never resolves", "Aborted()"],
)
async def test_a_page_that_stops_costs_one_result(
    fault: str,
    status: str,
    said: str,
    core: CoreFiles,
    browser: BrowserChoice,
    tmp_path: Path,
) -> None:
    async with rig(core, browser, tmp_path, at_step("firstRun", fault), IMPATIENT) as made:
        outcome, records = await made.sweep()
    assert statuses(records["before"]) == statuses(records["after"]) == PASSED
    assert statuses(records["victim"]) == {"wasm_xnnpack": status}
    result = records["victim"].results[0]
    assert result.error is not None
    assert said in result.error
    assert result.failed_stage == "first_run"
    assert result.confirmed is True
    assert exit_code(outcome, ()) == 0


async def test_a_destroyed_device_fails_webgpu_only_and_not_the_next_model(
    core: CoreFiles, browser: BrowserChoice, tmp_path: Path
) -> None:
    script = at_step("firstRun", "if (onGpu) for (const d of devices) d.destroy();")
    async with rig(core, browser, tmp_path, script, BOTH) as made:
        _, records = await made.sweep()
    assert statuses(records["before"]) == statuses(records["after"]) == BOTH_PASSED
    assert statuses(records["victim"]) == {
        "wasm_xnnpack": "pass",
        "webgpu_mldrift": "run_failed:device_lost",
    }


async def test_a_wasm_memory_that_cannot_grow_is_the_memory_ceiling(
    core: CoreFiles, browser: BrowserChoice, tmp_path: Path
) -> None:
    # As at the real ceiling: growing fails, `malloc` gives nothing, and the runtime ends somehow.
    ceiling = """
      const memory = WebAssembly.Memory.prototype;
      memory.grow = () => { throw new RangeError('Maximum memory size exceeded'); };
    """
    (tmp_path / "big.tflite").write_bytes(scaling_model(64, extra_constants=96 << 20))
    async with rig(core, browser, tmp_path, ceiling) as made:
        _, records = await made.sweep({"before": 5, "big": -1, "after": 7})
    assert statuses(records["before"]) == statuses(records["after"]) == PASSED
    assert statuses(records["big"]) == {"wasm_xnnpack": "load_failed:memory_ceiling"}


async def test_a_console_flood_ends_and_hides_no_telling_line(
    core: CoreFiles, browser: BrowserChoice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.console_log.MAX_CONSOLE_LINES", 2000)
    flood = """
      for (let i = 0; i < 4000; i++) console.log('flood ' + i);
      console.error('ERROR: Node number 3 (MUL) failed to invoke.');
    """
    async with rig(core, browser, tmp_path, at_step("firstRun", flood)) as made:
        _, records = await made.sweep()
    assert statuses(records["before"]) == statuses(records["after"]) == PASSED
    assert statuses(records["victim"]) == {"wasm_xnnpack": "run_failed:run_error"}
    evidence = records["victim"].results[0].delegation_evidence
    assert any("failed to invoke" in line for line in evidence)
    assert len(evidence) < 100


def test_a_flood_is_cut_and_counted_but_not_what_decides_a_verdict() -> None:
    log = ConsoleLog()
    started = time.monotonic()
    for index in range(MAX_CONSOLE_LINES + 1000):
        log.add("log", f"line {index}")
    log.add("error", "ERROR: Node number 3 (MUL) failed to invoke.")
    log.add("log", "x" * 10_000_000 + "\nERROR: Failed to allocate tensors")
    assert log.dropped == 1000
    assert len(log.lines) == MAX_CONSOLE_LINES + 2
    assert "failed to invoke" in log.lines[-2].text
    assert log.lines[-1].text.endswith("Failed to allocate tensors")
    assert len(log.lines[-1].text) < 20_000
    for index in range(2 * MAX_CONSOLE_LINES):  # a flood of such lines is bounded as well
        log.add("error", f"ERROR: Node number {index} (MUL) failed to invoke.")
    assert len(log.lines) == 2 * MAX_CONSOLE_LINES
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("damage", ["missing", "truncated", "not wasm"])
async def test_a_core_with_a_broken_wasm_is_said_to_be_broken(
    damage: str, core: CoreFiles, browser: BrowserChoice, tmp_path: Path
) -> None:
    import shutil

    broken = tmp_path / "core"
    shutil.copytree(core.core_dir, broken)
    for wasm in (broken / "wasm").glob("*.wasm"):
        if damage == "missing":
            wasm.unlink()
        elif damage == "truncated":
            wasm.write_bytes(wasm.read_bytes()[: wasm.stat().st_size // 2])
        else:
            wasm.write_bytes(b"<!doctype html><title>404</title>")
    bad = core.model_copy(update={"core_dir": broken})
    async with rig(bad, browser, tmp_path, config=IMPATIENT) as made:
        outcome, records = await made.sweep({"before": 5})
    assert statuses(records["before"]) == {"wasm_xnnpack": "load_failed:init_failed"}
    assert re.search("wasm|WebAssembly", records["before"].results[0].error or "")
    assert exit_code(outcome, ()) == 1

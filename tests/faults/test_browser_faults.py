"""Processes that die under a sweep: renderer, GPU process, browser, driver."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from sweep.browser import BrowserChoice
from sweep.cli.sweeping import exit_code
from sweep.runtime import CoreFiles
from tests.faults.conftest import BOTH, BOTH_PASSED, PASSED, Rig, at_step, pause, rig, statuses

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("scratch")]


async def crash_renderer(page: Page) -> None:
    session = await page.context.new_cdp_session(page)
    with contextlib.suppress(PlaywrightError):  # the session dies with its page
        await session.send("Page.crash")


def killer(made: Rig, which: str) -> Callable[[Page], object]:
    def strike(page: Page) -> object:
        match which:
            case "renderer":
                return crash_renderer(page)
            case "gpu":
                made.helper("gpu-process").kill()
            case "browser":
                made.browser_process().kill()
            case "driver":
                made.driver_process().kill()
        return None

    return strike


@pytest.mark.parametrize("which", ["renderer", "browser", "driver"])
async def test_a_death_that_does_not_come_again_costs_no_verdict(
    which: str, core: CoreFiles, browser: BrowserChoice, tmp_path: Path
) -> None:
    async with rig(core, browser, tmp_path, at_step("firstRun", pause(1500))) as made:
        kill = killer(made, which)
        made.strike = lambda page: kill(page) if made.strikes == 1 else None
        outcome, records = await made.sweep()
    assert made.strikes >= 2
    assert [statuses(records[m]) for m in ("before", "victim", "after")] == [PASSED] * 3
    struck = records["victim"].results[0]
    assert struck.confirmed is False
    assert "not_confirmed_in_fresh_page" in struck.flags
    assert exit_code(outcome, ()) == 0


@pytest.mark.parametrize(
    ("which", "step", "status"),
    [
        ("renderer", "firstRun", "run_failed:page_crash"),
        ("browser", "load", "load_failed:browser_crash"),
        ("browser", "secondRun", "run_failed:browser_crash"),
        ("browser", "postOutputs", "run_failed:browser_crash"),
        ("driver", "firstRun", "run_failed:browser_crash"),
    ],
)
async def test_a_death_at_every_try_is_the_models_and_the_sweep_goes_on(
    which: str, step: str, status: str, core: CoreFiles, browser: BrowserChoice, tmp_path: Path
) -> None:
    # `load` knows the victim only after it; so there the next model's load is what is struck.
    victim = "after" if step == "load" else "victim"
    async with rig(core, browser, tmp_path, at_step(step, pause())) as made:
        made.strike = killer(made, which)
        outcome, records = await made.sweep()
    if step == "load":
        # Only struck once: the fresh page has had no victim before.
        assert statuses(records[victim]) == PASSED
        assert records[victim].results[0].confirmed is False
    else:
        assert statuses(records[victim]) == {"wasm_xnnpack": status}, (
            records[victim].results[0].error
        )
        assert records[victim].results[0].confirmed is True
        assert records[victim].results[0].reason
    assert statuses(records["before"]) == PASSED
    assert exit_code(outcome, ()) == 0


async def test_a_browser_killed_between_models_is_replaced(
    core: CoreFiles, browser: BrowserChoice, tmp_path: Path
) -> None:
    async with rig(core, browser, tmp_path) as made:
        outcome, records = await made.sweep(
            on_event=lambda e: made.browser_process().kill() if e.kind == "done" else None
        )
        assert made.bench.host.launches == 3
    assert [statuses(record) for record in records.values()] == [PASSED] * 3
    assert not outcome.failed


async def test_a_killed_gpu_process_is_told_from_a_wrong_model(
    core: CoreFiles, browser: BrowserChoice, tmp_path: Path
) -> None:
    script = at_step("firstRun", pause(1500, "onGpu"))
    async with rig(core, browser, tmp_path, script, BOTH) as made:
        made.strike = lambda _: made.helper("gpu-process").kill()
        outcome, records = await made.sweep()
    assert statuses(records["before"]) == statuses(records["after"]) == BOTH_PASSED
    assert statuses(records["victim"]) == {
        "wasm_xnnpack": "pass",
        "webgpu_mldrift": "run_failed:device_lost",
    }
    assert not outcome.failed


async def test_a_browser_that_never_starts_again_ends_the_sweep_with_what_was_measured(
    core: CoreFiles, browser: BrowserChoice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweep import host
    from sweep.errors import EnvironmentProblem
    from sweep.store import iter_records

    monkeypatch.setattr(host, "RELAUNCH_WAITS_S", (0.01, 0.01))
    async with rig(core, browser, tmp_path) as made:
        launch, tries = made.bench.host.launch, []

        async def fails_from_the_second_on() -> object:
            tries.append(1)
            if len(tries) > 1:
                raise EnvironmentProblem("the browser is gone")
            return await launch()

        made.bench.host.launch = fails_from_the_second_on
        with pytest.raises(EnvironmentProblem, match="the browser is gone"):
            await made.sweep(
                on_event=lambda e: made.browser_process().kill() if e.kind == "done" else None
            )
    assert len(tries) == 4
    assert [found.path.stem for found in iter_records(made.out)] == ["before"]


def test_the_strikes_hit_what_they_aim_at() -> None:
    """Nothing of an earlier test still runs: the helpers above look at this process's children."""
    names = [child.name() for child in psutil.Process().children(recursive=True)]
    assert not any("chrom" in name for name in names)

"""Pages reused from job to job: warm before they are timed, replaced in time, tidy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

import sweep.session
from benchmarks.models import write_small_models
from sweep.bench import Bench, open_bench
from sweep.browser_search import find_browser
from sweep.catalog import CatalogEntry
from sweep.config import Backend, SweepConfig
from sweep.measure import job_of
from sweep.paths import cache_dir
from sweep.prepare import Prepared, prepare
from sweep.protocol import Job, Measurement, TimedRuns
from sweep.runtime import ensure_core
from sweep.sources import FetchOptions, ModelCache

pytestmark = pytest.mark.browser

WASM: Backend = "wasm_xnnpack"


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    core = await ensure_core("2.5.3", cache_dir())
    config = SweepConfig(core_version=core.version, desktop_reference=False)
    async with open_bench(config, core, await find_browser(), machine_label="test") as opened:
        yield opened


async def make_job(bench: Bench, folder: Path) -> Job:
    (path,) = write_small_models(folder, 1)
    entry = CatalogEntry(model_id="small", source=path.name, license="Apache-2.0")
    with ModelCache() as cache:
        prepared = await prepare(entry, folder, bench.config, cache, FetchOptions())
    assert isinstance(prepared, Prepared)
    return job_of(bench.config, prepared, WASM)


def plan(**fields: float) -> TimedRuns:
    return TimedRuns.model_validate({"floor_runs": 3, "min_runs": 8, "max_runs": 24, **fields})


async def test_pages_over_several_jobs(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await make_job(bench, tmp_path)

    async def run(**changes: object) -> Measurement:
        done = await bench.session(WASM).run(job.model_copy(update=changes))
        assert done.error is None, done.error
        return done

    # A fresh page runs until its code is compiled for speed; the same page need not again.
    first = await run(timed=plan())
    assert first.fresh_page
    assert first.timings.extra_warmup_runs > 100
    assert len(first.timings.warmup_ms) == job.warmup_runs
    # As many samples as asked, or more while they scatter beyond the target, or fewer than asked
    # once the budget is spent.
    again = await run(timed=plan(max_runs=8))
    assert not again.fresh_page
    assert 0 < again.timings.extra_warmup_runs < first.timings.extra_warmup_runs / 4
    assert len(again.timings.samples_ms) == 8
    assert len((await run(timed=plan(relative_half_width=1e-9))).timings.samples_ms) == 24
    assert len((await run(timed=plan(relative_half_width=1000))).timings.samples_ms) == 8
    spent = plan(relative_half_width=1e-9, extra_budget_ms=0)
    assert len((await run(timed=spent)).timings.samples_ms) == 8
    assert len((await run(timed=plan(budget_ms=0))).timings.samples_ms) == 3
    # Replaced once it has run enough jobs, or kept too much memory.
    monkeypatch.setattr(sweep.session, "MAX_JOBS_PER_PAGE", 7)
    assert not (await run(timed=None)).fresh_page
    assert (await run(timed=None)).fresh_page
    assert bench.session(WASM).wasm_bytes
    monkeypatch.setattr(sweep.session, "MAX_IDLE_WASM_BYTES", 1)
    assert not (await run(timed=None)).fresh_page
    assert (await run(timed=None)).fresh_page


async def test_nothing_stays_of_an_input_set_that_failed(bench: Bench, tmp_path: Path) -> None:
    job = await make_job(bench, tmp_path)
    (key,) = job.inputs[0]
    wrong = {key: {name: np.zeros((3, 3), np.float32) for name in job.inputs[1][key]}}
    done = await bench.session(WASM).run(job.model_copy(update={"inputs": (job.inputs[0], wrong)}))
    assert done.error is not None
    (kept,) = done.runs
    folders = {tensor.path.parent for tensor in kept.outputs}
    assert {path for path in bench.server.scratch.iterdir() if path.is_dir()} == folders
    # All that was registered for the page was withdrawn again.
    assert not bench.server._blobs
    assert not bench.server._uploads

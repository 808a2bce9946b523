"""While one model is in the browser, the last is compared and written; never beside timed runs."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from benchmarks.models import write_small_models
from sweep.bench import open_bench
from sweep.browser_search import find_browser
from sweep.catalog import CatalogEntry
from sweep.config import SweepConfig
from sweep.gate import MeasuringGate
from sweep.orchestrate import _write, sweep_models
from sweep.paths import cache_dir
from sweep.protocol import Job, Measurement
from sweep.runtime import ensure_core
from sweep.server import PageServer
from sweep.session import PageSession
from sweep.sources import FetchOptions, ModelCache
from sweep.verify import verify

pytestmark = pytest.mark.browser

Span = tuple[str, float, float]
"""What for, begin, end."""

COMPARING_S = 0.3
MODELS = 4


def beside(left: list[Span], right: list[Span]) -> list[tuple[Span, Span]]:
    """Pairs of spans that share some time."""
    return [(a, b) for a in left for b in right if a is not b and a[1] < b[2] and b[1] < a[2]]


def slowly(work: Callable[..., Any], spans: list[Span], seconds: float) -> Callable[..., Any]:
    """The same work, made to last and written down."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        began = time.monotonic()
        time.sleep(seconds)
        result = work(*args, **kwargs)
        spans.append((work.__name__, began, time.monotonic()))
        return result

    return wrapped


async def test_comparing_one_model_runs_beside_the_next_but_not_beside_timed_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[Span] = []
    timed: list[Span] = []
    compared: list[Span] = []
    written: list[Span] = []
    fetched: Counter[str] = Counter()

    run_job, timing, serve_blob = PageSession.run, MeasuringGate.timing, PageServer._blob

    async def run(self: PageSession, job: Job) -> Measurement:
        began = time.monotonic()
        done = await run_job(self, job)
        jobs.append((job.model_id, began, time.monotonic()))
        return done

    @contextlib.asynccontextmanager
    async def alone(self: MeasuringGate) -> AsyncIterator[None]:
        async with timing(self):
            began = time.monotonic()
            yield
            timed.append(("timed", began, time.monotonic()))

    async def blob(self: PageServer, request: web.Request) -> web.StreamResponse:
        found = self._blobs.get(request.match_info["key"])
        if found is not None and isinstance(found.content, Path):
            fetched[found.content.name] += 1
        return await serve_blob(self, request)

    monkeypatch.setattr(PageSession, "run", run)
    monkeypatch.setattr(MeasuringGate, "timing", alone)
    monkeypatch.setattr(PageServer, "_blob", blob)
    monkeypatch.setattr("sweep.measure.verify", slowly(verify, compared, COMPARING_S))
    monkeypatch.setattr("sweep.orchestrate._write", slowly(_write, written, 0.01))

    core = await ensure_core("2.5.3", cache_dir())
    config = SweepConfig(core_version=core.version)
    paths = write_small_models(tmp_path, MODELS)
    entries = [
        CatalogEntry(model_id=path.stem, source=path.name, license="Apache-2.0") for path in paths
    ]
    browser = await find_browser()
    with ModelCache() as cache:
        async with open_bench(config, core, browser, machine_label="test") as bench:
            outcome = await sweep_models(
                [bench], entries, tmp_path, date="2026-01-02", out=tmp_path / "out",
                cache=cache, fetch_options=FetchOptions(),
            )  # fmt: skip

    assert [r.model_id for r in outcome.records] == [e.model_id for e in entries]
    assert {r.status for record in outcome.records for r in record.results} == {"pass"}
    assert (len(jobs), len(compared), len(written)) == (2 * MODELS, 2 * MODELS, MODELS)
    assert len(timed) == 2 * MODELS
    assert not beside(jobs, jobs), "the browser does one job at a time"
    assert not beside(timed, [*compared, *written])
    assert len(beside(compared, jobs)) >= MODELS
    assert fetched == Counter({path.name: 1 for path in paths}), "one fetch for both backends"

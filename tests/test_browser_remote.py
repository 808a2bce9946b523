"""A browser behind a Playwright server."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.models import write_small_models
from sweep.bench import open_bench
from sweep.browser_search import find_browser
from sweep.catalog import CatalogEntry
from sweep.cli.main import app
from sweep.config import SweepConfig
from sweep.errors import EnvironmentProblem, UsageError
from sweep.measure import measure_model
from sweep.paths import cache_dir
from sweep.prepare import Prepared, prepare
from sweep.runtime import ensure_core
from sweep.sources import FetchOptions, ModelCache

pytestmark = pytest.mark.browser


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
async def endpoint() -> AsyncIterator[str]:
    """A Playwright server on this machine, as on any other."""
    port = free_port()
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "playwright", "run-server",
        "--host", "127.0.0.1", "--port", str(port), "--unsafe",
        stdout=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert server.stdout is not None
    async with asyncio.timeout(30):
        while b"Listening" not in (line := await server.stdout.readline()):
            assert line, "the server ended"
    yield f"ws://127.0.0.1:{port}/"
    # `python -m playwright` starts another program and would leave it behind.
    os.killpg(server.pid, signal.SIGKILL)
    await server.wait()


async def test_a_model_is_measured_in_a_remote_browser(endpoint: str, tmp_path: Path) -> None:
    core = await ensure_core("2.5.3", cache_dir())
    config = SweepConfig(core_version=core.version, timed_runs=3, target_half_width=0)
    (path,) = write_small_models(tmp_path, 1)
    entry = CatalogEntry(model_id="small", source=path.name, license="Apache-2.0")
    with ModelCache() as cache:
        prepared = await prepare(entry, tmp_path, config, cache, FetchOptions())
    assert isinstance(prepared, Prepared)
    executable = (await find_browser()).executable
    async with open_bench(
        config, core, None, machine_label="far", endpoint=endpoint, far_executable=executable
    ) as bench:
        record = await measure_model(bench, prepared, "2026-12-01")
        # A connection that is lost is made anew.
        await bench.host.kill()
        again = await measure_model(bench, prepared, "2026-12-01")
    for result in record.results + again.results:
        assert result.status == "pass", result.reason
        assert result.env.machine_label == "far"
        assert result.env.os == "Linux"
        assert result.env.cpu is None  # nothing of this machine is claimed of that one
        assert result.env.memory_bytes is None
        assert result.env.cpu_count
        assert result.latency is not None
        assert result.latency.load_average is None
    flags = record.results[0].env.browser_flags
    assert flags is not None
    assert "--enable-unsafe-webgpu" in flags


async def test_nobody_there(tmp_path: Path) -> None:
    core = await ensure_core("2.5.3", cache_dir())
    config = SweepConfig(core_version=core.version, desktop_reference=False)
    nowhere = f"ws://127.0.0.1:{free_port()}/"
    with pytest.raises(EnvironmentProblem, match="run-server"):
        async with open_bench(config, core, None, machine_label="far", endpoint=nowhere):
            pass


def test_the_machine_has_to_be_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["run", "--browser-endpoint", "ws://127.0.0.1:9/", "--out", str(tmp_path)]
    )
    assert isinstance(result.exception, UsageError)
    assert "--machine-label" in str(result.exception)

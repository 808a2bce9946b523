"""A sweep over several worker processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("distributed", reason="needs the fleet extra")

from distributed import Scheduler

from benchmarks.models import write_small_models
from sweep.catalog import CatalogEntry
from sweep.config import SweepConfig
from sweep.env import default_machine_label
from sweep.errors import EnvironmentProblem
from sweep.fleet import FleetTask, connect, local_files, needs_of, resource_names, sweep_fleet
from sweep.fleet_worker import unpack
from sweep.input_rules import InputRule
from sweep.orchestrate import Event
from sweep.store import read_record

DATE = "2026-12-01"


@pytest.fixture
async def scheduler() -> AsyncIterator[Scheduler]:
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False, validate=False) as running:
        yield running


async def start_worker(scheduler: Scheduler, label: str) -> asyncio.subprocess.Process:
    """A worker in a process of its own, once it has joined."""
    known = len(scheduler.workers)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sweep.cli.main", "worker", scheduler.address,
        "--machine-label", label,
        stdout=asyncio.subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    async with asyncio.timeout(90):
        while len(scheduler.workers) == known:
            assert process.returncode is None, "the worker ended"
            await asyncio.sleep(0.1)
    return process


def kill(process: asyncio.subprocess.Process, number: int) -> None:
    if process.returncode is None:
        os.killpg(process.pid, number)


def entries(folder: Path, count: int) -> list[CatalogEntry]:
    paths = write_small_models(folder, count)
    return [CatalogEntry(model_id=p.stem, source=p.name, license="Apache-2.0") for p in paths]


def test_a_model_only_goes_where_everything_it_needs_is_offered() -> None:
    config = SweepConfig(core_version="2.5.3")
    entry = CatalogEntry(model_id="a", source="a.tflite", license="MIT")
    offered = resource_names(
        backends=["wasm_xnnpack"], adapter_class="none", os="Linux", machine_label="box"
    )
    assert not set(needs_of(config, entry, ())) <= set(offered)
    on_wasm = entry.model_copy(update={"backends": ("wasm_xnnpack",)})
    assert set(needs_of(config, on_wasm, ["os=Linux", "machine=box"])) <= set(offered)
    assert not set(needs_of(config, on_wasm, ["os=macOS"])) <= set(offered)


def test_local_files_travel_and_keep_their_meaning(tmp_path: Path) -> None:
    sent, received = tmp_path / "sent", tmp_path / "received"
    sent.mkdir()
    received.mkdir()
    (sent / "model.tflite").write_bytes(b"a model")
    np.save(sent / "image.npy", np.arange(3))
    entry = CatalogEntry(
        model_id="a", source="model.tflite", license="MIT",
        inputs={"x": InputRule(file="image.npy"), "y": InputRule(fill=1)},
    )  # fmt: skip
    files = local_files(entry, sent)
    task = FleetTask(config=SweepConfig(core_version="2.5.3"), entry=entry, date=DATE, files=files)
    there = unpack(FleetTask.model_validate(task.model_dump()), received)
    assert Path(there.source).read_bytes() == b"a model"
    file = there.inputs["x"].file
    assert file is not None
    assert np.load(received / file).tolist() == [0, 1, 2]
    assert there.inputs["y"] == entry.inputs["y"]
    remote = entry.model_copy(update={"source": "hf:a/b/c.tflite@" + "0" * 40, "inputs": {}})
    assert local_files(remote, sent) == {}


async def test_no_scheduler_is_said_to_a_person() -> None:
    with pytest.raises(EnvironmentProblem, match=r"No scheduler answers at tcp://127.0.0.1:9"):
        async with connect("tcp://127.0.0.1:9", timeout=2):
            pass


async def test_what_no_worker_offers_is_given_up(scheduler: Scheduler, tmp_path: Path) -> None:
    config = SweepConfig(core_version="2.5.3")
    async with connect(scheduler.address) as client:
        outcome = await sweep_fleet(
            client, config, entries(tmp_path, 2), tmp_path, out=tmp_path / "out", date=DATE,
            needs=["os=Plan9"], patience=0.5,
        )  # fmt: skip
    assert len(outcome.failed) == 2
    assert "no worker offers" in outcome.failed["perceptron-000"]
    assert "os=Plan9" in outcome.failed["perceptron-000"]
    assert not (tmp_path / "out").exists()


@pytest.mark.browser
async def test_two_workers_one_is_killed(scheduler: Scheduler, tmp_path: Path) -> None:
    config = SweepConfig(core_version="2.5.3", timed_runs=3, desktop_reference=False)
    catalog = entries(tmp_path, 8)
    started: list[str] = []
    events: list[tuple[str, str]] = []
    workers = [await start_worker(scheduler, "one"), await start_worker(scheduler, "two")]

    def on_event(event: Event) -> None:
        events.append((event.kind, event.model_id))
        if event.kind == "done" and not started:
            # The other worker may hold a model just now: it goes with all its processes.
            started.append(event.model_id)
            assert event.record is not None
            survivor = event.record.results[0].env.machine_label
            kill(workers[1 if survivor == "one" else 0], signal.SIGKILL)

    try:
        async with connect(scheduler.address) as client:
            outcome = await sweep_fleet(
                client, config, catalog, tmp_path, out=tmp_path / "out", date=DATE,
                on_event=on_event,
            )  # fmt: skip
    finally:
        for worker in workers:
            kill(worker, signal.SIGTERM)
        await asyncio.gather(*(worker.wait() for worker in workers))
    assert not outcome.failed
    assert [record.model_id for record in outcome.records] == [e.model_id for e in catalog]
    # Each model once, with both backends from one machine, under its own source.
    assert sorted(m for kind, m in events if kind == "done") == sorted(e.model_id for e in catalog)
    for path, entry in zip(outcome.paths, catalog, strict=True):
        record = read_record(path)
        assert len({result.env.machine_label for result in record.results}) == 1
        # Without a desktop reference nothing vouches for wasm.
        assert [result.status for result in record.results] == ["unverified", "pass"]
        assert record.source == entry.source
    assert default_machine_label() not in {r.results[0].env.machine_label for r in outcome.records}

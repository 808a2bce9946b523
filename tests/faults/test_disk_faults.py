"""Disks that fill up or may not be written, while downloading, receiving and writing records."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.browser import BrowserChoice
from sweep.cli.sweeping import exit_code
from sweep.errors import SourceError, StoreError
from sweep.orchestrate import Event
from sweep.runtime import CoreFiles
from sweep.sources import FetchOptions, ModelCache, fetch_model, parse_source
from sweep.store import iter_records, sweep_lock
from tests.faults.conftest import PASSED, at_step, pause, rig, statuses
from tests.faults.downloads import misbehaving


@contextlib.contextmanager
def mounted(path: Path, *options: str) -> Iterator[Path]:
    """A file system of its own; skips the test where none can be mounted."""
    path.mkdir(parents=True, exist_ok=True)
    if shutil.which("mount") is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can mount a small or read-only file system to run into")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"this system does not let tests mount: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(directory: Path, leave: int = 0) -> Path:
    """A file that takes what is free, but for `leave` bytes."""
    path = directory / "filler"
    free = shutil.disk_usage(directory).free - leave
    with path.open("wb") as file, contextlib.suppress(OSError):
        while free > 0:
            free -= file.write(bytes(min(free, 1 << 16)))
            file.flush()
    return path


@pytest.mark.browser
@pytest.mark.usefixtures("scratch")
async def test_a_full_disk_keeps_what_is_measured_until_there_is_room(
    core: CoreFiles, browser: BrowserChoice, tmp_path: Path
) -> None:
    with mounted(tmp_path / "out", "size=1m") as out:
        seen: list[tuple[str, str]] = []

        def fill_and_empty(event: Event) -> None:
            seen.append((event.kind, event.model_id))
            if (event.kind, event.model_id) == ("done", "before"):
                fill(out)
            if (event.kind, event.model_id) == ("failed", "victim"):
                (out / "filler").unlink()

        async with rig(core, browser, tmp_path) as made:
            outcome, _ = await made.sweep(on_event=fill_and_empty)
        assert ("failed", "victim") in seen
        assert seen[-2:] == [("done", "victim"), ("done", "after")]
        assert outcome.failed == {}
        stored = {found.path.stem for found in iter_records(out)}
        assert stored == {"before", "victim", "after"}
        assert not list(out.rglob("*.tmp"))
        assert exit_code(outcome, ()) == 0


@pytest.mark.browser
@pytest.mark.usefixtures("scratch")
async def test_a_disk_that_stays_full_loses_nothing_that_was_written(
    core: CoreFiles, browser: BrowserChoice, tmp_path: Path
) -> None:
    from sweep.orchestrate import sweep_models
    from tests.faults.conftest import DATE, WIDTHS
    from tests.faults.models import write_models

    with mounted(tmp_path / "out", "size=1m") as out:

        def fill_at_once(event: Event) -> None:
            if (event.kind, event.model_id) == ("done", "before"):
                fill(out)

        async with rig(core, browser, tmp_path) as made:
            with ModelCache(tmp_path / "cache") as cache:
                outcome = await sweep_models(
                    [made.bench], write_models(tmp_path, WIDTHS), tmp_path,
                    date=DATE, out=out, cache=cache, fetch_options=FetchOptions(),
                    on_event=fill_at_once, rescue=tmp_path / "rescue",
                )  # fmt: skip
        assert [found.path.stem for found in iter_records(out)] == ["before"]
        assert set(outcome.failed) == {"victim", "after"}
        assert "No space left" in outcome.failed["victim"]
        assert "is kept in" in outcome.failed["victim"]
        kept = {found.path.stem for found in iter_records(tmp_path / "rescue")}
        assert kept == {"victim", "after"}
        assert len(outcome.records) == 3
        assert exit_code(outcome, ()) == 1


@pytest.mark.browser
@pytest.mark.usefixtures("scratch")
@pytest.mark.parametrize("step", ["firstRun", "postOutputs"])
async def test_a_full_disk_under_the_received_outputs_is_not_the_models_fault(
    step: str, core: CoreFiles, browser: BrowserChoice, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    async with rig(core, browser, tmp_path, at_step(step, pause(500))) as made:
        with mounted(small, "size=256k"):
            kept, made.bench.server.scratch = made.bench.server.scratch, small
            made.strike = lambda _: fill(small)

            def make_room(event: Event) -> None:
                if event.kind == "failed":
                    (small / "filler").unlink()

            outcome, records = await made.sweep(on_event=make_room)
            made.bench.server.scratch = kept
            assert not list(small.rglob("*.part"))
    assert statuses(records["before"]) == statuses(records["after"]) == PASSED
    assert "victim" not in records
    assert "No space left" in outcome.failed["victim"]
    assert "TMPDIR" in outcome.failed["victim"]
    assert exit_code(outcome, ()) == 1


async def test_a_full_disk_while_downloading_says_so_and_leaves_no_half_model(
    tmp_path: Path,
) -> None:
    with mounted(tmp_path / "cache", "size=2m") as root, misbehaving(bytes(8)) as server:
        server.body = b"\0\0\0\0TFL3" + bytes(1 << 20)
        server.say_length = False  # so that the space is not looked at beforehand
        with ModelCache(root) as cache:
            fill(root, leave=300_000)
            source = parse_source(server.url, tmp_path, allow_insecure=True)
            options = FetchOptions(allow_insecure=True, allow_private=True, attempts=1)
            with pytest.raises(SourceError, match=r"No space left.*LITERTJS_SWEEP_CACHE") as caught:
                await fetch_model(source, sha256=None, cache=cache, options=options)
            assert caught.value.failure_class == "fetch_failed"
            assert not list((root / "partial").iterdir())
            (root / "filler").unlink()
            fetched = await fetch_model(source, sha256=None, cache=cache, options=options)
            assert fetched.bytes == len(server.body)


def test_a_read_only_data_directory_is_refused_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    refused = pytest.raises(StoreError, match=r"cannot lock .*Read-only.*Choose a directory")
    with mounted(tmp_path / "ro", "size=1m,ro") as out, refused, sweep_lock(out):
        pytest.fail("a read-only directory was locked")


async def test_a_read_only_cache_is_named(tmp_path: Path) -> None:
    refused = pytest.raises(SourceError, match=r"cannot be written: Read-only.*SWEEP_CACHE")
    with mounted(tmp_path / "ro", "size=1m,ro") as root, refused:
        ModelCache(root)

"""Sweeps in processes of their own, which tests may signal and kill."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.faults.conftest import DATE, VERSION, wait_for

ROOT = Path(__file__).parents[2]


def run_options(catalog: Path, out: Path, *more: str, log_file: Path | None = None) -> list[str]:
    """Arguments of `litertjs-sweep` for a quick sweep of tiny models."""
    logging = ["--log-file", str(log_file)] if log_file else []
    return [
        *logging, "run", str(catalog), "--core", VERSION, "--date", DATE, "--out", str(out),
        "--machine-label", "faults", "--no-latency", "--backend", "wasm_xnnpack",
        "--input-sets", "1", *more,
    ]  # fmt: skip


@dataclass
class Sweeping:
    """A running `litertjs-sweep`, the leader of a process group."""

    process: psutil.Process
    log: Path
    popen: subprocess.Popen[bytes] | None = None

    def output(self) -> str:
        """What it has said so far."""
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def wait_for_output(self, text: str, seconds: float = 60) -> None:
        """Until it has said something."""
        wait_for(lambda: text in self.output() or not alive(self.process), seconds)
        assert text in self.output(), self.output()

    def end(self, seconds: float = 60) -> int:
        """Its exit code, once it has ended by itself."""
        assert self.popen is not None
        return self.popen.wait(seconds)


def alive(process: psutil.Process) -> bool:
    """Whether a process runs, and is not just a name in the table."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextlib.contextmanager
def sweeping(
    argv: list[str], log: Path, environ: dict[str, str] | None = None
) -> Iterator[Sweeping]:
    """Starts `litertjs-sweep` with these arguments; kills it if the test has left it running."""
    with log.open("wb") as stream:
        popen = subprocess.Popen(
            [sys.executable, "-m", "sweep.cli.main", *argv],
            cwd=ROOT, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            start_new_session=True, env={**os.environ, **(environ or {})},
        )  # fmt: skip
    running = Sweeping(psutil.Process(popen.pid), log, popen)
    try:
        yield running
    finally:
        if popen.poll() is None:
            kill_group(running)
            popen.wait(10)


def kill_group(running: Sweeping) -> None:
    """SIGKILL to the process and its descendants, browsers in groups of their own too."""
    with contextlib.suppress(psutil.Error):
        for process in [running.process, *running.process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)


@dataclass
class ForkServer:
    """Starts many sweeps, each quickly."""

    popen: subprocess.Popen[str]

    def start(self, argv: list[str], log: Path) -> Sweeping:
        """A sweep in a process group of its own."""
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.popen.stdin.write(json.dumps({"argv": argv, "log": str(log)}) + "\n")
        self.popen.stdin.flush()
        return Sweeping(psutil.Process(int(self.popen.stdout.readline())), log)


@contextlib.contextmanager
def fork_server() -> Iterator[ForkServer]:
    """A fork server, gone at the end."""
    popen = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.forkserver"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert popen.stdout is not None
        assert popen.stdout.readline() == "ready\n"
        yield ForkServer(popen)
    finally:
        assert popen.stdin is not None
        popen.stdin.close()
        popen.wait(10)
        assert popen.stdout is not None
        popen.stdout.close()

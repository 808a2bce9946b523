"""The desktop reference: the ai-edge-litert CPU interpreter, run in a process of its own.

The interpreter can abort the whole process on some files. Here that is a status of one run; the
next run gets a new process.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import psutil

from sweep.reference_worker import PACKAGE
from sweep.scratch import scratch_prefix
from sweep.secrets import public_environ
from sweep.tolerance import NoiseFloor, measure_floor

Array = np.ndarray[Any, np.dtype[Any]]
Inputs = Mapping[str, Mapping[str, Array]]
"""signature key → input name → value; key "" for a file without signatures."""
Kernels = Literal["xnnpack", "builtin"]
FloorPrecision = Literal["fp32", "fp16", "quantized"]
T = TypeVar("T")

_STDERR_TAIL = 16_384  # bytes
_REPLY_LIMIT = 64 * 2**20  # bytes of one reply line
_ERROR_LINES = 12


@dataclass(frozen=True)
class DesktopRun:
    """What one run of the desktop reference gave."""

    status: Literal["ok", "failed", "crashed", "timeout"]
    """`failed`: refused with a message; `crashed`: the process died (abort, segfault, memory)."""
    error: str | None
    """Why not `ok`, without timestamps and pointers."""
    outputs: dict[str, dict[str, Array]]
    """signature key → output name → value, read-only; empty unless `ok`."""
    package: str
    version: str | None
    """None: the package is not installed here."""


@dataclass
class DesktopWorker:
    """A worker process that is started when needed, and again after it died.

    Use `desktop_worker()` to get one. Runs are done one at a time.
    """

    directory: Path
    threads: int
    memory_limit: int
    _process: asyncio.subprocess.Process | None = None
    _version: str | None = None
    _unusable: str | None = None
    _stderr: bytearray = field(default_factory=bytearray)
    _drain: asyncio.Task[None] | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _count: int = 0

    async def run(
        self,
        path: Path,
        inputs: Inputs,
        *,
        kernels: Kernels = "xnnpack",
        timeout: float = 120.0,  # noqa: ASYNC109  # it also bounds a process that cannot be cancelled
    ) -> DesktopRun:
        """Run the signatures named in `inputs` once each, every one from the initial state.

        `xnnpack`: the interpreter's default kernels; `builtin`: its own, without any delegate.
        `timeout` in seconds for all signatures together, including the start of the process.
        Never raises for what the model does: that is in `status` and `error`.
        """
        async with self._lock:
            self._count += 1
            directory = self.directory / f"run-{self._count}"
            try:
                request = await _in_thread(lambda: self._prepare(directory, path, inputs, kernels))
                reply = await asyncio.wait_for(self._exchange(request), timeout)
                if reply is None:
                    return self._result("crashed", await self._death())
                if reply["status"] != "ok":
                    return self._result("failed", _clean(reply["error"]))
                outputs = await _in_thread(lambda: _load(directory, reply["outputs"]))
                return self._result("ok", None, outputs)
            except TimeoutError:
                await self._stop()
                return self._result(
                    "timeout", f"the desktop reference did not end in {timeout:g} s"
                )
            except BaseException:  # cancelled: the process is busy with a run nobody waits for
                await self._stop()
                raise
            finally:
                shutil.rmtree(directory, ignore_errors=True)

    def _prepare(
        self, directory: Path, path: Path, inputs: Inputs, kernels: Kernels
    ) -> dict[str, Any]:
        directory.mkdir()
        files: dict[str, dict[str, str]] = {}
        for s, (signature, values) in enumerate(inputs.items()):
            files[signature] = {}
            for i, (name, value) in enumerate(values.items()):
                files[signature][name] = f"in-{s}-{i}.npy"
                np.save(directory / f"in-{s}-{i}.npy", value, allow_pickle=False)
        return {
            "dir": str(directory),
            "model": str(path.resolve()),
            "kernels": kernels,
            "threads": self.threads,
            "inputs": files,
        }

    async def _exchange(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """The reply, or None where the process died without giving one."""
        if self._process is None or self._process.returncode is not None:
            await self._stop()
            await self._start()
        self._stderr.clear()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        if self._version is None and self._unusable is None:
            greeting = await process.stdout.readline()
            if not greeting:
                return None
            facts = json.loads(greeting)
            self._version, self._unusable = facts["version"], facts["error"]
        if self._unusable is not None:
            return {
                "status": "failed",
                "error": f"the desktop reference cannot be used: {self._unusable}"
                f" (install it with: pip install {PACKAGE})",
            }
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            await process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            return None
        line = await process.stdout.readline()
        if not line.endswith(b"\n"):
            return None
        reply: dict[str, Any] = json.loads(line)
        return reply

    async def _start(self) -> None:
        self._version = self._unusable = None
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "sweep.reference_worker", str(self.directory), str(self.memory_limit)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_REPLY_LIMIT,
            env=public_environ(),
            cwd=Path(__file__).parents[1],
        )
        self._drain = asyncio.create_task(self._keep_stderr(self._process))

    async def _keep_stderr(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while chunk := await process.stderr.read(65_536):
            self._stderr += chunk
            del self._stderr[:-_STDERR_TAIL]

    async def _death(self) -> str:
        """How the process died, in words."""
        process = self._process
        assert process is not None
        code = await process.wait()
        if self._drain is not None:
            await asyncio.wait([self._drain], timeout=5)
        said = _clean(self._stderr.decode("utf-8", "replace"))
        how = f"exit code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                how = signal.Signals(-code).name
        return f"the desktop reference died ({how})" + (f": {said}" if said else "")

    async def _stop(self) -> None:
        process, drain = self._process, self._drain
        self._process = self._drain = None
        if process is not None:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await process.wait()
            if process.stdin is not None:
                process.stdin.close()
        if drain is not None:
            drain.cancel()
            await asyncio.wait([drain])

    def _result(
        self,
        status: Literal["ok", "failed", "crashed", "timeout"],
        error: str | None,
        outputs: dict[str, dict[str, Array]] | None = None,
    ) -> DesktopRun:
        return DesktopRun(status, error, outputs or {}, PACKAGE, self._version)


@contextlib.asynccontextmanager
async def desktop_worker(
    *, threads: int = 1, memory_limit: int | None = None
) -> AsyncIterator[DesktopWorker]:
    """A worker whose process and files are gone when the block is left, however it is left.

    `memory_limit` in bytes of private memory (not enforced on Windows); default three quarters
    of the machine's memory, so that a hungry model costs a worker and not the sweep.
    """
    if memory_limit is None:
        memory_limit = psutil.virtual_memory().total * 3 // 4
    directory = Path(tempfile.mkdtemp(prefix=scratch_prefix()))
    worker = DesktopWorker(directory, threads, memory_limit)
    try:
        yield worker
    finally:
        try:
            await asyncio.shield(worker._stop())
        finally:
            shutil.rmtree(directory, ignore_errors=True)


async def measure_noise_floor(
    worker: DesktopWorker,
    path: Path,
    inputs: Inputs,
    precision: FloorPrecision,
    *,
    base: DesktopRun | None = None,
    timeout: float = 120.0,  # noqa: ASYNC109
) -> dict[str, dict[str, NoiseFloor]]:
    """How far the reference itself moves, per signature and output.

    Two movements are measured against `base` (XNNPACK kernels; run here when not given): the
    builtin kernels on the same inputs, and XNNPACK on the inputs of `perturb`. An output whose
    base is not finite, or not numeric, has no floor and is left out; a movement that could not
    be run, or gave another shape or non-finite values, is None: a broken reference must not
    widen what is tolerated.
    """
    if base is None:
        base = await worker.run(path, inputs, timeout=timeout)
    if base.status != "ok":
        return {}
    other = await worker.run(path, inputs, kernels="builtin", timeout=timeout)
    moved_inputs = perturb(inputs, precision)
    moved = None
    if moved_inputs is not None:
        moved = await worker.run(path, moved_inputs, timeout=timeout)

    def sound(run: DesktopRun | None, key: str, name: str, like: Array) -> Array | None:
        value = run.outputs.get(key, {}).get(name) if run is not None else None
        if value is None or value.shape != like.shape or value.dtype != like.dtype:
            return None
        return value if _finite(value) else None

    floors: dict[str, dict[str, NoiseFloor]] = {}
    for key, outputs in base.outputs.items():
        floors[key] = {}
        for name, value in outputs.items():
            if value.dtype.kind not in "fiub" or value.size == 0 or not _finite(value):
                continue
            kernels, rounded = sound(other, key, name, value), sound(moved, key, name, value)
            floors[key][name] = await asyncio.to_thread(
                measure_floor, value, kernels, rounded, precision
            )
    return floors


def perturb(inputs: Inputs, precision: FloorPrecision) -> dict[str, dict[str, Array]] | None:
    """The inputs as another rounding would have given them; None where none can be perturbed.

    `fp16`: float inputs go through float16 and back. `fp32` and `quantized`: each value moves to
    a neighbouring float (±1 ulp), up or down by the bits of a hash of its signature and name.
    Zeros, and values beyond the range of float16, stay. Inputs that are integers, or floats that
    are all whole numbers (masks, ids, time steps), stay: no rounding would have moved them.
    """
    result: dict[str, dict[str, Array]] = {}
    changed = False
    for key, values in inputs.items():
        result[key] = {}
        for name, value in values.items():
            moved = value
            if value.dtype in (np.float32, np.float64) and not np.all(value == np.rint(value)):
                if precision == "fp16":
                    with np.errstate(over="ignore"):
                        rounded = value.astype(np.float16).astype(value.dtype)
                    moved = np.where(np.isfinite(rounded), rounded, value)
                else:
                    digest = hashlib.sha256(f"{key}\0{name}".encode()).digest()
                    rng = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "little")))
                    up = rng.integers(0, 2, value.shape, dtype=np.uint8).astype(bool)
                    limit = np.where(up, np.inf, -np.inf).astype(value.dtype)
                    moved = np.where(value == 0, value, np.nextafter(value, limit))
                changed = changed or not np.array_equal(moved, value, equal_nan=True)
            result[key][name] = moved
    return result if changed else None


def _finite(value: Array) -> bool:
    return value.dtype.kind != "f" or bool(np.isfinite(value).all())


def _load(directory: Path, names: dict[str, dict[str, str]]) -> dict[str, dict[str, Array]]:
    """Outputs of hundreds of megabytes stay in their (already unlinked) file where that works."""
    outputs: dict[str, dict[str, Array]] = {}
    for signature, files in names.items():
        outputs[signature] = {}
        for name, file in files.items():
            path = directory / file
            mapped = sys.platform != "win32" and path.stat().st_size > 2**20
            value = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
            value.flags.writeable = False
            outputs[signature][name] = value
    return outputs


_NOISE = re.compile(r"^(INFO:|I0000 |W0000 |WARNING: All log messages before absl)")
_STAMP = re.compile(r"^([EF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ")
_POINTER = re.compile(r"0x[0-9a-fA-F]{6,}")


def _clean(text: str) -> str:
    """The lines that say something, last ones last, the same on every run."""
    lines = [line.strip() for line in text.splitlines()]
    kept = [
        _POINTER.sub("0x…", _STAMP.sub(r"\1 ", line))
        for line in lines
        if line and not _NOISE.match(line)
    ]
    return "\n".join(kept[-_ERROR_LINES:])


async def _in_thread(work: Callable[[], T]) -> T:
    """Like `asyncio.to_thread`, but a cancelled caller first waits for the thread to be done."""
    task: Awaitable[T] = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([asyncio.ensure_future(task)])
        raise

"""One page's life: open it, run jobs stage by stage, time out from outside, recycle."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from playwright.async_api import ConsoleMessage, JSHandle, Page
from playwright.async_api import Error as PlaywrightError

from sweep.config import ACCELERATOR, Leg, Timeouts
from sweep.console import is_telling, normalise
from sweep.errors import StoreError
from sweep.gate import MeasuringGate
from sweep.host import BrowserHost
from sweep.protocol import (
    ConsoleLine,
    ErrorKind,
    GpuError,
    Job,
    Measurement,
    OutputTensor,
    PageSignature,
    RuntimeFacts,
    SetRun,
    Stage,
    StageError,
    Timings,
)
from sweep.server import PageServer

PAGE_DTYPES = {"float32": np.float32, "int32": np.int32, "uint8": np.uint8}
"""Element types that LiteRT.js takes and gives."""

MAX_CONSOLE_LINES = 20_000
"""Lines kept per job; a page that floods the console is cut here, and the cut is recorded."""
MAX_LINE_LENGTH = 8_000
MAX_SCANNED_PARTS = 200
"""Lines of one over-long message that are looked through beyond its kept part."""

OPEN_TIMEOUT_S = 60.0
"""A browser that has not opened a page by then is wedged and gets killed."""

log = logging.getLogger(__name__)

_MARK = "litertjs-sweep:mark:"

_RUN_JS = """async ([steps, mark]) => {
  const answers = [];
  for (const [step, job] of steps) {
    const answer = await globalThis.litertSweep[step](job);
    answers.push(answer);
    if (!answer.ok) break;
  }
  console.debug(mark);
  return answers;
}"""
"""Steps of one stage go in one call: a round trip through the driver costs some 2 ms."""

MAX_JOBS_PER_PAGE = 100
"""A page is replaced after so many jobs, whatever its state: slow leaks end with it."""
PAGE_WARM_MS = 400.0
"""Milliseconds that a page has inferred, whatever models, before anything in it is timed; more
where runs are still getting faster then. By then V8 has compiled runtime and glue for speed: in
fresh pages small models took twice their final time at first and reached it after some 300 ms;
other models in the same page had it at once."""
MAX_IDLE_WASM_BYTES = 768 * 2**20
"""A page whose wasm heap is larger once its model is unloaded is replaced: a heap never shrinks,
and what one page can hold is bounded (4 GiB, less fragmentation)."""


class StageFailed(Exception):  # noqa: N818  # never leaves this module
    """A stage ended badly; `error` is what the measurement will say."""

    def __init__(self, error: StageError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass
class ConsoleLog:
    """The console of one job, with runs of the same line folded."""

    lines: list[ConsoleLine] = field(default_factory=list)
    dropped: int = 0
    stage: Stage | None = None

    def add(self, level: str, text: str) -> None:
        """Appends a line; beyond the limit it is only counted, unless it can decide a verdict."""
        text = _shortened(text)
        if self.lines:
            last = self.lines[-1]
            if (last.level, last.text, last.stage) == (level, text, self.stage):
                self.lines[-1] = last.model_copy(update={"count": last.count + 1})
                return
        if len(self.lines) >= MAX_CONSOLE_LINES:
            # Telling lines have as much room again: no flood can push them out.
            room = len(self.lines) < 2 * MAX_CONSOLE_LINES
            if not (room and is_telling(normalise(text))):
                self.dropped += 1
                return
        self.lines.append(ConsoleLine(level=level, text=text, stage=self.stage))


def _shortened(text: str) -> str:
    """A line of bounded length that still holds what can decide a verdict."""
    if len(text) <= MAX_LINE_LENGTH:
        return text
    rest = text[MAX_LINE_LENGTH:].splitlines()[:MAX_SCANNED_PARTS]
    telling = [part[:MAX_LINE_LENGTH] for part in rest]
    telling = [part for part in telling if is_telling(normalise(part))]
    return "\n".join([text[:MAX_LINE_LENGTH], *telling[:1]])


class PageSession:
    """A page with one runtime loaded, on one backend and leg.

    Failures of page and browser never raise: they end in the measurement. After a failure that may
    have damaged the page (`usable` is False) the next job opens a new one.
    """

    def __init__(
        self,
        host: BrowserHost,
        server: PageServer,
        page_url: str,
        wasm_directory: str,
        leg: Leg,
        timeouts: Timeouts,
        *,
        gate: MeasuringGate,
        init_script: str | None = None,
    ) -> None:
        self._host = host
        self._server = server
        self._page_url = page_url
        self._wasm_directory = wasm_directory
        self._leg = leg
        self._timeouts = timeouts
        self._gate = gate
        self._init_script = init_script
        self._page: Page | None = None
        self._crashed: asyncio.Future[ErrorKind] | None = None
        self._marks: dict[str, asyncio.Event] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._handles: list[JSHandle] = []
        self._serial = itertools.count()
        self._log = ConsoleLog()
        self._startup_log = ConsoleLog()
        self._startup_gpu_errors: list[GpuError] = []
        self._gpu_errors: list[GpuError] = []
        self._runtime: RuntimeFacts | None = None
        self._init_ms: float | None = None
        self._jobs_in_page = 0
        self.wasm_bytes: int | None = None
        """Size of the page's wasm heap after its last job; None where the release hides it."""

    @property
    def usable(self) -> bool:
        """The page is open and nothing has happened that could taint the next job."""
        return (
            self._page is not None
            and not self._page.is_closed()
            and self._crashed is not None
            and not self._crashed.done()
        )

    async def close(self) -> None:
        """Closes the page; the browser lives on."""
        page, self._page = self._page, None
        if page is not None and not page.is_closed():
            try:
                async with asyncio.timeout(10):
                    await page.close()
            except (PlaywrightError, TimeoutError):
                await self._host.kill()

    async def probe(self) -> Measurement:
        """Opens the page if needed and returns only what it says of runtime and adapter."""
        self._log = ConsoleLog()
        error: StageError | None = None
        try:
            if not self.usable:
                await self._open()
        except StageFailed as failed:
            error = failed.error
        return Measurement(
            backend="webgpu_mldrift",
            reached=None if error else "init",
            error=error,
            runtime=self._runtime,
        )

    async def run(self, job: Job) -> Measurement:
        """Runs one job and returns all that it brought back.

        Raises:
            StoreError: this machine could not store the outputs.
            EnvironmentProblem: the browser cannot be started any more.
        """
        self._log = ConsoleLog()
        self._gpu_errors = []
        fresh = not self.usable
        progress = _Progress()
        error: StageError | None = None
        try:
            if fresh:
                await self._open()
            # What the runtime said while starting belongs to every job of this page.
            self._log.lines.extend(self._startup_log.lines)
            self._gpu_errors.extend(self._startup_gpu_errors)
            progress.reached = "init"
            await self._measure(job, progress)
        except StageFailed as failed:
            error = failed.error
        except OSError as problem:
            await self.close()
            if isinstance(problem, TimeoutError):
                raise
            raise StoreError(
                f"{job.model_id}: its outputs could not be stored in {self._server.scratch}: "
                f"{problem.strerror or problem}. Free some space there, or set TMPDIR to a larger "
                "directory, and sweep it again."
            ) from problem
        finally:
            self._log.stage = None
            # An input set that did not end well gives no outputs: these lie about for nothing.
            kept = {tensor.path.parent for run in progress.runs for tensor in run.outputs}
            for folder in set(progress.folders) - kept:
                shutil.rmtree(folder, ignore_errors=True)
        if self.usable and not await self._tidy(error):
            await self.close()
        if self.usable:
            await self._dispose_handles()
        self._handles.clear()
        return Measurement(
            backend=job.backend,
            reached=progress.reached,
            error=error,
            runtime=self._runtime,
            signatures=progress.signatures,
            fully_accelerated=progress.fully_accelerated,
            accelerator=progress.accelerator,
            timings=Timings(init_ms=self._init_ms, **progress.timings),
            computing_ms=round(progress.computing_ms, 4),
            runs=tuple(progress.runs),
            console=tuple(self._log.lines),
            console_dropped=self._log.dropped,
            gpu_errors=tuple(self._gpu_errors),
            fresh_page=fresh,
        )

    async def memory(self) -> Mapping[str, Any]:
        """`wasmBytes` and `deviceLost` of the open page."""
        answer = await self._call("outputs", "memory", {}, 10)
        return dict(answer)

    async def _tidy(self, error: StageError | None) -> bool:
        """Unloads the model; False when the page should not be used again."""
        if error is not None:
            return False
        self._jobs_in_page += 1
        try:
            _, state = await self._calls("outputs", [("unload", {}), ("memory", {})], 30)
        except StageFailed:
            return False
        self.wasm_bytes = state["wasmBytes"]
        return (
            not state["deviceLost"]
            and self._jobs_in_page < MAX_JOBS_PER_PAGE
            and (self.wasm_bytes or 0) <= MAX_IDLE_WASM_BYTES
        )

    async def _dispose_handles(self) -> None:
        """Lets go of what the job's console lines printed: the driver keeps it otherwise."""
        handles, self._handles = self._handles, []
        for start in range(0, len(handles), 100):
            part = handles[start : start + 100]
            await asyncio.gather(*(handle.dispose() for handle in part), return_exceptions=True)

    async def _open(self) -> None:
        self._startup_log = self._log
        self._log.stage = "init"
        self._runtime = None
        self._init_ms = None
        self._jobs_in_page = 0
        kind: ErrorKind
        try:
            page = await self._new_page_or_another()
        except (PlaywrightError, TimeoutError) as problem:
            kind = "timeout" if isinstance(problem, TimeoutError) else "browser_crash"
            if self._crashed is not None and self._crashed.done():
                kind = self._crashed.result()
            await self._host.kill()
            message = _first_lines(problem) or _end_message("timeout", "init", OPEN_TIMEOUT_S)
            raise StageFailed(StageError(stage="init", kind=kind, message=message)) from problem
        self._page = page
        answer = await self._call(
            "init",
            "init",
            {
                "wasmDirectory": self._wasm_directory,
                "jspi": self._leg.jspi,
                "threads": self._leg.threads,
            },
            self._timeouts.init,
        )
        self._init_ms = round(answer["initMs"], 4)
        self._runtime = _runtime_facts(answer)
        missing = _missing_build(self._leg, self._runtime)
        if missing:
            # No later job may take this page for the one that its leg asks for.
            await self.close()
            raise StageFailed(StageError(stage="init", kind="not_offered", message=missing))
        self._startup_log = ConsoleLog(lines=list(self._log.lines))
        self._startup_gpu_errors = list(self._gpu_errors)
        self._log.lines.clear()
        self._gpu_errors.clear()

    async def _new_page_or_another(self) -> Page:
        """A page; where the browser died since the last job, one of another browser."""
        for last in (False, True):
            try:
                async with asyncio.timeout(OPEN_TIMEOUT_S):
                    return await self._new_page()
            except (PlaywrightError, TimeoutError) as problem:
                if last:
                    raise
                log.warning("no page could be opened, trying again: %s", _first_lines(problem))
                await self._host.kill()
        raise AssertionError("the second attempt returns or raises")

    async def _new_page(self) -> Page:
        await self.close()
        context = await self._host.context()
        page = await context.new_page()
        crashed: asyncio.Future[ErrorKind] = asyncio.get_running_loop().create_future()
        self._crashed = crashed

        def down(kind: ErrorKind) -> None:
            if not crashed.done():
                crashed.set_result(kind)

        page.on("crash", lambda _: down("page_crash"))
        page.on("close", lambda _: down("browser_crash"))
        self._host.on_gone(lambda: down("browser_crash"))
        # A page has no business with windows of its own.
        page.on("popup", lambda popup: self._close_soon(popup))
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._log.add("pageerror", str(error)))
        if self._init_script:
            await page.add_init_script(self._init_script)
        await page.goto(self._page_url, timeout=30_000)
        await page.wait_for_function("globalThis.litertSweep !== undefined", timeout=30_000)
        return page

    def _close_soon(self, popup: Page) -> None:
        async def close() -> None:
            with contextlib.suppress(PlaywrightError):
                await popup.close()

        task = asyncio.ensure_future(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _on_console(self, message: ConsoleMessage) -> None:
        text = message.text
        self._handles.extend(message.args)
        if text.startswith(_MARK):
            mark = self._marks.pop(text, None)
            if mark:
                mark.set()
            return
        self._log.add(message.type, text)

    async def _call(self, stage: Stage, step: str, job: dict[str, Any], timeout: float) -> Any:  # noqa: ASYNC109
        """Runs one step in the page; returns its value, or raises StageFailed."""
        return (await self._calls(stage, [(step, job)], timeout))[0]

    async def _calls(
        self,
        stage: Stage,
        steps: Sequence[tuple[str, dict[str, Any]]],
        timeout: float,  # noqa: ASYNC109  # it ends in a kill, not in a cancelled call
    ) -> list[Any]:
        """Runs steps of one stage in the page, in order; returns their values.

        Raises:
            StageFailed: a step failed; those after it were not begun.
        """
        page, crashed = self._page, self._crashed
        assert page is not None
        assert crashed is not None
        self._log.stage = stage
        mark = f"{_MARK}{next(self._serial)}"
        seen = self._marks[mark] = asyncio.Event()
        call = asyncio.ensure_future(page.evaluate(_RUN_JS, [list(map(list, steps)), mark]))
        try:
            done, _ = await asyncio.wait(
                {call, crashed}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:
            call.cancel()
            raise
        if call not in done:
            kind: ErrorKind = crashed.result() if crashed in done else "timeout"
            call.cancel()
            await self._lose_page(kind)
            raise StageFailed(
                StageError(stage=stage, kind=kind, message=_end_message(kind, stage, timeout))
            )
        try:
            answers = call.result()
        except PlaywrightError as problem:
            # The crash event may come just after the call's own error.
            await asyncio.wait({crashed}, timeout=1)
            kind = crashed.result() if crashed.done() else _kind_of(problem)
            if kind != "exception":
                await self._lose_page(kind)
            raise StageFailed(
                StageError(stage=stage, kind=kind, message=_first_lines(problem))
            ) from problem
        # Console lines travel beside the answer: wait for the mark that the step printed last.
        try:
            async with asyncio.timeout(2):
                await seen.wait()
        except TimeoutError:
            self._marks.pop(mark, None)
        for answer in answers:
            self._gpu_errors.extend(GpuError.model_validate(e) for e in answer["gpuErrors"])
        if answers[-1]["ok"]:
            return [answer["value"] for answer in answers]
        answer = answers[-1]
        kind = (
            "aborted" if answer["aborted"] else "transport" if answer["transport"] else "exception"
        )
        if kind == "aborted":
            await self.close()
        raise StageFailed(StageError(stage=stage, kind=kind, message=answer["message"]))

    async def _lose_page(self, kind: ErrorKind) -> None:
        """After a hang or a crash: a hung page cannot be closed, so its browser goes."""
        if kind in ("timeout", "browser_crash"):
            await self._host.kill()
            self._page = None
        else:
            await self.close()

    async def _measure(self, job: Job, progress: _Progress) -> None:
        url = self._server.add_blob(job.model_path)
        try:
            loaded = await self._call(
                "load",
                "load",
                {
                    "url": url,
                    "accelerator": ACCELERATOR[job.backend],
                    "numThreads": job.num_threads,
                    "precision": job.precision,
                },
                job.timeouts.load,
            )
        finally:
            self._server.forget(url)
        progress.reached = "load"
        progress.timings.update(
            fetch_ms=round(loaded["fetchMs"], 4), compile_ms=round(loaded["compileMs"], 4)
        )
        progress.computing_ms += loaded["compileMs"]
        progress.fully_accelerated = loaded["fullyAccelerated"]
        progress.accelerator = loaded["accelerator"]
        progress.signatures = tuple(PageSignature.model_validate(s) for s in loaded["signatures"])
        for index, signature in enumerate(progress.signatures):
            key = _file_key(job, signature.key, index)
            if key is None:
                continue
            for input_set in range(len(job.inputs)):
                primary = index == 0 and input_set == 0
                await self._run_set(job, progress, index, key, input_set, timed=primary)

    async def _run_set(
        self, job: Job, progress: _Progress, index: int, key: str, input_set: int, *, timed: bool
    ) -> None:
        first = await self._first_run(job, progress.signatures[index], index, key, input_set)
        progress.computing_ms += first["ms"]
        if timed:
            progress.reached = "first_run"
            progress.timings["first_run_ms"] = round(first["ms"], 4)
        outputs = await self._collect(job, progress, "first", first["outputs"])
        last_same: bool | None = None
        if not timed:
            # Two runs at least, on whatever is run: some drivers are right only the first time.
            second = await self._call("warmup", "secondRun", {}, job.timeouts.first_run)
            outputs += await self._collect(job, progress, "second", second["outputs"])
        else:
            alone = self._gate.timing() if job.timed else contextlib.nullcontext()
            async with alone:
                second, timed_runs = await self._warm_and_timed(job, progress)
            outputs += await self._collect(job, progress, "second", second["outputs"])
            outputs += await self._collect(job, progress, "last", timed_runs["outputs"])
            last_same = timed_runs["same"]
        progress.computing_ms += second["ms"]
        progress.runs.append(
            SetRun(
                signature=key,
                input_set=input_set,
                outputs=tuple(outputs),
                second_same=second["same"],
                last_same=last_same,
            )
        )
        progress.reached = "outputs"

    async def _warm_and_timed(
        self, job: Job, progress: _Progress
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The second run, which is the first of the warm-up, the rest of it, and the timed runs."""
        more = max(job.warmup_runs - 1, 0)
        page_ms = PAGE_WARM_MS if job.timed else 0
        second, warm = await self._calls(
            "warmup",
            [("secondRun", {}), ("warmup", {"runs": more, "pageMs": page_ms})],
            job.timeouts.first_run + job.timeouts.warmup,
        )
        progress.timings.update(
            warmup_ms=_ms((second["ms"], *warm["samples"])), extra_warmup_runs=warm["extraRuns"]
        )
        progress.reached = "warmup"
        plan = job.timed
        if plan is None:
            ask: dict[str, float] = {
                "minRuns": 1,
                "maxRuns": 1,
                "batch": 1,
                "budgetMs": 0,
                "relativeHalfWidth": 0,
            }
        else:
            ask = {
                "floorRuns": plan.floor_runs,
                "minRuns": plan.min_runs,
                "maxRuns": plan.max_runs,
                "batch": plan.batch,
                "estimateMs": min(second["ms"], warm["fastest"]),
                "budgetMs": plan.budget_ms,
                "extraMs": plan.extra_budget_ms,
                "relativeHalfWidth": plan.relative_half_width,
            }
        timed = await self._call("timed", "timed", ask, job.timeouts.timed)
        if plan is not None:
            progress.timings.update(samples_ms=_ms(timed["samples"]), batch=timed["batch"])
            progress.reached = "timed"
        progress.computing_ms += sum(warm["samples"]) + warm["extraMs"]
        progress.computing_ms += sum(timed["samples"]) * timed["batch"]
        return second, timed

    async def _first_run(
        self, job: Job, signature: PageSignature, index: int, key: str, input_set: int
    ) -> dict[str, Any]:
        """Gives the page its inputs, which replace those of the last set, and runs once."""
        arrays = job.inputs[input_set].get(key, {})
        tensors, urls = [], []
        for position, tensor in enumerate(signature.inputs):
            array = match_input(arrays, tensor.name, position)
            if tensor.dtype in PAGE_DTYPES:
                array = array.astype(PAGE_DTYPES[tensor.dtype], copy=False)
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            url = self._server.add_blob(flat.data)
            urls.append(url)
            tensors.append({"dtype": tensor.dtype, "shape": list(array.shape), "url": url})
        try:
            _, first = await self._calls(
                "first_run",
                [("setInputs", {"signature": index, "tensors": tensors}), ("firstRun", {})],
                job.timeouts.first_run,
            )
            return dict(first)
        finally:
            for url in urls:
                self._server.forget(url)

    async def _collect(
        self, job: Job, progress: _Progress, run: str, outputs: list[dict[str, Any]]
    ) -> list[OutputTensor]:
        """Has the page send the kept outputs of one run; returns where they lie."""
        if not outputs:
            return []
        folder = Path(tempfile.mkdtemp(dir=self._server.scratch))
        progress.folders.append(folder)
        paths = [folder / f"{i}.bin" for i in range(len(outputs))]
        urls = [
            self._server.expect_upload(path, output["bytes"])
            for path, output in zip(paths, outputs, strict=True)
        ]
        try:
            await self._call(
                "outputs", "postOutputs", {"run": run, "urls": urls}, job.timeouts.outputs
            )
        except StageFailed:
            problem, self._server.storage_problem = self._server.storage_problem, None
            if problem is not None:  # nothing that the model or its page did
                raise problem from None
            raise
        finally:
            for url in urls:
                self._server.forget(url)
        return [
            OutputTensor.model_validate(
                {
                    "name": output["name"],
                    "dtype": output["dtype"],
                    "shape": output["shape"],
                    "path": path,
                    "run": run,
                }
            )
            for output, path in zip(outputs, paths, strict=True)
        ]


@dataclass
class _Progress:
    reached: Stage | None = None
    signatures: tuple[PageSignature, ...] = ()
    fully_accelerated: bool | None = None
    accelerator: str | None = None
    timings: dict[str, Any] = field(default_factory=dict)
    computing_ms: float = 0
    runs: list[SetRun] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    """All that hold received tensors."""


def match_input(arrays: Mapping[str, np.ndarray], name: str, position: int) -> np.ndarray:
    """The array for a page input: by name, else by position.

    Releases spell names differently: 0.x gives the tensor's name (`serving_default_x:0`) where
    2.x gives the signature's (`x`).

    Raises:
        StageFailed: the model has fewer inputs than the page asks for.
    """
    if name in arrays:
        return arrays[name]
    values = list(arrays.values())
    if position >= len(values):
        raise StageFailed(
            StageError(
                stage="first_run",
                kind="exception",
                message=f"no input was made for {name!r} (input {position})",
            )
        )
    return values[position]


def _file_key(job: Job, key: str, index: int) -> str | None:
    """The file's signature key for a page signature; None where the file has none such."""
    if key in job.signature_keys:
        return key
    return job.signature_keys[index] if index < len(job.signature_keys) else None


def _runtime_facts(answer: Mapping[str, Any]) -> RuntimeFacts:
    return RuntimeFacts(
        wasm_file=answer["wasmFile"],
        jspi=answer["jspi"] and "jspi" in (answer["wasmFile"] or "jspi"),
        threads=answer["threads"],
        relaxed_simd=answer["relaxedSimd"],
        jspi_supported=answer["jspiSupported"],
        cross_origin_isolated=answer["crossOriginIsolated"],
        clock_resolution_us=answer["clockResolutionUs"],
        user_agent=answer["userAgent"],
        adapter=answer["adapter"],
        adapter_is_fallback=answer["adapterIsFallback"],
        features=tuple(answer["features"]),
        limits=answer["limits"],
        exports=tuple(answer["exports"]),
    )


def _missing_build(leg: Leg, runtime: RuntimeFacts) -> str | None:
    """What the leg asks for that this release silently did not load; None when all is there."""
    file = runtime.wasm_file or ""
    if leg.threads and "threaded" not in file:
        return f"this release loaded {file or 'no wasm'}: it has no threaded build"
    if leg.jspi and not runtime.jspi:
        return f"this release loaded {file or 'no wasm'}: it has no JSPI build"
    return None


def _kind_of(problem: PlaywrightError) -> ErrorKind:
    """What an error of the driver means: a target that is gone is nobody's exception.

    What the page itself throws never comes here: the harness makes a value of it.
    """
    gone = type(problem).__name__ == "TargetClosedError" or "Connection closed" in str(problem)
    return "browser_crash" if gone else "exception"


def _ms(samples: Iterable[float]) -> tuple[float, ...]:
    """Milliseconds to a tenth of a microsecond: the page's clock is no finer."""
    return tuple(round(sample, 4) for sample in samples)


def _end_message(kind: ErrorKind, stage: Stage, seconds: float) -> str:
    if kind == "timeout":
        return f"stage {stage} did not end within {seconds:g} s"
    if kind == "page_crash":
        return f"the page crashed during stage {stage}"
    return f"the browser ended during stage {stage}"


def _first_lines(problem: Exception) -> str:
    """A driver error without its call log."""
    return str(problem).split("\nCall log:")[0].strip()

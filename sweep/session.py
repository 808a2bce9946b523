"""One page's life: open it, run jobs stage by stage, time out from outside, recycle."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from playwright.async_api import ConsoleMessage, JSHandle, Page
from playwright.async_api import Error as PlaywrightError

from sweep.config import Leg, Timeouts
from sweep.console_log import ConsoleLog
from sweep.errors import StoreError
from sweep.gate import MeasuringGate
from sweep.host import BrowserHost
from sweep.job_run import JobRun, Progress, StageFailed
from sweep.protocol import (
    ErrorKind,
    GpuError,
    Job,
    Measurement,
    RuntimeFacts,
    Stage,
    StageError,
    Timings,
)
from sweep.server import PageServer

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
MAX_IDLE_WASM_BYTES = 768 * 2**20
"""A page whose wasm heap is larger once its model is unloaded is replaced: a heap never shrinks,
and what one page can hold is bounded (4 GiB, less fragmentation)."""


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
        progress = Progress()
        error: StageError | None = None
        try:
            if fresh:
                await self._open()
            # What the runtime said while starting belongs to every job of this page.
            self._log.lines.extend(self._startup_log.lines)
            self._gpu_errors.extend(self._startup_gpu_errors)
            progress.reached = "init"
            await JobRun(job, self._calls, self._server, self._gate, progress).measure()
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


def _end_message(kind: ErrorKind, stage: Stage, seconds: float) -> str:
    if kind == "timeout":
        return f"stage {stage} did not end within {seconds:g} s"
    if kind == "page_crash":
        return f"the page crashed during stage {stage}"
    return f"the browser ended during stage {stage}"


def _first_lines(problem: Exception) -> str:
    """A driver error without its call log."""
    return str(problem).split("\nCall log:")[0].strip()

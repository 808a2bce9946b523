"""One job in an open page: load → first run → warm-up → timed runs → outputs, step by step."""

from __future__ import annotations

import base64
import binascii
import contextlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from sweep.config import ACCELERATOR
from sweep.gate import MeasuringGate
from sweep.protocol import Job, OutputTensor, PageSignature, SetRun, Stage, StageError
from sweep.server import PageServer

PAGE_DTYPES = {"float32": np.float32, "int32": np.int32, "uint8": np.uint8}
"""Element types that LiteRT.js takes and gives."""
PAGE_WARM_MS = 400.0
"""Milliseconds that a page has inferred, whatever models, before anything in it is timed; more
where runs are still getting faster then. By then V8 has compiled runtime and glue for speed: in
fresh pages small models took twice their final time at first and reached it after some 300 ms."""

MODEL_WARM_MS = 25.0
"""The same for each model: its own kernels are new, whatever the page has run."""

INLINE_BYTES = 64 * 1024
"""Tensors that together are no larger travel as base64 within a call: a request of their own costs
some 5 ms more than the call does. From 128 KiB on it is the other way round."""

INLINE = {"inline": INLINE_BYTES}


class StageFailed(Exception):  # noqa: N818  # never leaves the session
    """A stage ended badly; `error` is what the measurement will say."""

    def __init__(self, error: StageError) -> None:
        super().__init__(error.message)
        self.error = error


class Calls(Protocol):
    """Runs steps of one stage in the page, in order, within `timeout` seconds; returns their
    values, or raises StageFailed."""

    async def __call__(
        self,
        stage: Stage,
        steps: Sequence[tuple[str, dict[str, Any]]],
        timeout: float,  # noqa: ASYNC109  # it ends in a kill, not in a cancelled call
    ) -> list[Any]: ...


@dataclass
class Progress:
    """What a job has brought back so far; it stands when the job ends early."""

    reached: Stage | None = None
    signatures: tuple[PageSignature, ...] = ()
    fully_accelerated: bool | None = None
    accelerator: str | None = None
    timings: dict[str, Any] = field(default_factory=dict)
    computing_ms: float = 0
    runs: list[SetRun] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    """All that hold received tensors."""


@dataclass(frozen=True)
class JobRun:
    """A job, the page to run it in, and what has come of it."""

    job: Job
    calls: Calls
    server: PageServer
    gate: MeasuringGate
    progress: Progress

    async def _call(self, stage: Stage, step: str, ask: dict[str, Any], timeout: float) -> Any:  # noqa: ASYNC109
        return (await self.calls(stage, [(step, ask)], timeout))[0]

    async def measure(self) -> None:
        """Loads the model and runs every signature on every input set.

        Raises:
            StageFailed: a stage ended badly; `progress` holds what came before.
            StoreError: this machine could not store the outputs.
        """
        job, progress = self.job, self.progress
        url = job.model_url
        with contextlib.nullcontext(url) if url else self.server.offer(job.model_path) as url:
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
                await self._run_set(index, key, input_set, timed=primary)

    async def _run_set(self, index: int, key: str, input_set: int, *, timed: bool) -> None:
        job, progress = self.job, self.progress
        first = await self._first_run(index, key, input_set)
        progress.computing_ms += first["ms"]
        if timed:
            progress.reached = "first_run"
            progress.timings["first_run_ms"] = round(first["ms"], 4)
        outputs = await self._collect("first", first["outputs"])
        last_same: bool | None = None
        if not timed:
            # Two runs at least, on whatever is run: some drivers are right only the first time.
            second = await self._call("warmup", "secondRun", INLINE, job.timeouts.first_run)
            outputs += await self._collect("second", second["outputs"])
        else:
            alone = self.gate.timing() if job.timed else contextlib.nullcontext()
            async with alone:
                second, timed_runs = await self._warm_and_timed()
            outputs += await self._collect("second", second["outputs"])
            outputs += await self._collect("last", timed_runs["outputs"])
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

    async def _warm_and_timed(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The second run, which is the first of the warm-up, the rest of it, and the timed runs."""
        job, progress = self.job, self.progress
        more = max(job.warmup_runs - 1, 0)
        page_ms, model_ms = (PAGE_WARM_MS, MODEL_WARM_MS) if job.timed else (0, 0)
        second, warm = await self.calls(
            "warmup",
            [
                ("secondRun", INLINE),
                ("warmup", {"runs": more, "pageMs": page_ms, "modelMs": model_ms}),
            ],
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
        timed = await self._call("timed", "timed", {**ask, **INLINE}, job.timeouts.timed)
        if plan is not None:
            progress.timings.update(samples_ms=_ms(timed["samples"]), batch=timed["batch"])
            progress.reached = "timed"
        progress.computing_ms += sum(warm["samples"]) + warm["extraMs"]
        progress.computing_ms += sum(timed["samples"]) * timed["batch"]
        return second, timed

    async def _first_run(self, index: int, key: str, input_set: int) -> dict[str, Any]:
        """Gives the page its inputs, which replace those of the last set, and runs once."""
        job, signature = self.job, self.progress.signatures[index]
        arrays = job.inputs[input_set].get(key, {})
        tensors: list[dict[str, Any]] = []
        raw: list[memoryview] = []
        for position, tensor in enumerate(signature.inputs):
            array = match_input(arrays, tensor.name, position)
            if tensor.dtype in PAGE_DTYPES:
                array = array.astype(PAGE_DTYPES[tensor.dtype], copy=False)
            raw.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            tensors.append({"dtype": tensor.dtype, "shape": list(array.shape)})
        with contextlib.ExitStack() as offered:
            inline = sum(view.nbytes for view in raw) <= INLINE_BYTES
            for tensor_ask, view in zip(tensors, raw, strict=True):
                if inline:
                    tensor_ask["base64"] = base64.b64encode(view).decode()
                else:
                    tensor_ask["url"] = offered.enter_context(self.server.offer(view))
            _, first = await self.calls(
                "first_run",
                [("setInputs", {"signature": index, "tensors": tensors}), ("firstRun", INLINE)],
                job.timeouts.first_run,
            )
        return dict(first)

    async def _collect(self, run: str, outputs: list[dict[str, Any]]) -> list[OutputTensor]:
        """Stores the outputs of one run: those that came with it, or has the page send them."""
        if not outputs:
            return []
        folder = Path(tempfile.mkdtemp(dir=self.server.scratch))
        self.progress.folders.append(folder)
        paths = [folder / f"{i}.bin" for i in range(len(outputs))]
        if all("base64" in output for output in outputs):
            for path, output in zip(paths, outputs, strict=True):
                path.write_bytes(_decoded(output))
        else:
            await self._receive(run, outputs, paths)
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

    async def _receive(self, run: str, outputs: list[dict[str, Any]], paths: list[Path]) -> None:
        """Has the page send the kept outputs of one run to the server, which stores them."""
        urls = [
            self.server.expect_upload(path, output["bytes"])
            for path, output in zip(paths, outputs, strict=True)
        ]
        try:
            await self._call(
                "outputs", "postOutputs", {"run": run, "urls": urls}, self.job.timeouts.outputs
            )
        except StageFailed:
            problem, self.server.storage_problem = self.server.storage_problem, None
            if problem is not None:  # nothing that the model or its page did
                raise problem from None
            raise
        finally:
            for url in urls:
                self.server.forget(url)


def _decoded(output: Mapping[str, Any]) -> bytes:
    """The bytes of an output that came in base64, if they are as many as the page said."""
    try:
        raw = base64.b64decode(output["base64"], validate=True)
    except (binascii.Error, TypeError, ValueError):
        raw = None
    if raw is None or len(raw) != output["bytes"]:
        message = f"the page gave no {output['bytes']} bytes for output {output['name']!r}"
        raise StageFailed(StageError(stage="outputs", kind="transport", message=message))
    return raw


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


def _ms(samples: Iterable[float]) -> tuple[float, ...]:
    """Milliseconds to a tenth of a microsecond: the page's clock is no finer."""
    return tuple(round(sample, 4) for sample in samples)

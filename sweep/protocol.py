"""Job and page messages: what goes to the page, and what comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import ConfigDict, Field

from sweep.config import Backend, Frozen, Precision, Timeouts

Stage = Literal["init", "load", "first_run", "warmup", "timed", "outputs"]
"""In order. Each has its own timeout, enforced from outside the page."""

PageDType = Literal["float32", "int32", "uint8"]
"""Element types that LiteRT.js tensors can have."""

ErrorKind = Literal[
    "exception",  # the runtime threw; the page lives on
    "aborted",  # RuntimeError: Aborted(): the page is dead
    "timeout",  # the stage did not end in its time; the browser was killed
    "page_crash",  # the renderer died
    "browser_crash",  # the browser process died
    "no_webgpu",  # the environment gave no adapter or no device
    "transport",  # the page could not fetch from or post to our server
    "not_offered",  # this release has no such build (threads, JSPI): nothing was tried
]


class ConsoleLine(Frozen):
    """One line of the page's console, verbatim."""

    level: str
    """`log`, `warning`, `error` … as the browser calls it."""
    text: str
    stage: Stage | None
    """The stage that was running; None before the first."""
    count: int = 1
    """How many times in a row this very line came (a flood is folded)."""


class GpuError(Frozen):
    """A WebGPU `uncapturederror`, or the loss of the device."""

    kind: Literal["validation", "out-of-memory", "internal", "device_lost"]
    message: str
    """For `device_lost`: `<reason>: <message>`."""
    count: int = 1


class PageTensor(Frozen):
    """An input or output as the compiled model reports it."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class PageSignature(Frozen):
    """A signature as the compiled model reports it."""

    key: str
    inputs: tuple[PageTensor, ...]
    outputs: tuple[PageTensor, ...]


class StageError(Frozen):
    """How and where a job ended early."""

    stage: Stage
    kind: ErrorKind
    message: str
    """Verbatim from the runtime or the browser, on one or more lines."""


class OutputTensor(Frozen):
    """One output read back from the page: raw little-endian bytes in a file."""

    name: str
    dtype: PageDType
    shape: tuple[int, ...]
    path: Path
    run: Literal["first", "second", "last"] = "first"


class SetRun(Frozen):
    """One signature run on one input set."""

    signature: str
    input_set: int
    outputs: tuple[OutputTensor, ...]
    """Of the first run; also of the second and last where they differ from the first."""
    second_same: bool | None = None
    """Run 2 gave the very bytes of run 1 (None: there was no run 2)."""
    last_same: bool | None = None


class Timings(Frozen):
    """Milliseconds, by the page's `performance.now()`. Each includes readback of all outputs."""

    init_ms: float | None = None
    fetch_ms: float | None = None
    compile_ms: float | None = None
    first_run_ms: float | None = None
    warmup_ms: tuple[float, ...] = ()
    extra_warmup_runs: int = 0
    """Runs beyond those asked for, until code and kernels were compiled for speed."""
    samples_ms: tuple[float, ...] = ()
    batch: int = Field(1, ge=1)
    """Inferences per sample; a sample is already divided by it."""


class RuntimeFacts(Frozen):
    """What the page found out about the runtime and the adapter. None: not reported."""

    wasm_file: str | None = None
    """File name of the wasm that was really fetched."""
    jspi: bool | None = None
    threads: int | None = None
    relaxed_simd: bool | None = None
    jspi_supported: bool | None = None
    cross_origin_isolated: bool
    clock_resolution_us: float | None = None
    user_agent: str
    adapter: dict[str, str] | None = None
    """vendor, architecture, device, description."""
    adapter_is_fallback: bool | None = None
    features: tuple[str, ...] = ()
    limits: dict[str, int] = Field(default_factory=dict)
    exports: tuple[str, ...] = ()
    """Names that the core module exports, sorted."""


class TimedRuns(Frozen):
    """How many timed runs, and when to stop earlier."""

    floor_runs: int = Field(10, ge=1)
    """Done whatever the budgets."""
    min_runs: int = Field(10, ge=1)
    """Done unless `budget_ms` is spent."""
    max_runs: int = Field(10, ge=1)
    batch: int = Field(0, ge=0)
    """Inferences per sample; 0: as many as make a sample last a millisecond, at most 100."""
    budget_ms: float = 20_000
    extra_budget_ms: float = 1_000
    """Beyond `min_runs` only while less than this was spent on timed runs in all."""
    relative_half_width: float = 0
    """From `min_runs` on, stop once the 95 % interval of the median is this tight (a fraction of
    it); 0: at `max_runs`."""


class Job(Frozen):
    """One model × one backend × one configuration, as the page is asked to do it."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    model_id: str
    backend: Backend
    model_path: Path
    model_url: str | None = None
    """Where the page's server offers the file already; None: it is offered for this job."""
    signature_keys: tuple[str, ...]
    """Of the file, in its order; the page's signatures are matched by key, then by order."""
    inputs: tuple[dict[str, dict[str, np.ndarray]], ...]
    """Per input set: signature key → input name → array."""
    num_threads: int | None = None
    precision: Precision = "default"
    warmup_runs: int = 3
    timed: TimedRuns | None = TimedRuns()
    """None: correctness only."""
    timeouts: Timeouts = Timeouts()


class Measurement(Frozen):
    """All that one job brought back. The input of the verdict; nothing here is a judgement."""

    backend: Backend
    reached: Stage | None
    """The last stage that ended well."""
    error: StageError | None = None
    runtime: RuntimeFacts | None = None
    signatures: tuple[PageSignature, ...] = ()
    fully_accelerated: bool | None = None
    """`isFullyAccelerated`; None where the core has no such property."""
    accelerator: str | None = None
    """`options.accelerator` of the compiled model; None where the core does not say."""
    timings: Timings = Timings()
    computing_ms: float = 0
    """Compiling and inferring, over all signatures and input sets: the rest is overhead."""
    runs: tuple[SetRun, ...] = ()
    console: tuple[ConsoleLine, ...] = ()
    console_dropped: int = 0
    """Distinct lines beyond the keeping limit (each was still scanned)."""
    gpu_errors: tuple[GpuError, ...] = ()
    fresh_page: bool = True
    confirmed: bool | None = None
    """A failure or mismatch seen in a reused page: was it seen again in a fresh one?"""

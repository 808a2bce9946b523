"""Failure classes: from an error and the console before it to the reason a program can use.

A message is matched first; where it is a bare C++ location, or one that several causes share, the
console decides. Rules are tried in order, the more specific first.
"""

from __future__ import annotations

import re

from sweep.config import Backend, Frozen
from sweep.console import ConsoleFacts, normalise
from sweep.protocol import Measurement, Stage, StageError
from sweep.record import Status

LARGE_MODEL = 256 * 1024 * 1024
"""Bytes of a model file from which a bare `Aborted()` while loading is read as lack of memory.

The wasm heap ends at 2 GB (0.x, 2.0.0) or 4 GB (2.5.x), and loading holds the file, its copy and
the weights as the delegate wants them (int8 as float32: four times the size). Nothing is logged
when `malloc` fails, so the size is all there is; small files abort for other reasons (an assertion
in the GPU delegate does it with 2 MB).
"""

_NO_WEBGPU = re.compile(
    r"no WebGPU device is set in the environment|No WebGPU device is available"
    r"|No GPU adapter found|No GPU device provided|does not support WebGPU"
    r"|WebGPU is not (?:supported|available|enabled)|GPUBuffer is not defined"
    r"|WebNN is not supported|navigator\.(?:gpu|ml)\b"
)
_DEVICE_LOST = re.compile(r"[Dd]evice (?:was|is) lost|device\.lost|DXGI_ERROR_DEVICE|DEVICE_LOST")
_MEMORY = re.compile(
    r"[Oo]ut of memory|Cannot enlarge memory|OOM\b|bad_alloc|[Aa]llocation failed"
    r"|could not allocate memory|WebAssembly\.Memory|Model is too large|size is too large"
    r"|Invalid (?:typed )?array length: (?!-)|Failed to allocate (?:aligned |device )?memory"
    # `malloc` gave nothing, and the core wrote its bytes past the end of the heap.
    r"|RangeError: offset is out of bounds"
    r"|exceeds the max buffer size|larger than the maximum (?:buffer|binding) size"
)
_DTYPE = re.compile(
    r"Element type \S+ is not supported|Element type \(\d+\) not currently supported"
    r"|Tensor type not supported: \d+|DType \S+ is not supported"
)
_DYNAMIC = re.compile(
    r"does not match expected[^\n]*\[(?:[^\]]*,\s*)?-1\b|Invalid typed array length: -"
    r"|a graph that has dynamic-sized tensors"
)
_PARSE = re.compile(
    r"Failed to load model from buffer|Failed to build interpreter|Failed to initialize model\b"
    r"|model identifier|to hold identifier|schema version \d+ not equal|Did not get tensors in"
    r"|Failed to (?:build flatbuffer|verify flatbuffer)"
)
_FETCH = re.compile(
    r"\bHTTP (?:status )?[45]\d\d\b|\b404\b.*Not Found|Failed to fetch|NetworkError"
)
_GPU = re.compile(r"WebGPU|GPU(?:Buffer|Device|Queue|Adapter)\b|\bDawn\b|wgpu")


class Failure(Frozen):
    """A run that ended early, or that computed nothing."""

    status: Status
    failure_class: str
    error: str
    """What the runtime or the browser said, without ports, pointers and timestamps."""
    reason: str
    """The same for a person, with the stage and the telling console line."""


def failure_of(
    measurement: Measurement, console: ConsoleFacts, *, model_bytes: int | None = None
) -> Failure | None:
    """Why a job did not come to its end; None when it did (its values may still be wrong).

    Args:
        model_bytes: size of the model file, the only hint at lack of memory behind `Aborted()`.
    """
    error = measurement.error
    if error is None:
        return None
    failure_class = _class_of(measurement, error, console, model_bytes)
    status = _status_of(error.stage, failure_class)
    text = normalise(error.message) or error.kind
    return Failure(
        status=status,
        failure_class=failure_class,
        error=text,
        reason=_reason(measurement.backend, error, failure_class, text, console, model_bytes),
    )


def lost_device(measurement: Measurement) -> str | None:
    """Why the GPU device was lost; None when it was not, or when the page destroyed it in order."""
    for error in measurement.gpu_errors:
        if error.kind == "device_lost" and not error.message.startswith("destroyed"):
            return normalise(error.message)
    return None


def _status_of(stage: Stage, failure_class: str) -> Status:
    if failure_class == "backend_unavailable":
        return "unavailable"
    return "load_failed" if stage in ("init", "load") else "run_failed"


def _class_of(
    measurement: Measurement, error: StageError, console: ConsoleFacts, model_bytes: int | None
) -> str:
    on_gpu = measurement.backend != "wasm_xnnpack"
    if error.kind in ("timeout", "page_crash", "browser_crash"):
        return error.kind
    if error.kind == "not_offered":
        return "backend_unavailable"
    if _DEVICE_LOST.search(error.message) or (on_gpu and lost_device(measurement)):
        return "device_lost"
    if on_gpu and _unavailable(measurement, error):
        return "backend_unavailable"
    if error.kind == "transport":
        if error.stage == "init":
            return "init_failed"
        return "fetch_failed" if error.stage == "load" else "no_output"
    return _class_by_words(measurement, error, console, model_bytes)


def _unavailable(measurement: Measurement, error: StageError) -> bool:
    if error.kind == "no_webgpu" or _NO_WEBGPU.search(error.message):
        return True
    runtime = measurement.runtime
    return (
        measurement.backend == "webgpu_mldrift"
        and error.stage in ("init", "load")
        and runtime is not None
        and runtime.adapter is None
    )


def _class_by_words(
    measurement: Measurement, error: StageError, console: ConsoleFacts, model_bytes: int | None
) -> str:
    stage, message = error.stage, error.message
    said = "\n".join(line.text for line in console.evidence if line.stage in (stage, None))
    if _DTYPE.search(message) or (_PARSE.search(message) and _DTYPE.search(said)):
        return "unsupported_dtype"
    if _DYNAMIC.search(message) or (stage == "load" and _DYNAMIC.search(said)):
        return "dynamic_shape"
    out_of_memory = any(e.kind == "out-of-memory" for e in measurement.gpu_errors)
    if out_of_memory or _MEMORY.search(message) or _MEMORY.search(said):
        return "memory_ceiling"
    if _bare_abort(error) and stage == "load" and (model_bytes or 0) >= LARGE_MODEL:
        return "memory_ceiling"
    if stage == "init":
        return "init_failed"
    if stage == "load":
        if _FETCH.search(message):
            return "fetch_failed"
        return "parse_error" if _PARSE.search(message) else "compile_error"
    gpu_refused = bool(measurement.gpu_errors or console.gpu_validation)
    if measurement.backend != "wasm_xnnpack" and (gpu_refused or _GPU.search(message)):
        return "backend_error"
    return "run_error"


def _bare_abort(error: StageError) -> bool:
    return error.kind == "aborted" or "Aborted()" in error.message


_STAGE_WORDS: dict[Stage, str] = {
    "init": "Starting the runtime",
    "load": "Loading and compiling",
    "first_run": "The first run",
    "warmup": "A warm-up run",
    "timed": "A timed run",
    "outputs": "Reading the outputs",
}


def _reason(
    backend: Backend,
    error: StageError,
    failure_class: str,
    text: str,
    console: ConsoleFacts,
    model_bytes: int | None,
) -> str:
    first = text.splitlines()[0]
    if error.kind == "not_offered":
        return f"The leg cannot be run with this release: {first}"
    if failure_class == "backend_unavailable":
        return f"The environment does not offer {backend}: {first}"
    said = f"{_STAGE_WORDS[error.stage]} failed ({failure_class}): {first}"
    telling = telling_line(console, error.stage)
    if telling and telling not in text:
        said += f"; the console said: {telling}"
    if failure_class == "memory_ceiling" and _bare_abort(error) and model_bytes:
        said += f"; the model file has {model_bytes / 2**20:.0f} MiB"
    return said


def telling_line(console: ConsoleFacts, stage: Stage | None = None) -> str | None:
    """The console line that explains a failure best: fatal, then GPU validation, then an error."""
    # The most specific fatal line comes first: the operator, then the allocation that it spoilt.
    fatal = sorted(console.fatal, key=lambda line: line.text.startswith("Aborted("))
    for lines in (fatal, console.gpu_validation):
        if lines:
            return lines[0].text.splitlines()[0]
    for line in reversed(console.evidence):
        is_error = (
            line.text.startswith(("ERROR:", "E ")) and "Following operations" not in line.text
        )
        if is_error and stage in (line.stage, None):
            return line.text.splitlines()[0]
    return None

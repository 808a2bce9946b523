"""The console as evidence: filter the noise, deduplicate, parse what can be parsed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sweep.config import Frozen
from sweep.protocol import ConsoleLine, Stage


class EvidenceLine(Frozen):
    """One distinct console line, without timestamps, pointers or styling."""

    level: str
    text: str
    stage: Stage | None
    count: int


class UnsupportedOp(Frozen):
    """One `OP: reason` line of the delegate, with the tensor it names, if any."""

    op: str
    reason: str
    tensor: str | None = None
    count: int = 1


class Delegation(Frozen):
    """What the runtime said of where the operators run. None: not reported."""

    fully_accelerated: bool | None = None
    accelerator: str | None = None
    """`options.accelerator` after compiling (`wasm` after a whole-model fallback)."""
    ops_on_gpu: int | None = None
    ops_on_cpu: int | None = None
    partitions: int | None = None
    unsupported: tuple[UnsupportedOp, ...] = ()
    fallback: bool | None = None
    """True: some or all operators ran on the CPU although the GPU was asked for."""
    evidence: tuple[str, ...] = ()
    """The lines these facts were read from, verbatim but for pointers and timestamps."""


class ConsoleFacts(Frozen):
    """The outcome of reading a whole console."""

    evidence: tuple[EvidenceLine, ...]
    """Warnings and errors that are not runtime INFO noise, deduplicated, in order of arrival."""
    fatal: tuple[EvidenceLine, ...]
    """Lines that mean nothing was computed, whatever the values say."""
    gpu_validation: tuple[EvidenceLine, ...]
    """Lines in which the browser reports invalid GPU commands."""
    delegation: Delegation
    scanned: int
    dropped: int


_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_STYLE = re.compile(
    r"(?:\s+(?:background|color|font|padding|border|margin|text)[a-z-]*:[^;]*;)+\s*$"
)
_GLOG = re.compile(r"^([IWEF])\d{4} \d{2}:\d{2}:\d{2}(?:\.\d+)?\s+(?:\d+\s+)?", re.MULTILINE)
"""absl/glog prefix: severity, MMDD, time, thread. Only the severity says something."""
_POINTER = re.compile(r"0x[0-9a-fA-F]+")
"""Addresses of objects, and code offsets in wasm stack traces."""
_ORIGIN = re.compile(
    r"(?:blob:)?https?://(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?(?:/[\w-]{20,}(?=/|\s|$))?"
)
"""Our page server: its port and token differ in every session."""
_UPLOAD = re.compile(r"(http://page/(?:blob|upload)/)[\w-]+")

_INFO = re.compile(r"^\s*(?:INFO\b|I [\w./-]+:\d+\])")
_SEVERE = re.compile(r"^\s*(?:ERROR\b|WARNING\b|FATAL\b|[WEF] [\w./-]+:\d+\])")
_KEPT_LEVELS = frozenset({"error", "warning", "warn", "pageerror", "assert"})

_FATAL = re.compile(
    "|".join(
        (
            r"Node number \d+ \(.*\) failed to (?:prepare|invoke)",
            r"Failed to allocate tensors",
            r"Failed to invoke",
            r"Failed to set custom allocation",
            r"Failed to apply external tensor binding",
            r"Failed to (?:apply delegates|lock output buffer for copying)",
            r"Output buffer too small: allocated",
            r"Encountered (?:an )?unresolved custom op",
            r"(?:Regular TensorFlow|Select TensorFlow) op.*not supported by this interpreter",
            r"Invoke called on model that is not (?:ready|consistent)",
            r"AllocateTensors\(\) called on inconsistent model",
            r"Input tensor \d+ lacks data",
            r"failed to (?:create|setup|invoke) XNNPACK runtime",
            r"^Aborted\(",
        )
    ),
    re.MULTILINE,
)
"""What the five cores' runtimes say when nothing, or not everything, was computed."""

_RESTORED = re.compile(
    r"Restored original execution plan after delegate application failure"
    r"|Falling back to WASM execution"
)
"""The runtime undid a failed delegation: what failed before it while loading is not in use."""

_GPU_VALIDATION = re.compile(
    "|".join(
        (
            r"\[Invalid \w+",
            r"is invalid due to a previous error",
            r"exceeds max compute workgroups per dimension",
            r"- While (?:encoding|finishing|validating|calling) \[",
            r"GPUValidationError",
            r"\bvalidation error\b",
            r"^GPU error:",
            r"Error while parsing WGSL",
            r"too many warnings, no more warnings will be reported",
            r"[Uu]ncaptured (?:WebGPU )?error",
        )
    ),
    re.MULTILINE,
)
"""Chromium's WebGPU warnings (Dawn) and the 0.x cores' own report of popped error scopes."""

_UNSUPPORTED_HEADER = re.compile(r"Following operations are not supported by GPU delegate:")
_UNSUPPORTED_OP = re.compile(r"^(?!INFO|WARNING|ERROR|See )([A-Za-z_][\w.<>-]*): ?(.*)$")
_REASON_TENSOR = re.compile(r"^(Tensor dimensions must be less than \d+\.|.*?[a-z]\.) (\S+)$")
_SPLIT = re.compile(
    r"(\d+) operations will run on the GPU, and the remaining (\d+) operations will run on the CPU"
)
_NONE_ON_GPU = re.compile(
    r"No operations will run on the GPU, and all (\d+) operations will run on the CPU"
)
_PARTIAL = re.compile(
    r"Model not fully compiled for \w+"
    r"(?:\. Partially delegating to WASM| on non-JSPI browser\. Falling back to WASM)"
)
_REPLACING = re.compile(
    r"Replacing (\d+) out of (\d+) node\(s\) with delegate \(([^)]*)\) node, "
    r"yielding (\d+) partitions"
)


def normalise(text: str) -> str:
    """A console text without what differs from run to run.

    Removed: colour codes, `%c` styling, time and thread of log prefixes, pointer addresses and
    wasm code offsets, port and token of our page server.
    """
    text = _ANSI.sub("", text)
    if "%c" in text:
        text = _STYLE.sub("", text.replace("%c", ""))
    text = _GLOG.sub(r"\1 ", text)
    text = _POINTER.sub("0x…", text)
    text = _UPLOAD.sub(r"\1…", _ORIGIN.sub("http://page", text))
    return text.strip()


def is_telling(text: str) -> bool:
    """Whether a line alone can decide a verdict; such a line must never be cut from a console."""
    return not _INFO.match(text) and bool(_FATAL.search(text) or _GPU_VALIDATION.search(text))


def read_console(lines: Iterable[ConsoleLine], *, dropped: int = 0) -> ConsoleFacts:
    """Reads a job's whole console, line by line, into evidence and facts.

    Runtime INFO lines (which arrive at the level of errors) are dropped unless they say where
    operators run. The rest is deduplicated by level and text, with counts, in order of arrival;
    the stage is that of the first occurrence.

    A fatal line from the `load` stage counts only if the runtime did not afterwards say that it
    went back to the original execution plan, or to WASM.

    Args:
        lines: the console in order; nothing is skipped.
        dropped: how many lines the recorder had to cut.
    """
    evidence = _Tally()
    fatal = _Tally()
    loading_fatal = _Tally()
    validation = _Tally()
    delegation = _DelegationReader()
    scanned = 0
    for line in lines:
        scanned += 1
        text = normalise(line.text)
        if not text:
            continue
        delegation.read(text, line.count)
        if _INFO.match(text):
            continue
        if _FATAL.search(text):
            (loading_fatal if line.stage == "load" else fatal).add(line, text)
        if _RESTORED.search(text):
            loading_fatal = _Tally()
        invalid = _GPU_VALIDATION.search(text) is not None
        if invalid:
            validation.add(line, text)
        if line.level in _KEPT_LEVELS or invalid or _SEVERE.match(text) or _FATAL.search(text):
            evidence.add(line, text)
    return ConsoleFacts(
        evidence=evidence.lines(),
        fatal=(*loading_fatal.lines(), *fatal.lines()),
        gpu_validation=validation.lines(),
        delegation=delegation.facts(),
        scanned=scanned,
        dropped=dropped,
    )


class _Tally:
    """Distinct lines with counts, in order of arrival."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[Stage | None, int]] = {}

    def add(self, line: ConsoleLine, text: str) -> None:
        key = (line.level, text)
        stage, count = self._seen.get(key, (line.stage, 0))
        self._seen[key] = (stage, count + line.count)

    def lines(self) -> tuple[EvidenceLine, ...]:
        return tuple(
            EvidenceLine(level=level, text=text, stage=stage, count=count)
            for (level, text), (stage, count) in self._seen.items()
        )


class _DelegationReader:
    """Collects what the runtime says of where operators run.

    A model with several subgraphs is reported one block per subgraph; counts are summed.
    """

    def __init__(self) -> None:
        self._in_block = False
        self._gpu: int | None = None
        self._cpu: int | None = None
        self._gpu_partitions: int | None = None
        self._cpu_partitions: int | None = None
        self._unsupported: dict[tuple[str, str, str | None], int] = {}
        self._fallback: bool | None = None
        self._evidence: dict[str, None] = {}

    def read(self, text: str, count: int) -> None:
        for line in text.splitlines():
            if self._read_line(line.strip(), count):
                self._evidence[line.strip()] = None

    def _read_line(self, line: str, count: int) -> bool:
        if _UNSUPPORTED_HEADER.search(line):
            self._in_block = True
            return True
        split = _SPLIT.search(line)
        none = _NONE_ON_GPU.search(line)
        if split or none:
            self._in_block = False
            gpu, cpu = (int(split[1]), int(split[2])) if split else (0, int(none[1]) if none else 0)
            self._gpu = (self._gpu or 0) + gpu * count
            self._cpu = (self._cpu or 0) + cpu * count
            self._fallback = bool(self._fallback) or cpu > 0
            return True
        if _PARTIAL.search(line):
            self._fallback = True
            return True
        replacing = _REPLACING.search(line)
        if replacing:
            partitions = int(replacing[4]) * count
            if "XNN" in replacing[3].upper():
                self._cpu_partitions = (self._cpu_partitions or 0) + partitions
            else:
                self._gpu_partitions = (self._gpu_partitions or 0) + partitions
            return True
        unsupported = _UNSUPPORTED_OP.match(line) if self._in_block else None
        if unsupported:
            reason = unsupported[2].strip()
            named = _REASON_TENSOR.match(reason)
            key = (unsupported[1], named[1] if named else reason, named[2] if named else None)
            self._unsupported[key] = self._unsupported.get(key, 0) + count
            return True
        return False

    def facts(self) -> Delegation:
        return Delegation(
            ops_on_gpu=self._gpu,
            ops_on_cpu=self._cpu,
            partitions=(
                self._gpu_partitions if self._gpu_partitions is not None else self._cpu_partitions
            ),
            unsupported=tuple(
                UnsupportedOp(op=op, reason=reason, tensor=tensor, count=count)
                for (op, reason, tensor), count in self._unsupported.items()
            ),
            fallback=self._fallback,
            evidence=tuple(self._evidence),
        )


def page_patterns() -> dict[str, str]:
    """The expressions that decide a verdict, by name, for pages that read a console without Python.

    All are valid in JavaScript with the flag `m`, and mean the same there.
    """
    return {
        "info": _INFO.pattern,
        "severe": _SEVERE.pattern,
        "fatal": _FATAL.pattern,
        "restored": _RESTORED.pattern,
        "gpu_validation": _GPU_VALIDATION.pattern,
        "split": _SPLIT.pattern,
        "none_on_gpu": _NONE_ON_GPU.pattern,
        "partial": _PARTIAL.pattern,
        "unsupported_header": _UNSUPPORTED_HEADER.pattern,
        "unsupported_op": _UNSUPPORTED_OP.pattern,
        "glog": _GLOG.pattern,
        "ansi": _ANSI.pattern,
        "style": _STYLE.pattern,
        "pointer": _POINTER.pattern,
    }

"""The console as evidence: filter the noise, deduplicate, parse what can be parsed."""

from __future__ import annotations

from sweep.config import Frozen
from sweep.protocol import Stage


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

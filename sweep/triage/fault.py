"""What is being looked for: a fault, and whether a trial shows it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sweep.config import Frozen
from sweep.console import UnsupportedOp
from sweep.failure import telling_line
from sweep.record import Status
from sweep.triage.findings import FaultKind
from sweep.triage.lab import InputSet, Lab, Trial

MISMATCH_KEPT = 0.1
"""A smaller model shows the same mismatch only if its error is no less than this share of it."""
MISMATCH_LEAST = 0.02
"""… but a normalised RMSE from here on always counts."""


class Fault(Frozen):
    """A fault, so that it can be told from other faults of smaller models."""

    kind: FaultKind
    status: Status
    failure_class: str | None = None
    telling: str | None = None
    """The message's gist, without names, numbers and places that differ from model to model."""
    nrmse: float | None = None
    """Of a mismatch; None where no number would do (non-finite values, a zero reference)."""
    varies: bool = False
    """A mismatch that comes and goes between runs."""
    unsupported: tuple[UnsupportedOp, ...] = ()


def fault_of(trial: Trial) -> Fault:
    """The fault that a trial shows; kind `none` where it shows none."""
    verdict = trial.verdict
    if verdict.status in ("load_failed", "run_failed"):
        return Fault(
            kind="failure",
            status=verdict.status,
            failure_class=verdict.failure_class,
            telling=gist(telling_line(trial.console) or verdict.error or verdict.reason),
        )
    if verdict.status == "output_mismatch":
        worst = trial.worst
        return Fault(
            kind="mismatch",
            status=verdict.status,
            failure_class=verdict.failure_class,
            nrmse=worst.facts.nrmse
            if worst and not worst.facts.nonfinite_positions_differ
            else None,
            varies=varies_within_page(trial),
        )
    if verdict.status == "fallback":
        return Fault(
            kind="fallback",
            status=verdict.status,
            unsupported=trial.console.delegation.unsupported,
        )
    return Fault(kind="none", status=verdict.status)


def varies_within_page(trial: Trial) -> bool:
    """Repeated runs on the same input in one page gave different bytes."""
    return bool(
        trial.verified
        and any(s.second_same is False or s.last_same is False for s in trial.verified.stability)
    )


def shows(fault: Fault, trial: Trial) -> bool:
    """Whether a trial of a smaller model shows this very fault."""
    found = fault_of(trial)
    if found.kind != fault.kind:
        return False
    if fault.kind == "failure":
        return (found.status, found.failure_class, found.telling) == (
            fault.status,
            fault.failure_class,
            fault.telling,
        )
    if fault.kind == "mismatch":
        if found.nrmse is None:
            return True
        least = MISMATCH_LEAST if fault.nrmse is None else MISMATCH_KEPT * fault.nrmse
        return found.nrmse >= min(MISMATCH_LEAST, least)
    if fault.kind == "fallback":
        if not fault.unsupported:
            return True
        asked = {(u.op, u.reason) for u in fault.unsupported}
        return any((u.op, u.reason) in asked for u in found.unsupported)
    return True


async def trial_showing(
    lab: Lab, fault: Fault, data: bytes, sets: Sequence[InputSet]
) -> Trial | None:
    """A trial of a smaller model that shows the fault; None where it does not.

    Where wasm agrees with the desktop reference on the whole model it must do so on the smaller
    one too: else what was found is another fault, or a model on which the references part.
    """
    trial = await lab.run(data, sets)
    if not shows(fault, trial):
        return None
    if fault.kind == "mismatch" and lab.wasm_agrees and not await lab.wasm_right(data, sets):
        return None
    return trial


_PLACES = re.compile(r"\[?[\w./-]+\.(?:cc|h|js|tflite):\d+\]?|https?://\S+|0x[0-9a-fA-F…]+")
_LABELS = re.compile(r"\b(?:\w*Error|ERROR)\s*:")
_NUMBERS = re.compile(r"\d+")


def gist(message: str) -> str:
    """The first line that says something, without places in code and without numbers."""
    for line in message.splitlines():
        text = _NUMBERS.sub("#", _LABELS.sub("", _PLACES.sub("", line))).strip(" :;[]")
        if len(text) > 8:
            return text[:200]
    return _NUMBERS.sub("#", message)[:200]

"""What a verdict is, and what it is reached from beside the measurement itself."""

from __future__ import annotations

from typing import Literal

from sweep.config import Backend, Frozen
from sweep.record import Cause, Flag, StabilityRecord, Status
from sweep.tolerance import Grade

Against = Literal["wasm", "desktop"]
DesktopStatus = Literal["ok", "failed", "crashed", "timeout", "skipped"]


class VerdictContext(Frozen):
    """What a verdict needs to know beyond its own measurement."""

    backend: Backend
    wasm_sound: bool
    """The wasm run of this sweep ended without error and without a fatal line."""
    wasm_status: Status | None = None
    """Verdict of the wasm run; None when there was none (or it is the one to be judged)."""
    wasm_failure_class: str | None = None
    desktop_status: DesktopStatus = "skipped"
    wasm_agrees_with_desktop: bool | None = None
    """None: not compared."""
    graph_computes: bool = True
    """False where right implementations must agree bit for bit (data movement and the like)."""
    identical_to_wasm: bool | None = None
    input_independent: bool | None = None
    """Outputs are the same for two inputs for which the reference's differ; None: unknown."""
    pattern_kind: str | None = None
    """Kind of the worst output's error pattern."""
    stability: tuple[StabilityRecord, ...] = ()
    mismatch_after_first_run: bool = False
    uncompared_all_zero: bool | None = None
    """The outputs that no reference was there for are zero throughout; None: there are none."""
    uncompared_non_finite: bool = False
    """Some value of those outputs is not finite."""
    software_adapter: bool = False
    model_bytes: int | None = None
    failure_class: str | None = None
    """Set where the model never reached the page (`fetch_failed`, `checksum_mismatch`, …)."""
    failure_message: str | None = None


class Verdict(Frozen):
    """What one backend's run of one model is worth, with the fields of a record's result."""

    status: Status
    failure_class: str | None = None
    error: str | None = None
    reason: str
    cause: Cause | None = None
    flags: tuple[Flag, ...] = ()
    verified_against: tuple[Against, ...] = ()
    """References that a `pass`, `fallback` or `output_mismatch` rests on."""
    grade: Grade | None = None
    """Worst over all outputs, against the reference they agree with best."""
    full_delegation: bool | None = None
    output_match: bool | None = None
    """1.0: the strict element rule against wasm, over all outputs; None where not comparable."""
    max_abs_diff: float | None = None
    max_rel_diff: float | None = None
    loads: bool
    runs: bool
    not_reported: tuple[str, ...] = ()

"""Schema 2.0 of a sweep record: every 1.0 field in its place, new facts beside them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from sweep.compare import OutputComparison
from sweep.conditions import Conditions
from sweep.config import Backend, InputGenerator, Leg, Provenance, Timeouts, TolerancePolicyName
from sweep.console import Delegation, EvidenceLine
from sweep.env import Environment
from sweep.model import ModelFacts
from sweep.protocol import GpuError, PageSignature, Stage
from sweep.tolerance import Grade, OutputJudgement

SCHEMA_VERSION = "2.0"

ModelId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=200)]
DateString = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]

Status = Literal[
    "unavailable", "load_failed", "run_failed", "output_mismatch", "fallback", "unverified", "pass"
]
"""Most serious first (`unavailable` says nothing of the model)."""

STATUSES: tuple[Status, ...] = (
    "unavailable", "load_failed", "run_failed", "output_mismatch", "fallback", "unverified", "pass",
)  # fmt: skip

NOT_FETCHED = frozenset({"fetch_failed", "checksum_mismatch"})
"""Failure classes of a model that could not be had: they say nothing of the model or the core."""

Cause = Literal[
    "gpu_validation_error", "reference_invalid", "zero_output", "nan_gpu_only", "nan_both",
    "unstable_across_runs", "scale_error", "permuted_output", "quantization_noise", "precision",
    "partial_delegation", "unknown",
]  # fmt: skip

Flag = Literal[
    "suspect_fallback", "mismatch_after_first_run", "nondeterministic", "input_independent",
    "all_zero", "non_finite", "reference_disagrees_with_desktop", "noisy_timing",
    "software_adapter", "not_confirmed_in_fresh_page", "reference_missing", "desktop_failed",
]  # fmt: skip


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RecordConfig(_Part):
    """What was asked for. The first five are the 1.0 format's."""

    warmup_runs: int
    timed_runs: int
    tolerance_abs: float
    tolerance_rel: float
    input_seed: int
    input_sets: int | None = None
    input_generator: InputGenerator | None = None
    tolerance_policy: TolerancePolicyName | None = None
    leg: Leg | None = None
    timeouts: Timeouts | None = None
    latency: bool | None = None
    target_half_width: float | None = None
    """What decided how many samples were taken, as in the sweep's configuration: None: not said."""
    extra_budget: float | None = None
    timed_budget: float | None = None
    min_timed_runs: int | None = None


class CorePackage(_Part):
    """The @litertjs/core package under test, and what its integrity was checked against."""

    version: str
    integrity: str | None
    """The registry's SSRI string (`sha512-…`) of the tarball."""
    wasm_utils_version: str | None = None
    wasm_utils_integrity: str | None = None


class InputRecord(_Part):
    """How one input of one signature was made, so that it can be made again."""

    signature: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    rule: str
    """What was drawn and why, e.g. `int below 512 (feeds GATHER)`."""
    sha256: tuple[str, ...]
    """Of the bytes, per input set."""


class DesktopReference(_Part):
    """The desktop reference of this model: ai-edge-litert on the CPU, in a process of its own."""

    package: str
    version: str | None
    status: Literal["ok", "failed", "crashed", "timeout", "skipped"]
    error: str | None = None


class ComparisonRecord(_Part):
    """One output of one signature on one input set, against one reference."""

    signature: str
    input_set: int
    output: str
    dtype: str
    shape: tuple[int, ...]
    against: Literal["wasm", "desktop"]
    facts: OutputComparison
    judgement: OutputJudgement


class Latency(_Part):
    """Milliseconds. p50 is also `latency_p50_ms`. Raw samples are kept."""

    samples_ms: tuple[float, ...]
    p50_ms: float | None
    p90_ms: float | None
    min_ms: float | None
    mean_ms: float | None
    stdev_ms: float | None
    ci99_low_ms: float | None = None
    """99 % confidence interval of the median by binomial order statistics; None below 8 samples."""
    ci99_high_ms: float | None = None
    batch: int = 1
    warmup_ms: tuple[float, ...] = ()
    extra_warmup_runs: int | None = None
    """Warm-up runs beyond those asked for, until page and model had run for long enough."""
    first_run_ms: float | None = None
    compile_ms: float | None = None
    fetch_ms: float | None = None
    init_ms: float | None = None
    load_average: float | None = None
    """1-minute load of the machine when the timed runs began."""
    conditions: Conditions | None = None
    """The state of the machine around the job."""
    noise: tuple[str, ...] = ()
    """Why these samples should be read with care; empty when nothing was seen."""


class StabilityRecord(_Part):
    """Runs 1, 2 and last on the same input, per signature and input set."""

    signature: str
    input_set: int
    second_same: bool | None
    last_same: bool | None
    spread_max_abs: float | None = None
    """Largest difference between any of the kept runs; None when all were identical."""


class Result(_Part):
    """One model × one backend. The first group is the 1.0 format's."""

    backend: Backend
    loads: bool
    runs: bool
    failure_class: str | None = None
    error: str | None = None
    full_delegation: bool | None
    output_match: bool | None
    max_abs_diff: float | None
    max_rel_diff: float | None
    latency_p50_ms: float | None
    delegation_evidence: tuple[str, ...]
    env: Environment
    date: DateString
    provenance: Provenance

    status: Status | None = None
    """None only in records read from the 1.0 format before they were classified."""
    reason: str | None = None
    """The verdict in a sentence for a person."""
    cause: Cause | None = None
    flags: tuple[Flag, ...] = ()
    verified_against: tuple[Literal["wasm", "desktop"], ...] = ()
    grade: Grade | None = None
    delegation: Delegation | None = None
    evidence: tuple[EvidenceLine, ...] = ()
    gpu_errors: tuple[GpuError, ...] = ()
    signatures: tuple[PageSignature, ...] = ()
    comparisons: tuple[ComparisonRecord, ...] = ()
    stability: tuple[StabilityRecord, ...] = ()
    latency: Latency | None = None
    stage_reached: Stage | None = None
    failed_stage: Stage | None = None
    fresh_page: bool | None = None
    confirmed: bool | None = None
    not_reported: tuple[str, ...] = ()
    """Facts this core version cannot give, e.g. `isFullyAccelerated`: absent, not guessed."""


class V1Form(_Part):
    """How a 1.0 record said what 2.0 says otherwise, so that it can be written back unchanged."""

    absent: tuple[str, ...] = ()
    """Optional 1.0 fields it left out where `export` would write null, as `results/0/error`."""
    failure_class: dict[str, str] = {}
    """Per position in `results`: the 1.0 name of a failure class that `export` names otherwise."""


class Record(_Part):
    """One model in one sweep: the content of `data/sweep/<core version>/<date>/<model_id>.json`."""

    schema_version: Literal["2.0"] = "2.0"
    model_id: ModelId
    source: str = Field(min_length=1)
    license: str = Field(min_length=1)
    input_spec: str
    notes: str | None = None
    config: RecordConfig
    results: tuple[Result, ...] = Field(min_length=1)
    """Sorted by backend id."""

    tags: tuple[str, ...] = ()
    variant_of: str | None = None
    model: ModelFacts | None = None
    core: CorePackage | None = None
    inputs: tuple[InputRecord, ...] = ()
    desktop: DesktopReference | None = None
    agrees_with: Literal["wasm", "webgpu", "both", "neither"] | None = None
    """Which backends the desktop reference agrees with; None when there is nothing to arbitrate."""
    imported_from: Literal["1.0"] | None = None
    v1_form: V1Form | None = None

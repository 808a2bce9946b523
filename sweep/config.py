"""What a sweep was asked to do, as one frozen value that is passed down."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Backend = Literal["wasm_xnnpack", "webgpu_mldrift", "webnn"]
Precision = Literal["default", "fp16", "fp32"]
InputGenerator = Literal["2.0", "1.0"]
TolerancePolicyName = Literal["calibrated", "strict"]
Provenance = Literal["measured", "example"]
Isolation = Literal["reuse", "page", "context", "browser"]

ACCELERATOR: dict[Backend, str] = {
    "wasm_xnnpack": "wasm",
    "webgpu_mldrift": "webgpu",
    "webnn": "webnn",
}
"""`accelerator` as `loadAndCompile` of @litertjs/core takes it."""

DASHBOARD_PORT = 8321
"""Where the dashboard is served unless told otherwise."""

DEFAULT_BACKENDS: tuple[Backend, ...] = ("wasm_xnnpack", "webgpu_mldrift")
"""The reference first: its outputs are what the others are compared against."""


class Frozen(BaseModel):
    """A value object: immutable, and strict about its field names."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Timeouts(Frozen):
    """Seconds each stage of a job may take before the page's browser is killed."""

    init: float = Field(60, gt=0)
    load: float = Field(120, gt=0, description="fetching the bytes and compiling")
    first_run: float = Field(120, gt=0)
    warmup: float = Field(120, gt=0)
    timed: float = Field(240, gt=0)
    outputs: float = Field(120, gt=0)


class Leg(Frozen):
    """One way of running a release: a profile names the legs a sweep runs."""

    name: str = Field("default", pattern=r"^[a-z0-9][a-z0-9-]*$")
    jspi: bool | None = Field(None, description="None: on where core and browser have it")
    threads: bool = False
    num_threads: int | None = Field(None, ge=1, le=64, description="None: the core's own choice")
    precision: Precision = "default"
    webgpu: bool = Field(True, description="False: the browser is started without WebGPU")


class SweepConfig(Frozen):
    """Everything that decides what a job measures and how its verdict is reached."""

    core_version: str
    backends: tuple[Backend, ...] = DEFAULT_BACKENDS
    leg: Leg = Leg()
    warmup_runs: int = Field(3, ge=0)
    timed_runs: int = Field(10, ge=1, description="samples of latency that are asked for")
    seed: int = 42
    input_sets: int = Field(2, ge=1, le=16)
    input_generator: InputGenerator = "2.0"
    tolerance_policy: TolerancePolicyName = "calibrated"
    tolerance_abs: float = Field(1e-5, ge=0)
    tolerance_rel: float = Field(1e-3, ge=0)
    timeouts: Timeouts = Timeouts()
    target_half_width: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="more than `timed_runs` samples are taken, up to three times as many, while "
        "the 95 % interval of p50 is wider than ± this fraction of it; 0: never more",
    )
    extra_budget: float = Field(
        1, ge=0, description="seconds of timed runs after which no more than asked are done"
    )
    timed_budget: float = Field(
        20, gt=0, description="seconds of timed runs after which fewer than asked are done"
    )
    min_timed_runs: int = Field(5, ge=1, description="always done, whatever the budgets")
    latency: bool = Field(True, description="False: correctness only, no timed runs")
    isolation: Isolation = "reuse"
    desktop_reference: bool = True
    provenance: Provenance = "measured"

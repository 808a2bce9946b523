"""The environment: everything a number depends on."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

AdapterClass = Literal["hardware", "software", "none"]


class WebGpuAdapter(BaseModel):
    """`GPUAdapterInfo`, with the four fields of the 1.0 format."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    vendor: str = ""
    architecture: str = ""
    device: str = ""
    description: str = ""


class Environment(BaseModel):
    """The `env` block of a record. The first group is the 1.0 format's; None: not measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    browser: str
    browser_version: str
    headless: bool
    os: str
    os_version: str | None = None
    jspi: bool | None = None
    webgpu_adapter: WebGpuAdapter | None = None
    litertjs_core_version: str
    machine_label: str

    adapter_class: AdapterClass | None = None
    adapter_is_fallback: bool | None = None
    webgpu_features: tuple[str, ...] | None = None
    webgpu_limits: dict[str, int] | None = None
    browser_flags: tuple[str, ...] | None = None
    sandbox: bool | None = None
    cpu: str | None = None
    cpu_count: int | None = None
    memory_bytes: int | None = None
    arch: str | None = None
    threads: int | None = None
    wasm_file: str | None = None
    relaxed_simd: bool | None = None
    jspi_supported: bool | None = None
    cross_origin_isolated: bool | None = None
    clock_resolution_us: float | None = None
    precision: str | None = None
    leg: str | None = None
    sweep_version: str | None = None
    playwright_version: str | None = None

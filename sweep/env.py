"""The environment: everything a number depends on."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Literal

import psutil
from pydantic import BaseModel, ConfigDict

from sweep import __version__
from sweep.config import Frozen
from sweep.protocol import RuntimeFacts

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


COMPARABLE_FIELDS: tuple[str, ...] = (
    "adapter_class", "arch", "browser", "browser_flags", "browser_version", "cpu", "cpu_count",
    "headless", "leg", "machine_label", "os", "os_version", "precision", "sandbox", "threads",
    "webgpu_adapter",
)  # fmt: skip
"""What must be equal before two numbers may be compared. Left out is what follows from the core
under test (its version, wasm file, JSPI), and what these fields already decide."""

_SOFTWARE = re.compile(
    r"swiftshader|llvmpipe|lavapipe|softpipe|basic render|\bwarp\b|software|\bcpu\b", re.I
)


class HostFacts(Frozen):
    """The machine. None: the platform does not tell."""

    os: str
    """`macOS`, `Linux` or `Windows`, as in the 1.0 format."""
    os_version: str | None
    """Kernel release (the build number on Windows)."""
    cpu: str | None
    cpu_count: int
    """Logical CPUs this process may use."""
    memory_bytes: int | None
    arch: str


def host_facts() -> HostFacts:
    """Facts of this machine. Blocks for a moment on macOS."""
    system = platform.system()
    return HostFacts(
        os={"Darwin": "macOS"}.get(system, system),
        os_version=platform.version() if system == "Windows" else platform.release(),
        cpu=_cpu_model(system),
        cpu_count=_usable_cpus(),
        memory_bytes=psutil.virtual_memory().total,
        arch={"AMD64": "x86_64", "aarch64": "arm64", "ARM64": "arm64"}.get(
            platform.machine(), platform.machine()
        ),
    )


def _usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model(system: str) -> str | None:
    text = ""
    if system == "Linux":
        text = cpu_model_of(Path("/proc/cpuinfo").read_text(errors="replace"))
    elif system == "Darwin":
        text = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"],
            capture_output=True, text=True, timeout=10, check=False,
        ).stdout  # fmt: skip
    # What Windows gives is a family and model number; better than nothing.
    return " ".join((text or platform.processor()).split()) or None


def cpu_model_of(cpuinfo: str) -> str:
    """The CPU's name in `/proc/cpuinfo`; on ARM, where it has none, implementer and part."""
    match = re.search(r"^(?:model name|cpu model|Model)\s*:\s*(\S.*)$", cpuinfo, re.M)
    if match:
        return match[1]
    numbers = [
        found[1]
        for key in ("CPU implementer", "CPU part")
        if (found := re.search(rf"^{key}\s*:\s*(\S+)", cpuinfo, re.M))
    ]
    return "ARM " + " ".join(numbers) if numbers else ""


def adapter_class(adapter: dict[str, str] | None, is_fallback: bool | None) -> AdapterClass | None:
    """Whether a WebGPU adapter is a GPU or a program on the CPU.

    `adapter`: `GPUAdapterInfo` as a dict, None where `requestAdapter` gave none.
    None: the browser hides every name and does not say whether it is the fallback adapter.
    """
    if adapter is None:
        return "none"
    names = " ".join(value for value in adapter.values() if value)
    if is_fallback or _SOFTWARE.search(names):
        return "software"
    return "hardware" if names or is_fallback is False else None


def build_environment(
    *,
    runtime: RuntimeFacts | None,
    host: HostFacts,
    browser: str,
    browser_version: str,
    headless: bool,
    flags: tuple[str, ...],
    sandbox: bool,
    core_version: str,
    machine_label: str,
    leg: str,
    precision: str,
) -> Environment:
    """The `env` block. `runtime` None (the page never got that far): its facts are None."""
    facts: dict[str, object] = {}
    if runtime is not None:
        adapter = runtime.adapter
        facts = {
            "jspi": runtime.jspi,
            "webgpu_adapter": None
            if adapter is None
            else WebGpuAdapter(**{k: adapter.get(k) or "" for k in WebGpuAdapter.model_fields}),
            "adapter_class": adapter_class(adapter, runtime.adapter_is_fallback),
            "adapter_is_fallback": runtime.adapter_is_fallback,
            "webgpu_features": tuple(sorted(runtime.features)),
            "webgpu_limits": dict(sorted(runtime.limits.items())),
            "threads": runtime.threads,
            "wasm_file": runtime.wasm_file,
            "relaxed_simd": runtime.relaxed_simd,
            "jspi_supported": runtime.jspi_supported,
            "cross_origin_isolated": runtime.cross_origin_isolated,
            "clock_resolution_us": runtime.clock_resolution_us,
        }
    return Environment.model_validate(
        {
            "browser": browser,
            "browser_version": browser_version,
            "headless": headless,
            "browser_flags": flags,
            "sandbox": sandbox,
            **host.model_dump(),
            "litertjs_core_version": core_version,
            "machine_label": machine_label,
            "leg": leg,
            "precision": precision,
            "sweep_version": __version__,
            "playwright_version": importlib.metadata.version("playwright"),
            **facts,
        }
    )


def default_machine_label(host: HostFacts | None = None) -> str:
    """A name for this kind of machine, e.g. `linux-x86_64-intel-xeon-platinum-8375c`.

    Made of system, architecture and CPU, since a host name can be private.
    """
    host = host or host_facts()
    cpu = re.sub(
        r"\((?:R|TM|C)\)|@.*|\b(?:CPU|Processor|\d+-Core)\b", " ", host.cpu or "", flags=re.I
    )
    slug = re.sub(r"[^a-z0-9_]+", "-", f"{host.os} {host.arch} {cpu}".lower()).strip("-")
    return slug[:60].rstrip("-")


def environment_key(env: Environment) -> str:
    """Twelve hex digits, equal exactly when all `COMPARABLE_FIELDS` are."""
    values = env.model_dump(mode="json", include=set(COMPARABLE_FIELDS))
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def load_average() -> float | None:
    """1-minute load average of the machine; None where the system has none (Windows)."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None

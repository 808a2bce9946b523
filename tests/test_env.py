"""The environment of a number: what it is made of, and when two are the same."""

from __future__ import annotations

import pytest

from sweep.env import (
    Environment,
    HostFacts,
    adapter_class,
    build_environment,
    cpu_model_of,
    default_machine_label,
    environment_key,
    host_facts,
)
from sweep.protocol import RuntimeFacts

HOST = HostFacts(
    os="Linux",
    os_version="6.1.0",
    cpu="Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz",
    cpu_count=2,
    memory_bytes=8 << 30,
    arch="x86_64",
)
RUNTIME = RuntimeFacts(
    wasm_file="litert_wasm_jspi_internal.wasm",
    jspi=True,
    cross_origin_isolated=True,
    user_agent="x",
    adapter={"vendor": "google", "architecture": "swiftshader"},
    adapter_is_fallback=True,
    features=("subgroups", "float32-filterable"),
    limits={"maxBufferSize": 1 << 31},
)


def environment(runtime: RuntimeFacts | None = RUNTIME, core: str = "2.5.3") -> Environment:
    return build_environment(
        runtime=runtime,
        host=HOST,
        browser="chromium",
        browser_version="156.0.1",
        headless=True,
        flags=("--a",),
        sandbox=False,
        core_version=core,
        machine_label="m",
        leg="default",
        precision="default",
    )


@pytest.mark.parametrize(
    ("adapter", "fallback", "expected"),
    [
        ({"vendor": "google", "architecture": "swiftshader"}, True, "software"),
        ({"vendor": "google", "device": "SwiftShader Device (Subzero)"}, None, "software"),
        ({"vendor": "mesa", "description": "llvmpipe (LLVM 15.0.6, 256 bits)"}, False, "software"),
        ({"vendor": "mesa", "architecture": "lavapipe"}, None, "software"),
        ({"description": "Microsoft Basic Render Driver"}, None, "software"),
        ({"vendor": "x", "type": "CPU"}, None, "software"),
        ({"vendor": "unheard-of"}, True, "software"),
        ({"vendor": "apple", "architecture": "metal-3"}, False, "hardware"),
        ({"vendor": "nvidia", "architecture": "ampere", "device": ""}, None, "hardware"),
        ({"vendor": "", "architecture": ""}, False, "hardware"),
        ({"vendor": "", "architecture": ""}, None, None),
        (None, None, "none"),
    ],
)
def test_adapter_class(
    adapter: dict[str, str] | None, fallback: bool | None, expected: str | None
) -> None:
    assert adapter_class(adapter, fallback) == expected


def test_the_environment_holds_page_host_and_versions() -> None:
    env = environment()
    assert env.webgpu_adapter is not None
    assert env.webgpu_adapter.architecture == "swiftshader"
    assert env.webgpu_adapter.description == ""
    assert (env.adapter_class, env.jspi, env.cpu_count) == ("software", True, 2)
    assert env.webgpu_features == ("float32-filterable", "subgroups")
    assert env.playwright_version
    assert env.sweep_version
    without = environment(runtime=None)
    assert (without.adapter_class, without.jspi, without.webgpu_adapter) == (None, None, None)
    no_adapter = RUNTIME.model_copy(update={"adapter": None, "adapter_is_fallback": None})
    assert environment(no_adapter).adapter_class == "none"


def test_the_key_ignores_the_core_and_nothing_that_matters() -> None:
    env = environment()
    key = environment_key(env)
    other_core = RUNTIME.model_copy(update={"wasm_file": "litert_wasm_internal.wasm", "jspi": None})
    assert environment_key(environment(other_core, core="0.1.1")) == key
    again = Environment.model_validate_json(env.model_dump_json())
    assert environment_key(again) == key
    for change in (
        {"browser_version": "157.0.1"},
        {"headless": False},
        {"browser_flags": ("--b",)},
        {"machine_label": "n"},
        {"threads": 4},
        {"leg": "threads"},
        {"webgpu_adapter": None},
    ):
        assert environment_key(env.model_copy(update=change)) != key, change


def test_machine_labels_are_made_of_what_is_public() -> None:
    assert default_machine_label(HOST) == "linux-x86_64-intel-xeon-platinum-8375c"
    mac = HOST.model_copy(update={"os": "macOS", "arch": "arm64", "cpu": "Apple M4 Max"})
    assert default_machine_label(mac) == "macos-arm64-apple-m4-max"
    amd = HOST.model_copy(update={"cpu": "AMD EPYC 7763 64-Core Processor"})
    assert default_machine_label(amd) == "linux-x86_64-amd-epyc-7763"
    assert default_machine_label(HOST.model_copy(update={"cpu": None})) == "linux-x86_64"


def test_cpu_models() -> None:
    assert cpu_model_of("processor\t: 0\nmodel name\t: AMD EPYC\nmodel\t: 1\n") == "AMD EPYC"
    assert cpu_model_of("CPU implementer\t: 0x41\nCPU part\t: 0xd40\n") == "ARM 0x41 0xd40"
    assert cpu_model_of("") == ""


def test_host_facts_of_this_machine() -> None:
    facts = host_facts()
    assert facts.os in ("Linux", "macOS", "Windows")
    assert facts.cpu
    assert facts.cpu_count is not None
    assert facts.cpu_count >= 1
    assert (facts.memory_bytes or 0) > 1 << 28

"""The doctor: everything a sweep needs, whether it is there, and what to do if not."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal, TypeVar

from sweep.browser import NO_SANDBOX_ENV, BrowserChoice, find_browser, launch_plan
from sweep.browser_search import run_command
from sweep.config import Frozen
from sweep.env import HostFacts, default_machine_label, host_facts
from sweep.errors import EnvironmentProblem
from sweep.npm import npm_version
from sweep.probe import BrowserFacts, probe_browser
from sweep.runtime import CORE, Release, cached_versions, published_versions

T = TypeVar("T")

Health = Literal["ok", "warn", "fail"]

GIB = 1 << 30
DISK_WARN, DISK_FAIL = 3 * GIB, GIB // 2

DESKTOP_PACKAGE = "ai-edge-litert"


class Check(Frozen):
    """One line of the doctor's table. `fail`: no sweep is possible before it is cured."""

    name: str
    health: Health
    found: str
    remedy: str | None = None


class Examination(Frozen):
    """All that the doctor found."""

    can_sweep: bool
    checks: tuple[Check, ...]
    host: HostFacts
    machine_label: str
    browser: BrowserChoice | None
    browser_facts: BrowserFacts | None
    cores_cached: tuple[str, ...]
    cores_published: tuple[str, ...] | None
    """None: the registry could not be asked."""
    cache_dir: Path


async def examine(cache_dir: Path, browser: Path | None = None) -> Examination:
    """Look at everything; problems become checks, never exceptions."""
    host = await asyncio.to_thread(host_facts)
    npm, node, releases, choice, desktop = await asyncio.gather(
        _attempt(npm_version),
        run_command(["node", "--version"], 30),
        _attempt(published_versions),
        _attempt(lambda: find_browser(browser)),
        run_command([sys.executable, "-c", "import ai_edge_litert.interpreter"], 60),
    )
    facts: BrowserFacts | EnvironmentProblem | None = None
    if isinstance(choice, BrowserChoice):
        found = choice
        facts = await _attempt(lambda: probe_browser(found, launch_plan()))
    cached = await asyncio.to_thread(cached_versions, cache_dir)
    checks = (
        _python(),
        _host(host),
        *_browser(choice, facts),
        *_tools(npm, node, cached),
        *_cores(cached, releases),
        _desktop(desktop),
        await asyncio.to_thread(_disk, cache_dir),
    )
    return Examination(
        can_sweep=all(check.health != "fail" for check in checks),
        checks=checks,
        host=host,
        machine_label=default_machine_label(host),
        browser=choice if isinstance(choice, BrowserChoice) else None,
        browser_facts=facts if isinstance(facts, BrowserFacts) else None,
        cores_cached=tuple(cached),
        cores_published=tuple(r.version for r in releases) if isinstance(releases, list) else None,
        cache_dir=cache_dir,
    )


async def _attempt(ask: Callable[[], Coroutine[Any, Any, T]]) -> T | EnvironmentProblem:
    try:
        return await ask()
    except EnvironmentProblem as problem:
        return problem


def _python() -> Check:
    return Check(name="Python", health="ok", found=f"{platform.python_version()} {sys.executable}")


def _host(host: HostFacts) -> Check:
    memory = f"{(host.memory_bytes or 0) / GIB:.0f} GiB"
    found = f"{host.os} {host.os_version}, {host.cpu}, {host.cpu_count} CPUs, {memory}"
    return Check(name="machine", health="ok", found=found)


def _browser(
    choice: BrowserChoice | EnvironmentProblem, facts: BrowserFacts | EnvironmentProblem | None
) -> list[Check]:
    if isinstance(choice, EnvironmentProblem):
        return [Check(name="browser", health="fail", found="none", remedy=str(choice))]
    what = f"{choice.name} {choice.version or ''} ({choice.kind}) {choice.executable}"
    if not isinstance(facts, BrowserFacts):
        return [Check(name="browser", health="fail", found=what, remedy=str(facts))]
    return [
        Check(name="browser", health="ok", found=what),
        _sandbox(),
        webgpu_check(facts, platform.system()),
        Check(
            name="JSPI",
            health="ok" if facts.jspi else "warn",
            found="supported" if facts.jspi else "not supported",
            remedy=None
            if facts.jspi
            else "models that webgpu takes only in part will fail: use Chromium 137 or newer",
        ),
        Check(
            name="cross-origin isolation",
            health="ok" if facts.cross_origin_isolated else "fail",
            found="isolated" if facts.cross_origin_isolated else "not isolated",
            remedy=None
            if facts.cross_origin_isolated
            else "the clock is too coarse to time with: use a current Chromium or Chrome",
        ),
        Check(
            name="threads",
            health="ok" if facts.shared_array_buffer else "warn",
            found=f"SharedArrayBuffer, {facts.hardware_concurrency} hardware threads"
            if facts.shared_array_buffer
            else "no SharedArrayBuffer",
            remedy=None if facts.shared_array_buffer else "the `threads` leg cannot run here",
        ),
    ]


def _sandbox() -> Check:
    if launch_plan().sandbox:
        return Check(name="browser sandbox", health="ok", found="on")
    why = "running as root" if os.environ.get(NO_SANDBOX_ENV) != "1" else f"{NO_SANDBOX_ENV}=1"
    return Check(
        name="browser sandbox",
        health="warn",
        found=f"off ({why}); recorded with every result",
        remedy="sweep models you do not trust as an ordinary user",
    )


def webgpu_check(facts: BrowserFacts, system: str) -> Check:
    """Whether webgpu runs here, and on what. Without it wasm can still be swept."""
    name = "WebGPU adapter"
    if facts.adapter is None:
        lack = "no adapter" if facts.webgpu_api else "no navigator.gpu"
        return Check(
            name=name,
            health="warn",
            found=f"{lack}: webgpu results will be `unavailable`",
            remedy="install a Vulkan driver (Debian: mesa-vulkan-drivers), or try another browser"
            if system == "Linux"
            else "update the graphics driver, or look at chrome://gpu for why it is off",
        )
    title = " ".join(value for value in facts.adapter.values() if value) or "unnamed"
    if facts.device_error is not None:
        return Check(
            name=name,
            health="warn",
            found=f"{title}, but no device: {facts.device_error}",
            remedy="update the graphics driver; webgpu results will be `unavailable`",
        )
    f16 = "shader-f16" if facts.shader_f16 else "no shader-f16"
    if facts.adapter_class == "software":
        return Check(
            name=name,
            health="warn",
            found=f"{title}, SOFTWARE, {f16}",
            remedy="right for checking values; its latencies say nothing of a GPU. For those, "
            "sweep on a machine with one (with --require-hardware)",
        )
    return Check(
        name=name, health="ok", found=f"{title}, {facts.adapter_class or 'unknown kind'}, {f16}"
    )


def _tools(npm: str | EnvironmentProblem, node: tuple[int, str], cached: list[str]) -> list[Check]:
    # Once a core is cached, a sweep needs neither.
    lacking: Health = "warn" if cached else "fail"
    node_ok = node[0] == 0
    return [
        Check(
            name="node",
            health="ok" if node_ok else "warn",
            found=node[1].strip() if node_ok else "none",
            remedy=None if node_ok else "install Node.js (it brings npm)",
        ),
        Check(name="npm", health="ok", found=npm)
        if isinstance(npm, str)
        else Check(name="npm", health=lacking, found="none", remedy=str(npm)),
    ]


def _cores(cached: list[str], releases: list[Release] | EnvironmentProblem) -> list[Check]:
    have = Check(
        name="core versions cached",
        health="ok" if cached else "warn",
        found=", ".join(cached) or "none",
        remedy=None if cached else "`litertjs-sweep setup` installs the latest",
    )
    if isinstance(releases, list):
        listed = ", ".join(
            f"{r.version} ({', '.join(r.tags)})" if r.tags else r.version for r in releases
        )
        return [have, Check(name="core versions published", health="ok", found=listed)]
    return [
        have,
        Check(
            name="core versions published",
            health="warn" if cached else "fail",
            found="unknown" if cached else f"unknown, and no {CORE} is cached",
            remedy=str(releases),
        ),
    ]


def _desktop(imported: tuple[int, str]) -> Check:
    name = "desktop reference"
    try:
        version = importlib.metadata.version(DESKTOP_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        version = None
    if version is not None and imported[0] == 0:
        return Check(name=name, health="ok", found=f"{DESKTOP_PACKAGE} {version}")
    last = (imported[1].strip().splitlines() or ["no message"])[-1]
    return Check(
        name=name,
        health="warn",
        found=f"{DESKTOP_PACKAGE} {version or 'is not installed'}: {last}",
        remedy=f"`pip install {DESKTOP_PACKAGE}`; without it nothing arbitrates between backends",
    )


def _disk(cache_dir: Path) -> Check:
    existing = next(p for p in (cache_dir, *cache_dir.parents) if p.exists())
    free = shutil.disk_usage(existing).free
    found = f"{free / GIB:.1f} GiB free at {cache_dir}"
    if not os.access(existing, os.W_OK):
        return Check(
            name="cache",
            health="fail",
            found=f"{existing} cannot be written",
            remedy="permit it, or set LITERTJS_SWEEP_CACHE to another directory",
        )
    health: Health = "fail" if free < DISK_FAIL else "warn" if free < DISK_WARN else "ok"
    remedy = "free some space, or set LITERTJS_SWEEP_CACHE to a larger disk"
    return Check(
        name="cache", health=health, found=found, remedy=None if health == "ok" else remedy
    )

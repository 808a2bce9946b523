"""Environments as the dashboard sees them: identity, rigs, and their names for people."""

from __future__ import annotations

from sweep.env import Environment, adapter_class
from sweep.store import version_key

_NOT_IDENTITY = {
    "litertjs_core_version", "jspi", "wasm_file", "threads", "relaxed_simd", "jspi_supported",
    "cross_origin_isolated", "clock_resolution_us", "sweep_version", "playwright_version",
    "webgpu_features", "webgpu_limits", "memory_bytes",
}  # fmt: skip
"""Fields that follow from the core under test, or only describe what other fields identify."""
_NOT_RIG = {"browser_version", "os_version", "browser_flags"}


def adapter_kind(env: Environment) -> str:
    """`hardware`, `software`, `none` or `unknown`: as recorded, else read off the adapter's names.

    Records of the 1.0 format have no `adapter_class`.
    """
    if env.adapter_class is not None:
        return env.adapter_class
    if env.webgpu_adapter is None:
        return "unknown"
    return adapter_class(env.webgpu_adapter.model_dump(), env.adapter_is_fallback) or "unknown"


def environment_label(env: Environment, *, versions: bool = True) -> str:
    """`machine · chromium 151.0.7922.34 headless · macOS · metal-3`, without the core version.

    With `versions=False` the browser's version is left out: the label of a rig.
    """
    machine, *rest = _machine_parts(env)
    return " · ".join((machine, browser_label(env, version=versions), *rest))


def browser_label(env: Environment, *, version: bool = True) -> str:
    """`chromium 151.0.7922.34 headless`."""
    parts = (env.browser, env.browser_version if version else "", "headless" * env.headless)
    return " ".join(part for part in parts if part)


def machine_label(env: Environment) -> str:
    """`machine · macOS · metal-3`: the environment without its browser."""
    return " · ".join(_machine_parts(env))


def _machine_parts(env: Environment) -> list[str]:
    adapter = env.webgpu_adapter
    parts = [
        env.os,
        (adapter.architecture or adapter.vendor) if adapter else "",
        f"leg {env.leg}" if env.leg not in (None, "default") else "",
        env.precision if env.precision not in (None, "default") else "",
    ]
    return [env.machine_label, *(part for part in parts if part)]


class EnvironmentTable:
    """Environments by identity, numbered as they arrive; facts are of the newest core."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self.environments: list[Environment] = []
        self.rig_keys: list[str] = []

    def add(self, env: Environment) -> int:
        """The number of this environment, the same for equal environments of any core version."""
        number = self._number.setdefault(environment_identity(env), len(self.environments))
        if number == len(self.environments):
            self.environments.append(env)
            self.rig_keys.append(environment_identity(env, rig=True))
        elif self.environments[number] != env:
            self.environments[number] = max(self.environments[number], env, key=_newness)
        return number


def _newness(env: Environment) -> tuple[object, ...]:
    return (version_key(env.litertjs_core_version), env.model_dump_json())


def environment_identity(env: Environment, *, rig: bool = False) -> str:
    """A text that is equal for equal environments (`rig`: for equal rigs)."""
    leave_out = _NOT_IDENTITY | (_NOT_RIG if rig else set())
    # Threaded and single-threaded wasm are never one baseline. Where a leg is named it tells, also
    # for results that failed before the threads could be counted.
    threaded = env.leg is None and env.threads is not None and env.threads > 1
    return f"{env.model_dump_json(exclude=leave_out)}{threaded}"

"""Starting a browser that can sweep, and ending it even when it hangs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import shutil
import tempfile
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from playwright.async_api import BrowserContext, Playwright
from playwright.async_api import Error as PlaywrightError

from sweep.browser_search import BROWSER_ENV, BrowserChoice, find_browser
from sweep.config import Frozen
from sweep.errors import EnvironmentProblem
from sweep.scratch import scratch_prefix
from sweep.secrets import public_environ

__all__ = [
    "BROWSER_ENV",
    "NO_SANDBOX_ENV",
    "BrowserChoice",
    "LaunchPlan",
    "LaunchedBrowser",
    "find_browser",
    "launch",
    "launch_flags",
    "launch_plan",
]

NO_SANDBOX_ENV = "LITERTJS_SWEEP_NO_SANDBOX"
"""Set to 1, the browser's sandbox is off, which is recorded. As root it is off anyway."""

LAUNCH_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 10.0
KILL_TIMEOUT_S = 5.0

SOCKET_PATH = len("/t/org.chromium.Chromium.XXXXXX/SingletonSocket")
"""What the browser adds to our directory; Linux allows a socket's path 107 bytes."""

_QUIET = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--metrics-recording-only",
    "--no-first-run",
    # The page needs nothing but our own server; no browser service or model page gets further.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)

STEADY = ("--js-flags=--wasm-tiering-budget=100000",)
"""V8 runs each wasm function in a quick, slow form until it has been busy for a while, and compiles
it for speed beside that. At its own budget, models whose kernels had not run before were slow for
up to a second, while they were timed; at this one they seldom are (docs/performance.md). The code
in the end is the same."""

WITHOUT_WEBGPU_JS = """
delete Navigator.prototype.gpu;
for (const name of Object.getOwnPropertyNames(globalThis)) {
  if (/^GPU[A-Z]?/.test(name)) delete globalThis[name];
}
"""
"""Chromium has no switch that removes the API itself (without an adapter `navigator.gpu` stays),
so the page takes it away before any other script runs, as in a browser that never had it."""


class LaunchPlan(Frozen):
    """How a browser is started."""

    flags: tuple[str, ...]
    sandbox: bool
    webgpu: bool = True


def launch_plan(*, webgpu: bool = True, extra: Sequence[str] = ()) -> LaunchPlan:
    """The plan for this machine."""
    system = platform.system()
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    sandbox = not (system == "Linux" and (root or os.environ.get(NO_SANDBOX_ENV) == "1"))
    flags = launch_flags(
        system=system,
        webgpu=webgpu,
        root=not sandbox,
        software=system == "Linux" and not has_gpu_device(Path("/dev")),
        extra=extra,
    )
    return LaunchPlan(flags=flags, sandbox=sandbox, webgpu=webgpu)


def launch_flags(
    *, system: str, webgpu: bool, root: bool, software: bool, extra: Sequence[str] = ()
) -> tuple[str, ...]:
    """Command-line flags of Chromium, sorted; feature lists are joined, as the last one would win.

    `system`: as `platform.system()`. `software`: there is no GPU, so SwiftShader is asked for by
    name (Linux and macOS; on Windows that gives a null adapter). `root`: without a sandbox.
    """
    flags = [*_QUIET, *STEADY]
    if not webgpu:
        flags += ["--disable-features=WebGPUService", "--disable-gpu"]
    else:
        flags += ["--enable-unsafe-webgpu"]
        match system, software:
            case "Linux", True:
                flags += [
                    "--use-webgpu-adapter=swiftshader",
                    "--enable-features=Vulkan",
                    "--ignore-gpu-blocklist",
                    # One slow dispatch on the CPU must not look like a lost device.
                    "--disable-gpu-watchdog",
                ]
            case "Linux", False:
                flags += [
                    "--use-angle=vulkan",
                    "--enable-features=Vulkan",
                    "--disable-vulkan-surface",
                    "--ignore-gpu-blocklist",
                ]
            case "Darwin", True:
                flags += ["--use-webgpu-adapter=swiftshader"]
            case "Darwin", False:
                flags += ["--use-angle=metal"]
    if root:
        flags += ["--no-sandbox"]
    return _joined([*flags, *extra])


def network_lock(origin: str) -> tuple[str, ...]:
    """Flags under which a browser reaches one loopback origin and nothing else.

    Whatever is not `origin` goes to a proxy that is not there: other ports of loopback, addresses,
    names; by fetch, WebSocket, image, navigation or worker alike. They hold the session's port,
    so they are not part of the plan that is recorded.
    """
    return (
        "--proxy-server=http://127.0.0.1:1",
        # Loopback is exempt from proxies unless this says otherwise.
        f"--proxy-bypass-list=<-loopback>;{origin.removeprefix('http://')}",
        # WebRTC would send UDP beside the proxy.
        "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    )


def _joined(flags: Sequence[str]) -> tuple[str, ...]:
    lists: dict[str, dict[str, None]] = {}
    plain: dict[str, None] = {}
    for flag in flags:
        name, _, value = flag.partition("=")
        if name in ("--enable-features", "--disable-features"):
            lists.setdefault(name, {}).update(dict.fromkeys(value.split(",")))
        else:
            plain[flag] = None
    return tuple(sorted([*plain, *(f"{name}={','.join(of)}" for name, of in lists.items())]))


def has_gpu_device(dev: Path) -> bool:
    """Whether Linux offers a GPU: a DRM render node, an NVIDIA device, or WSL's `dxg`."""
    return any(
        any(dev.glob(pattern)) for pattern in ("dri/renderD*", "nvidia[0-9]*", "dxg")
    )  # fmt: skip


@dataclass
class LaunchedBrowser:
    """A running browser with one context, and all its processes."""

    context: BrowserContext
    version: str
    """E.g. `156.0.8078.114`."""
    process: psutil.Process
    _scratch: Path | None
    """Our own temporary directory: the profile and the browser's temporary files."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self._scratch is not None:
            weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        self.context.on("close", lambda _: self._ended())

    def _ended(self) -> None:
        # Also when the browser crashed and nobody calls close().
        task = asyncio.ensure_future(self._clean())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End the browser in an orderly way, or kill it if it does not react in time."""
        with contextlib.suppress(PlaywrightError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.context.close()
        await self._clean()

    async def kill(self) -> None:
        """Kill every process of the browser, whatever it is doing; leave no files."""
        await asyncio.to_thread(kill_tree, self.process)
        # Lets Playwright notice, so that it drops its own state of this browser.
        with contextlib.suppress(PlaywrightError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.context.close()
        await self._clean()

    async def _clean(self) -> None:
        await asyncio.to_thread(kill_tree, self.process)
        if self._scratch is not None:
            await asyncio.to_thread(_remove, self._scratch)


def kill_tree(process: psutil.Process) -> None:
    """Kill a process and all that descend from it, and wait until they are gone."""
    doomed = [process]
    with contextlib.suppress(psutil.NoSuchProcess):
        doomed = [*process.children(recursive=True), process]
        process.suspend()  # so that it starts no more children while these are killed
        doomed = list(dict.fromkeys([*process.children(recursive=True), *doomed]))
    for one in reversed(doomed):
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(doomed, timeout=KILL_TIMEOUT_S)


def _remove(directory: Path) -> None:
    """Remove a directory in which a dying process may still write: several tries, then let be."""
    for _ in range(20):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(0.1)


async def launch(
    playwright: Playwright,
    choice: BrowserChoice,
    plan: LaunchPlan,
    *,
    headed: bool = False,
    user_data_dir: Path | None = None,
    only_origin: str | None = None,
) -> LaunchedBrowser:
    """Start the browser with a profile of its own, which caches the runtime's wasm between pages.

    `user_data_dir`: a profile that is kept; None: a temporary one that goes with the browser.
    `only_origin`: `http://127.0.0.1:<port>`, beyond which no page of this browser can get; None:
    all of loopback.

    Raises EnvironmentProblem with the browser's own words when it does not start.
    """
    scratch: Path | None = None
    environ: dict[str, str | float | bool] = dict(public_environ())
    if user_data_dir is None:
        scratch = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=scratch_prefix()))
        user_data_dir = scratch / "profile"
        # A killed browser leaves its socket directory behind; it shall lie in ours, unless that
        # makes the socket's path longer than the 108 bytes which sockets may have.
        if platform.system() == "Linux" and len(str(scratch)) + SOCKET_PATH <= 107:
            (scratch / "t").mkdir()
            environ["TMPDIR"] = str(scratch / "t")
    context: BrowserContext | None = None
    try:
        context = await playwright.chromium.launch_persistent_context(
            user_data_dir,
            executable_path=choice.executable,
            headless=not headed,
            args=[
                *plan.flags,
                *(network_lock(only_origin) if only_origin else ()),
                *([] if headed else ["--headless=new"]),
            ],
            accept_downloads=False,
            artifacts_dir=scratch / "artifacts" if scratch else None,
            chromium_sandbox=plan.sandbox,
            env=environ,
            timeout=LAUNCH_TIMEOUT_S * 1000,
            # Ours to handle: an interrupted sweep finishes its model first.
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
        )
        if not plan.webgpu:
            await context.add_init_script(WITHOUT_WEBGPU_JS)
        version = await _version(context)
        process = await asyncio.to_thread(_browser_process, user_data_dir)
    except PlaywrightError as error:
        raise EnvironmentProblem(_launch_message(choice, str(error), headed=headed)) from error
    else:
        launched = LaunchedBrowser(context, version, process, scratch)
        scratch, context = None, None
        return launched
    finally:
        if context is not None:
            with contextlib.suppress(PlaywrightError):
                await context.close()
        if scratch is not None:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)


async def _version(context: BrowserContext) -> str:
    page = context.pages[0] if context.pages else await context.new_page()
    session = await context.new_cdp_session(page)
    product: str = (await session.send("Browser.getVersion"))["product"]
    await session.detach()
    return product.partition("/")[2]


def _browser_process(user_data_dir: Path) -> psutil.Process:
    """The browser's main process, a descendant of ours, known by its profile directory."""
    wanted = f"--user-data-dir={user_data_dir}"
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            line = process.cmdline()
            # Its helpers repeat the argument, but have a --type.
            if wanted in line and not any(arg.startswith("--type=") for arg in line):
                return process
    raise EnvironmentProblem("the browser ended just after it was started: try again, or --headed")


def _launch_message(choice: BrowserChoice, said: str, *, headed: bool) -> str:
    """What the browser said, and what to do about it."""
    lowered = said.lower()
    if "sandboxing failed" in lowered:
        return (
            f"{choice.executable} does not start, because this system does not let the browser's "
            "sandbox work. Allow unprivileged user namespaces, use the distribution's own Chromium "
            "or Chrome, or, if you trust the models and the runtime, set "
            f"{NO_SANDBOX_ENV}=1"
        )
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()]
    words = "\n  ".join((telling or lines or ["no message"])[:4])
    if "shared librar" in lowered:
        remedy = "Install the libraries it needs: `playwright install-deps chromium`"
    elif headed and ("display" in lowered or "x server" in lowered):
        remedy = "There is no display here: leave out --headed"
    else:
        remedy = "Run `litertjs-sweep doctor`, or name another browser with --browser"
    return f"{choice.executable} does not start:\n  {words}\n{remedy}"

"""Finding the browser of a sweep, and installing one where none is found."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import re
import shutil
import string
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from playwright.async_api import async_playwright

from sweep.config import Frozen
from sweep.errors import EnvironmentProblem

BROWSER_ENV = "LITERTJS_SWEEP_BROWSER"
"""Names the browser executable; an option on the command line outranks it."""

VERSION_TIMEOUT_S = 30.0
DOWNLOAD_TIMEOUT_S = 600.0
APT_TIMEOUT_S = 1200.0

_COMMANDS = ("chromium", "google-chrome-stable", "google-chrome", "chromium-browser",
             "microsoft-edge-stable", "microsoft-edge")  # fmt: skip
_BINARIES = ("chromium", "chrome", "chromium-browser", "msedge")
"""Names of the program itself, beside or below a wrapper script."""
_MAC_APPS = ("Google Chrome", "Chromium", "Microsoft Edge")
_WINDOWS_PROGRAMS = ("Google/Chrome/Application/chrome.exe", "Chromium/Application/chrome.exe",
                     "Microsoft/Edge/Application/msedge.exe")  # fmt: skip

log = logging.getLogger(__name__)


class BrowserChoice(Frozen):
    """The browser a sweep will use."""

    executable: Path
    kind: Literal["explicit", "playwright", "system"]
    name: Literal["chromium", "chrome", "msedge"]
    """As records name it; Playwright's own build counts as `chromium`."""
    version: str | None
    """As the program itself says; None where it cannot be asked (Windows)."""


async def find_browser(explicit: Path | None = None, *, install: bool = False) -> BrowserChoice:
    """The browser to use, in this order: the one named by `explicit` or `$LITERTJS_SWEEP_BROWSER`;
    Playwright's own pinned Chromium; one installed on the system. With `install`, Playwright's is
    downloaded if it is missing, and where that fails and nothing else is found, Debian's or
    Ubuntu's own is installed (as root).

    Raises EnvironmentProblem when the named one does not work, or none is found.
    """
    named = explicit or (Path(os.environ[BROWSER_ENV]) if os.environ.get(BROWSER_ENV) else None)
    if named is not None:
        return await _named(named)
    tried: list[str] = []
    if choice := await _playwrights_own(tried, install=install):
        return choice
    if choice := await _installed(tried):
        return choice
    if install and await _apt_install_chromium(tried) and (choice := await _installed(tried)):
        return choice
    raise EnvironmentProblem(
        "no Chromium or Chrome was found:\n"
        + "".join(f"  - {line}\n" for line in tried)
        + f"Install Chrome or Chromium, or name one with --browser or ${BROWSER_ENV}"
        + ("" if install else ", or run `litertjs-sweep setup`")
    )


def system_browsers(system: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """Programs of installed browsers, best first. `system`: as `platform.system()`."""
    if system == "Darwin":
        for root in (Path("/Applications"), Path(environ.get("HOME", "/")) / "Applications"):
            for app in _MAC_APPS:
                candidate = root / f"{app}.app" / "Contents" / "MacOS" / app
                if candidate.is_file():
                    yield candidate
    elif system == "Windows":
        for variable in ("ProgramFiles", "ProgramFiles(x86)", "LocalAppData"):
            for program in _WINDOWS_PROGRAMS:
                candidate = Path(environ.get(variable, "")) / program
                if environ.get(variable) and candidate.is_file():
                    yield candidate
    else:
        found = (shutil.which(command, path=environ.get("PATH")) for command in _COMMANDS)
        programs = [program_behind(Path(f)) for f in found if f is not None]
        # A snap sees neither our temporary profile nor our pipes: only as the last resort.
        yield from dict.fromkeys(sorted(programs, key=lambda p: "snap" in p.parts))


def program_behind(command: Path) -> Path:
    """The browser program that a command starts.

    Distributions put a shell script on PATH that warns, adds flags of its own and would be the
    one to be killed. The program is found by reading it: beside it, or in a directory that the
    script names. The command itself when it is no script or names nothing that exists.
    """
    resolved = command.resolve()
    try:
        with resolved.open("rb") as file:
            if file.read(2) != b"#!":
                return resolved
            script = file.read(1 << 16).decode(errors="replace")
    except OSError:
        return command
    variables: dict[str, str] = {}
    for name, value in re.findall(r"^\s*(?:export )?(\w+)=[\"']?([^\s\"'`]*)", script, re.M):
        variables.setdefault(name, string.Template(value).safe_substitute(variables))
    expanded = string.Template(script).safe_substitute(variables)
    named = [Path(p) for p in re.findall(r"(?<![\w.$}])/[\w.+/-]+", expanded)]
    for place in (resolved.parent, *named):
        for candidate in (place, *(place / name for name in _BINARIES)):
            if candidate.name in _BINARIES and _is_program(candidate):
                return candidate
    return command


def _is_program(path: Path) -> bool:
    try:
        if not path.is_file() or not os.access(path, os.X_OK):
            return False
        with path.open("rb") as file:
            return file.read(2) != b"#!"
    except OSError:
        return False


async def _named(named: Path) -> BrowserChoice:
    path = shutil.which(os.path.expanduser(named))  # noqa: PTH111, ASYNC240
    if path is None:
        raise EnvironmentProblem(f"{named} is not an executable file: name a Chrome or Chromium")
    program = program_behind(Path(path))
    problem, choice = await _ask(program, "explicit")
    if choice is None:
        raise EnvironmentProblem(f"{program} does not work as a browser: {problem}")
    return choice


async def _installed(tried: list[str]) -> BrowserChoice | None:
    candidates = list(system_browsers(platform.system(), os.environ))
    for program in candidates:
        problem, choice = await _ask(program, "system")
        if choice is not None:
            return choice
        tried.append(f"{program}: {problem}")
    if not candidates:
        tried.append("none is installed on the system where browsers usually are")
    return None


async def _playwrights_own(tried: list[str], *, install: bool) -> BrowserChoice | None:
    async with async_playwright() as playwright:
        program = Path(playwright.chromium.executable_path)
    if not await asyncio.to_thread(program.is_file):
        if not install:
            tried.append("Playwright's own Chromium is not downloaded")
            return None
        log.info("downloading Playwright's own Chromium")
        # --no-shell: the headless shell is another build, in which WebGPU differs.
        problem = await _run_playwright("install", "--no-shell", "chromium")
        if problem is not None:
            log.info("that failed: %s", problem)
            tried.append(f"Playwright's own Chromium could not be downloaded: {problem}")
            return None
    problem, choice = await _ask(program, "playwright")
    if choice is None and install and "shared librar" in problem and _can_apt():
        log.info("installing the system libraries that Chromium needs")
        if await _run_playwright("install-deps", "chromium") is None:
            problem, choice = await _ask(program, "playwright")
    if choice is None:
        remedy = " (`playwright install-deps chromium`)" if "shared librar" in problem else ""
        tried.append(f"Playwright's own Chromium does not start: {problem}{remedy}")
    return choice


async def _run_playwright(*args: str) -> str | None:
    """None when it went well, else what went wrong."""
    command = [sys.executable, "-m", "playwright", *args]
    # Its own 30 s, five times over, is long to wait where no network lets it through.
    patience = os.environ.get("PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT", "10000")
    code, output = await run_command(
        command, DOWNLOAD_TIMEOUT_S, {"PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT": patience}
    )
    if code == 0:
        return None
    causes = re.findall(r"Error: (.+)", output)
    return (causes[0] if causes else output.strip()[-200:]) or f"exit code {code}"


async def _ask(
    program: Path, kind: Literal["explicit", "playwright", "system"]
) -> tuple[str, BrowserChoice | None]:
    """Ask a browser for its version, which also shows whether it starts at all."""
    if platform.system() == "Windows":  # there `--version` opens a window
        name = _name(program.name, kind)
        return "", BrowserChoice(executable=program, kind=kind, name=name, version=None)
    code, output = await run_command([str(program), "--version"], VERSION_TIMEOUT_S)
    match = re.search(r"(Chromium|Chrome|Edge)\b[^\d\n]*(\d+(?:\.\d+)+)", output)
    if code != 0 or match is None:
        return output.strip()[:300] or f"`--version` ended with code {code}", None
    name = _name(match[1], kind)
    return "", BrowserChoice(executable=program, kind=kind, name=name, version=match[2])


def _name(said: str, kind: str) -> Literal["chromium", "chrome", "msedge"]:
    said = said.lower()
    if kind == "playwright" or "chromium" in said:
        return "chromium"
    return "msedge" if "edge" in said else "chrome"


def _can_apt() -> bool:
    is_debian = Path("/etc/debian_version").is_file() and shutil.which("apt-get") is not None
    return is_debian and hasattr(os, "geteuid") and os.geteuid() == 0


async def _apt_install_chromium(tried: list[str]) -> bool:
    if not await asyncio.to_thread(_can_apt):
        return False
    log.info("installing Chromium with apt-get")
    for args in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
        code, output = await run_command(
            ["apt-get", *args], APT_TIMEOUT_S, {"DEBIAN_FRONTEND": "noninteractive"}
        )
        if code != 0:
            tried.append(f"apt-get {args[0]} failed: {output.strip()[-300:]}")
    return code == 0


async def run_command(
    command: Sequence[str], timeout_s: float, environ: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Exit code and all output of a program; code -1 when it cannot start or takes too long."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **(environ or {})},
        )
    except OSError as error:
        return -1, str(error)
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate()
    except TimeoutError:
        return -1, f"no end within {timeout_s:.0f} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, output.decode(errors="replace")

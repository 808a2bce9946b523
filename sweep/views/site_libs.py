"""The dashboard's JavaScript libraries: installed through npm by the lock file, and bundled.

Nothing of them is kept in the repository. They lie in the per-user cache under the hash of the
lock file, so that a second build needs no network.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from filelock import FileLock, Timeout

from sweep.errors import EnvironmentProblem
from sweep.paths import cache_dir

NPM_TIMEOUT_S = 300.0
BUNDLE_TIMEOUT_S = 120.0


def install_libraries(static: Path, *, dev: bool = False) -> Path:
    """`node_modules` for the lock file in `static`, from the cache or through `npm ci`.

    `dev` adds what only tests need. Scripts of packages are never run. Raises EnvironmentProblem
    when npm is missing, fails, or takes longer than five minutes.
    """
    lock_file = static / "package-lock.json"
    digest = hashlib.sha256(lock_file.read_bytes()).hexdigest()[:16]
    target = cache_dir() / "dashboard" / (f"{digest}-dev" if dev else digest)
    modules = target / "node_modules"
    if modules.is_dir():
        return modules
    npm = shutil.which("npm")
    if npm is None:
        raise EnvironmentProblem(
            "the dashboard's libraries come from npm, which is not on PATH: install Node.js 18 or "
            "later (it brings npm), then build the site again"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(f"{target}.lock", timeout=NPM_TIMEOUT_S):
            if not modules.is_dir():
                _npm_ci(npm, static, target, dev=dev)
    except Timeout as error:
        raise EnvironmentProblem(
            f"another process has been installing the dashboard's libraries for over "
            f"{NPM_TIMEOUT_S:.0f} s ({target}.lock): end it and build the site again"
        ) from error
    return modules


def _npm_ci(npm: str, static: Path, target: Path, *, dev: bool) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".install-") as name:
        place = Path(name) / "libraries"
        place.mkdir()
        # Without `.npmrc`, whose settings the command line repeats: packagers may drop dotfiles.
        for file in ("package.json", "package-lock.json"):
            shutil.copyfile(static / file, place / file)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
        if not dev:
            command.append("--omit=dev")
        _run(command, place, NPM_TIMEOUT_S, "installing the dashboard's libraries with npm")
        shutil.rmtree(target, ignore_errors=True)  # what a killed install may have left
        place.rename(target)


def bundle(static: Path, modules: Path, out: Path) -> None:
    """Our modules and their libraries as classic scripts `app.js` and `check.js`, and `app.css`.

    Browsers load no ES module from a `file:` address; one classic script works there and is also
    one request. `THIRD-PARTY.txt` beside it holds the libraries' licences.
    """
    node = shutil.which("node")
    if node is None:
        raise EnvironmentProblem("node is not on PATH: install Node.js 18 or later")
    out.mkdir(parents=True, exist_ok=True)
    command = [
        node, str(modules / "esbuild" / "bin" / "esbuild"),
        str(static / "src" / "app.js"), str(static / "src" / "check" / "check.js"),
        str(static / "styles" / "app.css"),
        "--bundle", "--minify", "--format=iife", "--target=es2022", "--charset=utf8",
        "--legal-comments=none", "--log-level=warning", "--entry-names=[name]",
        f"--outdir={out}",
    ]  # fmt: skip
    _run(command, out, BUNDLE_TIMEOUT_S, "bundling the dashboard", {"NODE_PATH": str(modules)})
    (out / "THIRD-PARTY.txt").write_text(_licences(modules), encoding="utf-8")


def _licences(modules: Path) -> str:
    texts = []
    for name in ("@tanstack/table-core", "@tanstack/virtual-core", "uplot"):
        licence = next(iter(sorted((modules / name).glob("LICEN[CS]E*"))), None)
        text = licence.read_text("utf-8") if licence else "See its package on npm.\n"
        texts.append(f"{name}\n{'=' * len(name)}\n\n{text}")
    return "\n\n".join(texts)


def _run(
    command: list[str], place: Path, timeout: float, what: str, env: dict[str, str] | None = None
) -> None:
    try:
        done = subprocess.run(
            command, cwd=place, capture_output=True, text=True, encoding="utf-8", errors="replace",
            timeout=timeout, check=False, env={**os.environ, **(env or {})},
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise EnvironmentProblem(f"{what} took over {timeout:.0f} s and was stopped") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise EnvironmentProblem(
            f"{what} failed (exit {done.returncode}): {' / '.join(lines[-6:]) or 'no message'}. "
            "If this machine is offline, build once while it is online: libraries are then cached."
        )

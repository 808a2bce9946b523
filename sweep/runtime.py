"""Releases of `@litertjs/core`: which exist, and a verified copy of one of them on disk.

Packages come through the user's own `npm`, so that their registry, proxy and credentials apply.
A cached release lies in `<cache>/core/<version>/` as `core/`, `wasm-utils/` (the matching
`@litertjs/wasm-utils`, which core imports by bare name) and `manifest.json`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import shutil
import tempfile
from datetime import datetime
from pathlib import Path

from filelock import AsyncFileLock, Timeout
from pydantic import ValidationError

from sweep.config import Frozen
from sweep.errors import EnvironmentProblem, UsageError
from sweep.npm import SEMVER, fetch_package, npm_json, package_json

CORE = "@litertjs/core"
WASM_UTILS = "@litertjs/wasm-utils"

LOCK_TIMEOUT_S = 600.0

_TAG = re.compile(r"[a-z][a-z0-9._-]*")

log = logging.getLogger(__name__)


class Release(Frozen):
    """One published version of `@litertjs/core`."""

    version: str
    date: datetime | None
    """When it was published; None where the registry does not say."""
    tags: tuple[str, ...] = ()
    """dist-tags that name it, e.g. `latest`."""


class CoreFiles(Frozen):
    """One release, unpacked and verified."""

    version: str
    core_dir: Path
    """Holds `package.json`, `dist/` and `wasm/`."""
    wasm_utils_dir: Path
    wasm_utils_version: str
    integrity: str | None
    """SSRI (`sha512-<base64>`) of the registry's tarball; None for a local build."""
    wasm_utils_integrity: str | None


class _Manifest(Frozen):
    """`manifest.json` of a cached release."""

    version: str
    integrity: str
    wasm_utils_version: str
    wasm_utils_integrity: str
    files: dict[str, str]
    """sha256 (hex) by path relative to the release's directory."""


VersionKey = tuple[int, int, int, tuple[tuple[int, int, str], ...]]


def version_key(version: str) -> VersionKey:
    """Sort key by semver 2.0 precedence: a prerelease comes before its release.

    Raises ValueError for a string that is no semver version.
    """
    match = SEMVER.fullmatch(version)
    if match is None:
        raise ValueError(f"not a version: {version!r}")
    major, minor, patch, pre = match.groups()
    if pre is None:
        rank: tuple[tuple[int, int, str], ...] = ((2, 0, ""),)
    else:
        rank = tuple((0, int(i), "") if i.isdigit() else (1, 0, i) for i in pre.split("."))
    return int(major), int(minor), int(patch), rank


async def published_versions() -> list[Release]:
    """Every published release, oldest version first (dates may be in another order).

    Raises EnvironmentProblem when npm is absent or cannot reach its registry.
    """
    found = await npm_json("view", CORE, "versions", "time", "dist-tags")
    # npm gives the bare string instead of a list when there is only one version.
    listed = found.get("versions", [])
    versions: list[str] = [listed] if isinstance(listed, str) else listed
    times: dict[str, str] = found.get("time", {})
    tags: dict[str, str] = found.get("dist-tags", {})
    known = [v for v in versions if SEMVER.fullmatch(v)]
    return [
        Release(
            version=version,
            date=datetime.fromisoformat(times[version]) if version in times else None,
            tags=tuple(sorted(tag for tag, named in tags.items() if named == version)),
        )
        for version in sorted(known, key=version_key)
    ]


def cached_versions(cache_dir: Path) -> list[str]:
    """Releases in the cache, oldest version first. Their files are verified only on use."""
    return sorted(
        (m.parent.name for m in (cache_dir / "core").glob("*/manifest.json")
         if SEMVER.fullmatch(m.parent.name)),
        key=version_key,
    )  # fmt: skip


async def ensure_core(version: str, cache_dir: Path, *, offline: bool = False) -> CoreFiles:
    """A verified copy of one release, from the cache or else through npm.

    `version`: an exact version, or a dist-tag such as `latest`. Offline (asked for, or because
    npm cannot reach its registry), `latest` is the newest cached release.

    Raises EnvironmentProblem when the release can be had neither from the cache nor from npm,
    fails its integrity check, or does not exist; UsageError for a malformed version.
    """
    exact = await _resolve(version, cache_dir, offline=offline)
    target = cache_dir / "core" / exact
    try:
        await asyncio.to_thread(target.parent.mkdir, parents=True, exist_ok=True)
        async with AsyncFileLock(target.parent / f"{exact}.lock", timeout=LOCK_TIMEOUT_S):
            problem = await asyncio.to_thread(_cache_problem, target)
            if problem is not None:
                if offline:
                    raise EnvironmentProblem(_offline_message(exact, target, problem, cache_dir))
                if target.exists():
                    log.warning("cached %s %s is broken (%s): reinstalling", CORE, exact, problem)
                await _install(exact, target, problem)
    except Timeout as error:
        raise EnvironmentProblem(
            f"another process has held {target.parent / (exact + '.lock')} for "
            f"{LOCK_TIMEOUT_S:.0f} s: end it, or delete the file if no sweep is running"
        ) from error
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot keep {CORE} {exact} in {target}: {error}. Free or permit the space, or set "
            "LITERTJS_SWEEP_CACHE to another directory"
        ) from error
    manifest = await asyncio.to_thread(_read_manifest, target)
    return CoreFiles(
        version=exact,
        core_dir=target / "core",
        wasm_utils_dir=target / "wasm-utils",
        wasm_utils_version=manifest.wasm_utils_version,
        integrity=manifest.integrity,
        wasm_utils_integrity=manifest.wasm_utils_integrity,
    )


def local_core(package_dir: Path) -> CoreFiles:
    """A developer's own build of `@litertjs/core`: a directory with its `package.json`.

    Its `@litertjs/wasm-utils` is looked for where Node would (`node_modules` of the directory and
    of those above it) and beside it, as in the upstream repository. Nothing is copied or verified.

    Raises EnvironmentProblem naming what is missing.
    """
    core_dir = package_dir.resolve()
    package = package_json(core_dir, CORE)
    if not (core_dir / "dist" / "index.js").is_file():
        raise EnvironmentProblem(f"{core_dir} has no dist/index.js: build the package first")
    if not any((core_dir / "wasm").glob("*.wasm")):
        raise EnvironmentProblem(f"{core_dir} has no wasm/*.wasm: build the package first")
    beside = [core_dir.parent / "wasm-utils", core_dir.parent / "wasm_utils"]
    modules = [d / "node_modules" / WASM_UTILS for d in (core_dir, *core_dir.parents)]
    for candidate in [modules[0], *beside, *modules[1:]]:
        if (candidate / "package.json").is_file():
            utils = package_json(candidate, WASM_UTILS)
            return CoreFiles(
                version=str(package["version"]),
                core_dir=core_dir,
                wasm_utils_dir=candidate.resolve(),
                wasm_utils_version=str(utils["version"]),
                integrity=None,
                wasm_utils_integrity=None,
            )
    wanted = package.get("dependencies", {}).get(WASM_UTILS, "latest")
    raise EnvironmentProblem(
        f"{core_dir} needs {WASM_UTILS}, which is neither in a node_modules directory nor beside "
        f"it: run `npm install --no-save {WASM_UTILS}@{wanted}` there"
    )


# --- resolving ---------------------------------------------------------------------------------


async def _resolve(version: str, cache_dir: Path, *, offline: bool) -> str:
    if SEMVER.fullmatch(version):
        return version
    if not _TAG.fullmatch(version):
        raise UsageError(f"{version!r} is no version of {CORE}: give one like 2.5.3, or `latest`")
    cached = [v for v in cached_versions(cache_dir) if "-" not in v]
    if not offline:
        try:
            releases = await published_versions()
        except EnvironmentProblem as problem:
            if version != "latest" or not cached:
                raise
            log.warning("using the newest cached %s, %s: %s", CORE, cached[-1], problem)
            return cached[-1]
        for release in releases:
            if version in release.tags:
                return release.version
        raise EnvironmentProblem(
            f"{CORE} has no dist-tag {version!r}; published versions: {_listed(releases)}"
        )
    if version == "latest" and cached:
        return cached[-1]
    raise EnvironmentProblem(
        f"{CORE}@{version} cannot be resolved offline and no release is cached in "
        f"{cache_dir / 'core'}: run `litertjs-sweep setup` once with a network"
    )


def _listed(releases: list[Release]) -> str:
    return ", ".join(r.version for r in releases)


def _offline_message(version: str, target: Path, problem: str, cache_dir: Path) -> str:
    cached = ", ".join(v for v in cached_versions(cache_dir) if v != version) or "none"
    what = f"is broken ({problem})" if target.exists() else "is not cached"
    return (
        f"{CORE} {version} {what} in {target} and this is an offline run; other cached versions: "
        f"{cached}. Run `litertjs-sweep setup --core {version}` with a network"
    )


# --- cache -------------------------------------------------------------------------------------


def _read_manifest(target: Path) -> _Manifest:
    return _Manifest.model_validate_json((target / "manifest.json").read_bytes())


def _cache_problem(target: Path) -> str | None:
    """What is wrong with a cached release (None: every file is what was installed)."""
    try:
        manifest = _read_manifest(target)
    except FileNotFoundError:
        return "no manifest" if target.exists() else "not cached"
    except (OSError, ValidationError):
        return "unreadable manifest"
    if manifest.version != target.name:
        return f"manifest of version {manifest.version}"
    found = _hash_tree(target)
    for path in sorted(manifest.files.keys() | found.keys()):
        if path not in found:
            return f"{path} is missing"
        if found[path] != manifest.files.get(path):
            return f"{path} was changed"
    return None


def _hash_tree(root: Path) -> dict[str, str]:
    hashes = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path != root / "manifest.json":
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            hashes[path.relative_to(root).as_posix()] = digest
    return hashes


async def _install(version: str, target: Path, problem: str) -> None:
    """Fill `target` by rename, so that no other process ever sees half a release."""
    # Its lock is held: what lies here under its name was left by a run that was killed.
    for left in (*target.parent.glob(f".{version}-*"), *target.parent.glob(f".old-{version}-*")):
        await asyncio.to_thread(shutil.rmtree, left, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{version}-", dir=target.parent))
    try:
        core = await fetch_package(CORE, version, staging / "core")
        if core.version != version:
            raise EnvironmentProblem(f"npm gave version {core.version} instead")
        wanted = core.package.get("dependencies", {}).get(WASM_UTILS, "latest")
        utils = await fetch_package(WASM_UTILS, wanted, staging / "wasm-utils")
        manifest = _Manifest(
            version=version,
            integrity=core.integrity,
            wasm_utils_version=utils.version,
            wasm_utils_integrity=utils.integrity,
            files=await asyncio.to_thread(_hash_tree, staging),
        )
        (staging / "manifest.json").write_text(manifest.model_dump_json(indent=2) + "\n")
        await asyncio.to_thread(_replace_dir, staging, target)
    except EnvironmentProblem as error:
        raise await _explain(version, problem, error) from error
    finally:
        await asyncio.to_thread(shutil.rmtree, staging, ignore_errors=True)


def _replace_dir(staging: Path, target: Path) -> None:
    if target.exists():
        old = Path(tempfile.mkdtemp(prefix=f".old-{target.name}-", dir=target.parent))
        target.rename(old / "release")
        staging.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    else:
        staging.rename(target)


async def _explain(version: str, problem: str, error: EnvironmentProblem) -> EnvironmentProblem:
    """Say which versions exist when the wanted one does not; else npm's own message stands."""
    if "No matching version" in str(error):
        releases = await published_versions()
        if version not in {r.version for r in releases}:
            return EnvironmentProblem(
                f"{CORE} {version} does not exist; published versions: {_listed(releases)}"
            )
    state = "" if problem == "not cached" else f" (the cached copy is broken: {problem})"
    return EnvironmentProblem(f"cannot install {CORE} {version}{state}: {error}")

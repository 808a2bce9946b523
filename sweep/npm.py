"""The user's npm: its answers, and packages fetched through it with their integrity checked."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
import re
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

from sweep.config import Frozen
from sweep.errors import EnvironmentProblem
from sweep.scratch import scratch_prefix

NPM_TIMEOUT_S = 300.0
MAX_UNPACKED_BYTES = 1 << 30

SEMVER = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


class FetchedPackage(Frozen):
    """A package that was unpacked into a directory."""

    package: dict[str, Any]
    """Its `package.json`."""
    version: str
    integrity: str
    """The registry's SSRI string, which the archive was checked against."""


async def npm_version() -> str:
    """Version of the user's npm. Raises EnvironmentProblem when there is none."""
    return (await run_npm("--version")).strip()


async def npm_json(*args: str) -> dict[str, Any]:
    """What one npm command prints as a JSON object; raises EnvironmentProblem as `run_npm`."""
    text = await run_npm(*args, "--json")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise EnvironmentProblem(f"npm {args[0]} {args[1]} did not print JSON") from error
    if isinstance(found, list):  # several versions matched: the last is the highest
        found = found[-1] if found else {}
    if not isinstance(found, dict):
        raise EnvironmentProblem(f"npm {args[0]} {args[1]} printed JSON of an unknown form")
    return found


async def run_npm(*args: str) -> str:
    """Standard output of one npm command.

    Raises EnvironmentProblem when npm is absent, fails or takes longer than five minutes.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise EnvironmentProblem("npm was not found on PATH: install Node.js (it brings npm)")
    # npm's own default waits minutes before it admits that there is no network.
    patience = ("--fetch-retries=2", "--fetch-retry-mintimeout=1000",
                "--fetch-retry-maxtimeout=5000", "--loglevel=error")  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        npm, *args, *patience,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(NPM_TIMEOUT_S):
            out, err = await process.communicate()
    except TimeoutError as error:
        raise EnvironmentProblem(
            f"npm {args[0]} took longer than {NPM_TIMEOUT_S:.0f} s: check the network and npm's "
            "registry and proxy settings (`npm ping`)"
        ) from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise EnvironmentProblem(
            f"npm {args[0]} failed: {_npm_message(err.decode(), out.decode())}"
        )
    return out.decode()


def _npm_message(err: str, out: str) -> str:
    """npm's own words: its first telling lines, without log paths, tags and credentials."""
    lines = []
    for line in (err or out).splitlines():
        text = re.sub(r"^npm (error|ERR!)\s*(\w+$|code|notarget|network|404)?\s*", "", line).strip()
        if text and text[0] not in '{}"' and "complete log of this run" not in text:
            lines.append(text)
    message = " ".join(lines[:4])[:400] or "no message"
    message = re.sub(r"://[^/@\s]+@", "://***@", message)
    return re.sub(r"(?i)((?:_auth\w*|token|password)\s*[=:]\s*|\bnpm_)\S+", r"\1***", message)


async def fetch_package(name: str, wanted: str, into: Path) -> FetchedPackage:
    """Pack one package with npm, check it against the registry's integrity, unpack it.

    `wanted` is a version or a range, resolved by npm's own rules.
    Raises EnvironmentProblem when npm fails or the archive is not what the registry promises.
    """
    with tempfile.TemporaryDirectory(prefix=scratch_prefix()) as directory:
        scratch = Path(directory)
        await run_npm(
            "pack", f"{name}@{wanted}", "--ignore-scripts", "--json",
            f"--pack-destination={scratch}",
        )  # fmt: skip
        # The archive is looked for, not read from the JSON: npm releases differ in what they print.
        archives = await asyncio.to_thread(lambda: list(scratch.glob("*.tgz")))
        if len(archives) != 1:
            raise EnvironmentProblem(f"npm pack {name}@{wanted} left {len(archives)} archives")
        await asyncio.to_thread(unpack, archives[0], into)
        package = package_json(into, name)
        version = str(package["version"])
        found = await npm_json("view", f"{name}@{version}", "version", "dist.integrity")
        integrity = str(found.get("dist.integrity") or "")
        await asyncio.to_thread(check_integrity, archives[0], integrity, f"{name}@{version}")
    return FetchedPackage(package=package, version=version, integrity=integrity)


def check_integrity(archive: Path, integrity: str, what: str) -> None:
    """Compare a tarball with an SSRI string, by its sha512.

    Raises EnvironmentProblem when they differ or the string holds no sha512.
    """
    digests = [part for part in integrity.split() if part.startswith("sha512-")]
    if not digests:
        raise EnvironmentProblem(
            f"the npm registry gives no sha512 integrity for {what}, so it cannot be verified: "
            "use another registry, or unpack the package yourself and give --core-path"
        )
    with archive.open("rb") as file:
        actual = hashlib.file_digest(file, "sha512").digest()
    try:
        expected = {base64.b64decode(d.removeprefix("sha512-"), validate=True) for d in digests}
    except binascii.Error:
        expected = set()
    if actual not in expected:
        raise EnvironmentProblem(
            f"{what}: the archive's sha512 is {base64.b64encode(actual).decode()}, the registry "
            f"promises {integrity}. It was damaged or replaced on the way; run `npm cache verify` "
            "and try again"
        )


def unpack(archive: Path, into: Path) -> None:
    """Unpack an npm tarball without its leading `package/`.

    Only regular files below that directory are written, with plain modes (npm packages hold
    nothing else; `tarfile`'s own filters are missing from early 3.11 releases).
    Raises EnvironmentProblem for anything else in it.
    """
    total = 0
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                parts = PurePosixPath(member.name).parts
                if member.isdir():
                    continue
                unsafe = ".." in parts or member.name.startswith("/") or "\\" in member.name
                if not member.isreg() or unsafe or len(parts) < 2 or ":" in member.name:
                    raise EnvironmentProblem(f"{archive.name} holds a suspicious {member.name!r}")
                total += member.size
                if total > MAX_UNPACKED_BYTES:
                    raise EnvironmentProblem(f"{archive.name} unpacks to more than 1 GiB")
                target = into.joinpath(*parts[1:])
                target.parent.mkdir(parents=True, exist_ok=True)
                source = tar.extractfile(member)
                assert source is not None
                with source, target.open("wb") as out:
                    shutil.copyfileobj(source, out, 1 << 20)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise EnvironmentProblem(f"cannot unpack {archive.name}: {error}") from error


def package_json(directory: Path, name: str) -> dict[str, Any]:
    """`package.json` of a package, which must be the one named.

    Raises EnvironmentProblem when it is missing, unreadable or of another package.
    """
    path = directory / "package.json"
    try:
        package = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise EnvironmentProblem(f"{directory} is no {name} package: no package.json") from error
    except ValueError as error:
        raise EnvironmentProblem(f"{path} is not JSON: {error}") from error
    if not isinstance(package, dict) or package.get("name") != name:
        raise EnvironmentProblem(f"{path} is not that of {name}")
    if not SEMVER.fullmatch(str(package.get("version"))):
        raise EnvironmentProblem(f"{path} has no valid version")
    return package

"""Wheels and sdists of PyPI, or of whatever index the user's pip is set to. Nothing is built."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

from sweep.errors import SourceError
from sweep.sources import pip_client
from sweep.sources.options import FetchOptions
from sweep.sources.process import CommandTimeoutError, redact, run_command
from sweep.sources.spec import PypiSource


async def download_pypi(source: PypiSource, directory: Path, options: FetchOptions) -> Path:
    """Download the archive of `source` into `directory` and check it against the index's hash.

    Returns:
        The archive.

    Raises:
        SourceError: pip is missing, cannot find it, or what came is not what the index promised.
    """
    command = [
        options.python,
        "-P",  # keeps this package's own directory off the path
        str(Path(pip_client.__file__)),
        source.package,
        source.version,
        str(directory),
        "sdist" if source.in_sdist else "wheel",
        str(options.max_archive_bytes),
    ]
    try:
        finished = await run_command(command, cwd=directory, timeout_s=options.total_timeout)
    except FileNotFoundError as error:
        raise SourceError(f"{source.text}: there is no Python at {options.python}") from error
    except CommandTimeoutError as error:
        raise SourceError(f"{source.text}: pip: {error}. Check the network.") from error
    try:
        answer = json.loads(finished.stdout.splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise SourceError(f"{source.text}: pip failed: {finished.stderr or 'no output'}") from error
    if "error" in answer:
        raise SourceError(
            f"{source.text}: {redact(str(answer['error']))}. Check the package and version, and "
            "pip's settings (`pip config list`)."
        )
    archive = directory / Path(str(answer["file"])).name
    await asyncio.to_thread(_check_hash, archive, answer["hash_name"], answer["hash"], source.text)
    return archive


def _check_hash(archive: Path, name: str | None, expected: str | None, source: str) -> None:
    if name is None or expected is None:
        return  # an index without hashes; the catalog's sha256 is then the only check
    with archive.open("rb") as file:
        actual = hashlib.file_digest(file, name).hexdigest()
    if actual != expected.lower():
        raise SourceError(
            f"{source}: {archive.name} has {name} {actual}, the index promises {expected}: it was "
            "damaged or replaced on the way. Try again; if it stays so, do not trust it.",
            "checksum_mismatch",
        )

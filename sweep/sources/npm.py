"""Packages of npm, fetched by the user's npm so that their registry, proxy and login apply."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sweep.errors import EnvironmentProblem, SourceError
from sweep.npm import check_integrity, npm_json, run_npm
from sweep.sources.options import FetchOptions
from sweep.sources.spec import NpmSource


async def download_npm(source: NpmSource, directory: Path, options: FetchOptions) -> Path:
    """Download the tarball of `source` into `directory` and check it against the registry's hash.

    Returns:
        The tarball.

    Raises:
        SourceError: npm is missing or failed, or what came is not what the registry promised.
    """
    package = f"{source.package}@{source.version}"
    try:
        async with asyncio.timeout(options.total_timeout):
            dist = await npm_json("view", package, "dist")
            dist = dist.get("dist", dist)
            # No script of the package runs: it is stored, not installed.
            await run_npm("pack", package, "--ignore-scripts", f"--pack-destination={directory}")
        archives = await asyncio.to_thread(lambda: list(directory.glob("*.tgz")))
        if len(archives) != 1:
            raise SourceError(f"{source.text}: npm pack left {len(archives)} archives, not one.")
        size = archives[0].stat().st_size
        if size > options.max_archive_bytes:
            raise SourceError(
                f"{source.text}: the package has {size} bytes; the limit is "
                f"{options.max_archive_bytes}."
            )
        await asyncio.to_thread(
            check_integrity, archives[0], str(dist.get("integrity") or ""), package
        )
    except EnvironmentProblem as error:
        raise SourceError(f"{source.text}: {error}") from error
    except TimeoutError:
        raise SourceError(
            f"{source.text}: npm did not finish in {options.total_timeout:g} s. Check the network."
        ) from None
    return archives[0]

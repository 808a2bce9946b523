"""`litertjs-sweep setup`: make this machine able to sweep."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer


def setup_command(
    core: Annotated[
        list[str] | None,
        typer.Option(help="Version of @litertjs/core to install; repeatable. Default: latest."),
    ] = None,
    browser: Annotated[
        Path | None, typer.Option(help="Browser executable to use instead of looking for one.")
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Install nothing: check what is there.")
    ] = False,
) -> None:
    """Find or install the browser and @litertjs/core, and say what was done."""
    import logging

    from sweep.browser import find_browser
    from sweep.paths import cache_dir
    from sweep.runtime import ensure_core

    # Downloads take a while: what they are doing is shown even without --verbose.
    for handler in logging.getLogger("sweep").handlers:
        if type(handler) is logging.StreamHandler:
            handler.setLevel(min(handler.level, logging.INFO))

    async def install() -> None:
        found = await find_browser(browser, install=not offline)
        version = found.version or "(version unknown)"
        typer.echo(f"browser  {found.name} {version}, {found.kind}: {found.executable}")
        for wanted in core or ["latest"]:
            files = await ensure_core(wanted, cache_dir(), offline=offline)
            typer.echo(
                f"core     @litertjs/core {files.version} with wasm-utils "
                f"{files.wasm_utils_version}, verified: {files.core_dir}"
            )

    asyncio.run(install())
    typer.echo("ready: `litertjs-sweep doctor` shows the details")

"""`litertjs-sweep serve`: the dashboard on this machine, rebuilt when the records change."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from sweep.cli import options
from sweep.config import DASHBOARD_PORT

if TYPE_CHECKING:
    from sweep.errors import SweepError
    from sweep.runtime import CoreFiles
    from sweep.views.site import SiteReport


def serve_command(
    data: options.Records = Path("data/sweep"),
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: any that is free.")
    ] = DASHBOARD_PORT,
    title: options.SiteTitle = "LiteRT.js sweep",
    triage: options.SiteTriage = Path("triage"),
    core: options.SiteCore = "latest",
) -> None:
    """Serve the dashboard on the loopback until interrupted."""
    from sweep.errors import SweepError
    from sweep.views.serve import serve_site

    console = Console(highlight=False, soft_wrap=True)

    def told(outcome: SiteReport | SweepError) -> None:
        if isinstance(outcome, SweepError):
            console.print(f"[red]not rebuilt:[/] {escape(str(outcome))}")
            return
        skipped = f", {len(outcome.bad)} files skipped" if outcome.bad else ""
        console.print(f"built from {outcome.records} records of {outcome.models} models{skipped}")

    async def work() -> None:
        async with serve_site(
            data,
            port=port,
            title=title,
            triage_root=triage,
            core=await asyncio.to_thread(check_core, core),
            on_rebuilt=told,
        ) as address:
            console.print(f"[bold]{address}[/]  (Ctrl-C ends it)")
            await asyncio.Event().wait()

    asyncio.run(work())


def check_core(version: str | None) -> CoreFiles | None:
    """The core release for the page that checks a model; None where it was declined.

    Blocking. Raises what `ensure_core` raises.
    """
    from sweep.paths import cache_dir
    from sweep.runtime import ensure_core

    if version in (None, "none"):
        return None
    return asyncio.run(ensure_core(version, cache_dir()))

"""`litertjs-sweep releases`: what is published, cached and swept."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table


def releases_command(
    data: Annotated[Path, typer.Option(help="Where sweeps are looked up.")] = Path("data/sweep"),
    prereleases: Annotated[bool, typer.Option(help="List prereleases, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
) -> None:
    """List the releases of @litertjs/core: published, cached, swept."""
    from sweep.paths import cache_dir
    from sweep.releases.watch import release_states
    from sweep.runtime import cached_versions, published_versions
    from sweep.store import dump_json, list_sweeps

    states = release_states(
        asyncio.run(published_versions()),
        cached_versions(cache_dir()),
        [(sweep.core_version, sweep.date) for sweep in list_sweeps(data)],
    )
    shown = [state for state in states if prereleases or not state.prerelease]
    if as_json:
        typer.echo(dump_json([state.model_dump(mode="json") for state in shown]).decode(), nl=False)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("Version", "Published", "Tags", "Cached", "Swept"):
        table.add_column(column)
    for state in shown:
        table.add_row(
            state.version,
            state.published.date().isoformat() if state.published else "-",
            ", ".join(state.tags) or "-",
            "yes" if state.cached else "no",
            ", ".join(state.swept) or "-",
        )
    console = Console()
    console.print(table)
    hidden = len(states) - len(shown)
    if hidden:
        console.print(f"{hidden} prereleases are left out (--prereleases shows them).")

"""`litertjs-sweep site`: the dashboard as static files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape


def site_command(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Directory of the site.")],
    data: Annotated[Path, typer.Option(help="Records to show.")] = Path("data/sweep"),
    title: Annotated[str, typer.Option(help="Title of the site.")] = "LiteRT.js sweep",
    triage: Annotated[
        Path, typer.Option(help="Triage reports (DIR/<model_id>/report.html) to include.")
    ] = Path("triage"),
    core: Annotated[
        str | None,
        typer.Option(help="Core version of the “check your model” page; `none` leaves it out."),
    ] = "latest",
) -> None:
    """Build the dashboard: static files that any web server, or a file: address, can show."""
    from sweep.cli.serve import check_core
    from sweep.views.site import build_site

    console = Console(highlight=False, soft_wrap=True)
    report = build_site(data, out, title=title, triage_root=triage, core=check_core(core))
    for entry in report.bad:
        console.print(f"[yellow]skipped[/] {escape(entry.problem)}")
    page = escape(str(out / "index.html"))
    console.print(f"{report.records} records of {report.models} models: open {page}")
    raise typer.Exit(1 if report.bad else 0)

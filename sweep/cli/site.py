"""`litertjs-sweep site`: the dashboard as static files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from sweep.cli import options


def site_command(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Directory of the site.")],
    data: options.Records = Path("data/sweep"),
    title: options.SiteTitle = "LiteRT.js sweep",
    triage: options.SiteTriage = Path("triage"),
    core: options.SiteCore = "latest",
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

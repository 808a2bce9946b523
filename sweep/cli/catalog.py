"""`litertjs-sweep catalog`: look at a catalog without sweeping it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

catalog_app = typer.Typer(help="Check catalogs of models.", no_args_is_help=True)


@catalog_app.callback()
def _catalog() -> None:
    """Check catalogs of models."""


@catalog_app.command("check")
def check_catalogs(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH…", help="Catalogs, .toml or .csv.")],
) -> None:
    """Report every defect of the catalogs, with file and line; exit code 2 when there is one."""
    from sweep.catalog import load_catalog
    from sweep.errors import CatalogError

    console = Console(highlight=False, soft_wrap=True)
    problems = []
    for path in paths:
        try:
            catalog = load_catalog(path)
        except CatalogError as error:
            problems.append(str(error))
        else:
            models = f"{len(catalog.entries)} model{'s' if len(catalog.entries) != 1 else ''}"
            console.print(f"[green]good[/] {escape(str(path))}: {escape(catalog.name)}, {models}")
    if problems:
        raise CatalogError("\n".join(problems))

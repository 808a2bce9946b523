"""`litertjs-sweep validate`: check records, file by file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape


def validate_command(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH…", help="Records, or directories.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, nothing else.")
    ] = False,
) -> None:
    """Check that files are records of schema 2.0 or 1.0; exit code 1 when one is not."""
    from sweep.validate import validate_paths

    checks = validate_paths(paths)
    bad = [check for check in checks if check.problem is not None]
    if as_json:
        typer.echo(json.dumps([check.model_dump(mode="json") for check in checks], indent=2))
    else:
        console = Console(highlight=False, soft_wrap=True)
        for check in checks:
            if check.problem is None:
                console.print(f"[green]valid[/] {escape(str(check.path))} ({check.schema_version})")
            else:
                console.print(f"[red]bad[/]   {escape(check.problem)}")
        console.print(f"{len(checks) - len(bad)} of {len(checks)} records are valid.")
    raise typer.Exit(1 if bad or not checks else 0)

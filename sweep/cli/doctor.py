"""`litertjs-sweep doctor`: what is here, what is missing, and what to do about it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

_MARKS = {"ok": "[green]ok[/]", "warn": "[yellow]warn[/]", "fail": "[bold red]FAIL[/]"}


def doctor_command(
    browser: Annotated[
        Path | None, typer.Option(help="Browser executable to examine instead of looking for one.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the examination as JSON, nothing else.")
    ] = False,
) -> None:
    """Show whether this machine can sweep; exit code 3 when it cannot."""
    from sweep.doctor import examine
    from sweep.paths import cache_dir

    examination = asyncio.run(examine(cache_dir(), browser))
    if as_json:
        typer.echo(examination.model_dump_json(indent=2))
    else:
        console = Console(highlight=False)
        table = Table()
        for title in ("", "what", "found"):
            table.add_column(title, overflow="fold")
        for check in examination.checks:
            table.add_row(_MARKS[check.health], check.name, escape(check.found))
        console.print(table)
        for check in examination.checks:
            if check.remedy is not None:
                console.print(f"{_MARKS[check.health]} {check.name}: {escape(check.remedy)}")
        verdict = "can sweep" if examination.can_sweep else "cannot sweep yet: see FAIL above"
        console.print(f"This machine {verdict}. Its label: {escape(examination.machine_label)}")
    raise typer.Exit(0 if examination.can_sweep else 3)

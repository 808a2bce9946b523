"""`litertjs-sweep import`: 1.0 records into the store, as 2.0."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape


def import_command(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH…", help="Records, or directories.")],
    out: Annotated[Path, typer.Option(help="Where records go.")] = Path("data/sweep"),
) -> None:
    """Read 1.0 records, classify them and write them as 2.0; exit code 1 when one is none."""
    from sweep.errors import SweepError
    from sweep.store import read_record, sweep_lock, write_record
    from sweep.validate import record_files

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    written = 0
    files = record_files(paths)
    problems = 0
    with sweep_lock(out):
        for file in files:
            try:
                write_record(out, read_record(file))
                written += 1
            except SweepError as error:
                console.print(f"[red]not imported[/] {escape(str(error))}")
                problems += 1
    console.print(f"{written} of {len(files)} records imported into {escape(str(out))}")
    raise typer.Exit(1 if problems or not written else 0)

"""`litertjs-sweep merge`: join the stores of shards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def merge_command(
    stores: Annotated[
        list[Path], typer.Argument(metavar="DIR…", help="Directories that shards wrote to (--out).")
    ],
    out: Annotated[
        Path, typer.Option(help="Where to; records that are there already are kept.")
    ] = Path("data/sweep"),
) -> None:
    """Join the stores of shards (`--shard K/N`) into one, with their release reports.

    Nothing is written when two records of one model, date and leg cannot both be right.
    """
    from sweep.merge import merge_stores
    from sweep.store import sweep_lock

    with sweep_lock(out):
        outcome = merge_stores(stores, out)
    typer.echo(f"{outcome.written} records written to {out}, {outcome.same} were there already.")
    for path in outcome.reports:
        typer.echo(str(path))

"""`litertjs-sweep export`: records in the forms that other tools read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

FORMATS = ("edge-compat", "csv", "parquet")


def export_command(
    out: Annotated[Path, typer.Argument(help="File to write; a directory for edge-compat.")],
    form: Annotated[str, typer.Option("--format", help=f"One of: {', '.join(FORMATS)}.")],
    data: Annotated[Path, typer.Option(help="Records to read.")] = Path("data/sweep"),
    core: Annotated[str | None, typer.Option(help="Only this core version.")] = None,
    date: Annotated[str | None, typer.Option(help="Only this date.")] = None,
    leg: Annotated[
        str | None, typer.Option(help="Only this leg (edge-compat: the default leg).")
    ] = None,
) -> None:
    """Write records as strict 1.0 (edge-compat), CSV or Parquet."""
    from sweep.errors import UsageError
    from sweep.export import export_csv, export_edge_compat, export_parquet, newest_per_model
    from sweep.store import DEFAULT_LEG, BadFile, iter_records, leg_of

    if form not in FORMATS:
        raise UsageError(f"--format {form!r} is not known. Formats: {', '.join(FORMATS)}.")
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    if form == "edge-compat" and leg is None:
        leg = DEFAULT_LEG
    chosen = []
    bad = 0
    for found in iter_records(data):
        if isinstance(found, BadFile):
            errors.print(f"[yellow]skipped[/] {escape(found.problem)}")
            bad += 1
            continue
        env = found.record.results[0].env
        if (
            core in (None, env.litertjs_core_version)
            and date in (None, found.path.relative_to(data).parts[1])
            and leg in (None, leg_of(found.record))
        ):
            chosen.append(found)
    if not chosen:
        raise UsageError(f"{data} has no record that fits: nothing was written.")
    if form == "edge-compat":
        count = len(export_edge_compat(newest_per_model(chosen), out))
        what = "records"
    else:
        write = export_csv if form == "csv" else export_parquet
        count, what = write((one.record for one in chosen), out), "rows"
    errors.print(f"{count} {what} in {escape(str(out))}")
    raise typer.Exit(1 if bad else 0)

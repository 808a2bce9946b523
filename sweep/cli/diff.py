"""`litertjs-sweep diff`: what changed between two sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape


def diff_command(
    old: Annotated[
        str, typer.Argument(help="Core version, version@date, directory or record file.")
    ],
    new: Annotated[str, typer.Argument(help="The same, to compare with.")],
    data: Annotated[Path, typer.Option(help="Where versions are looked up.")] = Path("data/sweep"),
    md: Annotated[bool, typer.Option("--md", help="Print markdown.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
    fail_on: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated kinds that make the exit code 4: regression, improvement, "
            "failure_class, unclear, unavailable, new, gone, slower, faster."
        ),
    ] = None,
) -> None:
    """Compare two sweeps: verdicts, delegation, numbers and latency."""
    from sweep.errors import UsageError
    from sweep.releases.diff import diff_sweeps
    from sweep.releases.report import TITLES, render_json, render_markdown, render_terminal
    from sweep.releases.sides import resolve_side

    kinds = {*TITLES, "slower", "faster"}
    wanted = {word.strip() for word in (fail_on or "").split(",") if word.strip()}
    if wrong := sorted(wanted - kinds):
        raise UsageError(
            f"--fail-on: {', '.join(wrong)} is no kind of change. "
            f"Kinds: {', '.join(sorted(kinds))}."
        )
    if md and as_json:
        raise UsageError("--md and --json do not go together: choose one.")
    before, after = resolve_side(old, data), resolve_side(new, data)
    for problem in (*before.problems, *after.problems):
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"[yellow]skipped[/] {escape(problem)}"
        )
    diff = diff_sweeps(before.records, after.records, old_label=before.label, new_label=after.label)
    if as_json:
        typer.echo(render_json(diff), nl=False)
    elif md:
        typer.echo(render_markdown(diff), nl=False)
    else:
        Console(highlight=False).print(render_terminal(diff))
    if wanted & diff.kinds():
        raise typer.Exit(4)

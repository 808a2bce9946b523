"""`litertjs-sweep report`: a sweep as markdown, HTML, JSON, JUnit XML or GitHub annotations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def report_command(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[WHAT]",
            help="VERSION or VERSION@DATE below --data, or a directory or file of records. "
            "Default: the newest sweep.",
        ),
    ] = None,
    data: Annotated[Path, typer.Option(help="Records to read.")] = Path("data/sweep"),
    form: Annotated[str, typer.Option("--format", help="md, html, json, junit or github.")] = "md",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here instead of to stdout.")
    ] = None,
    fail_on: Annotated[
        str | None, typer.Option(help="Comma-separated statuses that make the exit code 4.")
    ] = None,
) -> None:
    """Report a sweep.

    `github` prints annotations and appends the markdown to the job summary
    ($GITHUB_STEP_SUMMARY) where there is one.
    """
    from sweep.cli.checks import parse_fail_on
    from sweep.errors import UsageError
    from sweep.store import write_atomic
    from sweep.views.report import FORMATS, make_report, render, to_markdown
    from sweep.views.report_select import select_records

    wanted = next((known for known in FORMATS if known == form), None)
    if wanted is None:
        raise UsageError(f"There is no format {form!r}. Formats: {', '.join(FORMATS)}.")
    failing = parse_fail_on(fail_on)
    records, bad = select_records(data, what)
    report = make_report(records, bad)
    text = render(report, wanted)
    if output is not None:
        write_atomic(output, text.encode())
    else:
        typer.echo(text, nl=False)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if wanted == "github" and summary:
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(to_markdown(report))
    if any(row.status in failing for row in report.rows):
        raise typer.Exit(4)
    raise typer.Exit(1 if report.bad else 0)

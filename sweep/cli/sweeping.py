"""What the sweeping commands share: dates, ids, exit codes, environments."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence

from rich.console import Console

from sweep.errors import UsageError
from sweep.orchestrate import SweepOutcome, not_measured
from sweep.secrets import redact

DONE, NOT_ALL_MEASURED, FAIL_ON, INTERRUPTED = 0, 1, 4, 130
"""Exit codes of a sweep; 2 and 3 come with the errors that cause them."""


def exit_code(outcome: SweepOutcome, fail_on: Sequence[str]) -> int:
    """0 done, 1 something could not be measured, 4 a --fail-on status was met, 130 interrupted."""
    if outcome.stopped:
        return INTERRUPTED
    statuses = {result.status for record in outcome.records for result in record.results}
    if statuses & set(fail_on):
        return FAIL_ON
    if outcome.failed or any(not_measured(record) for record in outcome.records):
        return NOT_ALL_MEASURED
    return DONE


def today(date: str | None) -> str:
    """The sweep's date, checked.

    Raises:
        UsageError: not a date.
    """
    if date is None:
        return datetime.datetime.now().astimezone().date().isoformat()
    try:
        return datetime.date.fromisoformat(date).isoformat()
    except ValueError as error:
        raise UsageError(f"--date {date!r} is not a date: write it as YYYY-MM-DD.") from error


def model_id_of(source: str) -> str:
    """A model id from a source: the file's stem in the characters that ids may have."""
    stem = re.split(r"[/\\]", source.split("@")[0] if source.startswith("hf:") else source)[-1]
    stem = stem.removesuffix(".tflite").lower()
    slug = re.sub(r"[^a-z0-9._-]+", "-", stem).strip("-._")
    if not slug:
        raise UsageError(f"No model id can be made of the source {source!r}: rename the file.")
    return slug


def wide_console() -> Console:
    """Standard output; wide enough for the table where it is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=max(140, console.width))


def show_outcome(outcome: SweepOutcome, console: Console) -> None:
    """The table, a line per result that is no pass, the environments, and what has no record."""
    from sweep.views.table import describe_environment, reasons, sweep_table

    console.print(sweep_table(outcome.records))
    for line in reasons(outcome.records):
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
    seen = {describe_environment(r.env) for record in outcome.records for r in record.results}
    for line in sorted(seen):
        console.print(line, style="dim", highlight=False)
    for model_id, problem in outcome.failed.items():
        console.print(f"{model_id}: {redact(problem)}", style="red", markup=False, highlight=False)

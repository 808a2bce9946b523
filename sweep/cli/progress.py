"""Progress of a sweep: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sweep.orchestrate import Event
from sweep.secrets import redact


@contextlib.contextmanager
def sweep_progress(console: Console, total: int) -> Iterator[Callable[[Event], None]]:
    """Yields the callback that shows a sweep's events."""
    if not console.is_terminal:
        yield lambda event: _plain(console, event)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("sweep", total=total)

        def show(event: Event) -> None:
            if event.kind == "start":
                progress.update(task, description=event.model_id)
                return
            progress.advance(task)
            _print(progress.console, _line(event))

        yield show


def _plain(console: Console, event: Event) -> None:
    if event.kind == "start":
        return
    where = f"[{event.index + 1}/{event.total}] "
    _print(console, where + _line(event))


def _print(console: Console, line: str) -> None:
    # Whoever read our progress may be gone; the sweep goes on. (rich raises SystemExit then.)
    with contextlib.suppress(OSError, SystemExit):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _line(event: Event) -> str:
    if event.problem is not None:
        return f"{event.model_id}: failed: {redact(event.problem)}"
    if event.record is None:
        return event.model_id
    results = "  ".join(f"{r.backend} {r.status}" for r in event.record.results)
    note = " (was there already)" if event.kind == "skipped" else ""
    return f"{event.model_id}: {results}{note}"

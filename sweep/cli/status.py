"""`litertjs-sweep status`: how far a running sweep is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def status_command(
    out: Annotated[Path, typer.Argument(help="Directory of the sweep, as given with --out.")] = (
        Path("data/sweep")
    ),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the state as JSON, nothing else.")
    ] = False,
) -> None:
    """Show how far the sweep on a directory is, whether it still runs, and how long it will."""
    from sweep.state import life, read_state
    from sweep.views.duration import duration

    state = read_state(out)
    alive = life(state)
    if as_json:
        typer.echo(state.model_dump_json(indent=2))
        return
    console = Console(highlight=False, soft_wrap=True, markup=False)
    about = state.about
    console.print(f"@litertjs/core {about.core_version} · {about.date} · leg {about.leg}: {alive}")
    if alive == "killed":
        console.print(
            f"Process {state.pid} is gone without an end; its records are whole. "
            "Run the sweep again with --skip-existing to go on."
        )
    counted = state.done + state.skipped + len(state.failed)
    console.print(
        f"{counted} of {state.total} models: {state.done} measured, {state.skipped} were there, "
        f"{len(state.failed)} failed"
    )
    if state.statuses:
        console.print("  ".join(f"{name} {count}" for name, count in state.statuses.items()))
    for running in state.running:
        console.print(f"running: {running.model_id} since {running.since}")
    if alive == "running" and state.remaining_s is not None:
        console.print(f"about {duration(state.remaining_s)} to go")
    for model_id, problem in state.failed.items():
        console.print(f"failed: {model_id}: {problem}")
    console.print(f"began {state.started}, last heard of {state.updated}")

"""`litertjs-sweep worker`: measure for a scheduler."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer


def worker_command(
    scheduler: Annotated[str, typer.Argument(help="Dask scheduler, e.g. tcp://host:8786.")],
    machine_label: Annotated[str | None, typer.Option(help="Name of this machine.")] = None,
    headed: Annotated[bool, typer.Option(help="Show the browser.")] = False,
    browser: Annotated[Path | None, typer.Option(help="Browser executable.")] = None,
) -> None:
    """Measure models for a scheduler, until it ends. See docs/fleet.md."""
    from sweep.fleet_worker import run_worker
    from sweep.sweeper import stop_on_signals

    async def work() -> None:
        with stop_on_signals():  # nothing is begun here that should be finished first
            await run_worker(scheduler, machine_label=machine_label, browser=browser, headed=headed)

    asyncio.run(work())

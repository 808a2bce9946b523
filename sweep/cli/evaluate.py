"""`litertjs-sweep evaluate`: hold our verdicts against established ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sweep.cli import options


def evaluate_command(
    truth: Annotated[Path, typer.Argument(help="Truth table (.tsv).")],
    models_dir: Annotated[Path, typer.Argument(help="Directory of `<model>.tflite` files.")],
    core: options.Core = "latest",
    fetch: Annotated[
        bool, typer.Option(help="Fetch what the directory lacks from the packages named.")
    ] = True,
    only: Annotated[str | None, typer.Option(help="Comma-separated model names.")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Whole repetitions; all must agree.")] = 1,
    seed: options.Seed = 42,
    isolation: options.IsolationMode = "reuse",
    browser: options.Browser = None,
    out: Annotated[Path | None, typer.Option(help="Keep the records here.")] = None,
) -> None:
    """Sweep models whose verdicts are established and print the confusion table.

    Exits with 1 on any difference, or where a model of the table could not be had.
    """
    from sweep.cli.checks import make_config
    from sweep.cli.progress import sweep_progress
    from sweep.cli.sweeping import today
    from sweep.sweeper import run_sweep
    from sweep.truth import evaluate, read_truth, truth_entries

    console = Console()
    rows = read_truth(truth)
    if only:
        rows = tuple(row for row in rows if row.model in only.split(","))
    pairs, absent = truth_entries(rows, models_dir, fetch=fetch)
    config = make_config(
        core=core, backends=None, latency=False, warmup_runs=1, seed=seed, isolation=isolation
    )
    differ = False
    for round_number in range(repeat):
        with sweep_progress(Console(stderr=True), len(pairs)) as on_event:
            outcome = asyncio.run(
                run_sweep(
                    config,
                    [entry for _, entry in pairs],
                    models_dir,
                    out=out,
                    date=today(None),
                    browser=browser,
                    machine_label=None,
                    headed=False,
                    skip_existing=False,
                    require_hardware=False,
                    on_event=on_event,
                )
            )
        have = {record.model_id for record in outcome.records}
        swept = [row for row, entry in pairs if entry.model_id in have]
        result = evaluate(swept, outcome.records)
        if repeat > 1:
            console.print(f"Round {round_number + 1} of {repeat}")
        for backend, counts in result.confusion.items():
            table = Table("expected", "got", "models", title=backend, title_justify="left")
            for (expected, got), count in sorted(counts.items()):
                style = "" if expected == got else "bold red"
                table.add_row(expected, got, str(count), style=style)
            console.print(table)
        for wrong in result.disagreements:
            console.print(
                f"{wrong.model} on {wrong.backend}: expected {wrong.expected}, "
                f"got {wrong.got}: {wrong.reason}",
                style="red",
                markup=False,
                soft_wrap=True,
            )
        console.print(
            f"{result.checked} models, {len(result.disagreements)} differences, "
            f"{len(absent)} of the table not here"
        )
        differ = differ or bool(result.disagreements) or outcome.stopped or bool(outcome.failed)
    if absent and fetch:
        console.print("Not here: " + ", ".join(row.model for row in absent), soft_wrap=True)
    raise typer.Exit(1 if differ or (absent and fetch) else 0)

"""`litertjs-sweep triage`: from a wrong output to the smallest model that shows it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sweep.cli import options


def triage_command(
    source: Annotated[str, typer.Argument(help="A file, or a source as in catalogs.")],
    core: options.Core = "latest",
    backend: Annotated[str, typer.Option(help="Backend under triage.")] = "webgpu_mldrift",
    out: Annotated[
        Path | None,
        typer.Option(help="Where <model id>/report.html goes; default: ./triage."),
    ] = None,
    budget: Annotated[
        float, typer.Option(min=0.1, help="Minutes it may take; what was begun is finished.")
    ] = 10,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print report.json, nothing else; files only with --out."),
    ] = False,
    leg: options.LegName = "default",
    ladder: Annotated[bool, typer.Option(help="Try other precisions, builds and releases.")] = True,
    seed: options.Seed = 42,
    input_sets: options.InputSets = 4,
    date: Annotated[str | None, typer.Option(help="Date of the report, YYYY-MM-DD.")] = None,
    machine_label: options.MachineLabel = None,
    headed: options.Headed = False,
    browser: options.Browser = None,
) -> None:
    """Find the smallest part of a model that shows its fault, and write a bug report."""
    from sweep.cli.checks import make_config
    from sweep.cli.sweeping import model_id_of, today
    from sweep.triage.triage import Request, run_triage
    from sweep.triage.write import report_json, write_report

    config = make_config(
        core=core,
        backends=["wasm_xnnpack"] if backend == "wasm_xnnpack" else ["wasm_xnnpack", backend],
        leg=leg,
        latency=False,
        warmup_runs=1,
        seed=seed,
        input_sets=input_sets,
    )
    request = Request(
        source=source,
        model_id=model_id_of(source),
        backend=config.backends[-1],
        config=config,
        date=today(date),
        minutes=budget,
        climb=ladder,
    )
    stderr = Console(stderr=True, quiet=as_json, highlight=False)
    report, found = asyncio.run(
        run_triage(
            request,
            browser=browser,
            headed=headed,
            machine_label=machine_label,
            say=lambda line: stderr.print(line, style="dim", markup=False, soft_wrap=True),
        )
    )
    if out is not None or not as_json:
        folder = (out or Path("triage")) / request.model_id
        path = write_report(report, found, folder, config.leg)
    if as_json:
        sys.stdout.write(report_json(report))
        return
    console = Console(highlight=False)
    console.print(report.headline, style="bold", markup=False, soft_wrap=True)
    for line in report.observed:
        console.print(f"- {line}", markup=False, soft_wrap=True)
    console.print(f"Report: {path} ({report.seconds:g} s)", markup=False, soft_wrap=True)

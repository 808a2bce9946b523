"""`litertjs-sweep model`: sweep given models, without a catalog."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def model_command(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE…", help="Files, or sources as in catalogs.")
    ],
    core: Annotated[str, typer.Option(help="Version of @litertjs/core, or `latest`.")] = "latest",
    backend: Annotated[
        list[str] | None, typer.Option(help="Backend to run; may be given several times.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where records go; default: the user's data directory."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the record (several: an array), nothing else.")
    ] = False,
    date: Annotated[str | None, typer.Option(help="Date of the sweep, YYYY-MM-DD.")] = None,
    machine_label: Annotated[str | None, typer.Option(help="Name of this machine.")] = None,
    leg: Annotated[str, typer.Option(help="Leg to run, as for `run`.")] = "default",
    warmup: Annotated[int, typer.Option(min=1, help="Warm-up runs.")] = 3,
    runs: Annotated[
        int, typer.Option(min=1, help="Timed runs; up to three times as many while they scatter.")
    ] = 10,
    target_half_width: Annotated[
        float, typer.Option(help="No more runs once p50 is known ± this share; 0: never more.")
    ] = 0.05,
    seed: Annotated[int, typer.Option(help="Seed of the inputs.")] = 42,
    input_sets: Annotated[int, typer.Option(min=1, max=16, help="Input sets.")] = 2,
    input_generator: Annotated[str, typer.Option(help="2.0, or 1.0.")] = "2.0",
    tolerance_policy: Annotated[str, typer.Option(help="calibrated or strict.")] = "calibrated",
    timeout: Annotated[float | None, typer.Option(help="Seconds each stage may take.")] = None,
    latency: Annotated[bool, typer.Option(help="Time the runs, or check values only.")] = True,
    desktop: Annotated[bool, typer.Option(help="Arbitrate with the desktop reference.")] = True,
    headed: Annotated[bool, typer.Option(help="Show the browser.")] = False,
    browser: Annotated[Path | None, typer.Option(help="Browser executable.")] = None,
    require_hardware: Annotated[
        bool, typer.Option(help="Refuse a software WebGPU adapter.")
    ] = False,
    fail_on: Annotated[
        str | None, typer.Option(help="Comma-separated statuses that make the exit code 4.")
    ] = None,
) -> None:
    """Sweep one model, or several, now."""
    from sweep.catalog import CatalogEntry
    from sweep.cli.checks import make_config, parse_fail_on
    from sweep.cli.progress import sweep_progress
    from sweep.cli.sweeping import (
        describe_environments,
        describe_failures,
        exit_code,
        model_id_of,
        today,
        wide_console,
    )
    from sweep.errors import UsageError
    from sweep.paths import data_dir
    from sweep.store import dump_json, dump_record
    from sweep.sweeper import run_sweep
    from sweep.views.table import reasons, sweep_table

    entries = [
        CatalogEntry(model_id=model_id_of(source), source=source, license="not stated")
        for source in sources
    ]
    ids = [entry.model_id for entry in entries]
    if len(set(ids)) < len(ids):
        raise UsageError("Two sources give the same model id; sweep them one by one.")
    config = make_config(
        core=core,
        backends=backend,
        leg=leg,
        warmup_runs=warmup,
        timed_runs=runs,
        target_half_width=target_half_width,
        seed=seed,
        input_sets=input_sets,
        input_generator=input_generator,
        tolerance_policy=tolerance_policy,
        timeout=timeout,
        latency=latency,
        desktop_reference=desktop,
    )
    failing = parse_fail_on(fail_on)
    target = out if out is not None else None if as_json else data_dir() / "sweep"
    with sweep_progress(Console(stderr=True, quiet=as_json), len(entries)) as on_event:
        outcome = asyncio.run(
            run_sweep(
                config,
                entries,
                Path.cwd(),
                out=target,
                date=today(date),
                browser=browser,
                machine_label=machine_label,
                headed=headed,
                skip_existing=False,
                require_hardware=require_hardware,
                on_event=on_event,
            )
        )
    if as_json:
        dumped = [dump_record(record) for record in outcome.records]
        text = (
            dumped[0]
            if len(sources) == 1 and dumped
            else dump_json([json.loads(one) for one in dumped])
        )
        sys.stdout.buffer.write(text)
    else:
        console = wide_console()
        console.print(sweep_table(outcome.records))
        for line in reasons(outcome.records):
            console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
        describe_environments(outcome.records, console)
        describe_failures(outcome, console)
        for path in outcome.paths:
            console.print(f"Record: {path}", highlight=False, soft_wrap=True)
    raise typer.Exit(exit_code(outcome, failing))

"""`litertjs-sweep model`: sweep given models, without a catalog."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sweep.cli import options


def model_command(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE…", help="Files, or sources as in catalogs.")
    ],
    core: options.Core = "latest",
    backend: options.Backends = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where records go; default: the user's data directory."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the record (several: an array), nothing else.")
    ] = False,
    date: options.SweepDate = None,
    machine_label: options.MachineLabel = None,
    leg: options.LegName = "default",
    warmup: options.Warmup = 3,
    runs: options.Runs = 10,
    target_half_width: options.TargetHalfWidth = 0.05,
    seed: options.Seed = 42,
    input_sets: options.InputSets = 2,
    input_generator: options.Generator = "2.0",
    tolerance_policy: options.Policy = "calibrated",
    timeout: options.StageTimeout = None,
    latency: options.Latency = True,
    desktop: options.Desktop = True,
    headed: options.Headed = False,
    browser: options.Browser = None,
    require_hardware: options.RequireHardware = False,
    fail_on: options.FailOnStatus = None,
) -> None:
    """Sweep one model, or several, now."""
    from sweep.catalog import CatalogEntry
    from sweep.cli.checks import make_config, parse_fail_on
    from sweep.cli.progress import sweep_progress
    from sweep.cli.sweeping import (
        exit_code,
        model_id_of,
        show_outcome,
        today,
        wide_console,
    )
    from sweep.errors import UsageError
    from sweep.paths import data_dir
    from sweep.store import dump_json, dump_record
    from sweep.sweeper import run_sweep

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
        show_outcome(outcome, console)
        for path in outcome.paths:
            console.print(f"Record: {path}", highlight=False, soft_wrap=True)
    raise typer.Exit(exit_code(outcome, failing))

"""`litertjs-sweep run`: sweep a catalog."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sweep.cli import options


def run_command(
    catalog: Annotated[
        Path | None, typer.Argument(help="Catalog (.toml, or .csv of the 1.0 format).")
    ] = None,
    core: options.Core = "latest",
    backend: options.Backends = None,
    only: options.Only = None,
    shard: options.Shard = None,
    out: Annotated[Path, typer.Option(help="Where records go.")] = Path("data/sweep"),
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
    jobs: Annotated[
        int, typer.Option(min=1, max=64, help="Browsers side by side; needs --no-latency.")
    ] = 1,
    isolation: options.IsolationMode = "reuse",
    desktop: options.Desktop = True,
    headed: options.Headed = False,
    browser: options.Browser = None,
    browser_endpoint: Annotated[
        str | None,
        typer.Option(metavar="WS-URL", help="Use a Playwright server's browser (docs/fleet.md)."),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="TCP-URL", help="Let a Dask scheduler's workers measure."),
    ] = None,
    needs: Annotated[
        list[str] | None,
        typer.Option(help="With --scheduler: what workers must offer, as os=macOS."),
    ] = None,
    require_hardware: options.RequireHardware = False,
    skip_existing: Annotated[
        bool, typer.Option(help="Leave models whose record is there already (resume).")
    ] = False,
    provenance: Annotated[str, typer.Option(help="measured, or example for fixtures.")] = (
        "measured"
    ),
    fail_on: options.FailOnStatus = None,
) -> None:
    """Sweep a catalog on both backends and write one record per model."""
    from sweep.catalog import load_catalog
    from sweep.cli.checks import (
        fleet_needs,
        make_config,
        parse_fail_on,
        select_entries,
        select_shard,
    )
    from sweep.cli.progress import sweep_progress
    from sweep.cli.sweeping import (
        exit_code,
        show_outcome,
        today,
        wide_console,
    )
    from sweep.config import DASHBOARD_PORT
    from sweep.paths import resource_dir
    from sweep.sweeper import run_fleet, run_sweep

    path = catalog or resource_dir("configs") / "catalogs" / "starter.toml"
    loaded = load_catalog(path)
    entries = select_shard(select_entries(loaded, only), shard)
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
        isolation=isolation,
        desktop_reference=desktop,
        provenance=provenance,
    )
    failing = parse_fail_on(fail_on)
    console = wide_console()
    wanted = fleet_needs(needs, machine_label, require_hardware)
    with sweep_progress(Console(stderr=True), len(entries)) as on_event:
        outcome = asyncio.run(
            run_fleet(
                config,
                entries,
                path.parent,
                scheduler=scheduler,
                needs=wanted,
                out=out,
                date=today(date),
                skip_existing=skip_existing,
                on_event=on_event,
            )
            if scheduler is not None
            else run_sweep(
                config,
                entries,
                path.parent,
                out=out,
                date=today(date),
                browser=browser,
                machine_label=machine_label,
                headed=headed,
                skip_existing=skip_existing,
                require_hardware=require_hardware,
                on_event=on_event,
                jobs=jobs,
                endpoint=browser_endpoint,
            )
        )
    show_outcome(outcome, console)
    if outcome.paths:
        console.print(f"{len(outcome.paths)} records in {outcome.paths[0].parent}")
        console.print(
            f"See them: litertjs-sweep serve --data {out} (http://127.0.0.1:{DASHBOARD_PORT}/)",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    if outcome.stopped:
        console.print("Stopped as asked. Run again with --skip-existing to go on.")
    raise typer.Exit(exit_code(outcome, failing))

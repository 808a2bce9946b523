"""`litertjs-sweep run`: sweep a catalog."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def run_command(
    catalog: Annotated[
        Path | None, typer.Argument(help="Catalog (.toml, or .csv of the 1.0 format).")
    ] = None,
    core: Annotated[str, typer.Option(help="Version of @litertjs/core, or `latest`.")] = "latest",
    backend: Annotated[
        list[str] | None, typer.Option(help="Backend to run; may be given several times.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="Comma-separated model ids.")] = None,
    shard: Annotated[
        str | None, typer.Option(metavar="K/N", help="Only shard K of N of the models; see merge.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where records go.")] = Path("data/sweep"),
    date: Annotated[str | None, typer.Option(help="Date of the sweep, YYYY-MM-DD.")] = None,
    machine_label: Annotated[str | None, typer.Option(help="Name of this machine.")] = None,
    leg: Annotated[
        str, typer.Option(help="Leg: default, jspi-off, threads, no-webgpu, fp16, fp32.")
    ] = "default",
    warmup: Annotated[int, typer.Option(min=1, help="Warm-up runs.")] = 3,
    runs: Annotated[
        int, typer.Option(min=1, help="Timed runs; up to three times as many while they scatter.")
    ] = 10,
    target_half_width: Annotated[
        float, typer.Option(help="No more runs once p50 is known ± this share; 0: never more.")
    ] = 0.05,
    seed: Annotated[int, typer.Option(help="Seed of the inputs.")] = 42,
    input_sets: Annotated[int, typer.Option(min=1, max=16, help="Input sets per model.")] = 2,
    input_generator: Annotated[str, typer.Option(help="2.0, or 1.0 for comparability.")] = "2.0",
    tolerance_policy: Annotated[str, typer.Option(help="calibrated or strict.")] = "calibrated",
    timeout: Annotated[
        float | None, typer.Option(help="Seconds each stage may take (overrides all).")
    ] = None,
    latency: Annotated[bool, typer.Option(help="Time the runs, or check values only.")] = True,
    jobs: Annotated[
        int, typer.Option(min=1, max=64, help="Browsers side by side; needs --no-latency.")
    ] = 1,
    isolation: Annotated[str, typer.Option(help="reuse, page, context or browser.")] = "reuse",
    desktop: Annotated[bool, typer.Option(help="Arbitrate with the desktop reference.")] = True,
    headed: Annotated[bool, typer.Option(help="Show the browser.")] = False,
    browser: Annotated[Path | None, typer.Option(help="Browser executable.")] = None,
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
    require_hardware: Annotated[
        bool, typer.Option(help="Refuse a software WebGPU adapter.")
    ] = False,
    skip_existing: Annotated[
        bool, typer.Option(help="Leave models whose record is there already (resume).")
    ] = False,
    provenance: Annotated[str, typer.Option(help="measured, or example for fixtures.")] = (
        "measured"
    ),
    fail_on: Annotated[
        str | None, typer.Option(help="Comma-separated statuses that make the exit code 4.")
    ] = None,
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
        describe_environments,
        describe_failures,
        exit_code,
        today,
        wide_console,
    )
    from sweep.config import DASHBOARD_PORT
    from sweep.paths import resource_dir
    from sweep.sweeper import run_fleet, run_sweep
    from sweep.views.table import reasons, sweep_table

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
    console.print(sweep_table(outcome.records))
    for line in reasons(outcome.records):
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
    describe_environments(outcome.records, console)
    describe_failures(outcome, console)
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

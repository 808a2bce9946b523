"""Options that several commands take: declared once, so that they read and mean the same."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Core = Annotated[str, typer.Option(help="Version of @litertjs/core, or `latest`.")]
Backends = Annotated[
    list[str] | None, typer.Option(help="Backend to run; may be given several times.")
]
Browser = Annotated[Path | None, typer.Option(help="Browser executable.")]
Headed = Annotated[bool, typer.Option(help="Show the browser.")]
RequireHardware = Annotated[bool, typer.Option(help="Refuse a software WebGPU adapter.")]

Only = Annotated[str | None, typer.Option(help="Comma-separated model ids.")]
Shard = Annotated[
    str | None, typer.Option(metavar="K/N", help="Only shard K of N of the models; see merge.")
]
SweepDate = Annotated[str | None, typer.Option(help="Date of the sweep, YYYY-MM-DD.")]
MachineLabel = Annotated[str | None, typer.Option(help="Name of this machine.")]
FailOnStatus = Annotated[
    str | None, typer.Option(help="Comma-separated statuses that make the exit code 4.")
]

LegName = Annotated[
    str, typer.Option(help="Leg: default, jspi-off, threads, no-webgpu, fp16, fp32.")
]
Warmup = Annotated[int, typer.Option(min=1, help="Warm-up runs.")]
Runs = Annotated[
    int, typer.Option(min=1, help="Timed runs; up to three times as many while they scatter.")
]
TargetHalfWidth = Annotated[
    float, typer.Option(help="No more runs once p50 is known ± this share; 0: never more.")
]
Seed = Annotated[int, typer.Option(help="Seed of the inputs.")]
InputSets = Annotated[int, typer.Option(min=1, max=16, help="Input sets per model.")]
Generator = Annotated[str, typer.Option(help="2.0, or 1.0 for comparability.")]
Policy = Annotated[str, typer.Option(help="calibrated or strict.")]
StageTimeout = Annotated[
    float | None, typer.Option(help="Seconds each stage may take (overrides all).")
]
Latency = Annotated[bool, typer.Option(help="Time the runs, or check values only.")]
IsolationMode = Annotated[str, typer.Option(help="reuse, page, context or browser.")]
Desktop = Annotated[bool, typer.Option(help="Arbitrate with the desktop reference.")]

Records = Annotated[Path, typer.Option(help="Records to show.")]
SiteTitle = Annotated[str, typer.Option(help="Title of the site.")]
SiteTriage = Annotated[
    Path, typer.Option(help="Triage reports (DIR/<model_id>/report.html) to include.")
]
SiteCore = Annotated[
    str | None,
    typer.Option(help="Core version of the “check your model” page; `none` leaves it out."),
]

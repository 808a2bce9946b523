"""`litertjs-sweep release-sweep`: sweep every release that is missing, and report on each."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def release_sweep_command(
    catalog: Annotated[Path | None, typer.Argument(help="Catalog to sweep.")] = None,
    versions: Annotated[
        str | None, typer.Option(help="Comma-separated versions of @litertjs/core.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="This version and all later ones.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every published version.")] = False,
    prereleases: Annotated[bool, typer.Option(help="Prereleases, too.")] = False,
    profile: Annotated[
        str, typer.Option(help="Legs to run: default, release, precision, or a .toml file.")
    ] = "default",
    out: Annotated[Path, typer.Option(help="Where records and reports go.")] = Path("data/sweep"),
    date: Annotated[str | None, typer.Option(help="Date of the sweep, YYYY-MM-DD.")] = None,
    machine_label: Annotated[str | None, typer.Option(help="Name of this machine.")] = None,
    only: Annotated[str | None, typer.Option(help="Comma-separated model ids.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Timed runs, at least.")] = 10,
    rounds: Annotated[
        int, typer.Option(min=0, help="Rounds of the second look at changes for the worse.")
    ] = 2,
    browser: Annotated[Path | None, typer.Option(help="Browser executable.")] = None,
    on_change: Annotated[
        str | None,
        typer.Option(help="Command that gets the JSON report on stdin when something changed."),
    ] = None,
    fail_on: Annotated[
        str | None, typer.Option(help="`regression`: exit 4 on a confirmed one.")
    ] = None,
) -> None:
    """Sweep every release that the store lacks, oldest first; compare each with the one before.

    Run it as often as you like: it does nothing until there is something new.
    """
    from sweep.browser import find_browser
    from sweep.catalog import load_catalog
    from sweep.cli.checks import make_config, select_entries
    from sweep.cli.progress import sweep_progress
    from sweep.cli.sweeping import FAIL_ON, INTERRUPTED, NOT_ALL_MEASURED, today
    from sweep.env import default_machine_label
    from sweep.errors import UsageError
    from sweep.orchestrate import not_measured
    from sweep.paths import resource_dir
    from sweep.profiles import load_profile
    from sweep.releases.release_sweep import ReleaseSweepOutcome, ReleaseSweepPlan, sweep_releases
    from sweep.releases.report import headline
    from sweep.releases.watch import select_versions
    from sweep.runtime import published_versions
    from sweep.store import sweep_lock

    if fail_on not in (None, "regression"):
        raise UsageError("--fail-on takes `regression` here.")
    path = catalog or resource_dir("configs") / "catalogs" / "starter.toml"
    loaded = load_catalog(path)
    loaded = loaded.model_copy(update={"entries": select_entries(loaded, only)})
    legs = load_profile(profile).legs
    console = Console(highlight=False, soft_wrap=True)

    async def work() -> ReleaseSweepOutcome:
        published = await published_versions()
        named = [v.strip() for v in versions.split(",")] if versions else None
        chosen = select_versions(
            published, named=named, since=since, every=every, prereleases=prereleases
        )
        unknown = set(named or ()) - set(chosen)
        if unknown or not chosen:
            known = ", ".join(release.version for release in published)
            raise UsageError(
                f"Not published: {', '.join(sorted(unknown)) or 'anything so chosen'}. "
                f"Published versions of @litertjs/core: {known}."
            )
        plan = ReleaseSweepPlan(
            catalog=loaded,
            versions=chosen,
            legs=legs,
            config=make_config(core="latest", backends=None, timed_runs=runs),
            out=out,
            date=today(date),
            browser=await find_browser(browser, install=False),
            machine_label=machine_label or default_machine_label(),
            rounds=rounds,
        )
        with (
            sweep_lock(out),
            sweep_progress(Console(stderr=True), len(loaded.entries)) as on_event,
        ):
            return await sweep_releases(
                plan, on_event, lambda line: console.print(line, style="dim")
            )

    outcome = asyncio.run(work())
    if not outcome.measured and not outcome.reports:
        console.print("Nothing new: every chosen release is swept and compared.")
    for report, _, markdown in outcome.reports:
        console.print(f"{report.old} → {report.new}: {headline(report.diff)}")
        for found in report.confirmations:
            console.print(
                f"  {found.model_id} on {found.backend} [{found.leg}]: "
                f"{found.verdict.replace('_', ' ')}: {found.sentence}",
                markup=False,
            )
        console.print(f"  {markdown}")
    if on_change:
        for report, as_json, _ in outcome.reports:
            if not report.diff.empty:
                _notify(on_change, as_json)
    if fail_on and any(report.confirmed for report, _, _ in outcome.reports):
        raise typer.Exit(FAIL_ON)
    if outcome.stopped:
        raise typer.Exit(INTERRUPTED)
    if any(not_measured(record) for record in outcome.measured):
        raise typer.Exit(NOT_ALL_MEASURED)


def _notify(command: str, report: Path) -> None:
    """Runs the user's own command line in their shell, the report on its stdin."""
    with report.open("rb") as stdin:
        done = subprocess.run(command, shell=True, stdin=stdin, check=False)  # noqa: S602  # it is the user's command
    if done.returncode:
        print(f"--on-change ended with {done.returncode}: {command}", file=sys.stderr)

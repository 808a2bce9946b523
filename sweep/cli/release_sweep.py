"""`litertjs-sweep release-sweep`: sweep every release that is missing, and report on each."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sweep.cli import options


def release_sweep_command(
    catalog: Annotated[Path | None, typer.Argument(help="Catalog to sweep.")] = None,
    versions: Annotated[
        str | None, typer.Option(help="Comma-separated versions or dist-tags of @litertjs/core.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="This version and all later ones.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every published version.")] = False,
    prereleases: Annotated[bool, typer.Option(help="Prereleases, too.")] = False,
    profile: Annotated[
        str, typer.Option(help="Legs to run: default, release, precision, or a .toml file.")
    ] = "default",
    out: Annotated[Path, typer.Option(help="Where records and reports go.")] = Path("data/sweep"),
    date: options.SweepDate = None,
    machine_label: options.MachineLabel = None,
    only: options.Only = None,
    shard: options.Shard = None,
    runs: Annotated[int, typer.Option(min=1, help="Timed runs, at least.")] = 10,
    rounds: Annotated[
        int, typer.Option(min=0, help="Rounds of the second look at changes for the worse.")
    ] = 2,
    browser: options.Browser = None,
    on_change: Annotated[
        str | None,
        typer.Option(help="Command that gets the JSON report on stdin when something changed."),
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated: `regression`, `slower`. Exit 4 when one stood up to a second "
            "look."
        ),
    ] = None,
) -> None:
    """Sweep every release that the store lacks, oldest first; compare each with the one before.

    Without --versions, --since or --all: the newest release and the one before it. Run it as often
    as you like: it does nothing until there is something new.
    """
    from sweep.browser import find_browser
    from sweep.catalog import load_catalog
    from sweep.cli.checks import make_config, select_entries, select_shard
    from sweep.cli.progress import sweep_progress
    from sweep.cli.sweeping import FAIL_ON, INTERRUPTED, NOT_ALL_MEASURED, today
    from sweep.env import default_machine_label
    from sweep.paths import resource_dir
    from sweep.profiles import load_profile
    from sweep.releases.release_report import report_headline
    from sweep.releases.release_sweep import (
        ReleaseSweepOutcome,
        ReleaseSweepPlan,
        WrittenReport,
        sweep_releases,
    )
    from sweep.secrets import redact
    from sweep.store import sweep_lock

    failing = _failing(fail_on)
    if sum((versions is not None, since is not None, every)) > 1:
        raise typer.BadParameter("choose one of --versions, --since and --all")
    path = catalog or resource_dir("configs") / "catalogs" / "starter.toml"
    loaded = load_catalog(path)
    entries = select_shard(select_entries(loaded, only), shard)
    loaded = loaded.model_copy(update={"entries": entries})
    legs = load_profile(profile).legs
    console = Console(highlight=False, soft_wrap=True, markup=False)
    hooks: list[bool] = []

    def reported(written: WrittenReport) -> None:
        report = written.report
        console.print(f"{report.old} → {report.new}: {report_headline(report)}")
        for found in report.confirmations:
            console.print(
                f"  {found.model_id} on {found.backend} [{found.leg}]: "
                f"{found.verdict.replace('_', ' ')}: {found.sentence}"
            )
        console.print(f"  {written.as_markdown}")
        if on_change and not report.diff.empty:
            hooks.append(_notify(on_change, written.as_json))

    async def work() -> ReleaseSweepOutcome:
        chosen = await _choose(versions, since, every, prereleases)
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
            prereleases=prereleases,
        )
        with sweep_lock(out), sweep_progress(Console(stderr=True), len(entries)) as on_event:
            return await sweep_releases(
                plan, on_event, lambda line: console.print(line, style="dim"), reported
            )

    outcome = asyncio.run(work())
    for what, problem in outcome.failed.items():
        console.print(f"{what}: {redact(problem)}", style="red")
    if not (outcome.measured or outcome.reports or outcome.failed or outcome.stopped):
        console.print("Nothing new: every chosen release is swept and compared.")
    if any(failing & written.report.called for written in outcome.reports):
        raise typer.Exit(FAIL_ON)
    if outcome.stopped:
        console.print("Stopped as asked. Run again to go on.")
        raise typer.Exit(INTERRUPTED)
    if outcome.failed or outcome.not_measured or not all(hooks):
        raise typer.Exit(NOT_ALL_MEASURED)


async def _choose(
    versions: str | None, since: str | None, every: bool, prereleases: bool
) -> tuple[str, ...]:
    """The versions to sweep. Exact versions need no registry where they are cached."""
    from sweep.errors import EnvironmentProblem, UsageError
    from sweep.npm import SEMVER
    from sweep.paths import cache_dir
    from sweep.releases.watch import select_versions
    from sweep.runtime import Release, cached_versions, published_versions

    named = [v.strip() for v in versions.split(",") if v.strip()] if versions is not None else None
    if since is not None and not SEMVER.fullmatch(since):
        raise UsageError(f"--since {since!r} is not a version: write one like 2.5.2.")
    try:
        published = await published_versions()
    except EnvironmentProblem:
        published = [Release(version=v, date=None) for v in cached_versions(cache_dir())]
        if not named or not set(named) <= {release.version for release in published}:
            raise
    known = {name for release in published for name in (release.version, *release.tags)}
    unknown = [name for name in named or () if name not in known]
    chosen = select_versions(
        published, named=named, since=since, every=every, prereleases=prereleases
    )
    if unknown or not chosen:
        raise UsageError(
            f"Not published: {', '.join(unknown) or 'anything so chosen'}. Published versions of "
            f"@litertjs/core: {', '.join(release.version for release in published)}."
        )
    return chosen


def _failing(fail_on: str | None) -> frozenset[str]:
    from sweep.errors import UsageError

    words = frozenset(word.strip() for word in (fail_on or "").split(",") if word.strip())
    wrong = sorted(words - {"regression", "slower"})
    if wrong:
        raise UsageError(f"--fail-on: {', '.join(wrong)}: it takes `regression` and `slower` here.")
    return words


def _notify(command: str, report: Path) -> bool:
    """Runs the user's own command in their shell, the report on its stdin; False: it failed."""
    with report.open("rb") as stdin:
        done = subprocess.run(command, shell=True, stdin=stdin, check=False)  # noqa: S602  # it is the user's command
    if done.returncode:
        typer.echo(f"--on-change ended with {done.returncode}: {command}", err=True)
    return done.returncode == 0

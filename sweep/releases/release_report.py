"""The report of one release: its difference to the one before, and the second looks."""

from __future__ import annotations

from pathlib import Path

from sweep.config import Frozen
from sweep.releases.confirm import Confirmation
from sweep.releases.diff import SweepDiff
from sweep.releases.report import render_markdown
from sweep.store import dump_json, write_atomic
from sweep.views.card import inline


class ReleaseReport(Frozen):
    """One release against the one before, on one machine."""

    old: str
    new: str
    date: str
    machine_label: str
    models: int
    diff: SweepDiff
    confirmations: tuple[Confirmation, ...]

    @property
    def confirmed(self) -> tuple[Confirmation, ...]:
        """Changes for the worse that were seen again."""
        return tuple(c for c in self.confirmations if c.verdict == "confirmed")


def report_paths(root: Path, old: str, new: str) -> tuple[Path, Path]:
    """(JSON, markdown) of a report in the store."""
    folder = root / "reports"
    return folder / f"{old}..{new}.json", folder / f"{old}..{new}.md"


def write_report(root: Path, report: ReleaseReport) -> tuple[Path, Path]:
    """Writes both forms atomically; returns (JSON path, markdown path).

    Raises:
        StoreError: the store cannot be written.
    """
    as_json, as_markdown = report_paths(root, report.old, report.new)
    write_atomic(as_json, dump_json(report.model_dump(mode="json")))
    write_atomic(as_markdown, report_markdown(report).encode())
    return as_json, as_markdown


def report_markdown(report: ReleaseReport) -> str:
    """The report as a markdown page."""
    lines = [
        render_markdown(report.diff).rstrip(),
        "",
        "## Second looks",
        "",
    ]
    if not report.confirmations:
        lines.append("Nothing was worse, so nothing was measured a second time.")
    else:
        lines += [
            "Every change for the worse was measured again on both releases, in turn, in fresh "
            "pages.",
            "",
            "| Model | Backend | Leg | What | Verdict | Seen |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {inline(c.model_id)} | {c.backend} | {inline(c.leg)} | {c.kind} "
            f"| {c.verdict.replace('_', ' ')} | {inline(c.sentence)} |"
            for c in report.confirmations
        ]
    lines += ["", f"{report.models} models on {inline(report.machine_label)}, {report.date}.", ""]
    return "\n".join(lines)

"""The report of one release: its difference to the one before, and the second looks.

A report is made of all records that the store has of both releases on one machine, whatever
catalog, leg or shard they came from. What second looks found is kept for as long as what they
looked at stands unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import Field, ValidationError

from sweep.config import Frozen
from sweep.record import Record
from sweep.releases.confirm import Candidate, Confirmation, candidates
from sweep.releases.diff import LatencyDiff, StatusChange, SweepDiff, diff_sweeps
from sweep.releases.outcomes import Sibling, compare_siblings
from sweep.releases.report import (
    TITLES,
    Section,
    closing_lines,
    diff_sections,
    section_markdown,
    sibling_section,
)
from sweep.store import REPORTS_DIR, dump_json, leg_of, write_atomic
from sweep.views.card import inline
from sweep.views.table import describe_environment

MAX_REPORT_BYTES = 64 * 2**20
SINGLE = "Worse in one sweep of each"
"""Title of what has not been looked at a second time, or did not stand up to it, as well."""


class ReleaseReport(Frozen):
    """One release against the one before, on one machine."""

    old: str
    new: str
    date: str
    """When it was written."""
    machine_label: str
    models: int
    diff: SweepDiff
    confirmations: tuple[Confirmation, ...]
    """Of the diff's changes for the worse, in their order."""
    siblings: tuple[Sibling, ...] = ()
    """Variants that do worse than their parent in the new sweep, new or not."""
    environments: tuple[str, ...] = ()
    rounds: int = Field(ge=0)
    """Of second looks, as asked for; 0: what was not looked at twice counts as it is."""

    @property
    def confirmed(self) -> tuple[Confirmation, ...]:
        """Changes for the worse that were seen again."""
        return tuple(c for c in self.confirmations if c.verdict == "confirmed")

    @property
    def called(self) -> frozenset[str]:
        """What `--fail-on` can meet: `regression`, `slower`."""
        counted = {c.candidate for c in self.confirmed}
        if not self.rounds:
            counted |= set(candidates(self.diff)) - {c.candidate for c in self.confirmations}
        return frozenset("regression" if c.kind == "status" else "slower" for c in counted)


def build_report(
    records: Sequence[Record],
    old: str,
    new: str,
    *,
    date: str,
    machine_label: str,
    rounds: int,
    looked: Sequence[Confirmation] = (),
) -> ReleaseReport:
    """The report that the records of both releases on one machine give.

    Args:
        records: those of other releases and machines are left aside.
        looked: what second looks found; what does not belong to this diff is dropped.
    """
    mine = [r for r in records if r.results[0].env.machine_label == machine_label]
    before = [record for record in mine if version_of(record) == old]
    after = [record for record in mine if version_of(record) == new]
    diff = diff_sweeps(before, after, old_label=old, new_label=new)
    verdicts = {confirmation.candidate: confirmation for confirmation in looked}
    environments = {describe_environment(r.env) for x in (*before, *after) for r in x.results}
    return ReleaseReport(
        old=old,
        new=new,
        date=date,
        machine_label=machine_label,
        models=len({record.model_id for record in (*before, *after)}),
        diff=diff,
        confirmations=tuple(verdicts[c] for c in candidates(diff) if c in verdicts),
        siblings=compare_siblings(_newest(after)),
        environments=tuple(sorted(environments)),
        rounds=rounds,
    )


def carried(earlier: ReleaseReport, diff: SweepDiff) -> tuple[Confirmation, ...]:
    """The second looks of an earlier report that still look at the very same change."""
    then, now = _changes(earlier.diff), _changes(diff)
    return tuple(
        c
        for c in earlier.confirmations
        if c.candidate in now and then.get(c.candidate) == now[c.candidate]
    )


def same_finding(one: ReleaseReport, other: ReleaseReport) -> bool:
    """Whether two reports say the same, whenever they were written."""
    return one.model_copy(update={"date": other.date}) == other


def version_of(record: Record) -> str:
    """The core version that a record is of."""
    return record.results[0].env.litertjs_core_version


def report_paths(root: Path, machine_label: str, old: str, new: str) -> tuple[Path, Path]:
    """(JSON, markdown) of a report in the store: `reports/<machine>/<old>..<new>`."""
    machine = re.sub(r"[^A-Za-z0-9_]+", "-", machine_label).strip("-") or "machine"
    folder = root / REPORTS_DIR / machine
    return folder / f"{old}..{new}.json", folder / f"{old}..{new}.md"


def read_report(path: Path) -> ReleaseReport | None:
    """A report that was written before; None when there is none that can be read."""
    try:
        if path.stat().st_size > MAX_REPORT_BYTES:
            return None
        return ReleaseReport.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def write_report(root: Path, report: ReleaseReport) -> tuple[Path, Path]:
    """Writes both forms atomically; returns (JSON path, markdown path).

    Raises:
        StoreError: the store cannot be written.
    """
    as_json, as_markdown = report_paths(root, report.machine_label, report.old, report.new)
    # The JSON last: it is what tells that the report is there.
    write_atomic(as_markdown, report_markdown(report).encode())
    write_atomic(as_json, dump_json(report.model_dump(mode="json")))
    return as_json, as_markdown


def report_headline(report: ReleaseReport) -> str:
    """One sentence: how much was compared, and what stood up to a second look."""
    diff = report.diff
    improved = sum(change.kind == "improvement" for change in diff.statuses)
    faster = sum(change.change.verdict == "faster" for change in diff.latency)
    parts = [f"{diff.compared} results on both sides, {diff.unchanged} with the same verdict"]
    for kind, word in (("status", "regressions"), ("latency", "slower")):
        all_of_kind = [c for c in candidates(diff) if c.kind == kind]
        if report.rounds:
            confirmed = sum(c.kind == kind for c in report.confirmed)
            parts.append(f"{word}: {confirmed} confirmed of {len(all_of_kind)} seen")
        else:
            parts.append(f"{word}: {len(all_of_kind)} seen, none looked at again")
    return "; ".join([*parts, f"{improved} improvements", f"{faster} faster"]) + "."


def report_markdown(report: ReleaseReport) -> str:
    """The report as a markdown page."""
    lines = [
        f"# @litertjs/core {inline(report.old)} → {inline(report.new)}",
        "",
        report_headline(report),
        "",
        f"{report.models} models on {inline(report.machine_label)}, {report.date}:",
        "",
        *(f"- {inline(environment)}" for environment in report.environments),
        "",
        *_second_looks(report),
    ]
    for section in diff_sections(report.diff.model_copy(update={"siblings": ()})):
        if section.title == TITLES["regression"]:
            section = section._replace(title=SINGLE)
        lines += section_markdown(section)
    variants = sibling_section(report.siblings)
    if variants.rows:
        lines += section_markdown(
            variants._replace(note=f"Within the sweep of {inline(report.new)}, new or not.")
        )
    lines += [f"{line}\n" for line in closing_lines(report.diff)]
    return "\n".join(lines).rstrip() + "\n"


def _second_looks(report: ReleaseReport) -> list[str]:
    found = candidates(report.diff)
    if not found:
        return ["Nothing was worse, so nothing was measured a second time.", ""]
    verdicts = {c.candidate: c for c in report.confirmations}
    rows = []
    for candidate in found:
        seen = verdicts.get(candidate)
        rows.append(
            (
                candidate.model_id,
                candidate.backend
                if candidate.leg == "default"
                else f"{candidate.backend} [{candidate.leg}]",
                candidate.kind,
                seen.verdict.replace("_", " ") if seen else "not looked at",
                seen.sentence if seen else "",
            )
        )
    note = (
        "Every change for the worse was measured again on both releases, in turn, in fresh pages: "
        f"{report.rounds} rounds."
        if report.rounds
        else "No second looks were asked for: what is listed here was seen once on each side."
    )
    columns = ("Model", "Backend", "What", "Verdict", "Seen")
    return section_markdown(Section("Second looks", note, columns, tuple(rows)))


def _changes(diff: SweepDiff) -> dict[Candidate, StatusChange | LatencyDiff]:
    found: dict[Candidate, StatusChange | LatencyDiff] = {}
    for kind, changes in (("status", diff.statuses), ("latency", diff.latency)):
        for change in changes:
            key = Candidate.model_validate(
                {
                    "model_id": change.model_id,
                    "backend": change.backend,
                    "leg": change.leg,
                    "kind": kind,
                }
            )
            found[key] = change
    return found


def _newest(records: Iterable[Record]) -> list[Record]:
    """The newest record of each model and leg."""
    newest: dict[tuple[str, str], Record] = {}
    for record in sorted(records, key=lambda r: r.results[0].date):
        newest[record.model_id, leg_of(record)] = record
    return list(newest.values())

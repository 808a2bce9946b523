"""Renderings of a sweep diff: terminal, markdown, JSON. All say the same, in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sweep.releases.diff import (
    DelegationChange,
    LatencyDiff,
    NumericChange,
    StatusChange,
    SweepDiff,
)
from sweep.releases.outcomes import Outcome, Sibling
from sweep.store import dump_json
from sweep.views.card import inline

TITLES: dict[str, str] = {
    "regression": "Regressions",
    "improvement": "Improvements",
    "failure_class": "Fails for another reason",
    "unclear": "Another verdict, not comparable",
    "unavailable": "Not measured on one side",
    "new": "New",
    "gone": "Gone",
}
"""Kinds of status changes in the order of the report."""


class Section(NamedTuple):
    """One table of the report. Cells are plain text."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def diff_sections(diff: SweepDiff) -> tuple[Section, ...]:
    """The tables of a diff that have rows, most important first."""
    sections = [_status_section(kind, diff.statuses) for kind in ("regression", "improvement")]
    sections.append(_latency_section(diff.latency))
    sections.append(_delegation_section(diff.delegation))
    sections.append(_numeric_section(diff.numerics))
    sections.append(sibling_section(diff.siblings))
    sections += [
        _status_section(kind, diff.statuses)
        for kind in TITLES
        if kind not in ("regression", "improvement")
    ]
    sections.append(_outcome_section(diff.outcomes))
    sections.append(_not_comparable_section(diff.latency_not_comparable))
    return tuple(section for section in sections if section.rows)


def headline(diff: SweepDiff) -> str:
    """One sentence: how much was compared, and what came of it."""
    counts = [
        f"{count} {word}"
        for word, count in (
            ("regressions", sum(c.kind == "regression" for c in diff.statuses)),
            ("improvements", sum(c.kind == "improvement" for c in diff.statuses)),
            ("slower", sum(d.change.verdict == "slower" for d in diff.latency)),
            ("faster", sum(d.change.verdict == "faster" for d in diff.latency)),
        )
    ]
    return (
        f"{diff.compared} results on both sides, {diff.unchanged} with the same verdict: "
        f"{', '.join(counts)}."
    )


def render_markdown(diff: SweepDiff) -> str:
    """The report as a markdown page, ending in a newline."""
    lines = [f"# {inline(diff.old_label)} → {inline(diff.new_label)}", "", headline(diff), ""]
    for section in diff_sections(diff):
        lines += section_markdown(section)
    lines += [f"{line}\n" for line in closing_lines(diff)]
    return "\n".join(lines).rstrip() + "\n"


def section_markdown(section: Section) -> list[str]:
    """Heading and table of a section, ending in an empty line."""
    return [
        f"## {section.title} ({len(section.rows)})",
        "",
        *([section.note, ""] if section.note else []),
        f"| {' | '.join(section.columns)} |",
        "|" + "---|" * len(section.columns),
        *(f"| {' | '.join(inline(cell) or '-' for cell in row)} |" for row in section.rows),
        "",
    ]


def render_terminal(diff: SweepDiff) -> RenderableType:
    """The report for a terminal."""
    parts: list[RenderableType] = [
        Text(f"{diff.old_label} → {diff.new_label}", style="bold"),
        Text(headline(diff)),
    ]
    for section in diff_sections(diff):
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in section.columns:
            table.add_column(column, overflow="fold", no_wrap=column in ("Backend", "Status"))
        for row in section.rows:
            table.add_row(*(Text(cell or "-") for cell in row))
        parts += [Text(), Text(f"{section.title} ({len(section.rows)})", style="bold underline")]
        parts += [Text(section.note, style="dim")] if section.note else []
        parts.append(table)
    parts += [Text(line, style="dim") for line in closing_lines(diff)]
    return Group(*parts)


def render_json(diff: SweepDiff) -> str:
    """The whole diff as JSON, with `empty`."""
    return dump_json({**diff.model_dump(mode="json"), "empty": diff.empty}).decode()


def closing_lines(diff: SweepDiff) -> list[str]:
    """What is to be said after the tables."""
    lines = ["Nothing differs."] if diff.empty else []
    for label, facts in (
        (diff.old_label, diff.old_not_reported),
        (diff.new_label, diff.new_not_reported),
    ):
        if facts:
            lines.append(f"Not reported by the cores of {label}: {', '.join(facts)}.")
    return lines


def _place(item: StatusChange | DelegationChange | NumericChange | LatencyDiff) -> tuple[str, str]:
    backend = item.backend if item.leg == "default" else f"{item.backend} [{item.leg}]"
    return item.model_id, backend


def _verdict(status: str | None, failure_class: str | None) -> str:
    return f"{status or '-'}{f' ({failure_class})' if failure_class else ''}"


def _status_section(kind: str, changes: Sequence[StatusChange]) -> Section:
    chosen = [c for c in changes if c.kind == kind]
    if kind in ("new", "gone"):
        one_sided = tuple(
            (*_place(c), _verdict(c.new or c.old, c.new_failure_class or c.old_failure_class))
            for c in chosen
        )
        return Section(TITLES[kind], "", ("Model", "Backend", "Status"), one_sided)
    rows = tuple(
        (
            *_place(c),
            _verdict(c.old, c.old_failure_class),
            _verdict(c.new, c.new_failure_class),
            c.reason or "",
            "; ".join(c.differs),
        )
        for c in chosen
    )
    columns = ("Model", "Backend", "Before", "After", "Why", "Also differs")
    return Section(TITLES[kind], "", columns, rows)


def _latency_section(changes: Sequence[LatencyDiff]) -> Section:
    rows = tuple(
        (
            *_place(d),
            f"{d.change.old_median_ms:.3g}",
            f"{d.change.new_median_ms:.3g}",
            f"{d.change.ratio:.2f} ({d.change.ratio_low:.2f} to {d.change.ratio_high:.2f})",
            f"{d.change.p_value:.1g}",
            d.change.verdict + (" (software adapter)" if d.software else ""),
        )
        for d in sorted(changes, key=lambda d: -(d.change.ratio or 0))
    )
    columns = ("Model", "Backend", "Before ms", "After ms", "Ratio", "p", "Verdict")
    note = "Medians of the timed runs; ratio with its 99 % interval; Mann-Whitney U test."
    return Section("Latency", note, columns, rows)


def _not_comparable_section(changes: Sequence[LatencyDiff]) -> Section:
    by_reason: dict[str, list[str]] = {}
    for d in changes:
        model_id, backend = _place(d)
        by_reason.setdefault(d.change.reason, []).append(f"{model_id} {backend}")
    rows = tuple(
        (
            str(len(who)),
            why,
            ", ".join(who[:5]) + (f" and {len(who) - 5} more" if len(who) > 5 else ""),
        )
        for why, who in by_reason.items()
    )
    return Section("Latency not comparable", "", ("Results", "Because", "Which"), rows)


def _delegation_section(changes: Sequence[DelegationChange]) -> Section:
    rows = tuple(
        (
            *_place(c),
            _split(c.old_ops_on_gpu, c.old_ops_on_cpu, c.old_full),
            _split(c.new_ops_on_gpu, c.new_ops_on_cpu, c.new_full),
            ", ".join(c.newly_supported),
            ", ".join(c.newly_unsupported),
        )
        for c in changes
    )
    columns = ("Model", "Backend", "Before", "After", "Newly supported", "Newly unsupported")
    return Section("Delegation", "", columns, rows)


def _split(on_gpu: int | None, on_cpu: int | None, full: bool | None) -> str:
    if on_gpu is None and on_cpu is None:
        return "not reported" if full is None else "full" if full else "partial"
    counts = ("?" if n is None else str(n) for n in (on_gpu, on_cpu))
    return "{} GPU, {} CPU".format(*counts)


def _numeric_section(changes: Sequence[NumericChange]) -> Section:
    rows = tuple(
        (
            *_place(c),
            _grade(c.old_grade, c.old_snr_db),
            _grade(c.new_grade, c.new_snr_db),
            "better" if c.better else "worse",
        )
        for c in changes
    )
    return Section(
        "Numerics", "Worst grade and SNR.", ("Model", "Backend", "Before", "After", ""), rows
    )


def _grade(grade: str, snr: float | None) -> str:
    return grade if snr is None else f"{grade}, {snr:.1f} dB"


def sibling_section(siblings: Sequence[Sibling]) -> Section:
    """Variants that do worse than the model they are a variant of."""
    rows = tuple(
        (
            s.model_id,
            s.parent,
            s.backend if s.leg == "default" else f"{s.backend} [{s.leg}]",
            f"{s.latency.ratio:.1f}× slower"
            if s.latency and s.latency.ratio
            else f"{s.status}, parent {s.parent_status}",
        )
        for s in siblings
    )
    return Section(
        "Variants worse than their parent", "", ("Variant", "Parent", "Backend", "Finding"), rows
    )


def _outcome_section(outcomes: Sequence[Outcome]) -> Section:
    rows = tuple(
        (
            o.model_id,
            o.backend,
            o.core_version,
            o.wasm_file or "not reported",
            _known(o.jspi),
            _known(o.threads),
            o.leg,
            _verdict(o.status, o.failure_class),
        )
        for o in outcomes
    )
    columns = ("Model", "Backend", "Core", "Build", "JSPI", "Threads", "Leg", "Outcome")
    return Section("Outcome by build", "", columns, rows)


def _known(value: bool | int | None) -> str:
    if value is None:
        return "not reported"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)

"""A report of a sweep for people and for CI: markdown, HTML, JSON, JUnit XML, GitHub Actions."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Literal
from xml.etree import ElementTree

from sweep.config import Backend, Frozen
from sweep.record import STATUSES, Record, Result, Status
from sweep.views.card import inline
from sweep.views.site_environment import adapter_kind
from sweep.views.table import describe_environment

ReportFormat = Literal["md", "html", "json", "junit", "github"]
FORMATS: tuple[ReportFormat, ...] = ("md", "html", "json", "junit", "github")

GITHUB_LIMIT = 10
"""Annotations of one level that GitHub shows per step; the rest would vanish unseen."""

_LEVEL: dict[str, str] = {
    "output_mismatch": "error", "run_failed": "error", "load_failed": "error",
    "unverified": "warning", "fallback": "notice", "unavailable": "notice",
}  # fmt: skip
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class ReportRow(Frozen):
    """One result, as far as a report tells of it."""

    model_id: str
    backend: Backend
    status: Status | None
    failure_class: str | None
    reason: str | None
    grade: str | None
    full_delegation: bool | None
    latency_p50_ms: float | None
    software_adapter: bool
    """The latency is of WebGPU on the CPU: not to be compared with hardware."""
    environment: str
    date: str
    provenance: str


class Report(Frozen):
    """Results in order of model and backend, and the files that were no records."""

    rows: tuple[ReportRow, ...]
    bad: tuple[str, ...] = ()

    def counts(self) -> dict[str, int]:
        """Results per status, most serious first; statuses that do not occur are left out."""
        tally: Counter[str] = Counter(row.status or "unclassified" for row in self.rows)
        return {name: tally[name] for name in (*STATUSES, "unclassified") if tally[name]}


def make_report(records: Iterable[Record], bad: Iterable[str] = ()) -> Report:
    """The report of these records. `bad`: one message per file that could not be read."""
    rows = [_row(record, result) for record in records for result in record.results]
    return Report(
        rows=tuple(sorted(rows, key=lambda r: (r.model_id, r.backend, r.environment, r.date))),
        bad=tuple(bad),
    )


def _row(record: Record, result: Result) -> ReportRow:
    return ReportRow(
        model_id=record.model_id,
        backend=result.backend,
        status=result.status,
        failure_class=result.failure_class,
        reason=result.reason,
        grade=result.grade,
        full_delegation=result.full_delegation,
        latency_p50_ms=result.latency_p50_ms,
        software_adapter=result.backend != "wasm_xnnpack"
        and adapter_kind(result.env) == "software",
        environment=describe_environment(result.env),
        date=result.date,
        provenance=result.provenance,
    )


def render(report: Report, form: ReportFormat) -> str:
    """The report in one form, ending in a newline. `github` gives the annotations only."""
    match form:
        case "md":
            return to_markdown(report)
        case "html":
            return to_html(report)
        case "json":
            return to_json(report)
        case "junit":
            return to_junit(report)
        case "github":
            return to_annotations(report)


def to_json(report: Report) -> str:
    """`{counts, rows, bad}`, sorted keys."""
    value = {"counts": report.counts(), **report.model_dump(mode="json")}
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def to_markdown(report: Report) -> str:
    """A summary line and one table row per result; the text of records cannot become markup."""
    lines = ["# Sweep report", "", _summary(report), ""]
    if report.rows:
        lines += [f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
        lines += [
            f"| {' | '.join(inline(cell) or '-' for cell in _cells(row))} |" for row in report.rows
        ]
    if report.bad:
        lines += [
            "",
            "Files that are no records:",
            "",
            *(f"- {inline(text)}" for text in report.bad),
        ]
    return "\n".join(lines) + "\n"


_COLUMNS = ("Model", "Backend", "Status", "Grade", "p50 ms", "Why", "Environment", "Date")


def _cells(row: ReportRow) -> tuple[str, ...]:
    p50 = "-" if row.latency_p50_ms is None else f"{row.latency_p50_ms:.4g}"
    if row.software_adapter and row.latency_p50_ms is not None:
        p50 += " (software adapter)"
    return (
        row.model_id, row.backend, row.status or "unclassified", row.grade or "-", p50,
        _why(row), row.environment, row.date,
    )  # fmt: skip


def _why(row: ReportRow) -> str:
    if row.status == "pass":
        return "-"
    return ": ".join(part for part in (row.failure_class, row.reason) if part) or "-"


def _summary(report: Report) -> str:
    models = len({row.model_id for row in report.rows})
    counts = ", ".join(f"{count} {name}" for name, count in report.counts().items())
    examples = sum(row.provenance == "example" for row in report.rows)
    text = f"{len(report.rows)} results of {models} models: {counts or 'none'}."
    if examples:
        text += f" {examples} of them are synthetic examples, not measurements."
    if report.bad:
        text += f" {len(report.bad)} files could not be read."
    return text


_STYLE = """
:root { color-scheme: light dark; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1300px;
       padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .4rem .7rem; border-bottom: 1px solid #8884;
         vertical-align: top; overflow-wrap: anywhere; }
th { font-size: .8rem; opacity: .75; }
td:nth-child(5) { font-variant-numeric: tabular-nums; white-space: nowrap; }
.pass { color: light-dark(#0f7a4d, #4ade9b); } .fallback { color: light-dark(#1d5fbf, #7db5ff); }
.output_mismatch, .run_failed, .load_failed { color: light-dark(#c1212f, #ff8e94); }
td:nth-child(3) { font-weight: 600; }
""".strip()


def to_html(report: Report) -> str:
    """One self-contained page without script; every text of a record is escaped."""
    head = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS)
    body = "\n".join(
        "<tr>" + "".join(
            f'<td class="{row.status or ""}">{html.escape(cell)}</td>' if n == 2
            else f"<td>{html.escape(cell)}</td>"
            for n, cell in enumerate(_cells(row))
        ) + "</tr>"
        for row in report.rows
    )  # fmt: skip
    bad = "".join(f"<li>{html.escape(text)}</li>" for text in report.bad)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>Sweep report</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n"
        f"<h1>Sweep report</h1>\n<p>{html.escape(_summary(report))}</p>\n"
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n"
        + (f"<h2>Files that are no records</h2>\n<ul>{bad}</ul>\n" if bad else "")
        + "</body>\n</html>\n"
    )


def to_junit(report: Report) -> str:
    """JUnit XML: a suite per backend, a case per model and environment.

    `output_mismatch` is a failure, `load_failed` and `run_failed` are errors, `unavailable` and
    `unverified` are skipped (nothing was found out about the model), the rest has passed. `time` is
    the p50 in seconds. Unreadable files are errors of a suite of their own.
    """
    root = ElementTree.Element("testsuites", name="litertjs-sweep")
    for backend in sorted({row.backend for row in report.rows}):
        rows = [row for row in report.rows if row.backend == backend]
        suite = _suite(root, backend, rows)
        for row in rows:
            _case(suite, row)
    if report.bad:
        suite = ElementTree.SubElement(
            root, "testsuite", name="records", tests=str(len(report.bad)), failures="0",
            errors=str(len(report.bad)), skipped="0",
        )  # fmt: skip
        for text in report.bad:
            case = ElementTree.SubElement(suite, "testcase", classname="records", name=_xml(text))
            ElementTree.SubElement(case, "error", type="bad_file", message=_xml(text))
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    ElementTree.indent(root)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        + ElementTree.tostring(root, encoding="unicode")
        + "\n"
    )


def _suite(root: ElementTree.Element, name: str, rows: list[ReportRow]) -> ElementTree.Element:
    def count(*statuses: str) -> str:
        return str(sum(row.status in statuses for row in rows))

    return ElementTree.SubElement(
        root, "testsuite", name=name, tests=str(len(rows)),
        failures=count("output_mismatch"), errors=count("load_failed", "run_failed"),
        skipped=count("unavailable", "unverified"),
    )  # fmt: skip


def _case(suite: ElementTree.Element, row: ReportRow) -> None:
    case = ElementTree.SubElement(
        suite, "testcase",
        classname=_xml(f"{row.backend} {row.environment}"),
        name=_xml(row.model_id),
    )  # fmt: skip
    if row.latency_p50_ms is not None:
        case.set("time", f"{row.latency_p50_ms / 1000:.6f}")
    properties = ElementTree.SubElement(case, "properties")
    for name, value in (
        ("status", row.status), ("failure_class", row.failure_class), ("grade", row.grade),
        ("date", row.date), ("provenance", row.provenance),
        ("software_adapter", "true" if row.software_adapter else None),
    ):  # fmt: skip
        if value is not None:
            ElementTree.SubElement(properties, "property", name=name, value=_xml(value))
    kind = {
        "output_mismatch": "failure", "load_failed": "error", "run_failed": "error",
        "unavailable": "skipped", "unverified": "skipped",
    }.get(row.status or "")  # fmt: skip
    if kind is not None:
        attributes = {"message": _xml(row.reason or row.status or "")}
        if kind != "skipped":
            attributes["type"] = _xml(row.failure_class or row.status or "")
        ElementTree.SubElement(case, kind, attributes)


def to_annotations(report: Report) -> str:
    """Workflow commands for GitHub Actions, most serious first, one line each.

    At most ten per level, as GitHub shows no more; the last says how many were left out.
    """
    lines: list[str] = []
    for level in ("error", "warning", "notice"):
        found = [row for row in report.rows if _LEVEL.get(row.status or "") == level]
        found.sort(key=lambda row: STATUSES.index(row.status) if row.status else 0)
        messages = [
            (f"{row.model_id} on {row.backend}: {row.status}", f"{_why(row)} ({row.environment})")
            for row in found
        ]
        if level == "error":
            messages = [("not a record", text) for text in report.bad] + messages
        if len(messages) > GITHUB_LIMIT:
            more = len(messages) - GITHUB_LIMIT + 1
            messages = [
                *messages[: GITHUB_LIMIT - 1],
                (f"{more} more", "They are in the table of the job summary."),
            ]
        lines += [f"::{level} title={_property(t)}::{_message(text)}" for t, text in messages]
    return "".join(f"{line}\n" for line in lines)


def _message(text: str) -> str:
    """Escaped as data of a workflow command: a newline would start another command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def _xml(text: str) -> str:
    """Without the characters that XML 1.0 cannot hold at all; ElementTree escapes the rest."""
    return _NOT_XML.sub("\ufffd", text)

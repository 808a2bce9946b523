"""The "Browser (LiteRT.js)" section of a model card, as markdown, from one record.

The table has the columns and spellings of the cards that the PyPI package `edge-compat` renders, so
that either tool gives the same rows from the same measurements.
"""

from __future__ import annotations

from sweep.record import Record, Result
from sweep.views.table import describe_environment

COLUMNS = (
    "Backend", "Status", "Full delegation", "Output match", "Max rel diff", "Latency p50 (ms)",
    "Environment", "Date", "Provenance",
)  # fmt: skip


def card_section(record: Record, source: str) -> str:
    """The section, ending in a newline. `source` names the record it was made from."""
    lines = [
        "## Browser (LiteRT.js)",
        "",
        "This `.tflite` file as measured in a browser. Each row holds for its environment only; "
        f"errors, console evidence and settings are in the record: `{source}`.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|" + "---|" * len(COLUMNS),
        *(f"| {' | '.join(card_row(result))} |" for result in record.results),
    ]
    notes = [note for result in record.results for note in _notes(result)]
    if notes:
        lines += ["", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def card_row(result: Result) -> tuple[str, ...]:
    """The cells of one backend in the order of COLUMNS; `-` for what was not measured."""
    return (
        result.backend,
        result.status or "-",
        _either(result.full_delegation, "yes", "no"),
        _either(result.output_match, "pass", "MISMATCH"),
        number_text(result.max_rel_diff),
        number_text(result.latency_p50_ms),
        inline(describe_environment(result.env)),
        result.date,
        result.provenance,
    )


def _notes(result: Result) -> list[str]:
    """What a reader of the row must know besides: why it is no pass, and software adapters."""
    notes: list[str] = []
    if result.status not in ("pass", None) and result.reason:
        notes.append(f"{result.backend}: {inline(result.reason)}")
    if "software_adapter" in result.flags and result.latency_p50_ms is not None:
        adapter = result.env.webgpu_adapter
        name = f" ({inline(f'{adapter.vendor} {adapter.architecture}')})" if adapter else ""
        notes.append(
            f"{result.backend}: timed on a software adapter{name}; "
            "not to be compared with hardware."
        )
    return notes


def _either(value: bool | None, true: str, false: str) -> str:
    return "-" if value is None else true if value else false


def number_text(value: float | None) -> str:
    """All digits of a number, whole ones without `.0`; `-` for None."""
    if value is None:
        return "-"
    return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)


def inline(text: str) -> str:
    """Text from outside, made safe for a table cell: one line, no markup of its own."""
    line = " ".join(text.split())
    for sign in "\\`|<>[]":
        line = line.replace(sign, f"\\{sign}")
    return line

"""Writes a report and its reproducers into one directory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from sweep.config import Leg
from sweep.errors import StoreError
from sweep.store import write_atomic
from sweep.triage.accuse import Accusation, write_repro
from sweep.triage.findings import Report
from sweep.triage.report_html import report_html
from sweep.triage.report_md import report_md
from sweep.triage.repro_html import readme, repro_html

OWN = ("report.html", "report.md", "report.json", "repro.tflite", "repro.html", "README.md",
       "inputs", "expected")  # fmt: skip


def report_json(report: Report) -> str:
    """Sorted keys, 2-space indent, trailing newline."""
    return json.dumps(report.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"


def write_report(report: Report, found: Sequence[Accusation], folder: Path, leg: Leg) -> Path:
    """Writes everything; returns the path of report.html.

    Files of an earlier triage in the same directory are replaced.

    Raises:
        StoreError: the directory cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _clear(folder)
        for index, accusation in enumerate(found):
            target = folder if index == 0 else folder / f"culprit-{index + 1}"
            listed = write_repro(accusation.files, target)
            if index == 0:
                write_atomic(folder / "repro.html", repro_html(report, listed, leg).encode())
                write_atomic(folder / "README.md", readme(report).encode())
        write_atomic(folder / "report.json", report_json(report).encode())
        write_atomic(folder / "report.md", report_md(report).encode())
        write_atomic(folder / "report.html", report_html(report).encode())
    except OSError as error:
        raise StoreError(f"{folder}: the report cannot be written: {error}") from error
    return folder / "report.html"


def _clear(folder: Path) -> None:
    """Only what a triage writes: the directory may hold other things (`node_modules`)."""
    for path in [folder / name for name in OWN] + sorted(folder.glob("culprit-[0-9]")):
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)

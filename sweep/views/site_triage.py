"""Triage reports beside the dashboard: what is copied of them, and which models have one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

REPORT = "report.html"
_LISTED = ("report.md", "report.json", "repro.tflite", "repro.html")
_SHOWN = {".html", ".md", ".json", ".tflite", ".npy", ".svg", ".png", ".txt"}


def copy_triage(root: Path | None, out: Path, model_ids: Iterable[str]) -> list[dict[str, Any]]:
    """Copy `<root>/<model_id>/` of every known model that has a `report.html`.

    One entry per report, sorted by model: `{model, backend, headline, culprits, files}`, the last
    three as far as `report.json` tells. Links and files of unknown kinds are left behind.
    """
    if root is None or not root.is_dir():
        return []
    found = []
    for model_id in sorted(model_ids):
        source = root / model_id
        if source.is_symlink() or not (source / REPORT).is_file():
            continue
        for path in sorted(source.rglob("*")):
            inside = path.resolve().is_relative_to(source.resolve())
            if path.is_symlink() or not inside or not path.is_file():
                continue
            if path.suffix not in _SHOWN:
                continue
            target = out / model_id / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        found.append({"model": model_id, **_summary(source), "files": _listed(out / model_id)})
    return found


def _listed(directory: Path) -> list[str]:
    return [name for name in _LISTED if (directory / name).is_file()]


def _summary(source: Path) -> dict[str, Any]:
    """A few texts of `report.json`; a report that is no such JSON is shown without them."""
    try:
        report = json.loads((source / "report.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        report = None
    if not isinstance(report, dict):
        report = {}
    culprits = report.get("culprits")
    return {
        "backend": _text(report.get("backend")),
        "headline": _text(report.get("headline") or report.get("summary")),
        "culprits": [
            name
            for culprit in (culprits if isinstance(culprits, list) else [])[:8]
            if isinstance(culprit, dict) and (name := _culprit(culprit))
        ],
    }


def _culprit(culprit: dict[str, Any]) -> str | None:
    op = _text(culprit.get("op"))
    confidence = culprit.get("confidence")
    return f"{op} (confidence: {confidence})" if op and confidence is not None else op


def _text(value: object) -> str | None:
    return value[:500] if isinstance(value, str) and value else None

"""Triage reports beside the dashboard: what is copied of them, and which models have one."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

REPORT = "report.html"
_SHOWN = {".html", ".md", ".json", ".tflite", ".npy", ".svg", ".png", ".txt"}


def copy_triage(root: Path | None, out: Path, model_ids: Iterable[str]) -> list[str]:
    """Copy `<root>/<model_id>/` of every known model that has a `report.html`; the ids, sorted.

    Links and files of unknown kinds are left behind.
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
        found.append(model_id)
    return found

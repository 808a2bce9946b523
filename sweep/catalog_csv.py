"""The 1.0 CSV form of a catalog: `model_id,source,input_spec,license,notes`.

Lines that begin with `#` are comments; fields may be quoted.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from sweep.catalog import Defect, RawCatalog, RawEntry

COLUMNS = ("model_id", "source", "input_spec", "license", "notes")
_REQUIRED = ("model_id", "source", "license")


def read_csv(path: Path, text: str) -> RawCatalog:
    """Read the rows of a 1.0 catalog; what they say is checked by `load_catalog`."""
    defects: list[Defect] = []
    entries: list[RawEntry] = []
    header: list[str] | None = None
    try:
        for line, row in _rows(text):
            if header is None:
                header = [cell.strip() for cell in row]
                defects += _header_defects(line, header)
                if defects:
                    break
                continue
            if len(row) != len(header):
                defects.append(
                    Defect(
                        line=line,
                        message=f"{len(row)} fields, but the header has {len(header)}; quote "
                        'fields that hold a comma, like "this, for example"',
                    )
                )
                continue
            values = dict(zip(header, (cell.strip() for cell in row), strict=True))
            entries.append(
                RawEntry(
                    # An empty cell is a value that was not given.
                    values={name: cell for name, cell in values.items() if cell},
                    line=line,
                    locate=lambda _place, line=line: line,
                )
            )
    except csv.Error as error:
        defects.append(Defect(line=1, message=f"not valid CSV: {error}"))
    if header is None and not defects:
        defects.append(Defect(line=1, message=f"no header; write {','.join(COLUMNS)}"))
    return RawCatalog(name=path.stem, entries=tuple(entries), defects=tuple(defects))


def _header_defects(line: int, header: list[str]) -> list[Defect]:
    messages = [f"unknown column {name!r}" for name in header if name not in COLUMNS]
    messages += [f"column {name!r} is missing" for name in _REQUIRED if name not in header]
    messages += [f"column {name!r} occurs twice" for name in COLUMNS if header.count(name) > 1]
    if not messages:
        return []
    wanted = f"the header of a 1.0 catalog is {','.join(COLUMNS)}"
    return [Defect(line=line, message=f"{message}; {wanted}") for message in messages]


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line each begins on; comments and blank lines left out."""
    started = 0
    quoted = False

    def kept() -> Iterator[str]:
        nonlocal started, quoted
        for number, line in enumerate(text.splitlines(keepends=True), start=1):
            if not quoted:
                if line.startswith("#") or not line.strip():
                    continue
                started = started or number
            # A `#` inside a quoted field that spans lines is text.
            quoted ^= line.count('"') % 2 == 1
            yield line

    for row in csv.reader(kept(), strict=True):
        yield started, row
        started = 0

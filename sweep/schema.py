"""The JSON Schema of record 2.0, generated from the pydantic models.

`python -m sweep.schema [PATH]` writes it (default `docs/schema/sweep-2.0.json`); a test keeps the
committed file in step with the models.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from sweep.record import Record
from sweep.store import dump_json, write_atomic

SCHEMA_FILE = Path("docs/schema/sweep-2.0.json")


def record_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) that every record written by this version satisfies."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "sweep-2.0.json",
        **Record.model_json_schema(mode="validation"),
        "title": "litertjs-sweep record 2.0: one model in one sweep",
    }


def main(arguments: list[str]) -> None:
    """Write the schema to the path given, or to its place in the repository."""
    path = Path(arguments[0]) if arguments else SCHEMA_FILE
    write_atomic(path, dump_json(record_schema()))


if __name__ == "__main__":
    main(sys.argv[1:])

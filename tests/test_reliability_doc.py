"""The table of faults names tests that exist, and no fault test is left out of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def names_in(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


def test_every_test_that_the_table_names_exists() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    rows = [line for line in rows if "shown by" not in line]
    assert len(rows) > 40
    for row in rows:
        named = NAMED.findall(row)
        assert named, f"no test is named in: {row}"
        for file, name in named:
            assert name in names_in(ROOT / file), f"{file} has no {name}"


def test_every_file_of_fault_tests_is_in_the_table() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    for path in (ROOT / "tests" / "faults").glob("test_*.py"):
        assert path.relative_to(ROOT).as_posix() in text

"""Line numbers of keys in a TOML file, which `tomllib` does not give.

`tomllib` decides what the file means; this only finds where a key was written, for messages.
"""

from __future__ import annotations

import re
import tomllib

Path = tuple[str | int, ...]

_HEADER = re.compile(r"^\s*(\[\[?)(.+?)(\]\]?)\s*(?:#.*)?$")
_KEY = re.compile(
    r"""^\s*((?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*'))*)\s*="""
)


def key_lines(text: str) -> dict[Path, int]:
    """Where each table header and each `key =` line of a valid TOML text stands, from 1.

    Elements of arrays of tables carry their index: `("model", 3, "source")`. Keys inside inline
    tables are not told apart; look up the longest known prefix with `line_of`.
    """
    found: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    fence: str | None = None
    depth = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if fence is None and depth == 0:
            if header := _HEADER.match(line):
                table = _table(header, counts)
                found.setdefault(table, number)
                continue
            if key := _KEY.match(line):
                path = (*table, *_parts(f"{key.group(1)} = 0"))
                for length in range(len(table) + 1, len(path) + 1):
                    found.setdefault(path[:length], number)
        fence, depth = _scan(line, fence, depth)
    return found


def line_of(lines: dict[Path, int], path: Path) -> int:
    """Line of the longest prefix of `path` that was written down; 1 for the file itself."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return 1


def _table(header: re.Match[str], counts: dict[Path, int]) -> Path:
    array = header.group(1) == "[["
    path: Path = ()
    names = _parts(f"[{header.group(2)}]")
    for index, name in enumerate(names):
        path = (*path, name)
        if array and index == len(names) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _parts(line: str) -> tuple[str, ...]:
    """The parts of a dotted key or header, read by tomllib itself."""
    try:
        value: object = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return ()
    parts = []
    while isinstance(value, dict) and value:
        name, value = next(iter(value.items()))
        parts.append(name)
    return tuple(parts)


def _scan(line: str, fence: str | None, depth: int) -> tuple[str | None, int]:
    """Whether the next line begins inside a multi-line string or an array."""
    i = 0
    while i < len(line):
        if fence is not None:
            if fence[0] == '"' and line[i] == "\\":
                i += 2
                continue
            if line.startswith(fence, i):
                i += len(fence)
                fence = None
                continue
        elif line[i] == "#":
            break
        elif line[i] in "\"'":
            fence = line[i] * 3 if line.startswith(line[i] * 3, i) else line[i]
            i += len(fence)
            continue
        elif line[i] in "[{":
            depth += 1
        elif line[i] in "]}":
            depth -= 1
        i += 1
    # A one-line string ends with its line; only the triple ones go on.
    return (fence if fence is not None and len(fence) == 3 else None), max(depth, 0)

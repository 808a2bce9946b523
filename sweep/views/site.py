"""The dashboard as a static site: from records to a directory that any host, or none, can show.

The site has no server part and asks nothing of the network: data files are scripts that hand a
string of JSON to the page, since a page opened from a `file:` address may load scripts but cannot
fetch. The same records give the same bytes.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweep.config import Frozen
from sweep.errors import StoreError, UsageError
from sweep.paths import resource_dir
from sweep.runtime import CoreFiles
from sweep.store import BadFile, iter_records
from sweep.views.site_check import write_check
from sweep.views.site_diffs import release_diffs
from sweep.views.site_environment import EnvironmentTable
from sweep.views.site_index import build_index
from sweep.views.site_libs import bundle, install_libraries
from sweep.views.site_summary import RecordSummary, summarise
from sweep.views.site_triage import copy_triage

DEFAULT_TITLE = "LiteRT.js sweep"
_MARKER = ".litertjs-sweep-site"
"""Marks a directory as a site that may be replaced."""
_PAGE_FILES = ("index.html", "favicon.svg")
_UNESCAPED = {"n": "\n", "r": "\r", "u2028": "\u2028", "u2029": "\u2029"}
"""Characters that end a line in JavaScript, by their escapes."""
_ESCAPE = re.compile(r"\\(u202[89]|.)")


class SiteReport(Frozen):
    """What a build read and wrote."""

    out: Path
    records: int
    models: int
    bad: tuple[BadFile, ...]
    """Files among the records that are none; the dashboard names them too."""
    triage: tuple[str, ...]
    """Model ids whose triage reports were copied."""


def build_site(
    data_root: Path,
    out: Path,
    *,
    title: str = DEFAULT_TITLE,
    triage_root: Path | None = None,
    core: CoreFiles | None = None,
) -> SiteReport:
    """Build the dashboard of the records below `data_root` into the directory `out`.

    `out` is replaced as a whole when everything has been written, so that a reader sees the old
    site or the new. `triage_root` holds `<model_id>/report.html` directories to link to.
    With `core`, the page that checks a visitor's own model is part of the site.

    Raises UsageError when `out` exists and is not a site, EnvironmentProblem when the libraries
    cannot be had from npm, StoreError when `out` cannot be written. Unreadable records do not stop
    it: they are in the report and on the page.
    """
    out = out.absolute()
    _check_out(data_root, out)
    static = resource_dir("static")
    modules = install_libraries(static)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as name:
            new = Path(name) / "site"
            new.mkdir()
            (new / _MARKER).write_text("A site built by litertjs-sweep: rebuilt as a whole.\n")
            for file in _PAGE_FILES:
                shutil.copyfile(static / file, new / file)
            bundle(static, modules, new / "assets")
            if core is not None:
                write_check(static, core, new / "check")
            report = _write_data(data_root, new, out, title, triage_root)
            if out.exists():
                out.rename(Path(name) / "old")
            new.rename(out)
    except OSError as error:
        raise StoreError(
            f"cannot write the site {out}: {error.strerror or error}. Free space or choose a "
            "directory that can be written."
        ) from error
    return report


def _check_out(data_root: Path, out: Path) -> None:
    if not data_root.is_dir():
        raise UsageError(f"{data_root} is no directory: --data names the root of the records")
    if data_root.resolve().is_relative_to(out.resolve()):
        raise UsageError(f"the site {out} would replace the records in {data_root}")
    if out.is_dir():
        empty = next(out.iterdir(), None) is None
        if not empty and not (out / _MARKER).is_file():
            raise UsageError(
                f"{out} holds something else than a site of ours and will not be replaced: "
                "name a new or empty directory"
            )
    elif out.exists():
        raise UsageError(f"{out} is a file: name a directory for the site")


def _write_data(
    data_root: Path, new: Path, out: Path, title: str, triage_root: Path | None
) -> SiteReport:
    data = new / "data"
    table = EnvironmentTable()
    bad: list[BadFile] = []
    index = build_index(_fold(data_root, data, table, bad), table)
    triage = copy_triage(triage_root, new / "triage", index.model_ids)
    head = index.files["index"]
    head["title"] = title
    head["triage"] = triage
    head["diffs"] = []
    for number, (before, after, diffs) in enumerate(release_diffs(data_root, index.newest)):
        head["diffs"].append({"old": before, "new": after, "key": f"diff/{number}"})
        index.files[f"diff/{number}"] = {"rigs": diffs}
    head["check"] = (new / "check").is_dir()
    head["bad"] = [
        {"path": _shown_path(entry.path, data_root), "problem": _without_root(entry, data_root)}
        for entry in bad
    ]
    for key, value in index.files.items():
        write_data_file(data, key, json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    for model_id in index.model_ids:
        value = index.model_file(model_id)
        write_data_file(
            data, f"model/{model_id}", json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        )
    return SiteReport(
        out=out,
        records=head["records"],
        models=len(index.model_ids),
        bad=tuple(bad),
        triage=tuple(entry["model"] for entry in triage),
    )


def _fold(
    data_root: Path, data: Path, table: EnvironmentTable, bad: list[BadFile]
) -> Iterator[RecordSummary]:
    """Summaries of the records, each of which is written to its data file on the way."""
    for entry in iter_records(data_root):
        if isinstance(entry, BadFile):
            bad.append(entry)
            continue
        place = entry.path.relative_to(data_root).with_suffix("").as_posix()
        write_data_file(data, f"record/{place}", entry.record.model_dump_json())
        yield summarise(entry.record, place, table)


def write_data_file(data: Path, key: str, text: str) -> None:
    """Write JSON `text` as the script `data/<key>.js`, which hands it to the page as a string.

    As a string, and not as a literal: it is parsed faster, and `__proto__` is a name like others.
    """
    path = data / f"{key}.js"
    path.parent.mkdir(parents=True, exist_ok=True)
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    for name, mark in _UNESCAPED.items():
        quoted = quoted.replace(mark, f"\\{name}")
    path.write_text(f"sweepData({json.dumps(key)},'{quoted}')\n", encoding="utf-8", newline="\n")


def _shown_path(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def _without_root(entry: BadFile, root: Path) -> str:
    """The problem without this machine's directories: the site is published, they are not."""
    text = entry.problem.replace(f"{entry.path}: ", "")
    return text.replace(f"{root.absolute()}/", "").replace(f"{root}/", "")


def load_data_file(path: Path) -> Any:
    """The JSON value in a data file of a site, for tests and tools. ValueError if it is none."""
    text = path.read_text("utf-8")
    quoted = text[text.index(",'") + 2 : text.rindex("')")]
    return json.loads(_ESCAPE.sub(lambda m: _UNESCAPED.get(m[1], m[1]), quoted))

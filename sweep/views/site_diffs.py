"""Diff reports of neighbouring core versions for the release page, rig by rig."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from sweep.record import Record
from sweep.releases.diff import diff_sweeps
from sweep.store import read_record, version_key

MAX_RECORDS = 3000
"""Per version. Above it the diff is left to `litertjs-sweep diff`: all records of both versions
are in memory at once, and every pair of latencies is tested."""


def release_diffs(
    data_root: Path, newest: dict[str, dict[int, list[str]]]
) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """(old, new, [{rig, diff}]) for each two neighbouring versions, oldest first.

    `newest`: core version → rig → places of records, as `SiteIndex.newest`. Only rigs that both
    versions have are compared; pairs with too many records are left out.
    """
    cores = sorted(newest, key=version_key)
    found = []
    for old, new in itertools.pairwise(cores):
        if max(sum(map(len, newest[core].values())) for core in (old, new)) > MAX_RECORDS:
            continue
        rigs = [rig for rig in newest[old] if rig in newest[new]]
        diffs = [
            {
                "rig": rig,
                "diff": diff_sweeps(
                    _read(data_root, newest[old][rig]),
                    _read(data_root, newest[new][rig]),
                    old_label=old,
                    new_label=new,
                ).model_dump(mode="json"),
            }
            for rig in rigs
        ]
        if diffs:
            found.append((old, new, diffs))
    return found


def _read(data_root: Path, places: list[str]) -> list[Record]:
    return [read_record(data_root / f"{place}.json") for place in places]

"""What there is to do: published releases against the sweeps in the store (pure)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from datetime import datetime

from sweep.catalog import CatalogEntry
from sweep.config import Backend, Frozen
from sweep.record import NOT_FETCHED, Record
from sweep.runtime import Release
from sweep.store import leg_of, version_key


class ReleaseState(Frozen):
    """One release: published, cached, swept."""

    version: str
    published: datetime | None
    tags: tuple[str, ...]
    prerelease: bool
    cached: bool
    swept: tuple[str, ...]
    """Dates of its sweeps in the store, sorted."""


def release_states(
    releases: Sequence[Release], cached: Iterable[str], sweeps: Iterable[tuple[str, str]]
) -> tuple[ReleaseState, ...]:
    """All releases, oldest version first.

    Args:
        sweeps: (core version, date) of every sweep in the store.
    """
    have = set(cached)
    dates: dict[str, set[str]] = {}
    for version, date in sweeps:
        dates.setdefault(version, set()).add(date)
    return tuple(
        ReleaseState(
            version=release.version,
            published=release.date,
            tags=release.tags,
            prerelease=is_prerelease(release.version),
            cached=release.version in have,
            swept=tuple(sorted(dates.get(release.version, ()))),
        )
        for release in sorted(releases, key=lambda r: version_key(r.version))
    )


def is_prerelease(version: str) -> bool:
    """Whether a semantic version names a prerelease (`2.6.0-rc.1`)."""
    return "-" in version.split("+", 1)[0]


def select_versions(
    releases: Sequence[Release],
    *,
    named: Sequence[str] | None = None,
    since: str | None = None,
    every: bool = False,
    prereleases: bool = False,
) -> tuple[str, ...]:
    """The versions to sweep, oldest first.

    Without any choice: the newest release, and the one before it to compare with. Versions that
    were named, themselves or by a dist-tag, are taken whatever they are (an unknown name is left
    out); prereleases otherwise only when asked for.
    """
    if named is not None:
        known = {release.version: release.version for release in releases}
        known |= {tag: release.version for release in releases for tag in release.tags}
        return tuple(sorted({known[n] for n in named if n in known}, key=version_key))
    versions = sorted(
        (r.version for r in releases if prereleases or not is_prerelease(r.version)),
        key=version_key,
    )
    if since is not None:
        return tuple(v for v in versions if version_key(v) >= version_key(since))
    return tuple(versions if every else versions[-2:])


def pairs_to_compare(
    chosen: Sequence[str], swept: Iterable[str], *, prereleases: bool = False
) -> tuple[tuple[str, str], ...]:
    """(old, new): each chosen version with the one before it.

    That is the chosen one before it; for the oldest, the newest earlier one that the store has.

    Args:
        chosen: oldest first.
        swept: versions with records of this machine.
        prereleases: whether the oldest may be compared with a prerelease.
    """
    if not chosen:
        return ()
    earlier = [
        v
        for v in swept
        if version_key(v) < version_key(chosen[0]) and (prereleases or not is_prerelease(v))
    ]
    first = [max(earlier, key=version_key)] if earlier else []
    line = [*first, *chosen]
    return tuple(itertools.pairwise(line))


class Gaps(Frozen):
    """Models of a catalog that one release, leg and machine has no measurement of."""

    missing: tuple[str, ...]
    """In catalog order, those of `not_fetched` among them."""
    not_fetched: tuple[str, ...]
    """Those whose only record says that the model could not be had."""


def find_gaps(
    records: Iterable[Record],
    version: str,
    leg: str,
    machine_label: str,
    entries: Sequence[CatalogEntry],
    backends: Sequence[Backend],
) -> Gaps:
    """What the store lacks.

    A record answers a catalog entry when it is of this version, leg and machine, has the wanted
    backends, and is of the file that the entry names (where it names a checksum). A record that
    only says that the model could not be fetched answers nothing.
    """
    wanted = {entry.model_id: entry for entry in entries}
    there: set[str] = set()
    tried: set[str] = set()
    for record in records:
        entry = wanted.get(record.model_id)
        if entry is None or leg_of(record) != leg or not _is_of(record, version, machine_label):
            continue
        if any(result.failure_class in NOT_FETCHED for result in record.results):
            tried.add(record.model_id)
        elif _answers(record, entry, backends):
            there.add(record.model_id)
    missing = tuple(entry.model_id for entry in entries if entry.model_id not in there)
    return Gaps(missing=missing, not_fetched=tuple(m for m in missing if m in tried))


def _is_of(record: Record, version: str, machine_label: str) -> bool:
    return all(
        result.env.litertjs_core_version == version and result.env.machine_label == machine_label
        for result in record.results
    )


def _answers(record: Record, entry: CatalogEntry, backends: Sequence[Backend]) -> bool:
    have = {result.backend for result in record.results}
    same_file = not (record.model and entry.sha256) or record.model.sha256 == entry.sha256
    return same_file and have.issuperset(entry.backends or backends)

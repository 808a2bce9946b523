"""What there is to do: published releases against the sweeps in the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from sweep.config import Frozen
from sweep.record import Record
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

    Without any choice: the latest release only, and the one before it to compare with. Versions
    that were named are taken whatever they are; prereleases otherwise only when asked for.
    """
    if named:
        known = {release.version for release in releases}
        return tuple(v for v in sorted(named, key=version_key) if v in known)
    versions = sorted(
        (r.version for r in releases if prereleases or not is_prerelease(r.version)),
        key=version_key,
    )
    if since is not None:
        return tuple(v for v in versions if version_key(v) >= version_key(since))
    return tuple(versions if every else versions[-2:])


def lacking(
    records: Iterable[Record],
    version: str,
    leg: str,
    machine_label: str,
    model_ids: Sequence[str],
) -> tuple[str, ...]:
    """Models without a record of this release and leg on this machine, in the order given."""
    there = {
        record.model_id
        for record in records
        if leg_of(record) == leg
        and all(
            result.env.litertjs_core_version == version
            and result.env.machine_label == machine_label
            for result in record.results
        )
    }
    return tuple(model_id for model_id in model_ids if model_id not in there)

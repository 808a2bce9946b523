"""Merging: the stores of several shards or machines joined into one, or not touched at all."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweep.config import Frozen
from sweep.errors import RecordError, StoreError, UsageError
from sweep.record import NOT_FETCHED, Record
from sweep.releases.confirm import Confirmation
from sweep.releases.release_report import (
    ReleaseReport,
    build_report,
    carried,
    read_report,
    write_report,
)
from sweep.store import (
    REPORTS_DIR,
    BadFile,
    StoredRecord,
    environment_conflict,
    iter_records,
    leg_of,
    read_record,
    record_path,
    write_atomic,
)

SHOWN = 10
"""Conflicts that a message lists."""


class MergeOutcome(Frozen):
    """What a merge did."""

    written: int
    """Records that were not there before."""
    same: int
    """Records that two stores had alike, or in a better form."""
    reports: tuple[Path, ...]
    """Markdown of the release reports that were made anew."""


@dataclass
class _Chosen:
    """Where each record of the merged store comes from."""

    out: Path
    files: dict[Path, tuple[Path, bytes]] = field(default_factory=dict)
    """Place in the merged store → file, and the SHA-256 of its bytes."""
    same: int = 0
    problems: list[str] = field(default_factory=list)

    def take(self, found: StoredRecord | BadFile) -> None:
        if isinstance(found, BadFile):
            self.problems.append(found.problem)
            return
        record, path = found.record, found.path
        target = record_path(
            self.out, record.results[0].env.litertjs_core_version, _day(path, record),
            record.model_id, leg_of(record),
        )  # fmt: skip
        digest = hashlib.sha256(path.read_bytes()).digest()
        if target not in self.files:
            self.files[target] = path, digest
            return
        other, other_digest = self.files[target]
        if digest == other_digest:
            self.same += 1
            return
        before = read_record(other)
        if _says_nothing(record) != _says_nothing(before):
            self.same += 1
            if _says_nothing(before):
                self.files[target] = path, digest
            return
        differing = environment_conflict(before, record)
        why = (
            f"they are of different environments: {differing}"
            if differing
            else "they are two measurements in one environment"
        )
        self.problems.append(f"{other} and {path} are the same model on the same date, and {why}.")


def merge_stores(sources: Sequence[Path], out: Path) -> MergeOutcome:
    """Joins stores into `out`, which may hold records already. The caller holds its lock.

    Records that are alike byte by byte are fine, and a record that only says that a model could not
    be fetched gives way to a measured one. Release reports are made anew of the joined records;
    what second looks found is kept.

    Raises:
        UsageError: a source is no directory.
        StoreError: files that are no records, or records that cannot both be right: nothing was
            written then. Or `out` cannot be written.
    """
    for source in sources:
        if not source.is_dir():
            raise UsageError(f"{source} is no directory: name the stores (--out) of the shards.")
    chosen = _Chosen(out)
    stores = [out, *(s for s in sources if s.resolve() != out.resolve())]
    for store in stores:
        for found in iter_records(store):
            chosen.take(found)
    if chosen.problems:
        more = len(chosen.problems) - SHOWN
        raise StoreError(
            "Not merged, nothing was written:\n  "
            + "\n  ".join(chosen.problems[:SHOWN])
            + (f"\n  and {more} more" if more > 0 else "")
            + "\nKeep one of each pair: remove the other, or merge it into another directory."
        )
    written = 0
    for target, (path, _) in chosen.files.items():
        if path.resolve() != target.resolve():
            write_atomic(target, path.read_bytes())
            written += 1
    return MergeOutcome(written=written, same=chosen.same, reports=_merge_reports(stores, out))


def _merge_reports(stores: Sequence[Path], out: Path) -> tuple[Path, ...]:
    grouped: defaultdict[tuple[str, str, str], list[ReleaseReport]] = defaultdict(list)
    for store in stores:
        for report in _reports(store):
            grouped[report.machine_label, report.old, report.new].append(report)
    written = []
    for (machine, old, new), reports in sorted(grouped.items()):
        records = [f.record for f in iter_records(out, [old, new]) if isinstance(f, StoredRecord)]

        def build(
            looked: Sequence[Confirmation],
            records: Sequence[Record] = records,
            reports: Sequence[ReleaseReport] = reports,
            names: tuple[str, str, str] = (machine, old, new),
        ) -> ReleaseReport:
            return build_report(
                records, names[1], names[2], machine_label=names[0], looked=looked,
                date=max(r.date for r in reports), rounds=max(r.rounds for r in reports),
            )  # fmt: skip

        diff = build(()).diff
        looked = [confirmation for report in reports for confirmation in carried(report, diff)]
        written.append(write_report(out, build(looked))[1])
    return tuple(written)


def _reports(store: Path) -> Iterator[ReleaseReport]:
    for path in sorted((store / REPORTS_DIR).glob("*/*.json")):
        report = read_report(path)
        if report is None:
            raise RecordError(
                f"{path} is no release report that can be read: remove it; release-sweep makes it "
                "anew."
            )
        yield report


def _says_nothing(record: Record) -> bool:
    return all(result.failure_class in NOT_FETCHED for result in record.results)


def _day(path: Path, record: Record) -> str:
    """The date of the directory that a stored record lies in."""
    day = path.parent if leg_of(record) == "default" else path.parent.parent
    return day.name

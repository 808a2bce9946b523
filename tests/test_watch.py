from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from sweep.catalog import CatalogEntry
from sweep.config import DEFAULT_BACKENDS
from sweep.record import Record
from sweep.releases.watch import (
    find_gaps,
    is_prerelease,
    pairs_to_compare,
    release_states,
    select_versions,
)
from sweep.runtime import Release
from tests.make_records import RIGS, make_record

MACHINE = RIGS[0]["machine_label"]
RELEASES = [
    Release(version=version, date=datetime(2026, month, 1, tzinfo=UTC), tags=tags)
    # As a registry may list them: neither by version nor by date.
    for version, month, tags in (
        ("2.10.0", 9, ()),
        ("0.2.1", 1, ()),
        ("2.9.1", 8, ("latest",)),
        ("2.10.0-rc.2", 7, ("next",)),
        ("2.10.0-rc.10", 10, ()),
        ("2.0.0", 2, ()),
    )
]


@pytest.mark.parametrize(
    ("choice", "versions"),
    [
        ({}, ("2.9.1", "2.10.0")),
        ({"prereleases": True}, ("2.10.0-rc.10", "2.10.0")),
        ({"every": True}, ("0.2.1", "2.0.0", "2.9.1", "2.10.0")),
        ({"since": "2.0.0"}, ("2.0.0", "2.9.1", "2.10.0")),
        ({"since": "2.9.2"}, ("2.10.0",)),
        ({"since": "2.9.2", "prereleases": True}, ("2.10.0-rc.2", "2.10.0-rc.10", "2.10.0")),
        ({"since": "3.0.0"}, ()),
        ({"named": ["2.10.0", "0.2.1", "2.10.0"]}, ("0.2.1", "2.10.0")),
        ({"named": ["2.10.0-rc.2", "9.9.9"]}, ("2.10.0-rc.2",)),
        ({"named": ["next", "latest"]}, ("2.9.1", "2.10.0-rc.2")),
        ({"named": []}, ()),
    ],
)
def test_select_versions(choice: dict[str, Any], versions: tuple[str, ...]) -> None:
    assert select_versions(RELEASES, **choice) == versions


def test_only_a_hyphen_before_the_build_makes_a_prerelease() -> None:
    assert [is_prerelease(v) for v in ("2.0.0", "2.0.0-rc.1", "2.0.0+a-b")] == [False, True, False]


def test_states_say_what_is_cached_and_swept_when() -> None:
    states = release_states(
        RELEASES,
        ["2.0.0"],
        [("2.0.0", "2026-03-02"), ("2.0.0", "2026-03-01"), ("2.0.0", "2026-03-02")],
    )
    assert [s.version for s in states] == [
        "0.2.1", "2.0.0", "2.9.1", "2.10.0-rc.2", "2.10.0-rc.10", "2.10.0",
    ]  # fmt: skip
    of = {s.version: s for s in states}
    assert (of["2.0.0"].cached, of["2.0.0"].swept) == (True, ("2026-03-01", "2026-03-02"))
    assert (of["2.9.1"].cached, of["2.9.1"].swept, of["2.9.1"].tags) == (False, (), ("latest",))
    assert of["2.10.0-rc.2"].prerelease
    assert not of["2.10.0"].prerelease


def test_each_version_is_compared_with_the_one_before() -> None:
    assert pairs_to_compare(["2.0.0", "2.9.1"], []) == (("2.0.0", "2.9.1"),)
    assert pairs_to_compare(["2.9.1"], ["0.2.1", "2.9.1", "2.10.0", "2.0.0"]) == (
        ("2.0.0", "2.9.1"),
    )
    assert pairs_to_compare(["2.10.0"], ["2.9.1", "2.10.0-rc.2"]) == (("2.9.1", "2.10.0"),)
    assert pairs_to_compare(["2.10.0"], ["2.9.1", "2.10.0-rc.2"], prereleases=True) == (
        ("2.10.0-rc.2", "2.10.0"),
    )
    assert pairs_to_compare(["2.10.0"], ["2.10.0"]) == ()
    assert pairs_to_compare([], ["2.0.0"]) == ()


ENTRIES = [
    CatalogEntry(model_id=model_id, source=f"{model_id}.tflite", license="MIT")
    for model_id in ("b", "a", "c")
]


def record(model_id: str, **edits: Any) -> Record:
    raw = make_record(model_id, core=edits.pop("core", "2.5.3"), rig=edits.pop("rig", 0),
                      day=date(2026, 2, 3))  # fmt: skip
    if leg := edits.pop("leg", None):
        raw["config"]["leg"] = {"name": leg}
    if edits.pop("wasm_only", False):
        raw["results"] = raw["results"][:1]
    if failure := edits.pop("failure", None):
        for result in raw["results"]:
            result |= {"failure_class": failure, "status": "load_failed", "runs": False}
    raw["model"] = raw["model"] | edits.pop("model", {})
    assert not edits
    return Record.model_validate(raw)


def missing(*records: Record, entries: list[CatalogEntry] = ENTRIES) -> tuple[str, ...]:
    return find_gaps(records, "2.5.3", "default", MACHINE, entries, DEFAULT_BACKENDS).missing


def test_what_the_store_has_is_not_missing() -> None:
    assert missing() == ("b", "a", "c")
    assert missing(record("a"), record("c")) == ("b",)
    # A record of before legs had names is of the default leg.
    assert missing(record("a", leg="default"), record("b"), record("c")) == ()


@pytest.mark.parametrize(
    "edits",
    [
        {"core": "2.5.2"},
        {"rig": 1},
        {"leg": "threads"},
        {"wasm_only": True},
        {"failure": "fetch_failed"},
        {"failure": "checksum_mismatch"},
    ],
)
def test_another_release_machine_leg_or_no_measurement_answers_nothing(
    edits: dict[str, Any],
) -> None:
    assert missing(record("a", **edits), record("b"), record("c")) == ("a",)


def test_a_failed_model_is_measured_and_a_lost_one_is_told_apart() -> None:
    assert missing(record("a", failure="compile_error"), record("b"), record("c")) == ()
    lost = [record("a", failure="fetch_failed"), record("b", failure="fetch_failed"), record("b")]
    gaps = find_gaps(lost, "2.5.3", "default", MACHINE, ENTRIES, DEFAULT_BACKENDS)
    assert (gaps.missing, gaps.not_fetched) == (("a", "c"), ("a",))


def test_an_entry_of_another_file_or_fewer_backends() -> None:
    pinned = [ENTRIES[0].model_copy(update={"sha256": "a" * 64})]
    assert missing(record("b", model={"sha256": "b" * 64}), entries=pinned) == ("b",)
    assert missing(record("b", model={"sha256": "a" * 64}), entries=pinned) == ()
    wasm = [ENTRIES[0].model_copy(update={"backends": ("wasm_xnnpack",)})]
    assert missing(record("b", wasm_only=True), entries=wasm) == ()

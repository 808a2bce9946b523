"""Second looks, with measurements that are made up."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from sweep.record import Record
from sweep.releases.confirm import Candidate, Confirmation, candidates, confirm, judge
from sweep.releases.diff import diff_sweeps
from tests.make_records import make_record

OLD, NEW = "2.5.2", "2.5.3"


def record(webgpu: str = "pass", version: str = NEW, factor: float = 1.0, **edits: Any) -> Record:
    raw = make_record("m", rig=1, core=version, statuses=("pass", webgpu))
    # Twenty samples that scatter by 2 %, none two alike.
    samples = [10 * factor * (0.98 + 0.002 * ((7 * i) % 20)) for i in range(20)]
    for result in raw["results"]:
        if result["latency"]:
            result["latency"] |= {"samples_ms": samples, "p50_ms": 10 * factor}
            result["latency_p50_ms"] = 10 * factor
    raw["results"][1] |= edits
    return Record.model_validate(raw)


STATUS = Candidate(model_id="m", backend="webgpu_mldrift", leg="default", kind="status")
LATENCY = STATUS.model_copy(update={"kind": "latency"})


def look(old: str, new: str) -> Confirmation:
    return judge(
        STATUS,
        [record(status, OLD) for status in old.split()],
        [record(status) for status in new.split()],
    )


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("pass pass", "run_failed run_failed", "confirmed"),
        ("pass pass", "run_failed load_failed", "confirmed"),
        ("pass fallback", "run_failed run_failed", "confirmed"),
        ("fallback fallback", "output_mismatch output_mismatch", "confirmed"),
        ("pass pass", "pass pass", "not_confirmed"),
        ("run_failed run_failed", "run_failed run_failed", "not_confirmed"),
        # It got better when looked at again: not a regression, whatever it is.
        ("run_failed run_failed", "pass pass", "not_confirmed"),
        ("pass pass", "unverified unverified", "not_confirmed"),
        ("pass pass", "pass run_failed", "flaky"),
        ("pass run_failed", "run_failed run_failed", "flaky"),
        ("pass output_mismatch", "output_mismatch run_failed", "flaky"),
        ("run_failed pass", "pass pass", "flaky"),
        ("pass pass", "unavailable unavailable", "not_measured"),
        ("pass unavailable", "run_failed run_failed", "not_measured"),
    ],
)
def test_a_regression_must_show_in_every_round(old: str, new: str, verdict: str) -> None:
    found = look(old, new)
    assert found.verdict == verdict
    assert (found.old_statuses, found.new_statuses) == (tuple(old.split()), tuple(new.split()))
    assert found.sentence.endswith(f"old {old.replace(' ', ', ')}; new {new.replace(' ', ', ')}")


def test_a_model_that_could_not_be_fetched_again_was_not_measured() -> None:
    lost = record("load_failed", failure_class="fetch_failed")
    found = judge(STATUS, [record("pass", OLD)] * 2, [lost, lost])
    assert found.verdict == "not_measured"


def test_slower_must_hold_in_every_round() -> None:
    def look(*factors: float) -> Confirmation:
        old = [record(version=OLD) for _ in factors]
        return judge(LATENCY, old, [record(factor=factor) for factor in factors])

    slower = look(1.3, 1.3)
    assert slower.verdict == "confirmed"
    assert slower.latency is not None
    assert slower.latency.ratio == pytest.approx(1.3, rel=0.01)
    assert (slower.latency.old_samples, slower.latency.new_samples) == (40, 40)
    assert look(1.01, 1.01).verdict == "not_confirmed"
    assert look(0.7, 0.7).verdict == "not_confirmed"
    uneven = look(1.9, 1.9, 1.9, 0.99)
    assert (uneven.verdict, uneven.latency and uneven.latency.verdict) == ("flaky", "slower")
    assert uneven.sentence.startswith("slower in 3 of 4 rounds only")


def test_a_run_that_fails_gives_no_latency() -> None:
    old, new = [record(version=OLD)] * 2, [record("run_failed")] * 2
    assert judge(LATENCY, old, new).verdict == "not_measured"


def test_only_changes_for_the_worse_are_candidates() -> None:
    better = diff_sweeps([record("run_failed", OLD)], [record("pass")])
    assert candidates(better) == ()
    assert candidates(diff_sweeps([record("pass", OLD)], [record("run_failed")])) == (STATUS,)
    slower = candidates(diff_sweeps([record(version=OLD)], [record(factor=1.3)]))
    assert {(c.backend, c.kind) for c in slower} == {
        ("webgpu_mldrift", "latency"),
        ("wasm_xnnpack", "latency"),
    }
    assert candidates(diff_sweeps([record(version=OLD)], [record(factor=0.7)])) == ()


def test_rounds_are_interleaved_and_each_model_is_measured_once_a_round() -> None:
    asked: list[tuple[str, str]] = []
    flaky = itertools.cycle(["pass", "run_failed"])

    async def measure(version: str, model_id: str) -> Record:
        asked.append((version, model_id))
        return record("pass" if version == OLD else next(flaky), version)

    found = asyncio.run(confirm([STATUS, LATENCY], OLD, NEW, measure, rounds=3))
    assert asked == [(v, "m") for v in (OLD, NEW, NEW, OLD, OLD, NEW)]
    assert [(c.kind, c.verdict) for c in found] == [
        ("status", "flaky"),
        ("latency", "not_confirmed"),
    ]
    assert found[0].new_statuses == ("pass", "run_failed", "pass")

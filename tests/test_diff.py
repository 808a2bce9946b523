from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from sweep.cli.diff import diff_command
from sweep.errors import UsageError
from sweep.record import Record
from sweep.releases.diff import SweepDiff, diff_sweeps
from sweep.releases.report import render_json, render_markdown
from sweep.releases.sides import resolve_side
from sweep.store import read_record, write_record
from tests.make_records import make_record

app = typer.Typer()
app.command()(diff_command)

Json = dict[str, Any]
Edit = Callable[[Json], None]


def record(
    model_id: str = "m", webgpu: str = "pass", edit: Edit | None = None, **more: Any
) -> Record:
    raw = make_record(model_id, rig=1, statuses=("pass", webgpu), **more)
    if edit:
        edit(raw)
    return Record.model_validate(raw)


def gpu(**fields: Any) -> Edit:
    def edit(raw: Json) -> None:
        raw["results"][1].update(fields)

    return edit


def kinds(diff: SweepDiff) -> list[tuple[str, str]]:
    return [(change.backend, change.kind) for change in diff.statuses]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("pass", "fallback", "regression"),
        ("pass", "output_mismatch", "regression"),
        ("output_mismatch", "run_failed", "regression"),
        ("run_failed", "load_failed", "regression"),
        ("unverified", "run_failed", "regression"),
        ("run_failed", "fallback", "improvement"),
        ("load_failed", "output_mismatch", "improvement"),
        ("fallback", "pass", "improvement"),
        ("load_failed", "unverified", "improvement"),
        # Values became unknown, or known: nobody can say that they were right before.
        ("pass", "unverified", "unclear"),
        ("unverified", "output_mismatch", "unclear"),
        ("unverified", "pass", "unclear"),
        ("pass", "unavailable", "unavailable"),
        ("unavailable", "pass", "unavailable"),
        ("unavailable", "load_failed", "unavailable"),
    ],
)
def test_kinds_of_transitions(before: str, after: str, kind: str) -> None:
    diff = diff_sweeps([record(webgpu=before)], [record(webgpu=after)])
    assert kinds(diff) == [("webgpu_mldrift", kind)]
    assert (diff.compared, diff.unchanged) == (2, 1)
    assert not diff.empty


@pytest.mark.parametrize("status", ["pass", "fallback", "run_failed", "unavailable", "unverified"])
def test_a_sweep_beside_itself_is_empty(status: str) -> None:
    sweep = [record("a", status), record("b", status), record("c")]
    diff = diff_sweeps(sweep, sweep)
    assert diff.empty
    assert diff.kinds() == frozenset()
    assert "Nothing differs." in render_markdown(diff)


def test_real_records_beside_themselves_are_empty(shared_dir: Path) -> None:
    side = resolve_side(str(shared_dir / "records" / "sweep"), shared_dir)
    assert len(side.records) == 9
    diff = diff_sweeps(side.records, side.records)
    assert (diff.compared, diff.unchanged, diff.empty) == (18, 18, True)


def test_real_machines_are_not_held_against_each_other(shared_dir: Path) -> None:
    mac, ci = (
        resolve_side(str(shared_dir / "records" / name), shared_dir)
        for name in ("sweep", "sweep-ci")
    )
    diff = diff_sweeps(mac.records, ci.records)
    assert diff.latency == ()
    reasons = {d.change.reason for d in diff.latency_not_comparable}
    assert any("adapter_class: hardware → software" in r for r in reasons)
    wasm = [d for d in diff.latency_not_comparable if d.backend == "wasm_xnnpack"]
    assert wasm
    assert not any("adapter" in d.change.reason for d in wasm)
    assert "regression" not in diff.kinds()


def test_another_failure_class_is_its_own_kind() -> None:
    old = record(webgpu="run_failed")
    new = record(webgpu="run_failed", edit=gpu(failure_class="timeout"))
    assert kinds(diff_sweeps([old], [new])) == [("webgpu_mldrift", "failure_class")]
    untold = record(webgpu="run_failed", edit=gpu(failure_class=None))
    assert diff_sweeps([old], [untold]).statuses == ()


def test_a_model_that_was_not_fetched_is_no_regression() -> None:
    lost = record(webgpu="load_failed", edit=gpu(failure_class="fetch_failed"))
    assert kinds(diff_sweeps([record()], [lost])) == [("webgpu_mldrift", "unavailable")]


def test_partial_sweeps_give_new_and_gone_not_regressions() -> None:
    diff = diff_sweeps([record("a"), record("b")], [record("b"), record("c", "run_failed")])
    assert [(c.model_id, c.kind) for c in diff.statuses] == [
        ("a", "gone"), ("a", "gone"), ("c", "new"), ("c", "new"),
    ]  # fmt: skip
    assert "regression" not in diff.kinds()


def test_another_model_file_or_tolerance_makes_a_verdict_unclear() -> None:
    def other_file(raw: Json) -> None:
        raw["model"]["sha256"] = "f" * 64

    def strict(raw: Json) -> None:
        raw["config"]["tolerance_policy"] = "strict"

    (change,) = diff_sweeps([record()], [record(webgpu="run_failed", edit=other_file)]).statuses
    assert (change.kind, change.differs) == ("unclear", ("the model file",))
    (change,) = diff_sweeps([record()], [record(webgpu="output_mismatch", edit=strict)]).statuses
    assert change.kind == "unclear"
    assert change.differs == ("tolerance_policy: calibrated → strict",)
    # A failure is no matter of tolerances.
    assert kinds(diff_sweeps([record()], [record(webgpu="run_failed", edit=strict)])) == [
        ("webgpu_mldrift", "regression")
    ]


def timed(factor: float, **env: Any) -> Edit:
    def edit(raw: Json) -> None:
        for result in raw["results"]:
            result["latency"]["samples_ms"] = [
                factor * s for s in (20.1, 20.4, 19.9, 20.2, 21.0, 20.0, 20.3, 20.6, 20.2, 19.8)
            ]
            result["latency_p50_ms"] = 20.2 * factor
            result["env"] = {**result["env"], **env}

    return edit


def test_latency_is_judged_by_the_samples() -> None:
    old = record(edit=timed(1))
    slower = diff_sweeps([old], [record(edit=timed(1.3))])
    assert [(d.backend, d.change.verdict) for d in slower.latency] == [
        ("wasm_xnnpack", "slower"),
        ("webgpu_mldrift", "slower"),
    ]
    assert slower.latency[0].change.ratio == pytest.approx(1.3)
    assert slower.kinds() == {"slower"}
    assert diff_sweeps([old], [record(edit=timed(1.01))]).empty
    faster = diff_sweeps([old], [record(edit=timed(0.7))])
    assert {d.change.verdict for d in faster.latency} == {"faster"}


@pytest.mark.parametrize(
    ("env", "reason", "backends"),
    [
        ({"adapter_class": "software"}, "adapter_class: hardware → software", 1),
        ({"webgpu_adapter": None}, "webgpu_adapter: apple metal-3 → not known", 1),
        ({"machine_label": "x"}, "machine_label: mac-studio-m4-max → x", 2),
        ({"browser_version": "1"}, "browser_version: 156.0.7204.1 → 1", 2),
        ({"threads": 4}, "threads: 1 → 4", 2),
        ({"cpu": None}, "cpu: Apple M4 Max → not known", 2),
    ],
)
def test_latencies_of_unequal_environments_are_not_compared(
    env: Json, reason: str, backends: int
) -> None:
    diff = diff_sweeps([record(edit=timed(1))], [record(edit=timed(1.3, **env))])
    assert len(diff.latency_not_comparable) == backends
    assert {d.change.reason for d in diff.latency_not_comparable} == {reason}
    assert len(diff.latency) == 2 - backends
    assert diff.latency_not_comparable[-1].change.ratio is None


def test_what_an_old_core_cannot_tell_is_no_difference() -> None:
    def untold(raw: Json) -> None:
        timed(1, threads=None, jspi=None, wasm_file=None)(raw)
        raw["results"][1].update(
            full_delegation=None, delegation=None, not_reported=["isFullyAccelerated"]
        )

    diff = diff_sweeps([record(edit=untold)], [record(edit=timed(1))])
    assert diff.empty
    assert diff.old_not_reported == ("isFullyAccelerated",)
    assert "Not reported by the cores of old: isFullyAccelerated." in render_markdown(diff)


def test_too_few_samples_are_said_to_be_so() -> None:
    def few(raw: Json) -> None:
        timed(2)(raw)
        for result in raw["results"]:
            result["latency"]["samples_ms"] = result["latency"]["samples_ms"][:5]

    diff = diff_sweeps([record(edit=timed(1))], [record(edit=few)])
    assert {d.change.reason for d in diff.latency_not_comparable} == {
        "too few samples: 10 and 5, 8 are needed"
    }


def delegated(on_gpu: int | None, on_cpu: int | None, *unsupported: str) -> Edit:
    facts = {
        "ops_on_gpu": on_gpu,
        "ops_on_cpu": on_cpu,
        "unsupported": [{"op": op, "reason": "Not supported."} for op in unsupported],
    }
    return gpu(delegation=facts)


def test_operators_that_moved() -> None:
    old = record(edit=delegated(50, 10, "GATHER_ND", "SCATTER_ND"))
    new = record(edit=delegated(55, 5, "SCATTER_ND", "RELU_0_TO_1"))
    (change,) = diff_sweeps([old], [new]).delegation
    assert change.newly_supported == ("GATHER_ND",)
    assert change.newly_unsupported == ("RELU_0_TO_1",)
    assert (change.old_ops_on_gpu, change.new_ops_on_cpu) == (50, 5)
    # An old core that says nothing does not thereby support everything.
    silent = record(edit=delegated(None, None))
    assert diff_sweeps([silent], [new]).delegation == ()
    assert diff_sweeps([new], [silent]).delegation == ()


def graded(grade: str, snr: float, against: str = "wasm") -> Edit:
    def edit(raw: Json) -> None:
        for comparison in raw["results"][1]["comparisons"]:
            comparison["judgement"]["grade"] = grade
            comparison["facts"]["snr_db"] = snr
            comparison["against"] = against

    return edit


def test_numbers_that_moved() -> None:
    old = record(edit=graded("rounding", 120))
    (worse,) = diff_sweeps([old], [record(edit=graded("precision", 118))]).numerics
    assert (worse.better, worse.new_grade, worse.new_snr_db) == (False, "precision", 118)
    (worse,) = diff_sweeps([old], [record(edit=graded("rounding", 113))]).numerics
    assert worse.better is False
    (better,) = diff_sweeps([old], [record(edit=graded("rounding", 127))]).numerics
    assert better.better is True
    assert diff_sweeps([old], [record(edit=graded("rounding", 117))]).empty
    # Against another reference it is another number.
    assert diff_sweeps([old], [record(edit=graded("broken", 1, "desktop"))]).numerics == ()


def test_of_several_environments_the_like_are_paired() -> None:
    mac_old, mac_new = record(edit=timed(1)), record(edit=timed(1.3), core="2.5.4")
    ci = Record.model_validate(make_record("m", rig=0, statuses=("pass", "fallback")))
    diff = diff_sweeps([mac_old, ci], [ci.model_copy(), mac_new])
    # Two like pairs are there; the newer is taken, and never one of each machine.
    assert len(diff.latency) == 2
    assert diff.statuses == ()


def leg(name: str, **fields: Any) -> Edit:
    def edit(raw: Json) -> None:
        raw["config"]["leg"] = {"name": name, **fields}
        for result in raw["results"]:
            result["env"] = {**result["env"], "leg": name, **fields}

    return edit


def test_legs_are_compared_with_their_like_and_listed_by_build() -> None:
    off = leg("jspi-off", jspi=False)
    old = [record(webgpu="run_failed"), record(webgpu="run_failed", edit=off)]
    new = [record(webgpu="fallback"), record(webgpu="run_failed", edit=off)]
    diff = diff_sweeps(old, new)
    assert [(c.leg, c.kind) for c in diff.statuses] == [("default", "improvement")]
    assert {(o.leg, o.jspi, o.status) for o in diff.outcomes} == {
        ("default", True, "run_failed"),
        ("default", True, "fallback"),
        ("jspi-off", False, "run_failed"),
    }
    assert {o.backend for o in diff.outcomes} == {"webgpu_mldrift"}
    (across,) = diff_sweeps([new[0]], [new[1]]).statuses
    assert (across.leg, across.kind) == ("default → jspi-off", "regression")


def test_a_variant_worse_than_its_parent_is_a_finding_once() -> None:
    def variant(factor: float) -> Edit:
        def edit(raw: Json) -> None:
            raw["variant_of"] = "parent"
            timed(factor)(raw)

        return edit

    parent = record("parent", edit=timed(1))
    fine, slow = record("twin", edit=variant(1.5)), record("twin", edit=variant(21))
    diff = diff_sweeps([parent, fine], [parent, slow])
    assert [(s.model_id, s.backend, s.kind) for s in diff.siblings] == [
        ("twin", "wasm_xnnpack", "slower"),
        ("twin", "webgpu_mldrift", "slower"),
    ]
    assert "21.0× slower" in render_markdown(diff)
    assert diff_sweeps([parent, slow], [parent, slow]).siblings == ()
    broken = record("twin", "output_mismatch", edit=variant(1))
    (finding,) = diff_sweeps([parent, fine], [parent, broken]).siblings
    assert (finding.kind, finding.status, finding.parent_status) == (
        "status", "output_mismatch", "pass",
    )  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    write_record(root, record(webgpu="pass", core="2.5.2"))
    write_record(root, record(webgpu="fallback", core="2.5.3"))
    return root


def test_sides(data: Path, tmp_path: Path) -> None:
    def cores(text: str) -> list[str]:
        side = resolve_side(text, data)
        return [r.results[0].env.litertjs_core_version for r in side.records]

    assert cores("2.5.2") == ["2.5.2"]
    assert cores("2.5.3@2026-01-05") == ["2.5.3"]
    assert cores(str(data)) == ["2.5.2", "2.5.3"]
    assert cores(str(data / "2.5.3")) == ["2.5.3"]
    assert cores(str(data / "2.5.3" / "2026-01-05" / "m.json")) == ["2.5.3"]
    with pytest.raises(UsageError, match=r"There are: 2\.5\.2@2026-01-05, 2\.5\.3@2026-01-05"):
        resolve_side("2.5.9", data)
    with pytest.raises(UsageError, match="neither a sweep"):
        resolve_side("2.5.3@2020-01-01", data)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no record"):
        resolve_side(str(tmp_path / "empty"), data)
    (data / "2.5.3" / "2026-01-05" / "torn.json").write_text("{")
    assert "torn.json" in resolve_side("2.5.3", data).problems[0]


def test_the_command(data: Path) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, [*arguments, "--data", str(data)])
        return done.exit_code, done.output

    code, output = run("2.5.2", "2.5.3", "--fail-on", "regression,slower")
    assert code == 4
    assert "Regressions (1)" in output
    assert run("2.5.2", "2.5.3", "--fail-on", "new")[0] == 0
    assert run("2.5.3", "2.5.2", "--fail-on", "regression")[0] == 0
    assert run("2.5.3", "2.5.3", "--fail-on", "regression,new,gone,slower")[0] == 0
    assert run("2.5.2", "2.5.3", "--fail-on", "regresion")[0] != 0

    code, output = run("2.5.2", "2.5.3", "--json")
    value = json.loads(output)
    assert (code, value["empty"]) == (0, False)
    assert [(c["old"], c["new"], c["kind"]) for c in value["statuses"]] == [
        ("pass", "fallback", "regression")
    ]
    code, output = run("2.5.2", "2.5.3", "--md")
    assert output.startswith("# 2.5.2 → 2.5.3\n")
    assert "| m | webgpu_mldrift | pass | fallback |" in output


def test_the_json_is_the_diff(data: Path) -> None:
    old = read_record(data / "2.5.2" / "2026-01-05" / "m.json")
    diff = diff_sweeps([old], [record(webgpu="run_failed")])
    value = json.loads(render_json(diff))
    assert value.pop("empty") is False
    assert SweepDiff.model_validate_json(json.dumps(value)) == diff


def test_texts_from_outside_stay_in_their_cell() -> None:
    bad = record(webgpu="run_failed", edit=gpu(reason="a | b <img src=x>\n# title"))
    page = render_markdown(diff_sweeps([record()], [bad]))
    row, *_ = [line for line in page.splitlines() if line.startswith("| m ")]
    assert "a \\| b \\<img src=x\\> # title" in row

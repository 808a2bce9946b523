from __future__ import annotations

from pathlib import Path

import typer
from typer.testing import CliRunner

from sweep.cli.card import card_command
from sweep.record import Record
from sweep.store import read_record, write_record
from sweep.views.card import card_row, card_section, number_text
from tests.make_records import make_hostile_record, make_record

app = typer.Typer()
app.command()(card_command)

SAM = "sam2.1-hiera-tiny-mask-decoder__sam2_tiny_mask_decoder_fp16"
ENV = "mac-studio-m4-max · chromium 151.0.7922.34 headless · macOS · @litertjs/core 2.5.3"


def test_the_published_rows(shared_dir: Path) -> None:
    run = CliRunner().invoke(app, [SAM, "--data", str(shared_dir / "records" / "sweep")])
    assert run.exit_code == 0, run.output
    assert [line for line in run.output.splitlines() if line.startswith("|")] == [
        "| Backend | Status | Full delegation | Output match | Max rel diff | Latency p50 (ms) "
        "| Environment | Date | Provenance |",
        "|---|---|---|---|---|---|---|---|---|",
        f"| wasm_xnnpack | pass | - | - | - | 396.69 | {ENV} | 2026-08-13 | measured |",
        "| webgpu_mldrift | output_mismatch | yes | MISMATCH | 10099.350182687609 | 8.33 "
        f"| {ENV} | 2026-08-13 | measured |",
    ]
    assert str(shared_dir) not in run.output


def test_a_run_without_a_reference_is_not_a_pass(shared_dir: Path) -> None:
    (path,) = (shared_dir / "records" / "sweep").rglob("moge-2.json")
    assert card_row(read_record(path).results[1])[1:6] == ("unverified", "yes", "-", "-", "77.608")
    assert "the wasm reference did not run (timeout)" in card_section(read_record(path), "x")


def test_the_newest_release_is_shown_unless_another_is_asked_for(tmp_path: Path) -> None:
    for core in ("9.0.0", "10.0.0"):
        write_record(tmp_path, Record.model_validate(make_record("m", core=core)))
    newest = CliRunner().invoke(app, ["m", "--data", str(tmp_path)])
    assert "@litertjs/core 10.0.0 |" in newest.output
    older = CliRunner().invoke(app, ["m", "--data", str(tmp_path), "--core", "9.0.0"])
    assert "@litertjs/core 9.0.0 |" in older.output
    absent = CliRunner().invoke(app, ["m", "--data", str(tmp_path), "--core", "8.0.0"])
    assert "It has: 9.0.0 2026-01-05 default, 10.0.0" in str(absent.exception)


def test_software_adapters_are_marked_where_there_is_a_latency() -> None:
    software = Record.model_validate(make_record("m", rig=0, statuses=("pass", "pass")))
    assert "timed on a software adapter (google swiftshader)" in card_section(software, "x")
    hardware = Record.model_validate(make_record("m", rig=1, statuses=("pass", "pass")))
    assert "software adapter" not in card_section(hardware, "x")


def test_texts_from_outside_stay_in_their_cell() -> None:
    raw = make_hostile_record()
    raw["results"][0]["env"]["machine_label"] = "a|b\n| c"
    text = card_section(Record.model_validate(raw), "x")
    row = next(line for line in text.splitlines() if line.startswith("| wasm_xnnpack"))
    assert row.replace("\\|", "").count("|") == 10
    assert "<" not in text.replace("\\<", "")


def test_numbers_keep_all_their_digits() -> None:
    assert [number_text(n) for n in (None, 52.0, 396.69, 1e-07, 10099.350182687609, 2e22)] == [
        "-", "52", "396.69", "1e-07", "10099.350182687609", "2e+22",
    ]  # fmt: skip

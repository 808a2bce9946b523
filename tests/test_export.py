from __future__ import annotations

import csv
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from sweep.cli.export import export_command
from sweep.cli.import_ import import_command
from sweep.export import COLUMNS, columns_markdown
from sweep.record import Record
from sweep.record_v1 import dump_v1
from sweep.store import iter_records, read_record, write_record
from sweep.views.card import card_section
from tests.make_records import make_record

export_app = typer.Typer()
export_app.command()(export_command)
import_app = typer.Typer()
import_app.command()(import_command)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    for core in ("2.0.0", "2.5.3"):
        for index, status in enumerate(("pass", "fallback", "output_mismatch", "run_failed")):
            raw = make_record(f"m{index}", index=index, core=core, statuses=("pass", status))
            for comparison in raw["results"][1]["comparisons"][1:]:
                comparison["facts"]["snr_db"] = 1.5
            if core == "2.0.0":
                raw["results"] = raw["results"][:1]
            write_record(root, Record.model_validate(raw))
    return root


def export(data: Path, out: Path, form: str, *more: str) -> None:
    run = CliRunner().invoke(export_app, [str(out), "--format", form, "--data", str(data), *more])
    assert run.exit_code == 0, (run.output, run.exception)


def table_rows(markdown: str) -> list[str]:
    return [line for line in markdown.splitlines() if line.startswith(("| wasm", "| webgpu"))]


def enrich(sweep: Path, cards: Path, model_ids: list[str]) -> dict[str, str]:
    """Run the `edge-card enrich` of edge-compat over bare cards; the CARD.md of each."""
    if importlib.util.find_spec("litert_compat") is None:
        pytest.skip("edge-compat is not installed")
    for model_id in model_ids:
        card = {
            "schema_version": "1.0",
            "model": {"id": model_id, "family": "f", "task": "t", "source_url": "u",
                      "license": "l"},
            "conversion": {"tool": "t", "tool_version": "1", "command": "c",
                           "quantization": "none"},
            "artifacts": [{"file": "m.tflite", "sha256": "0" * 64, "size_mb": 1}],
            "benchmarks": [], "delegation": None, "cross_runtime": [], "pitfalls": [],
        }  # fmt: skip
        path = cards / model_id / "card.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(card))
    program = "from litert_compat.cards.cli import app; app()"
    done = subprocess.run(
        [sys.executable, "-c", program, "enrich", "--sweep", str(sweep), str(cards)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"enriched {len(model_ids)} of {len(model_ids)} card(s)" in done.stdout
    return {m: (cards / m / "CARD.md").read_text() for m in model_ids}


def test_edge_compat_renders_our_table(data: Path, tmp_path: Path) -> None:
    export(data, tmp_path / "out", "edge-compat")
    ids = ["m0", "m1", "m2", "m3"]
    rendered = enrich(tmp_path / "out", tmp_path / "repo" / "cards", ids)
    for model_id in ids:
        record = read_record(data / "2.5.3" / "2026-01-05" / f"{model_id}.json")
        ours = table_rows(card_section(record, "x"))
        assert len(ours) == 2
        assert table_rows(rendered[model_id]) == ours


def test_edge_compat_renders_our_table_of_real_records(shared_dir: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke(
        import_app, [str(shared_dir / "records" / "sweep"), "--out", str(tmp_path / "data")]
    )
    assert run.exit_code == 0, run.output
    export(tmp_path / "data", tmp_path / "out", "edge-compat")
    originals = {p.stem: p for p in (shared_dir / "records" / "sweep").rglob("*.json")}
    assert {p.stem for p in (tmp_path / "out").iterdir()} == set(originals)
    for model_id, path in originals.items():
        assert (tmp_path / "out" / f"{model_id}.json").read_bytes() == path.read_bytes()
    rendered = enrich(tmp_path / "out", tmp_path / "repo" / "cards", sorted(originals))
    for model_id, path in originals.items():
        ours = table_rows(card_section(read_record(path), "x"))
        theirs = table_rows(rendered[model_id])
        if model_id == "moge-2":  # 1.0 has no word for "compared with nothing"
            ours[1] = ours[1].replace("| unverified |", "| pass |")
        assert theirs == ours


def test_csv_has_one_row_per_model_backend_and_sweep(data: Path, tmp_path: Path) -> None:
    export(data, tmp_path / "t.csv", "csv")
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [column.name for column in COLUMNS]
    keys = [(r["model_id"], r["backend"], r["core_version"]) for r in rows]
    assert len(set(keys)) == len(keys) == 4 + 8
    (row,) = [r for r in rows if r["status"] == "output_mismatch"]
    record = read_record(data / "2.5.3" / "2026-01-05" / f"{row['model_id']}.json")
    gpu = record.results[1]
    assert float(row["latency_p50_ms"]) == gpu.latency_p50_ms
    assert float(row["snr_db_min"]) == 1.5
    assert (row["loads"], row["output_match"], row["failure_class"]) == ("true", "false", "")
    assert row["adapter_class"] == "software"
    (failed,) = [r for r in rows if r["status"] == "run_failed"]
    assert (failed["failure_class"], failed["latency_p50_ms"]) == ("run_error", "")


def test_parquet_says_the_same_in_types(data: Path, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    export(data, tmp_path / "t.parquet", "parquet", "--core", "2.5.3")
    table = pq.read_table(tmp_path / "t.parquet")
    assert table.num_rows == 8
    assert table.schema.field("latency_p50_ms").type == "double"
    assert table.schema.field("loads").type == "bool"
    by_status = {r["status"]: r for r in table.to_pylist() if r["backend"] == "webgpu_mldrift"}
    assert by_status["run_failed"]["latency_p50_ms"] is None
    assert by_status["fallback"]["ops_on_cpu"] == 7


def test_bad_files_are_named_and_the_rest_exported(data: Path, tmp_path: Path) -> None:
    (data / "2.5.3" / "2026-01-05" / "torn.json").write_text("{")
    run = CliRunner().invoke(
        export_app, [str(tmp_path / "t.csv"), "--format", "csv", "--data", str(data)]
    )
    assert run.exit_code == 1
    assert "torn.json" in run.output
    assert (tmp_path / "t.csv").read_text().count("\n") == 13


def test_import_writes_2_0_records_in_their_place(tmp_path: Path) -> None:
    source = tmp_path / "old"
    source.mkdir()
    raw = make_record("m", statuses=("pass", "fallback"))
    original = dump_v1(Record.model_validate(raw))
    (source / "m.json").write_bytes(original)
    (source / "torn.json").write_text("{")
    run = CliRunner().invoke(import_app, [str(source), "--out", str(tmp_path / "data")])
    assert run.exit_code == 1
    assert "torn.json: not JSON" in run.output
    (found,) = iter_records(tmp_path / "data")
    assert found.path == tmp_path / "data" / "2.5.3" / "2026-01-05" / "m.json"
    assert json.loads(found.path.read_bytes())["schema_version"] == "2.0"
    assert [r.status for r in read_record(found.path).results] == ["pass", "fallback"]
    assert dump_v1(read_record(found.path)) == original


def test_the_columns_are_documented() -> None:
    page = (Path(__file__).parents[1] / "docs" / "export.md").read_text()
    assert page.endswith(columns_markdown()), "docs/export.md does not list COLUMNS as they are"

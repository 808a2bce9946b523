"""Export: records in the forms that other tools read.

- `edge-compat`: strict 1.0 records, one file per model in one directory, as the PyPI package
  `edge-compat` reads them (`edge-card enrich --sweep OUT cards/`).
- `csv`, `parquet`: one row per model × backend × sweep with the columns of COLUMNS.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from sweep.errors import StoreError, UsageError
from sweep.record import Record, Result
from sweep.record_v1 import dump_v1
from sweep.store import StoredRecord, explain, leg_of, version_key, write_atomic

ColumnType = Literal["text", "integer", "number", "flag"]
Cell = str | int | float | bool | None


class Column(NamedTuple):
    """One column of the tables; None (empty in CSV, null in Parquet): not measured or reported."""

    name: str
    type: ColumnType
    description: str
    read: Callable[[Record, Result], Cell]


def _joined(values: Iterable[str]) -> str | None:
    return ";".join(values) or None


def _worst(pick: Callable[[Any], float | None], worst: Callable[..., float]) -> Any:
    """The worst value of one fact over all comparisons of a result."""

    def read(_: Record, result: Result) -> float | None:
        values = [v for c in result.comparisons if (v := pick(c.facts)) is not None]
        return worst(values) if values else None

    return read


def _delegation(name: str) -> Callable[[Record, Result], Cell]:
    def read(_: Record, result: Result) -> Cell:
        value: Cell = getattr(result.delegation, name) if result.delegation else None
        return value

    return read


def _latency(name: str) -> Callable[[Record, Result], Cell]:
    def read(_: Record, result: Result) -> Cell:
        value: Cell = getattr(result.latency, name) if result.latency else None
        return value

    return read


def _unsupported(_: Record, result: Result) -> str | None:
    facts = result.delegation
    return _joined(sorted({u.op for u in facts.unsupported})) if facts else None


COLUMNS: tuple[Column, ...] = (
    Column("model_id", "text", "Model id of the catalog.", lambda r, x: r.model_id),
    Column("backend", "text", "`wasm_xnnpack`, `webgpu_mldrift` or `webnn`.",
           lambda r, x: x.backend),
    Column("core_version", "text", "Version of `@litertjs/core` under test.",
           lambda r, x: x.env.litertjs_core_version),
    Column("date", "text", "Date of the result, YYYY-MM-DD.", lambda r, x: x.date),
    Column("leg", "text", "Leg of the sweep, `default` where none was named.",
           lambda r, x: leg_of(r)),
    Column("status", "text", "The verdict.", lambda r, x: x.status),
    Column("failure_class", "text", "Why it failed, in the terms of 2.0.",
           lambda r, x: x.failure_class),
    Column("cause", "text", "What kind of mismatch it looks like.", lambda r, x: x.cause),
    Column("grade", "text", "Worst grade over all outputs.", lambda r, x: x.grade),
    Column("flags", "text", "Flags, joined by `;`.", lambda r, x: _joined(x.flags)),
    Column("loads", "flag", "The model loaded and compiled.", lambda r, x: x.loads),
    Column("runs", "flag", "One inference was completed.", lambda r, x: x.runs),
    Column("full_delegation", "flag", "The whole graph ran on the accelerator.",
           lambda r, x: x.full_delegation),
    Column("output_match", "flag", "Outputs match the reference under the tolerance policy.",
           lambda r, x: x.output_match),
    Column("max_abs_diff", "number", "max |out − ref|, in units of the output.",
           lambda r, x: x.max_abs_diff),
    Column("max_rel_diff", "number", "max |out − ref| / max(|ref|, 1e-9).",
           lambda r, x: x.max_rel_diff),
    Column("nrmse_max", "number", "Largest RMSE / RMS of the reference over all comparisons.",
           _worst(lambda f: f.nrmse, max)),
    Column("snr_db_min", "number", "Smallest signal-to-noise ratio over all comparisons, dB.",
           _worst(lambda f: f.snr_db, min)),
    Column("ops_on_gpu", "integer", "Operators that run on the GPU.", _delegation("ops_on_gpu")),
    Column("ops_on_cpu", "integer", "Operators that run on the CPU.", _delegation("ops_on_cpu")),
    Column("unsupported_ops", "text", "Operators the GPU delegate refused, joined by `;`.",
           _unsupported),
    Column("latency_p50_ms", "number", "Median of the timed runs, readback included, ms.",
           lambda r, x: x.latency_p50_ms),
    Column("latency_p90_ms", "number", "90th percentile of the timed runs, ms.",
           _latency("p90_ms")),
    Column("latency_ci99_low_ms", "number", "Lower end of the median's 99 % interval, ms.",
           _latency("ci99_low_ms")),
    Column("latency_ci99_high_ms", "number", "Upper end of the median's 99 % interval, ms.",
           _latency("ci99_high_ms")),
    Column("latency_samples", "integer", "Number of timed samples kept.",
           lambda r, x: len(x.latency.samples_ms) if x.latency else None),
    Column("first_run_ms", "number", "First inference after compiling, ms.",
           _latency("first_run_ms")),
    Column("compile_ms", "number", "Loading and compiling in the page, ms.",
           _latency("compile_ms")),
    Column("machine_label", "text", "Name of the machine.", lambda r, x: x.env.machine_label),
    Column("browser", "text", "Browser.", lambda r, x: x.env.browser),
    Column("browser_version", "text", "Its version.", lambda r, x: x.env.browser_version),
    Column("headless", "flag", "Without a window.", lambda r, x: x.env.headless),
    Column("os", "text", "Operating system.", lambda r, x: x.env.os),
    Column("adapter_class", "text", "`hardware`, `software` or `none`. Never compare the latency "
           "of one with that of another.", lambda r, x: x.env.adapter_class),
    Column("adapter", "text", "Vendor and architecture of the WebGPU adapter.",
           lambda r, x: _joined(
               part for part in (x.env.webgpu_adapter.vendor, x.env.webgpu_adapter.architecture)
               if part) if x.env.webgpu_adapter else None),
    Column("jspi", "flag", "The JSPI build was active.", lambda r, x: x.env.jspi),
    Column("threads", "integer", "Threads of the runtime.", lambda r, x: x.env.threads),
    Column("wasm_file", "text", "The wasm that was really fetched.", lambda r, x: x.env.wasm_file),
    Column("model_sha256", "text", "SHA-256 of the model file.",
           lambda r, x: r.model.sha256 if r.model else None),
    Column("model_bytes", "integer", "Size of the model file.",
           lambda r, x: r.model.bytes if r.model else None),
    Column("tags", "text", "Tags of the catalog, joined by `;`.", lambda r, x: _joined(r.tags)),
    Column("variant_of", "text", "The model this one is a variant of.",
           lambda r, x: r.variant_of),
    Column("provenance", "text", "`measured`, or `example` for synthetic fixtures.",
           lambda r, x: x.provenance),
    Column("schema_version", "text", "Format the record was made in: `1.0` for imported ones.",
           lambda r, x: r.imported_from or r.schema_version),
)  # fmt: skip


def export_rows(records: Iterable[Record]) -> Iterator[dict[str, Cell]]:
    """One row per model × backend × sweep, in the order of the records."""
    for record in records:
        for result in record.results:
            yield {column.name: column.read(record, result) for column in COLUMNS}


def export_csv(records: Iterable[Record], path: Path) -> int:
    """Write rows as CSV (UTF-8, a header line, `true`/`false`, empty for None); their number."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [column.name for column in COLUMNS], lineterminator="\n")
    writer.writeheader()
    count = 0
    for row in export_rows(records):
        writer.writerow({k: str(v).lower() if isinstance(v, bool) else v for k, v in row.items()})
        count += 1
    write_atomic(path, text.getvalue().encode())
    return count


def export_parquet(records: Iterable[Record], path: Path) -> int:
    """Write rows as Parquet with typed columns; their number. Needs pyarrow."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise UsageError(
            "Parquet needs pyarrow: install `litertjs-sweep[analysis]`, or use --format csv."
        ) from error
    types = {
        "text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "flag": pa.bool_(),
    }  # fmt: skip
    schema = pa.schema([(column.name, types[column.type]) for column in COLUMNS])
    table = pa.Table.from_pylist(list(export_rows(records)), schema=schema)
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    write_atomic(path, buffer.getvalue())
    return int(table.num_rows)


def newest_per_model(stored: Iterable[StoredRecord]) -> tuple[Record, ...]:
    """Per model id the record of the newest core version, of that the newest date; sorted by id."""
    newest: dict[str, tuple[tuple[Any, ...], Record]] = {}
    for one in stored:
        first = one.record.results[0]
        key = (version_key(first.env.litertjs_core_version), first.date)
        if one.record.model_id not in newest or key >= newest[one.record.model_id][0]:
            newest[one.record.model_id] = (key, one.record)
    return tuple(record for _, (_, record) in sorted(newest.items()))


def export_edge_compat(records: Sequence[Record], directory: Path) -> tuple[Path, ...]:
    """Write strict 1.0 records as `<directory>/<model_id>.json`; their paths.

    StoreError when two are of one model (that format has one file per model and directory), or
    when a record has no 1.0 form.
    """
    ids = [record.model_id for record in records]
    twice = sorted({model_id for model_id in ids if ids.count(model_id) > 1})
    if twice:
        raise StoreError(f"several records of {', '.join(twice)}: choose one sweep of them.")
    dumped: dict[Path, bytes] = {}
    for record in records:
        try:
            dumped[directory / f"{record.model_id}.json"] = dump_v1(record)
        except ValidationError as error:
            raise StoreError(
                f"{record.model_id} cannot be written as a 1.0 record: {explain(error)}"
            ) from error
    for path, content in dumped.items():
        write_atomic(path, content)
    return tuple(dumped)


def columns_markdown() -> str:
    """The columns as a markdown table: part of `docs/export.md`, which a test keeps in step."""
    rows = (f"| `{c.name}` | {c.type} | {c.description} |" for c in COLUMNS)
    return "\n".join(("| column | type | meaning |", "|---|---|---|", *rows)) + "\n"

"""The dashboard's index: records in, compact columnar JSON out (pure; no files are touched).

The first view of 5,000 models × 20 sweeps must not read 100,000 records, so they are folded here
into tables of parallel columns:

- `index`     sweeps, environments, models, and the *rows* of the matrix; a row is one model × one
              backend × one rig (an environment without its browser and OS versions, so that a
              history can be followed), and is known everywhere by its position;
- `latest`    the newest result of each row; `slice/<n>`: the results of sweep n;
- `history`   per sweep one character per row: the position of its status in `statuses`, `.` = none;
- `envs`      the environments in full;
- `model/<id>`  what the model page needs before it opens a single record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from sweep.store import version_key
from sweep.views.site_environment import (
    EnvironmentTable,
    adapter_kind,
    browser_label,
    environment_identity,
    environment_label,
    machine_label,
)
from sweep.views.site_summary import (
    BACKENDS,
    GRADES,
    STATUS_NAMES,
    RecordSummary,
    ResultSummary,
)

Json = dict[str, Any]


class SiteIndex(NamedTuple):
    """`files`: data key → JSON value, but for the models, made one at a time by `model_file`."""

    files: dict[str, Json]
    newest: dict[str, dict[int, list[str]]]
    """Core version → rig → places of the newest record of each model, by model id."""
    model_ids: tuple[str, ...]
    model_file: Callable[[str], Json]


class _Cell(NamedTuple):
    result: ResultSummary
    record: RecordSummary


class _Row(NamedTuple):
    model: str
    backend: int
    rig: int


def build_index(summaries: Iterable[RecordSummary], table: EnvironmentTable) -> SiteIndex:
    """Columns of the dashboard from the summaries, whatever order they come in.

    When two records give the same row in the same sweep, the one whose path sorts last is shown.
    """
    by_place = sorted(summaries, key=lambda s: s.place)
    rigs, rig_of_env, env_order = _order_environments(table)
    renumber = {old: new for new, old in enumerate(env_order)}
    sweeps = sorted({(s.core, s.date) for s in by_place}, key=lambda k: (version_key(k[0]), k[1]))
    sweep_number = {key: n for n, key in enumerate(sweeps)}

    cells: dict[_Row, dict[int, _Cell]] = {}
    models: dict[str, list[RecordSummary]] = {}
    for summary in by_place:
        models.setdefault(summary.model_id, []).append(summary)
        number = sweep_number[summary.core, summary.date]
        for result in summary.results:
            row = _Row(summary.model_id, result.backend, rig_of_env[result.env])
            moved = result._replace(env=renumber[result.env])
            cells.setdefault(row, {})[number] = _Cell(moved, summary)

    rows = sorted(cells)
    ids = tuple(sorted(models))
    newest = {m: max(models[m], key=lambda s: sweep_number[s.core, s.date]) for m in ids}
    classes = sorted({r.failure_class for s in by_place for r in s.results if r.failure_class})
    tags = sorted({tag for s in newest.values() for tag in s.tags})
    operators = sorted({op for s in newest.values() for op in s.operators})
    position = {model: n for n, model in enumerate(ids)}
    numbers = _Numbers(
        classes={name: n for n, name in enumerate(classes)},
        files={m: _numbered(s.file for s in models[m]) for m in ids},
        bases={m: _numbered(s.basis for s in models[m]) for m in ids},
    )

    index: Json = {
        "format": 1,
        "records": len(by_place),
        "statuses": STATUS_NAMES,
        "grades": GRADES,
        "backends": BACKENDS,
        "classes": classes,
        "tags": tags,
        "operators": operators,
        "sweeps": [
            {"core": core, "date": day, "models": count}
            for (core, day), count in zip(sweeps, _models_per_sweep(by_place, sweeps), strict=True)
        ],
        "envs": [
            {
                "label": environment_label(table.environments[old]),
                "machine": machine_label(table.environments[old]),
                "browser": browser_label(table.environments[old]),
                "kind": adapter_kind(table.environments[old]),
                "rig": rig_of_env[old],
            }
            for old in env_order
        ],
        "rigs": rigs,
        "models": {
            "id": ids,
            "tags": [_positions(newest[m].tags, tags) for m in ids],
            "ops": [_positions(newest[m].operators, operators) for m in ids],
            "bytes": [newest[m].bytes for m in ids],
        },
        "rows": {
            "model": [position[row.model] for row in rows],
            "backend": "".join(str(row.backend) for row in rows),
            "rig": [row.rig for row in rows],
        },
    }
    files: dict[str, Json] = {"index": index}
    latest = [max(cells[row]) for row in rows]
    files["latest"] = {
        "sweep": latest,
        **_columns([(n, cells[row][latest[n]]) for n, row in enumerate(rows)], numbers),
    }
    history = []
    for number in range(len(sweeps)):
        present = [(n, cells[row][number]) for n, row in enumerate(rows) if number in cells[row]]
        files[f"slice/{number}"] = {
            "row": [n for n, _ in present],
            **_columns(present, numbers),
        }
        line = ["."] * len(rows)
        for n, cell in present:
            line[n] = str(cell.result.status)
        history.append("".join(line))
    files["history"] = {"status": history}
    files["envs"] = {
        "envs": [table.environments[old].model_dump(mode="json") for old in env_order],
        "sweeps": _sweeps_per_environment(cells, len(env_order)),
    }

    rows_of: dict[str, list[int]] = {}
    for n, row in enumerate(rows):
        rows_of.setdefault(row.model, []).append(n)

    def model_file(model_id: str) -> Json:
        mine = rows_of[model_id]
        return _model_file(newest[model_id], mine, [cells[rows[n]] for n in mine], numbers.classes)

    newest_places = _newest_places(by_place, rig_of_env)
    return SiteIndex(files, newest_places, ids, model_file)


def _newest_places(
    by_place: Sequence[RecordSummary], rig_of_env: Sequence[int]
) -> dict[str, dict[int, list[str]]]:
    found: dict[str, dict[int, dict[str, RecordSummary]]] = {}
    for summary in by_place:
        rig = rig_of_env[summary.results[0].env]
        of_rig = found.setdefault(summary.core, {}).setdefault(rig, {})
        known = of_rig.get(summary.model_id)
        if known is None or known.date <= summary.date:
            of_rig[summary.model_id] = summary
    return {
        core: {rig: [of[m].place for m in sorted(of)] for rig, of in sorted(rigs.items())}
        for core, rigs in found.items()
    }


class _Numbers(NamedTuple):
    """Small numbers for long texts; files and bases are numbered per model."""

    classes: dict[str, int]
    files: dict[str, dict[str, int]]
    bases: dict[str, dict[str, int]]


def _numbered(texts: Iterable[str | None]) -> dict[str, int]:
    return {text: n for n, text in enumerate(sorted({t for t in texts if t is not None}))}


def _order_environments(table: EnvironmentTable) -> tuple[list[Json], list[int], list[int]]:
    """Environments and rigs in an order that does not depend on the order of arrival."""
    order = sorted(
        range(len(table.environments)),
        key=lambda n: (environment_label(table.environments[n]), table.rig_keys[n],
                       environment_identity(table.environments[n])),
    )  # fmt: skip
    number: dict[str, int] = {}
    rigs: list[Json] = []
    for n in order:
        if number.setdefault(table.rig_keys[n], len(rigs)) == len(rigs):
            env = table.environments[n]
            rigs.append(
                {"label": environment_label(env, versions=False), "kind": adapter_kind(env)}
            )
    return rigs, [number[key] for key in table.rig_keys], order


def _columns(cells: Sequence[tuple[int, _Cell]], numbers: _Numbers) -> Json:
    """One slice as parallel columns; one-digit columns are strings, `.` where nothing is known."""
    results = [cell.result for _, cell in cells]
    records = [cell.record for _, cell in cells]
    return {
        "status": "".join(str(r.status) for r in results),
        "grade": "".join("." if r.grade is None else str(r.grade) for r in results),
        "example": "".join("1" if r.example else "0" for r in results),
        "class": [-1 if r.failure_class is None else numbers.classes[r.failure_class]
                  for r in results],
        "share": [r.share for r in results],
        "p50": [r.p50 for r in results],
        "env": [r.env for r in results],
        "file": [-1 if r.file is None else numbers.files[r.model_id][r.file] for r in records],
        "basis": [numbers.bases[r.model_id][r.basis] for r in records],
    }  # fmt: skip


_HISTORY_COLUMNS = (
    "row", "sweep", "dir", "status", "class", "grade", "share", "p50", "low", "high", "first",
    "samples", "env", "example",
)  # fmt: skip


def _model_file(
    newest: RecordSummary,
    rows: Sequence[int],
    cells: Sequence[dict[int, _Cell]],
    classes: dict[str, int],
) -> Json:
    places = sorted({s.place for line in cells for _, s in line.values()})
    values: list[list[object]] = []
    for n, line in zip(rows, cells, strict=True):
        for number in sorted(line):
            r, summary = line[number]
            values.append([
                n, number, places.index(summary.place), r.status,
                None if r.failure_class is None else classes[r.failure_class], r.grade, r.share,
                r.p50, r.ci_low, r.ci_high, r.first_run, r.samples, r.env, int(r.example),
            ])  # fmt: skip
    return {
        "id": newest.model_id,
        "source": newest.source,
        "license": newest.license,
        "notes": newest.notes,
        "tags": newest.tags,
        "variant_of": newest.variant_of,
        "bytes": newest.bytes,
        "places": places,
        "columns": _HISTORY_COLUMNS,
        "history": values,
    }


def _models_per_sweep(
    summaries: Iterable[RecordSummary], sweeps: Sequence[tuple[str, str]]
) -> list[int]:
    models: dict[tuple[str, str], set[str]] = {key: set() for key in sweeps}
    for summary in summaries:
        models[summary.core, summary.date].add(summary.model_id)
    return [len(models[key]) for key in sweeps]


def _sweeps_per_environment(
    cells: dict[_Row, dict[int, _Cell]], count: int
) -> list[list[list[int]]]:
    """Per environment: [sweep, results] pairs, oldest sweep first."""
    tally: list[dict[int, int]] = [{} for _ in range(count)]
    for line in cells.values():
        for number, (result, _) in line.items():
            tally[result.env][number] = tally[result.env].get(number, 0) + 1
    return [[[n, t[n]] for n in sorted(t)] for t in tally]


def _positions(values: Sequence[str], universe: Sequence[str]) -> list[int]:
    return sorted({bisect_left(universe, value) for value in values})

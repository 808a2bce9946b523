"""How long models will take, by what records of earlier sweeps on this machine say."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sweep.config import SweepConfig
from sweep.errors import SweepError
from sweep.record import Record, Result
from sweep.store import list_sweeps, read_record

OVERHEAD_S = 0.5
"""Per backend: page, transfer, comparison, desktop reference. The running sweep corrects it."""
PATIENCE_S = 3.0
"""Reading earlier records ends here: an estimate is not worth a wait."""


def expected_seconds(
    out: Path, model_ids: Sequence[str], machine_label: str, config: SweepConfig
) -> dict[str, float]:
    """Seconds per model, from its newest record of this machine; models without one are absent."""
    deadline = time.monotonic() + PATIENCE_S
    wanted = set(model_ids)
    found: dict[str, float] = {}
    for sweep in reversed(list_sweeps(out)):
        for model_id in wanted.intersection(sweep.model_ids) - found.keys():
            if time.monotonic() > deadline:
                return found
            try:
                record = read_record(sweep.path / f"{model_id}.json")
            except SweepError:
                continue
            if any(result.env.machine_label == machine_label for result in record.results):
                found[model_id] = _seconds(record, config)
    return found


def _seconds(record: Record, config: SweepConfig) -> float:
    backends = [r for r in record.results if r.backend in config.backends]
    return sum(OVERHEAD_S + _result_seconds(record, result, config) for result in backends)


def _result_seconds(record: Record, result: Result, config: SweepConfig) -> float:
    if result.failure_class == "timeout" and result.failed_stage is not None:
        return float(getattr(config.timeouts, result.failed_stage))
    latency = result.latency
    if latency is None:
        return 0.0
    once = [latency.fetch_ms, latency.compile_ms, latency.first_run_ms]
    total = sum(ms for ms in once if ms is not None) + sum(latency.warmup_ms)
    each = latency.p50_ms or latency.first_run_ms or 0.0
    if config.latency:
        timed = min(each * latency.batch * config.timed_runs, config.timed_budget * 1000)
        total += timed
    # Every input set and signature is run twice; a record names the sets it had.
    total += 2 * each * max((record.config.input_sets or 1) - 1, 0)
    return total / 1000


def remaining_seconds(
    expected: Mapping[str, float], done: Mapping[str, float], left: Iterable[str]
) -> float | None:
    """Seconds that the models in `left` will take; None while nothing is known of any model.

    `expected` is scaled by how the models that are done (seconds each) compare with it; a model
    without an expectation counts as the mean of those done, or else of those expected.
    """
    known = [(done[m], expected[m]) for m in done if expected.get(m, 0) > 0]
    scale = sum(took for took, _ in known) / sum(guess for _, guess in known) if known else 1.0
    pool = list(done.values()) or [guess * scale for guess in expected.values()]
    if not pool:
        return None
    mean = sum(pool) / len(pool)
    return sum(expected[m] * scale if m in expected else mean for m in left)

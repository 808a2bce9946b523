"""The lab: runs a model, whole or cut, on the backend under triage and on the desktop reference.

A trial is judged by the very rules of a sweep (`verify`, `classify`), so that a reproducer which
fails here also fails there.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sweep.bench import Bench
from sweep.classify import classify
from sweep.config import Backend, Leg
from sweep.console import ConsoleFacts, read_console
from sweep.errors import ModelError
from sweep.model import ModelFacts, inspect_model
from sweep.patterns import ErrorPattern, describe_error
from sweep.protocol import Job, Measurement
from sweep.record import ComparisonRecord
from sweep.reference import Kernels, measure_noise_floor
from sweep.scratch import scratch_prefix
from sweep.session import PageSession
from sweep.tolerance import GUARD_RAILS, is_mismatch
from sweep.verdict import Verdict, VerdictContext
from sweep.verify import Outputs, SetKey, Verified, measured_outputs, precision_in_use, verify

Array = np.ndarray[Any, np.dtype[Any]]
InputSet = Mapping[str, Mapping[str, Array]]
"""Signature key → input name → array."""

DESKTOP_TIMEOUT = 120.0
LARGEST_KEPT = 64 * 2**20
"""Bytes of outputs that a trial keeps for looking at their pattern."""


@dataclass(frozen=True)
class Trial:
    """What one model on some input sets gave."""

    verdict: Verdict
    measurement: Measurement
    console: ConsoleFacts
    verified: Verified | None
    facts: ModelFacts | None
    reference: Mapping[SetKey, Outputs] | None
    outputs: Mapping[SetKey, Mapping[str, Array]] = field(default_factory=dict)
    """Copies; empty where nothing ran or there is too much of it."""

    @property
    def comparisons(self) -> tuple[ComparisonRecord, ...]:
        """All outputs of all sets against the reference in use."""
        return self.verified.comparisons if self.verified else ()

    @property
    def wrong(self) -> tuple[ComparisonRecord, ...]:
        """Those that mismatch."""
        return tuple(c for c in self.comparisons if is_mismatch(c.judgement.grade))

    @property
    def worst(self) -> ComparisonRecord | None:
        """The wrong output with the largest error; None when nothing is wrong."""
        return max(self.wrong, key=error_size, default=None)

    @property
    def nrmse(self) -> float | None:
        """Of the worst output, right or wrong; None where it has none."""
        worst = max(self.comparisons, key=error_size, default=None)
        return worst.facts.nrmse if worst else None

    @property
    def max_abs(self) -> float | None:
        """Largest absolute error over all outputs."""
        found = [c.facts.max_abs for c in self.comparisons if c.facts.max_abs is not None]
        return max(found, default=None)

    def pattern(self) -> ErrorPattern:
        """What kind of wrong the worst output is."""
        worst = self.worst
        if worst is None:
            return ErrorPattern(kind="none", evidence="nothing is wrong")
        return self.pattern_of(worst)

    def pattern_of(self, comparison: ComparisonRecord) -> ErrorPattern:
        """What kind of wrong one output is."""
        key = (comparison.signature, comparison.input_set)
        out = self.outputs.get(key, {}).get(comparison.output)
        ref = (self.reference or {}).get(key, {}).get(comparison.output)
        if out is None or ref is None:
            return ErrorPattern(kind="none", evidence="the values were not kept")
        return describe_error(out, ref)


def error_size(comparison: ComparisonRecord) -> float:
    """For sorting: normalised RMSE, infinite where no number would do."""
    facts = comparison.facts
    if facts.nrmse is not None and not facts.nonfinite_positions_differ:
        return facts.nrmse
    return float("inf") if is_mismatch(comparison.judgement.grade) else 0.0


@dataclass
class Lab:
    """Runs trials, one at a time, in a page that is used again until a fresh one is asked for."""

    bench: Bench
    backend: Backend
    directory: Path
    use_desktop: bool = True
    """False: the desktop cannot run the model, wasm in the same browser is the reference."""
    repeats: int = 1
    """How often each input set is run within a trial: more where the fault comes and goes."""
    wasm_agrees: bool = False
    """Wasm is not under triage, and agrees with the desktop reference on the whole model."""
    runs: int = 0

    async def run(
        self,
        model: Path | bytes,
        sets: Sequence[InputSet],
        *,
        fresh: bool = False,
        leg: Leg | None = None,
        session: PageSession | None = None,
        backend: Backend | None = None,
    ) -> Trial:
        """Runs one model on some input sets; never raises for what the model does.

        Args:
            fresh: in a page of its own.
            leg: another way of running (needs its own `session`).
            session: another page, e.g. with another release.
            backend: another backend than the one under triage.
        """
        target = backend or self.backend
        path = self._saved(model)
        try:
            facts = await asyncio.to_thread(inspect_model, path)
        except ModelError as error:
            return _unreadable(target, error)
        if session is None:
            if fresh:
                await self.bench.recycle(target)
            session = self.bench.session(target)
        sets = tuple(one for one in sets for _ in range(self.repeats))
        measurement = await self._measure(session, path, facts, sets, target, leg)
        console = read_console(measurement.console, dropped=measurement.console_dropped)
        ran = measurement.error is None and bool(measurement.runs)
        reference, against = (
            await self._reference(path, facts, sets, target) if ran else (None, "desktop")
        )
        config = self.bench.config
        if leg is not None:
            config = config.model_copy(update={"leg": leg})

        async def judged(floors: Any) -> Verified:
            return await asyncio.to_thread(
                verify,
                measurement,
                facts,
                config,
                wasm=reference if against == "wasm" else None,
                desktop=reference if against == "desktop" else None,
                floors=floors,
            )

        verified = await judged({})
        precision = precision_in_use(facts, config.leg.precision)
        doubtful = [
            c
            for c in verified.comparisons
            if is_mismatch(c.judgement.grade) and error_size(c) <= GUARD_RAILS[precision].cap
        ]
        if doubtful and against == "desktop" and self.bench.desktop is not None:
            floors = await measure_noise_floor(
                self.bench.desktop, path, sets[0], precision, timeout=DESKTOP_TIMEOUT
            )
            verified = await judged(floors)
        verdict = classify(
            measurement,
            console,
            verified.comparisons,
            VerdictContext(
                backend=target,
                wasm_sound=against == "wasm" and reference is not None,
                model_bytes=facts.bytes,
                desktop_status="ok" if against == "desktop" and reference else "failed",
                identical_to_wasm=verified.identical_to_wasm,
                input_independent=verified.input_independent,
                pattern_kind=verified.pattern,
                stability=verified.stability,
                mismatch_after_first_run=verified.mismatch_after_first_run,
            ),
        )
        outputs = _copies(measurement, facts)
        _discard(measurement)
        self.runs += 1
        return Trial(verdict, measurement, console, verified, facts, reference, outputs)

    async def wasm_right(self, model: Path | bytes, sets: Sequence[InputSet]) -> bool:
        """Whether wasm agrees with the reference on a model as well."""
        trial = await self.run(model, sets, backend="wasm_xnnpack")
        return trial.verdict.status == "pass"

    async def desktop(
        self, model: Path | bytes, inputs: InputSet, *, kernels: Kernels = "xnnpack"
    ) -> dict[str, Outputs] | str:
        """Signature → outputs on the desktop reference, or why it gave none."""
        if self.bench.desktop is None:
            return "the desktop reference is switched off"
        run = await self.bench.desktop.run(
            self._saved(model), inputs, kernels=kernels, timeout=DESKTOP_TIMEOUT
        )
        if run.status != "ok":
            return run.error or run.status
        return {key: dict(values) for key, values in run.outputs.items()}

    async def _measure(
        self,
        session: PageSession,
        path: Path,
        facts: ModelFacts,
        sets: Sequence[InputSet],
        backend: Backend,
        leg: Leg | None,
    ) -> Measurement:
        leg = leg or self.bench.config.leg
        job = Job(
            model_id=path.stem,
            backend=backend,
            model_path=path,
            signature_keys=tuple(s.key for s in facts.signatures),
            inputs=tuple({key: dict(values) for key, values in one.items()} for one in sets),
            num_threads=leg.num_threads if backend == "wasm_xnnpack" else None,
            precision=leg.precision,
            warmup_runs=1,
            timed=None,
            timeouts=self.bench.config.timeouts,
        )
        return await session.run(job)

    async def _reference(
        self, path: Path, facts: ModelFacts, sets: Sequence[InputSet], target: Backend
    ) -> tuple[dict[SetKey, Outputs] | None, str]:
        found: dict[SetKey, Outputs] = {}
        if self.use_desktop:
            known: dict[int, dict[str, Outputs]] = {}
            for index, inputs in enumerate(sets):
                given = known.get(id(inputs)) or await self.desktop(path, inputs)
                if isinstance(given, str):
                    return None, "desktop"
                known[id(inputs)] = given
                found.update({(key, index): values for key, values in given.items()})
            return found, "desktop"
        if target == "wasm_xnnpack":
            return None, "desktop"
        session = self.bench.session("wasm_xnnpack")
        measurement = await self._measure(session, path, facts, sets, "wasm_xnnpack", None)
        console = read_console(measurement.console, dropped=measurement.console_dropped)
        if measurement.error is None and not console.fatal:
            found.update(_copies(measurement, facts, limit=2**40))
        _discard(measurement)
        return found or None, "wasm"

    def _saved(self, model: Path | bytes) -> Path:
        """Models keep their content's name: the same bytes are written once."""
        if isinstance(model, Path):
            return model
        path = self.directory / f"{hashlib.sha256(model).hexdigest()[:16]}.tflite"
        if not path.exists():
            path.write_bytes(model)
        return path


@contextlib.asynccontextmanager
async def open_lab(bench: Bench, backend: Backend) -> AsyncIterator[Lab]:
    """A lab whose files are gone when it is left."""
    directory = Path(tempfile.mkdtemp(prefix=scratch_prefix()))
    try:
        yield Lab(bench, backend, directory)
    finally:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


def _copies(
    measurement: Measurement, facts: ModelFacts, limit: int = LARGEST_KEPT
) -> dict[SetKey, dict[str, Array]]:
    """Outputs of the first runs; of a later run where that is the one that differs."""
    found = measured_outputs(measurement, facts)
    total = sum(array.nbytes for outputs in found.values() for array in outputs.values())
    if total > limit:
        return {}
    return {
        key: {name: np.array(array) for name, array in outputs.items()}
        for key, outputs in found.items()
    }


def _discard(measurement: Measurement) -> None:
    for folder in {tensor.path.parent for run in measurement.runs for tensor in run.outputs}:
        shutil.rmtree(folder, ignore_errors=True)


def _unreadable(backend: Backend, error: ModelError) -> Trial:
    verdict = Verdict(
        status="load_failed",
        failure_class="parse_error",
        error=str(error),
        reason=str(error),
        loads=False,
        runs=False,
    )
    nothing = Measurement(backend=backend, reached=None)
    return Trial(verdict, nothing, read_console(()), None, None, None)

"""From measured bytes to comparisons: which output is held against which reference, and how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sweep.compare import compare_outputs
from sweep.config import SweepConfig
from sweep.model import ModelFacts, SignatureFacts
from sweep.patterns import describe_error
from sweep.protocol import Measurement, OutputTensor, SetRun
from sweep.record import ComparisonRecord, StabilityRecord
from sweep.tolerance import NoiseFloor, is_mismatch, judge_output

Outputs = Mapping[str, np.ndarray]
"""Output name → array."""

SetKey = tuple[str, int]
"""Signature key and input set."""

Against = Literal["wasm", "desktop"]
PrecisionInUse = Literal["fp32", "fp16", "quantized"]

QUANTIZED_WEIGHTS = frozenset({"int8", "uint8", "int4", "int2", "int16"})


@dataclass(frozen=True)
class Verified:
    """Numeric facts of one backend's measurement against its references."""

    comparisons: tuple[ComparisonRecord, ...]
    stability: tuple[StabilityRecord, ...]
    identical_to_wasm: bool | None
    """Every output equal to wasm's bit for bit; None: not compared with wasm."""
    input_independent: bool | None
    """Two different inputs gave the same bytes where the reference's differ; None: unknown."""
    pattern: str | None
    """Kind of the worst output's error pattern; None when nothing is wrong."""
    mismatch_after_first_run: bool
    """The first run is right and a later run on the same input is not."""
    uncompared_all_zero: bool | None = None
    """The outputs that no reference was there for are zero throughout; None: there are none."""
    uncompared_non_finite: bool = False
    """Some value of those outputs is not finite."""


def load_output(tensor: OutputTensor) -> np.ndarray:
    """Maps one received output: shape and dtype as the page said, read-only, not in memory."""
    if 0 in tensor.shape or tensor.path.stat().st_size == 0:
        return np.zeros(tensor.shape, tensor.dtype)
    return np.memmap(tensor.path, dtype=tensor.dtype, mode="r", shape=tuple(tensor.shape))


def set_outputs(
    run: SetRun, signature: SignatureFacts, which: str = "first"
) -> dict[str, np.ndarray]:
    """Outputs of one kept run under the file's own names.

    Releases spell output names differently; where a name is unknown to the file the position
    decides.
    """
    names = [tensor.name for tensor in signature.outputs]
    tensors = [tensor for tensor in run.outputs if tensor.run == which]
    by_name = all(tensor.name in names for tensor in tensors)
    return {
        (tensor.name if by_name or position >= len(names) else names[position]): load_output(tensor)
        for position, tensor in enumerate(tensors)
    }


def measured_outputs(
    measurement: Measurement, facts: ModelFacts
) -> dict[SetKey, dict[str, np.ndarray]]:
    """First-run outputs of every signature and input set that was run."""
    signatures = {signature.key: signature for signature in facts.signatures}
    return {
        (run.signature, run.input_set): set_outputs(run, signatures[run.signature])
        for run in measurement.runs
        if run.signature in signatures
    }


def precision_in_use(facts: ModelFacts, asked: str) -> PrecisionInUse:
    """The coarsest rounding that a correct run of this model may show.

    Quantized weights count once they are more than a hundredth of the constant data: below that
    they are index tables and the like.
    """
    total = sum(facts.weight_dtypes.values())
    quantized = sum(
        size for dtype, size in facts.weight_dtypes.items() if dtype in QUANTIZED_WEIGHTS
    )
    if total and quantized > total / 100:
        return "quantized"
    if any(t.quantization for s in facts.signatures for t in (*s.inputs, *s.outputs)):
        return "quantized"
    return "fp16" if asked == "fp16" else "fp32"


def verify(
    measurement: Measurement,
    facts: ModelFacts,
    config: SweepConfig,
    *,
    wasm: Mapping[SetKey, Outputs] | None,
    desktop: Mapping[SetKey, Outputs] | None,
    floors: Mapping[str, Mapping[str, NoiseFloor]] | None,
) -> Verified:
    """Compares every output of every run against the references there are.

    Args:
        wasm: outputs of the wasm backend in the same sweep; None for the wasm backend itself, or
            when its run was not sound.
        desktop: outputs of the desktop reference; None when it did not run.
        floors: the model's measured noise floor, signature key → output name → floor.
    """
    # The option asks for a precision of the GPU; the CPU computes as it always does.
    asked = "default" if measurement.backend == "wasm_xnnpack" else config.leg.precision
    precision = precision_in_use(facts, asked)
    signatures = {signature.key: signature for signature in facts.signatures}
    comparisons: list[ComparisonRecord] = []
    stability: list[StabilityRecord] = []
    identical: bool | None = None
    after_first = False
    references: list[tuple[Against, Mapping[SetKey, Outputs]]] = []
    if wasm:
        references.append(("wasm", wasm))
    if desktop:
        references.append(("desktop", desktop))
    for run in measurement.runs:
        signature = signatures.get(run.signature)
        if signature is None:
            continue
        key = (run.signature, run.input_set)
        first = set_outputs(run, signature)
        later = [o for o in (set_outputs(run, signature, w) for w in ("second", "last")) if o]
        stability.append(_stability(run, first, later))
        for against, outputs in references:
            if key not in outputs:
                continue
            found = _compare_set(
                first, outputs[key], signature, run, against, config, precision, floors or {}
            )
            comparisons += found
            if against == "wasm":
                same = all(c.facts.identical for c in found)
                identical = same if identical is None else identical and same
            if later and not any(is_mismatch(c.judgement.grade) for c in found):
                again = [
                    c
                    for outputs_again in later
                    for c in _compare_set(
                        outputs_again, outputs[key], signature, run, against, config, precision,
                        floors or {},
                    )
                ]  # fmt: skip
                wrong = [c for c in again if is_mismatch(c.judgement.grade)]
                after_first = after_first or bool(wrong)
                comparisons += wrong
    measured = measured_outputs(measurement, facts)
    zero, non_finite = _uncompared(measured, comparisons)
    return Verified(
        comparisons=tuple(comparisons),
        stability=tuple(stability),
        identical_to_wasm=identical,
        input_independent=_input_independent(measured, wasm or desktop),
        pattern=_pattern(comparisons, measured, dict(references)),
        mismatch_after_first_run=after_first,
        uncompared_all_zero=zero,
        uncompared_non_finite=non_finite,
    )


def _uncompared(
    measured: Mapping[SetKey, Outputs], comparisons: Iterable[ComparisonRecord]
) -> tuple[bool | None, bool]:
    """What can be said of outputs without a reference: all zero (None: no such), non-finite."""
    compared = {(c.signature, c.input_set, c.output) for c in comparisons}
    sides = [
        compare_outputs(array, array).measured
        for (signature, input_set), outputs in measured.items()
        for name, array in outputs.items()
        if (signature, input_set, name) not in compared and array.size
    ]
    return (
        all(side.all_zero for side in sides) if sides else None,
        any(side.nan or side.pos_inf or side.neg_inf for side in sides),
    )


def _compare_set(
    measured: Outputs,
    reference: Outputs,
    signature: SignatureFacts,
    run: SetRun,
    against: Against,
    config: SweepConfig,
    precision: PrecisionInUse,
    floors: Mapping[str, Mapping[str, NoiseFloor]],
) -> list[ComparisonRecord]:
    found = []
    for tensor in signature.outputs:
        out = measured.get(tensor.name)
        ref = reference.get(tensor.name)
        if out is None or ref is None:
            continue
        facts = compare_outputs(
            out,
            ref,
            quantization=tensor.quantization,
            tolerance_abs=config.tolerance_abs,
            tolerance_rel=config.tolerance_rel,
        )
        judgement = judge_output(
            facts,
            policy=config.tolerance_policy,
            floor=floors.get(run.signature, {}).get(tensor.name),
            precision=precision,
            dtype=str(out.dtype),
            quantized=tensor.quantization is not None,
        )
        found.append(
            ComparisonRecord(
                signature=run.signature,
                input_set=run.input_set,
                output=tensor.name,
                dtype=str(out.dtype),
                shape=tuple(out.shape),
                against=against,
                facts=facts,
                judgement=judgement,
            )
        )
    return found


def _stability(run: SetRun, first: Outputs, later: Sequence[Outputs]) -> StabilityRecord:
    spread: float | None = None
    for outputs in later:
        for name, array in outputs.items():
            if name in first and first[name].shape == array.shape:
                spread = max(spread or 0.0, max_abs_difference(first[name], array))
    return StabilityRecord(
        signature=run.signature,
        input_set=run.input_set,
        second_same=run.second_same,
        last_same=run.last_same,
        spread_max_abs=spread,
    )


def max_abs_difference(a: np.ndarray, b: np.ndarray, chunk: int = 1 << 16) -> float:
    """max |a − b| over the elements that are finite on both sides; 0 where there are none."""
    x, y = a.reshape(-1), b.reshape(-1)
    worst = 0.0
    for start in range(0, x.size, chunk):
        d = np.abs(
            x[start : start + chunk].astype(np.float64)
            - y[start : start + chunk].astype(np.float64)
        )
        d = d[np.isfinite(d)]
        if d.size:
            worst = max(worst, float(d.max()))
    return worst


def _input_independent(
    measured: Mapping[SetKey, Outputs], reference: Mapping[SetKey, Outputs] | None
) -> bool | None:
    """True when some signature's outputs ignore the input although the reference's do not."""
    if reference is None:
        return None
    known: bool | None = None
    for (signature, input_set), outputs in measured.items():
        base = (signature, 0)
        if input_set == 0 or base not in measured or base not in reference:
            continue
        if (signature, input_set) not in reference:
            continue
        reference_moves = not _same(reference[base], reference[(signature, input_set)])
        if not reference_moves:
            continue
        if _same(measured[base], outputs):
            return True
        known = False
    return known


def _same(a: Outputs, b: Outputs) -> bool:
    return a.keys() == b.keys() and all(_same_bytes(a[name], b[name]) for name in a)


def _same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    x, y = a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8)
    step = 1 << 20
    return all(
        np.array_equal(x[start : start + step], y[start : start + step])
        for start in range(0, x.size, step)
    )


def _pattern(
    comparisons: Iterable[ComparisonRecord],
    measured: Mapping[SetKey, Outputs],
    references: Mapping[Against, Mapping[SetKey, Outputs]],
) -> str | None:
    """The error pattern of the worst mismatching output."""
    wrong = [c for c in comparisons if is_mismatch(c.judgement.grade)]
    if not wrong:
        return None
    worst = max(wrong, key=lambda c: c.facts.nrmse if c.facts.nrmse is not None else float("inf"))
    key = (worst.signature, worst.input_set)
    out = measured.get(key, {}).get(worst.output)
    ref = references[worst.against].get(key, {}).get(worst.output)
    if out is None or ref is None or out.shape != ref.shape:
        return None
    return describe_error(out, ref).kind

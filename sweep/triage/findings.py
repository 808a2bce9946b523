"""What a triage found: the models behind report.json.

`observed` is what was run and read; `inferred` is what follows from it in our judgement. An
operator is named as a culprit only where a reproducer that consists of it was run.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sweep.config import Backend, Frozen
from sweep.console import Delegation, EvidenceLine
from sweep.env import Environment
from sweep.record import Status
from sweep.triage.graph import OptionValue

FaultKind = Literal["mismatch", "failure", "fallback", "none"]
Confidence = Literal["high", "medium", "low"]
Agreement = Literal["agrees", "differs", "not compared"]


class ErrorFacts(Frozen):
    """How far one output or tensor is off. None: cannot be computed."""

    nrmse: float | None
    """RMSE over the RMS of the reference."""
    max_abs: float | None
    grade: str
    """As in a record: exact, rounding, precision, divergent, broken."""
    reason: str


class OutputFinding(Frozen):
    """One output on one input set."""

    output: str
    input_set: int
    dtype: str
    shape: tuple[int, ...]
    error: ErrorFacts
    pattern: str
    """Kind of the error (zeros, constant, nan, scaled, slice_only, permuted …), or `none`."""
    pattern_evidence: str
    wrong_elements: int | None
    """Elements off by more than a tenth of themselves (and not by mere rounding)."""
    elements: int
    worst_index: tuple[int, ...] | None
    worst_measured: float | None
    worst_expected: float | None


class Reproduction(Frozen):
    """Whether and how the fault shows on the whole model."""

    reproduced: bool
    """In every fresh page that was opened."""
    pages: int
    input_sets: int
    wrong_sets: tuple[int, ...]
    """Input sets on which the fault shows."""
    same_within_page: bool | None
    """Repeated runs in one page gave the same bytes; None: nothing to compare."""
    same_across_pages: bool | None
    deterministic: bool | None
    input_dependent: bool | None
    """Shows on some of the input sets only."""
    ignores_input: bool | None
    """Different inputs gave the same outputs where the reference's differ."""
    only_later_runs: bool
    """The first run is right and a later one is not."""
    outputs: tuple[OutputFinding, ...] = ()


class Side(Frozen):
    """One implementation held against another, over all outputs and input sets."""

    left: str
    right: str
    agreement: Agreement
    nrmse: float | None = None
    detail: str = ""


class Arbitration(Frozen):
    """Who stands alone."""

    alone: str | None
    """The implementation that none of the others agrees with; None where there is none."""
    statement: str
    sides: tuple[Side, ...]
    facts: tuple[str, ...] = ()
    """What else was run to tell, e.g. a composite's own decomposition."""


class Rung(Frozen):
    """One switch, and what came of it."""

    name: str
    changed: str
    status: Status | Literal["not_run"]
    nrmse: float | None
    changes_outcome: bool | None
    """None: it was not run, or says nothing of the fault (the backend is unavailable)."""
    detail: str = ""


class Ladder(Frozen):
    """Which switch changes the outcome."""

    rungs: tuple[Rung, ...]
    first_bad_release: str | None
    """The first release that shows the fault after one that does not."""
    statement: str


class TensorError(Frozen):
    """One point of the plot: a tensor of the graph, exposed as a further output or cut after."""

    position: int
    """Of its operator in the file's order."""
    tensor: int
    name: str
    op: str
    nrmse: float | None
    max_abs: float | None
    grade: str
    how: Literal["exposed", "cut"]


class Exposure(Frozen):
    """What making intermediate tensors outputs did to the fault."""

    effect: Literal["none", "heals", "creates", "not run"]
    """`heals`: the model's own outputs become right when tensors are exposed; `creates`: a tensor
    is wrong when exposed, and right in a model that ends there."""
    statement: str
    tensors: tuple[int, ...] = ()


class Control(Frozen):
    """A neighbour of the reproducer: nearly the same model, and how it came out."""

    name: str
    changed: str
    input_shapes: dict[str, tuple[int, ...]]
    status: Status
    nrmse: float | None


class TensorRef(Frozen):
    """A tensor of the original model."""

    index: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    role: Literal["input", "constant", "output"]


class OperatorRef(Frozen):
    """An operator of the original model."""

    index: int
    op: str
    options: dict[str, OptionValue]
    tensors: tuple[TensorRef, ...]


class Dependence(Frozen):
    """Which input elements the outputs react to, by changing one at a time."""

    input: str
    elements: int
    reference_uses: int
    measured_uses: int
    unused: tuple[tuple[int, ...], ...]
    """Indices of elements that the reference's output reacts to and the backend's does not."""
    statement: str


class Repro(Frozen):
    """A reproducer that was run: files lie beside the report."""

    model: str
    bytes: int
    sha256: str
    operators: int
    inputs: dict[str, tuple[int, ...]]
    inputs_are: str
    """Where its inputs come from."""
    constants_are: str
    status: Status
    """Verdict of a whole measurement of the file in a fresh page, as `model` gives it."""
    reason: str
    failure_class: str | None
    wasm_status: Status | None
    nrmse: float | None
    max_abs: float | None
    pattern: str
    pattern_evidence: str
    wrong_sets: tuple[int, ...]
    input_sets: int
    shrink: tuple[str, ...]
    """What was taken away, step by step."""
    controls: tuple[Control, ...] = ()
    dependence: tuple[Dependence, ...] = ()
    arbitration: Arbitration | None = None


class Culprit(Frozen):
    """Operators whose reproducer shows the fault."""

    op: str
    """Name of the operator; several: joined with ` + `."""
    node_indices: tuple[int, ...]
    tensors: tuple[TensorRef, ...]
    operators: tuple[OperatorRef, ...]
    confidence: Confidence
    confidence_because: str
    evidence: tuple[str, ...]
    """Observed, each line from something that was run."""
    repro: Repro
    also_shown: tuple[int, ...] = ()
    """Further operators of this kind that were run and show the fault as well."""
    also: tuple[int, ...] = ()
    """Further operators with the same kind, options and shapes, which were not run."""


class DelegationFinding(Frozen):
    """Where operators run, and what that costs."""

    delegation: Delegation
    on_cpu: tuple[OperatorRef, ...]
    """Operators that, alone in a model, the delegate leaves to the CPU."""
    on_cpu_alike: tuple[int, ...] = ()
    """Operators of the same name that were not run: several others were, all with this outcome."""
    reasons: tuple[str, ...]
    """The delegate's own words."""
    gpu_partitions: int | None
    """Observed where the console says so, else counted along the graph."""
    transfers: int | None
    """Tensors that cross between GPU and CPU, counted along the graph; None: unknown."""
    transfer_bytes: int | None
    statement: str


class CorePart(Frozen):
    version: str
    integrity: str | None


class Report(Frozen):
    """Everything. `report.json` is this."""

    schema_version: Literal["1.0"] = "1.0"
    model_id: str
    source: str
    sha256: str
    bytes: int
    operators: int
    signature: str
    backend: Backend
    core: CorePart
    reference: str
    env: Environment
    date: str
    command: str
    kind: FaultKind
    status: Status
    failure_class: str | None
    reason: str
    headline: str
    reproduced: bool
    stable: bool | None
    reproduction: Reproduction | None
    arbitration: Arbitration | None
    ladder: Ladder | None
    delegation: DelegationFinding | None = None
    exposure: Exposure | None = None
    error_along_graph: tuple[TensorError, ...] = ()
    boundary: str | None = None
    """Where along the graph right turns into wrong, in words."""
    singles_run: int = 0
    """Operators that were run alone, fed with reference values."""
    singles_right: int = 0
    culprits: tuple[Culprit, ...] = ()
    observed: tuple[str, ...]
    inferred: tuple[str, ...]
    evidence: tuple[EvidenceLine, ...] = ()
    notes: tuple[str, ...] = ()
    """What was not done, and why."""
    complete: bool = True
    """False: the time budget ended before all steps were done."""
    seconds: float = Field(ge=0)
    runs: int = 0
    """Models that were compiled and run in a page."""

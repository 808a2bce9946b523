"""The model under triage: its graph, reference values of its tensors, and cuts that can be run."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sweep.errors import CatalogError, ModelError
from sweep.inputs import draw_inputs, plan_inputs
from sweep.job_run import PAGE_DTYPES
from sweep.model import ModelFacts, SignatureFacts, inspect_model
from sweep.triage import graph as graphs
from sweep.triage.cut import SIGNATURE, SubModel, cut, expose
from sweep.triage.findings import OperatorRef, TensorRef
from sweep.triage.graph import HANDLE_DTYPES, Graph, Node
from sweep.triage.lab import InputSet, Lab
from sweep.triage.rebuild import CutError, ModelFile, open_model
from sweep.triage.resize import with_input_shapes

Array = np.ndarray[Any, np.dtype[Any]]

EXPOSED_AT_ONCE = 384 * 2**20
"""Bytes of tensors that one run is asked for; a larger graph is run several times."""


@dataclass(frozen=True)
class Candidate:
    """A model that can be run, with inputs."""

    data: bytes
    sets: tuple[InputSet, ...]
    operators: tuple[int, ...]
    """Of the model under triage."""
    invented: bool = False
    """Some inputs were drawn, since the reference gave no value for them."""


@dataclass
class Subject:
    """One subgraph of the model under triage, as one of its signatures enters it."""

    path: Path
    facts: ModelFacts
    signature: SignatureFacts
    model: ModelFile
    graph: Graph
    sets: tuple[InputSet, ...]
    """Inputs of the whole model, all signatures."""
    seed: int
    values: list[dict[int, Array]] = field(default_factory=list)
    """Per input set: tensor → value on the reference, as far as known."""
    unknown: str | None = None
    """Why the reference gave no values."""

    def computed(self) -> tuple[int, ...]:
        """Tensors that depend on the inputs and can leave a model in the page, in order."""
        fixed = graphs.constant_nodes(self.graph)
        return tuple(
            tensor
            for node in self.graph.nodes
            if node.index not in fixed
            for tensor in node.outputs
            if self.graph.tensors[tensor].dtype in PAGE_DTYPES
            and not self.graph.tensors[tensor].empty
        )

    def parents(self, tensor: int) -> tuple[int, ...]:
        """The nearest tensors that a tensor is computed from and that can leave a model."""
        usable = frozenset(self.computed())
        found: dict[int, None] = {}
        pending = [tensor]
        seen: set[int] = set()
        while pending:
            node = self.graph.producer.get(pending.pop())
            if node is None or node in seen:
                continue
            seen.add(node)
            for t in self.graph.nodes[node].inputs:
                if t in usable:
                    found[t] = None
                elif t >= 0:
                    pending.append(t)
        return tuple(found)

    def closed(self, nodes: Iterable[int]) -> frozenset[int] | None:
        """The nodes, and those without which they cannot be run in a page.

        Weights are prepared inside, and a tensor whose element type the page does not take is
        computed inside. None where that leads to an input of the model that the page refuses.
        """
        chosen = set(graphs.supports(self.graph, nodes))
        while True:
            fed = graphs.boundary(self.graph, chosen)
            refused = [t for t in fed if self.graph.tensors[t].dtype not in PAGE_DTYPES]
            if not refused:
                return frozenset(chosen)
            if any(t not in self.graph.producer for t in refused):
                return None
            chosen |= {self.graph.producer[t] for t in refused}
            chosen = set(graphs.supports(self.graph, chosen))

    def outputs_of(self, nodes: Collection[int]) -> tuple[int, ...]:
        """What of a set of nodes the rest of the graph reads, and the page can give."""
        found = graphs.results(self.graph, nodes)
        fixed = graphs.constant_nodes(self.graph)
        own = [t for t in found if self.graph.producer.get(t) not in fixed] or list(found)
        return tuple(t for t in own if self.graph.tensors[t].dtype in PAGE_DTYPES)

    def part(
        self,
        nodes: Iterable[int],
        *,
        outputs: Sequence[int] | None = None,
        sets: Sequence[int] = (0,),
        any_dtype: bool = False,
    ) -> Candidate | None:
        """Exactly these operators (and what prepares their weights), fed with reference values.

        Args:
            outputs: tensors to give; None: what the rest of the graph reads.
            sets: which input sets to feed.
            any_dtype: also with element types that the page refuses, where that is the fault.

        Returns None where no such model can be run.
        """
        asked = frozenset(nodes)
        chosen = frozenset(graphs.supports(self.graph, asked)) if any_dtype else self.closed(asked)
        if not chosen:
            return None
        results = outputs
        if results is None:
            results = graphs.results(self.graph, chosen) if any_dtype else self.outputs_of(chosen)
        if not results:
            return None
        try:
            return self.fed(
                cut(self.model, operators=chosen, outputs=results, subgraph=self.graph.subgraph),
                sets,
            )
        except CutError:
            return None

    def prefix(self, tensors: Sequence[int], sets: Sequence[int] = (0,)) -> Candidate | None:
        """Everything up to these tensors, which are the only outputs, with the model's inputs."""
        needed = graphs.ancestors(self.graph, tensors)
        return self.part(needed, outputs=tensors, sets=sets, any_dtype=True)

    def exposed(self, tensors: Sequence[int], sets: Sequence[int] = (0,)) -> Candidate | None:
        """The whole subgraph with further outputs."""
        new = [t for t in dict.fromkeys(tensors) if t not in self.graph.outputs]
        try:
            if new:
                model = expose(self.model, new, subgraph=self.graph.subgraph)
            else:
                model = cut(
                    self.model,
                    operators=range(len(self.graph.nodes)),
                    inputs=self.graph.inputs,
                    outputs=self.graph.outputs,
                    subgraph=self.graph.subgraph,
                )
            return self.fed(model, sets)
        except CutError:
            return None

    def fed(self, model: SubModel, sets: Sequence[int]) -> Candidate:
        """A sub-model with its inputs: reference values, or drawn ones where there are none."""
        values: list[dict[str, Array]] = []
        missing = False
        for index in sets:
            known = self.values[index] if index < len(self.values) else {}
            values.append({p.name: known[p.tensor] for p in model.inputs if p.tensor in known})
            missing = missing or len(values[-1]) < len(model.inputs)
        data = with_input_shapes(model.data, {n: v.shape for n, v in values[0].items()})
        if missing:
            drawn = draw(self.path.parent, data, "cut", self.seed, len(sets))
            values = [
                {p.name: have.get(p.name, other[SIGNATURE][p.name]) for p in model.inputs}
                for have, other in zip(values, drawn, strict=True)
                if all(p.name in have or p.name in other[SIGNATURE] for p in model.inputs)
            ]
            if not values:
                raise CutError("inputs of element types that cannot be drawn")
        return Candidate(data, tuple({SIGNATURE: v} for v in values), model.operators, missing)

    def operator(self, index: int) -> OperatorRef:
        """An operator with its tensors, for the report."""
        node = self.graph.nodes[index]
        refs = [self.tensor(t, "constant" if self.is_weight(t) else "input")
                for t in node.inputs if t >= 0]  # fmt: skip
        refs += [self.tensor(t, "output") for t in node.outputs]
        return OperatorRef(index=index, op=node.op, options=node.options, tensors=tuple(refs))

    def tensor(self, index: int, role: Any) -> TensorRef:
        """A tensor, for the report."""
        tensor = self.graph.tensors[index]
        return TensorRef(
            index=index, name=tensor.name, dtype=tensor.dtype, shape=tensor.shape, role=role
        )

    def is_weight(self, tensor: int) -> bool:
        """Stored, or computed from what is stored alone."""
        producer = self.graph.producer.get(tensor)
        return self.graph.tensors[tensor].constant or (
            producer is not None and producer in graphs.constant_nodes(self.graph)
        )

    def kind(self, node: Node) -> str:
        """Equal for operators that a backend has no reason to treat differently."""

        def form(t: int) -> object:
            if t < 0:
                return None
            facts = self.graph.tensors[t]
            return facts.dtype, facts.shape, self.is_weight(t), facts.quantized

        return repr((node.op, sorted(node.options.items(), key=str),
                     [form(t) for t in node.inputs], [form(t) for t in node.outputs]))  # fmt: skip


def open_subject(
    path: Path, facts: ModelFacts, signature: str, sets: Sequence[InputSet], seed: int
) -> Subject:
    """Opens a model for cutting.

    Raises:
        ModelError: it cannot be cut.
    """
    chosen = next(s for s in facts.signatures if s.key == signature)
    model = open_model(path)
    graph = graphs.read(model, chosen.subgraph)
    subject = Subject(path, facts, chosen, model, graph, tuple(sets), seed)
    for one in sets:
        given = one.get(signature, {})
        subject.values.append(
            {t.tensor_index: np.asarray(given[t.name]) for t in chosen.inputs if t.name in given}
        )
    return subject


async def read_values(subject: Subject, lab: Lab) -> None:
    """Fills in what every tensor holds on the desktop reference, for every input set."""
    graph = subject.graph
    fixed = graphs.constant_nodes(graph)
    wanted = [
        t
        for node in graph.nodes
        if node.index not in fixed
        for t in node.outputs
        if graph.tensors[t].dtype not in {*HANDLE_DTYPES, "string"} and not graph.tensors[t].empty
    ]
    for chunk in _chunks(graph, wanted):
        candidate = await asyncio.to_thread(subject.exposed, chunk, range(len(subject.sets)))
        if candidate is None:
            subject.unknown = "the model cannot be rebuilt with its tensors exposed"
            return
        names = _output_names(candidate.data)
        order = (*graph.outputs, *(t for t in chunk if t not in graph.outputs))
        for index, inputs in enumerate(candidate.sets):
            given = await lab.desktop(candidate.data, inputs)
            if isinstance(given, str):
                subject.unknown = given
                return
            outputs = given[SIGNATURE]
            for tensor, name in zip(dict.fromkeys(order), names, strict=True):
                if name in outputs:
                    subject.values[index][tensor] = outputs[name]


def draw(base: Path, data: bytes, model_id: str, seed: int, sets: int) -> tuple[InputSet, ...]:
    """The inputs that a sweep would draw for a model of this id."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{model_id}.tflite"
        path.write_bytes(data)
        try:
            plan = plan_inputs(path, inspect_model(path), base_dir=base)
        except (CatalogError, ModelError) as error:
            raise CutError(f"no inputs can be drawn: {error}") from error
        return tuple(
            draw_inputs(plan, model_id=model_id, seed=seed, input_set=index)
            for index in range(sets)
        )


def _output_names(data: bytes) -> list[str]:
    tree = open_model(data).tree
    return [graphs.text(entry.name) for entry in tree.signatureDefs[0].outputs]


def _chunks(graph: Graph, tensors: Sequence[int]) -> Iterable[list[int]]:
    chunk: list[int] = []
    size = 0
    for tensor in tensors:
        facts = graph.tensors[tensor]
        nbytes = 4 * int(np.prod([max(d, 1) for d in facts.shape], dtype=np.int64))
        if chunk and size + nbytes > EXPOSED_AT_ONCE:
            yield chunk
            chunk, size = [], 0
        chunk.append(tensor)
        size += nbytes
    if chunk:
        yield chunk

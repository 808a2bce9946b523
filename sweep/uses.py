"""Who uses a tensor: every operator that reads it, through data movement and called subgraphs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy.typing as npt

from sweep.tflite import Graph, Operator, Subgraph, constant, consumers

MAX_VISITS = 5_000
"""Tensors followed per input: files are untrusted, and near uses tell more than far ones."""
MAX_USES = 20_000
MAX_CALLS = 8
"""Depth of calls followed; recursion in a file ends here."""

_MOVES: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(
        (
            "BATCH_TO_SPACE_ND", "BROADCAST_TO", "CAST", "DEPTH_TO_SPACE", "DEQUANTIZE",
            "EXPAND_DIMS", "GATHER", "GATHER_ND", "MIRROR_PAD", "PAD", "PADV2", "QUANTIZE",
            "RESHAPE", "REVERSE_SEQUENCE", "REVERSE_V2", "SLICE", "SPACE_TO_BATCH_ND",
            "SPACE_TO_DEPTH", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK",
        ),
        (0,),
    ),
    "CONCATENATION": None,
    "DYNAMIC_UPDATE_SLICE": (0, 1),
    "PACK": None,
    "SCATTER_ND": (1,),
    "SELECT": (1, 2),
    "SELECT_V2": (1, 2),
    "SPLIT": (1,),
}  # fmt: skip
"""Positions whose values the outputs hold, moved or converted; None: any."""

_KEEPS_ELEMENT = frozenset({"CAST", "RESHAPE", "SQUEEZE", "EXPAND_DIMS"})


@dataclass(frozen=True, slots=True)
class Use:
    """One operator that reads values of the traced tensor.

    What it reads is `scale * x + b` for the input's values x, with `low <= b <= high`: integer
    arithmetic with constants on the way is followed, since indices are often shifted.
    """

    op: Operator
    position: int
    number: int
    """Of the subgraph the operator is in."""
    subgraph: Subgraph
    scale: int = 1
    low: int = 0
    high: int = 0
    element: int | None = None
    """Where a single value was packed into a vector: its place in it."""

    @property
    def direct(self) -> bool:
        """The operator reads the input's own values."""
        return (self.scale, self.low, self.high) == (1, 0, 0)

    def dtype(self) -> str:
        """Element type as it is read here (after any CAST)."""
        return self.subgraph.tensors[self.op.inputs[self.position]].dtype

    def shape(self, position: int) -> tuple[int, ...]:
        """Stored shape of an input of the operator; () where there is none."""
        index = self.op.inputs[position] if position < len(self.op.inputs) else -1
        return self.subgraph.tensors[index].shape if index >= 0 else ()

    def output_shape(self) -> tuple[int, ...]:
        """Stored shape of the first output; () where there is none."""
        index = self.op.outputs[0] if self.op.outputs else -1
        return self.subgraph.tensors[index].shape if index >= 0 else ()


@dataclass(frozen=True, slots=True)
class _Call:
    """Where a followed subgraph was called from."""

    op: Operator
    subgraph: int
    outer: _Call | None
    depth: int


@dataclass(frozen=True, slots=True)
class _Place:
    """A tensor on the way, what has become of the values, and the way back."""

    subgraph: int
    tensor: int
    scale: int = 1
    low: int = 0
    high: int = 0
    element: int | None = None
    call: _Call | None = None


@dataclass(frozen=True)
class Tracer:
    """Answers questions about one graph; remembers what reads and writes what."""

    graph: Graph
    _readers: dict[int, dict[int, list[tuple[int, int]]]] = field(default_factory=dict)
    _writers: dict[int, dict[int, Operator]] = field(default_factory=dict)

    def uses(self, subgraph: int, tensor: int) -> list[Use]:
        """Everything that reads the tensor's values, nearest first."""
        found = []
        pending = deque([_Place(subgraph, tensor)])
        seen = set(pending)
        while pending and len(seen) < MAX_VISITS:
            place = pending.popleft()
            inside = self.graph.subgraphs[place.subgraph]
            for number, position in self._readers_of(place.subgraph).get(place.tensor, ()):
                op = inside.operators[number]
                found.append(
                    Use(
                        op,
                        position,
                        place.subgraph,
                        inside,
                        place.scale,
                        place.low,
                        place.high,
                        place.element,
                    )
                )
                if len(found) >= MAX_USES:
                    return found
                for following in self._onward(place, op, position):
                    if following not in seen:
                        seen.add(following)
                        pending.append(following)
            for following in self._returned(place):
                if following not in seen:
                    seen.add(following)
                    pending.append(following)
        return found

    def after(self, use: Use) -> list[Use]:
        """Everything that reads what the using operator makes."""
        return [u for out in use.op.outputs if out >= 0 for u in self.uses(use.number, out)]

    def value(self, subgraph: int, tensor: int) -> npt.NDArray[Any] | None:
        """A small constant's values, also behind DEQUANTIZE, CAST or RESHAPE; None: not known."""
        if tensor < 0:
            return None
        tensors = self.graph.subgraphs[subgraph].tensors
        found = constant(self.graph, tensors[tensor])
        if found is not None:
            return found
        writer = self._writers_of(subgraph).get(tensor)
        if writer is None or writer.name not in ("DEQUANTIZE", "CAST", "RESHAPE"):
            return None
        source = writer.inputs[0] if writer.inputs else -1
        if source < 0 or tensors[source].scale:
            return None
        return constant(self.graph, tensors[source])

    def other(self, use: Use) -> npt.NDArray[Any] | None:
        """The constant operand of a binary operator; None where it has none."""
        if len(use.op.inputs) != 2:
            return None
        return self.value(use.number, use.op.inputs[1 - use.position])

    def _readers_of(self, subgraph: int) -> dict[int, list[tuple[int, int]]]:
        if subgraph not in self._readers:
            self._readers[subgraph] = consumers(self.graph.subgraphs[subgraph])
        return self._readers[subgraph]

    def _writers_of(self, subgraph: int) -> dict[int, Operator]:
        if subgraph not in self._writers:
            self._writers[subgraph] = {
                out: op for op in self.graph.subgraphs[subgraph].operators for out in op.outputs
            }
        return self._writers[subgraph]

    def _onward(self, place: _Place, op: Operator, position: int) -> Iterator[_Place]:
        """Where the values are after an operator; nothing when it computes something else."""
        inside = self.graph.subgraphs[place.subgraph]
        positions = _MOVES.get(op.name, ())
        if positions is None or position in positions:
            for out in op.outputs:
                if out >= 0:
                    element = _element(place, op, position, inside, out)
                    yield replace(place, tensor=out, element=element)
        elif op.name in ("ADD", "SUB", "MUL", "MINIMUM", "MAXIMUM"):
            yield from self._shifted(place, op, position)
        for called in op.subgraphs:
            # IF has its condition before the arguments.
            argument = position - 1 if op.name == "IF" else position
            arguments = self.graph.subgraphs[called].inputs
            depth = place.call.depth + 1 if place.call else 1
            if 0 <= argument < len(arguments) and depth <= MAX_CALLS:
                call = _Call(op, place.subgraph, place.call, depth)
                yield replace(place, subgraph=called, tensor=arguments[argument], call=call)

    def _shifted(self, place: _Place, op: Operator, position: int) -> Iterator[_Place]:
        """Integer arithmetic with a constant, kept as a range."""
        inside = self.graph.subgraphs[place.subgraph]
        if len(op.inputs) != 2 or len(op.outputs) != 1 or op.outputs[0] < 0:
            return
        if not inside.tensors[place.tensor].dtype.startswith(("int", "uint")):
            return
        values = self.value(place.subgraph, op.inputs[1 - position])
        if values is None or values.dtype.kind not in "iu" or not values.size:
            return
        low, high = int(values.min()), int(values.max())
        following = replace(place, tensor=op.outputs[0], element=None)
        if op.name == "ADD":
            yield replace(following, low=place.low + low, high=place.high + high)
        elif op.name == "SUB" and position == 0:
            yield replace(following, low=place.low - high, high=place.high - low)
        elif op.name == "MUL" and low == high and low > 0:
            yield replace(
                following, scale=place.scale * low, low=place.low * low, high=place.high * low
            )
        elif op.name in ("MINIMUM", "MAXIMUM"):
            yield following  # a clamp leaves legal values as they are

    def _returned(self, place: _Place) -> Iterator[_Place]:
        """From an output of a called subgraph back to the caller's."""
        call = place.call
        if call is None:
            return
        for number, out in enumerate(self.graph.subgraphs[place.subgraph].outputs):
            if out == place.tensor and number < len(call.op.outputs):
                back = call.op.outputs[number]
                if back >= 0:
                    yield replace(place, subgraph=call.subgraph, tensor=back, call=call.outer)


def _element(place: _Place, op: Operator, position: int, inside: Subgraph, out: int) -> int | None:
    if op.name in _KEEPS_ELEMENT:
        return place.element
    single = math.prod(inside.tensors[place.tensor].shape) == 1
    if op.name == "PACK" and single:
        return position
    if op.name == "CONCATENATION" and single:
        alone = all(math.prod(inside.tensors[i].shape) == 1 for i in op.inputs if i >= 0)
        return position if alone and len(inside.tensors[out].shape) == 1 else None
    return None

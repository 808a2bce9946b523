"""Inspection: what a `.tflite` file says about itself, read without running it."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Literal, cast, get_args

from sweep.config import Frozen
from sweep.errors import ModelError
from sweep.tflite import Graph, Operator, Signature, Subgraph, Tensor, consumers, read_graph

ModelDType = Literal[
    "float32", "float16", "float64", "bfloat16", "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64", "int4", "int2", "bool", "string",
    "complex64", "complex128", "resource", "variant", "unknown",
]  # fmt: skip
"""Element types of the TFLite schema, in numpy's spelling where numpy has the type."""


class Quantization(Frozen):
    """Affine quantization of one tensor: real = scale * (stored - zero_point)."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    dimension: int = 0


class TensorFacts(Frozen):
    """One input or output of a signature, as the file declares it."""

    name: str
    """Name in the signature; the tensor's own name where there is no signature."""
    tensor_name: str
    tensor_index: int
    dtype: ModelDType
    shape: tuple[int, ...]
    """Concrete shape stored in the file (may hold 1 or 0 where the signature says -1)."""
    shape_signature: tuple[int, ...] | None
    """The shape with -1 for dynamic dimensions; None when the file gives none."""
    quantization: Quantization | None = None


class SignatureFacts(Frozen):
    """One entry point. A file without signatures has one with key ""."""

    key: str
    subgraph: int
    inputs: tuple[TensorFacts, ...]
    outputs: tuple[TensorFacts, ...]


class OperatorCount(Frozen):
    """How often an operator occurs in the whole file."""

    op: str
    """Builtin name (`CONV_2D`), or the custom code of a custom operator."""
    custom: bool
    count: int


class ModelFacts(Frozen):
    """What the record says of the model file."""

    sha256: str
    bytes: int
    description: str
    signatures: tuple[SignatureFacts, ...]
    operators: tuple[OperatorCount, ...]
    """Sorted by name."""
    subgraphs: int
    weight_dtypes: dict[str, int]
    """Bytes of constant data per element type."""
    dynamic: bool
    """True where any input has a dynamic dimension."""
    metadata: tuple[str, ...]
    """Names of the metadata buffers (e.g. `min_runtime_version`)."""


DATA_MOVEMENT = frozenset(
    {
        "ASSIGN_VARIABLE", "BATCH_TO_SPACE_ND", "BROADCAST_ARGS", "BROADCAST_TO", "CALL_ONCE",
        "CAST", "CONCATENATION", "DENSIFY", "DEPTH_TO_SPACE", "DEQUANTIZE", "DYNAMIC_UPDATE_SLICE",
        "EMBEDDING_LOOKUP", "EXPAND_DIMS", "FILL", "GATHER", "GATHER_ND", "MIRROR_PAD", "PACK",
        "PAD", "PADV2", "RANK", "READ_VARIABLE", "RESHAPE", "REVERSE_SEQUENCE", "REVERSE_V2",
        "SELECT", "SELECT_V2", "SHAPE", "SLICE", "SPACE_TO_BATCH_ND", "SPACE_TO_DEPTH", "SPLIT",
        "SPLIT_V", "SQUEEZE", "STABLEHLO_BROADCAST_IN_DIM", "STABLEHLO_CONCATENATE",
        "STABLEHLO_DYNAMIC_SLICE", "STABLEHLO_DYNAMIC_UPDATE_SLICE", "STABLEHLO_GATHER",
        "STABLEHLO_PAD", "STABLEHLO_RESHAPE", "STABLEHLO_SLICE", "STABLEHLO_TRANSPOSE",
        "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK", "VAR_HANDLE", "ZEROS_LIKE",
    }
)  # fmt: skip
"""Operators that place values without computing any (CAST and DEQUANTIZE convert exactly)."""

EXACT = frozenset(
    {
        "ABS", "ADD", "ARG_MAX", "ARG_MIN", "CEIL", "EQUAL", "FLOOR", "GREATER", "GREATER_EQUAL",
        "LESS", "LESS_EQUAL", "LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "MAXIMUM",
        "MAX_POOL_2D", "MINIMUM", "MUL", "NEG", "NOT_EQUAL", "ONE_HOT", "REDUCE_ALL",
        "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "RELU", "RELU6", "RELU_0_TO_1",
        "RELU_N1_TO_1", "ROUND", "SIGN", "SQUARE", "SUB", "TOPK_V2", "WHERE",
    }
)  # fmt: skip
"""Operators that IEEE 754 leaves one right answer for: at most one rounding per element."""

_CALLS = frozenset({"CALL", "IF", "WHILE", "STABLEHLO_COMPOSITE"})


def inspect_model(path: Path) -> ModelFacts:
    """What a model file says of itself, without running it.

    Args:
        path: a local `.tflite` file, of any size.

    Raises:
        ModelError: the file cannot be read or is not a well-formed model; the message says why.
    """
    graph = read_graph(path)
    try:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
    signatures = tuple(_signature_facts(graph, signature) for signature in graph.signatures)
    return ModelFacts(
        sha256=sha256,
        bytes=graph.bytes,
        description=graph.description[:4096],
        signatures=signatures,
        operators=_operator_counts(graph),
        subgraphs=len(graph.subgraphs),
        weight_dtypes=_weight_bytes(graph),
        dynamic=any(
            dimension < 0
            for signature in signatures
            for tensor in signature.inputs
            for dimension in (*tensor.shape, *(tensor.shape_signature or ()))
        ),
        metadata=graph.metadata,
    )


def graph_computes(path: Path) -> bool:
    """Whether any output is computed from an input by more than data movement.

    False for graphs of RESHAPE, TRANSPOSE, GATHER, PAD, CONCATENATION and the like, and where all
    outputs are constants. Custom operators count as computing.

    Raises:
        ModelError: the file is not a well-formed model.
    """
    return _contains_beyond(read_graph(path), DATA_MOVEMENT)


def rounding_may_differ(path: Path) -> bool:
    """Whether two right implementations may give different bits.

    Narrower than `graph_computes`: an ADD or a RELU computes, yet IEEE 754 leaves it one right
    answer, so equal bits prove nothing there. Sums of many terms (convolutions, matrix products,
    means), divisions and transcendental functions leave the order or the approximation open.

    Raises:
        ModelError: the file is not a well-formed model.
    """
    return _contains_beyond(read_graph(path), DATA_MOVEMENT | EXACT)


def _contains_beyond(graph: Graph, harmless: frozenset[str]) -> bool:
    """Whether an operator outside `harmless` lies between an input and an output."""
    calling = _subgraphs_beyond(graph, harmless)
    for signature in graph.signatures:
        subgraph = graph.subgraphs[signature.subgraph]
        needed = _upstream(subgraph, [tensor for _, tensor in signature.outputs])
        for number in _downstream(subgraph, [tensor for _, tensor in signature.inputs]) & needed:
            op = subgraph.operators[number]
            if any(calling[i] for i in op.subgraphs) or _beyond(op, harmless):
                return True
    return False


def _beyond(op: Operator, harmless: frozenset[str]) -> bool:
    return op.custom or (op.name not in harmless and op.name not in _CALLS)


def _subgraphs_beyond(graph: Graph, harmless: frozenset[str]) -> list[bool]:
    """Per subgraph: has it, or one it calls, an operator outside `harmless`?"""
    callers: dict[int, set[int]] = {}
    found = [False] * len(graph.subgraphs)
    for index, subgraph in enumerate(graph.subgraphs):
        for op in subgraph.operators:
            found[index] = found[index] or _beyond(op, harmless)
            for called in op.subgraphs:
                callers.setdefault(called, set()).add(index)
    stack = [index for index, yes in enumerate(found) if yes]
    while stack:
        for caller in callers.get(stack.pop(), ()):
            if not found[caller]:
                found[caller] = True
                stack.append(caller)
    return found


def _upstream(subgraph: Subgraph, tensors: list[int]) -> set[int]:
    """Numbers of the operators that the tensors depend on, and of those kept for their effect."""
    producers = {t: n for n, op in enumerate(subgraph.operators) for t in op.outputs}
    stack = list(tensors)
    seen: set[int] = set()
    for number, op in enumerate(subgraph.operators):
        if not op.outputs:  # ASSIGN_VARIABLE
            seen.add(number)
            stack.extend(op.inputs)
    while stack:
        number = producers.get(stack.pop(), -1)
        if number >= 0 and number not in seen:
            seen.add(number)
            stack.extend(subgraph.operators[number].inputs)
    return seen


def _downstream(subgraph: Subgraph, tensors: list[int]) -> set[int]:
    """Numbers of the operators that depend on the tensors, or on the model's own variables."""
    users = consumers(subgraph)
    stack = list(tensors)
    stack += [t for op in subgraph.operators if op.name == "READ_VARIABLE" for t in op.outputs]
    seen: set[int] = set()
    done: set[int] = set()
    while stack:
        tensor = stack.pop()
        if tensor in done:
            continue
        done.add(tensor)
        for number, _ in users.get(tensor, ()):
            if number not in seen:
                seen.add(number)
                stack.extend(subgraph.operators[number].outputs)
    return seen


def _operator_counts(graph: Graph) -> tuple[OperatorCount, ...]:
    counts = Counter((op.name, op.custom) for s in graph.subgraphs for op in s.operators)
    return tuple(
        OperatorCount(op=name, custom=custom, count=count)
        for (name, custom), count in sorted(counts.items())
    )


def _weight_bytes(graph: Graph) -> dict[str, int]:
    """Bytes of constant data per element type; a buffer that tensors share is counted once."""
    by_buffer: dict[int, str] = {}
    for subgraph in graph.subgraphs:
        for tensor in subgraph.tensors:
            if graph.is_constant(tensor):
                by_buffer.setdefault(tensor.buffer, tensor.dtype)
    totals: Counter[str] = Counter()
    for buffer, dtype in by_buffer.items():
        totals[dtype] += graph.buffers[buffer].size
    return dict(sorted(totals.items()))


def _signature_facts(graph: Graph, signature: Signature) -> SignatureFacts:
    tensors = graph.subgraphs[signature.subgraph].tensors

    def facts(pairs: tuple[tuple[str, int], ...]) -> tuple[TensorFacts, ...]:
        return tuple(_tensor_facts(name, index, tensors[index]) for name, index in pairs)

    return SignatureFacts(
        key=signature.key,
        subgraph=signature.subgraph,
        inputs=facts(signature.inputs),
        outputs=facts(signature.outputs),
    )


def _tensor_facts(name: str, index: int, tensor: Tensor) -> TensorFacts:
    dtype = tensor.dtype if tensor.dtype in get_args(ModelDType) else "unknown"
    return TensorFacts(
        name=name,
        tensor_name=tensor.name,
        tensor_index=index,
        dtype=cast("ModelDType", dtype),
        shape=tensor.shape,
        shape_signature=tensor.shape_signature,
        quantization=Quantization(
            scale=tensor.scale,
            zero_point=tensor.zero_point,
            dimension=tensor.quantized_dimension,
        )
        if tensor.scale
        else None,
    )

"""Reading a `.tflite` file into plain values: bounded, without running it and without copying it.

The accessors are the ones generated from the TFLite schema that ship with `ai_edge_litert`. They
do not verify anything: offsets, vector lengths and indices come straight from the file. Everything
taken from them is therefore checked here once, against the size of the file, and handed on as
frozen values; nothing else in the package touches a FlatBuffer. A file that does not hold
together raises `ModelError`; time and memory are bounded by the size of the file.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from sweep.errors import ModelError

IDENTIFIER = b"TFL3"
MAX_STRING = 1 << 20
"""Longest name or description that is read, in bytes."""
MAX_TABLES = 400_000
"""Most tensors and operators that are read, over all subgraphs."""
MAX_RANK = 64
MAX_SCALES = 65_536
"""Longest vector of quantization scales that is read."""

_MALFORMED = (
    struct.error, IndexError, ValueError, TypeError, AttributeError, OverflowError, MemoryError,
)  # fmt: skip
"""What the generated accessors raise on corrupt offsets."""


def _names(enum: type) -> dict[int, str]:
    return {value: name for name, value in vars(enum).items() if isinstance(value, int)}


_OPERATORS = _names(schema.BuiltinOperator)
_DTYPES = {value: name.lower() for value, name in _names(schema.TensorType).items()}

NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(name)
    for name in (
        "float16", "float32", "float64", "int8", "int16", "int32", "int64", "bool",
        "uint8", "uint16", "uint32", "uint64", "complex64", "complex128",
    )
}  # fmt: skip
"""Element types that numpy has. Stored little-endian in the file."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as its subgraph declares it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    shape_signature: tuple[int, ...] | None
    buffer: int
    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    quantized_dimension: int
    variable: bool


@dataclass(frozen=True, slots=True)
class Operator:
    """One node. `inputs` holds -1 where an optional input is left out."""

    name: str
    """Builtin name, or the custom code."""
    custom: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    subgraphs: tuple[int, ...] = ()
    """Subgraphs it calls: CALL one, IF then and else, WHILE condition and body, composites one."""
    composite: str | None = None
    """Name of a STABLEHLO_COMPOSITE, e.g. `odml.rms_norm`."""
    axis: int = 0
    """Of GATHER and ONE_HOT."""


@dataclass(frozen=True, slots=True)
class Subgraph:
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """An entry point: (name, tensor index) of its inputs and outputs, in file order."""

    key: str
    subgraph: int
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Where constant data lies in the file, in bytes. Size 0: none."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Graph:
    """The whole file, minus the constant data."""

    path: Path
    bytes: int
    description: str
    subgraphs: tuple[Subgraph, ...]
    signatures: tuple[Signature, ...]
    """Never empty: a file without signatures has one with key "" on subgraph 0."""
    buffers: tuple[Buffer, ...]
    metadata: tuple[str, ...]

    def is_constant(self, tensor: Tensor) -> bool:
        """Whether the tensor's data is stored in the file."""
        return self.buffers[tensor.buffer].size > 0


def read_graph(path: Path) -> Graph:
    """Read and check the structure of a model file.

    The file is memory-mapped, so models beyond 2 GB (weights behind the FlatBuffer) cost no more
    memory than their structure.

    Raises:
        ModelError: the file cannot be read, is not a `.tflite` model, is truncated, or holds
            offsets, lengths or indices that do not fit together.
    """
    try:
        with path.open("rb") as file:
            head = file.read(64)
            if len(head) < 8:
                raise ModelError(f"{path}: not a model: the file has only {len(head)} bytes")
            if head[4:8] != IDENTIFIER:
                raise ModelError(f"{path}: not a .tflite model: {_what_it_is(head)}")
            mapped = _BoundedMap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        return _Reader(path, mapped).graph()
    except _MALFORMED as error:
        raise ModelError(
            f"{path}: not a well-formed .tflite model ({len(mapped)} bytes; "
            f"{type(error).__name__}: {error}); the file is truncated or corrupt, fetch it again"
        ) from error
    finally:
        # Views may live on in a traceback; the map then closes when they are collected.
        with contextlib.suppress(BufferError):
            mapped.close()


def constant(graph: Graph, tensor: Tensor, limit: int = 1 << 16) -> npt.NDArray[Any] | None:
    """The stored values of a constant tensor, in its shape.

    None where the tensor is not constant, is larger than `limit` bytes, has an element type that
    numpy lacks, or its data does not fit its shape.
    """
    buffer, dtype = graph.buffers[tensor.buffer], NUMPY_DTYPES.get(tensor.dtype)
    if dtype is None or not 0 < buffer.size <= limit:
        return None
    if any(d < 0 for d in tensor.shape) or math.prod(tensor.shape) * dtype.itemsize != buffer.size:
        return None
    with graph.path.open("rb") as file:
        file.seek(buffer.offset)
        data = file.read(buffer.size)
    if len(data) != buffer.size:
        return None
    little = np.frombuffer(data, dtype.newbyteorder("<"))
    return little.astype(dtype).reshape(tensor.shape)


def consumers(subgraph: Subgraph) -> dict[int, list[tuple[int, int]]]:
    """Per tensor index: (operator number, input position) of everything that reads it."""
    found: dict[int, list[tuple[int, int]]] = {}
    for number, op in enumerate(subgraph.operators):
        for position, tensor in enumerate(op.inputs):
            if tensor >= 0:
                found.setdefault(tensor, []).append((number, position))
    return found


def _what_it_is(head: bytes) -> str:
    start = head.lstrip()[:16].lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return "it is an HTML or XML page (a failed download?)"
    if start.startswith(b"version https://"[:16]):
        return "it is a Git LFS pointer, not the file itself"
    if head.startswith(b"PK\x03\x04"):
        return "it is a ZIP archive (a .task or .zip bundle? unpack it first)"
    if head.startswith(b"\x1f\x8b"):
        return "it is gzip-compressed"
    return f"bytes 4..8 are {head[4:8]!r}, not {IDENTIFIER!r}"


class _BoundedMap(mmap.mmap):
    """The mapped file; refuses to copy long slices out, since a string's length is untrusted."""

    copied = 0

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            length = (key.stop or 0) - (key.start or 0)
            self.copied += max(length, 0)
            if length > MAX_STRING or self.copied > 2 * len(self) + MAX_STRING:
                raise ValueError(f"a string of {length} bytes")
            if (key.start or 0) < 0 or (key.stop or 0) > len(self):
                raise ValueError("a string that ends outside the file")
        return super().__getitem__(key)


class _Reader:
    """One pass over one file; counts what it reads, so that aliased tables cannot multiply."""

    def __init__(self, path: Path, data: _BoundedMap) -> None:
        self.path, self.size, self.data = path, len(data), data
        # A file without sharing has at least four bytes for every element that is read.
        self.left = self.size // 2 + 4096
        self.tables = MAX_TABLES

    def graph(self) -> Graph:
        model = schema.Model.GetRootAs(self.data, 0)
        buffers = tuple(self._buffer(i, b) for i, b in self._each(model, "Buffers"))
        codes = tuple(self._opcode(code) for _, code in self._each(model, "OperatorCodes"))
        count = self._count(model.SubgraphsLength())
        if count == 0:
            raise ValueError("no subgraphs")
        subgraphs = tuple(
            self._subgraph(model.Subgraphs(i), codes, count, len(buffers)) for i in range(count)
        )
        signatures = tuple(
            self._signature(s, subgraphs) for _, s in self._each(model, "SignatureDefs")
        )
        return Graph(
            path=self.path,
            bytes=self.size,
            description=_text(model.Description()),
            subgraphs=subgraphs,
            signatures=signatures or (_default_signature(subgraphs[0]),),
            buffers=buffers or (Buffer(0, 0),),
            metadata=tuple(_text(m.Name()) for _, m in self._each(model, "Metadata")),
        )

    def _count(self, length: int, limit: int | None = None) -> int:
        """A vector's claimed length, checked against the file and charged to the budget."""
        self.left -= length
        if length * 4 > self.size or self.left < 0 or (limit is not None and length > limit):
            raise ValueError(f"a vector of {length} elements")
        return length

    def _each(self, table: Any, field: str) -> Iterator[tuple[int, Any]]:
        get: Callable[[int], Any] = getattr(table, field)
        for index in range(self._count(getattr(table, field + "Length")())):
            yield index, get(index)

    def _vector(self, table: Any, field: str, limit: int | None = None) -> tuple[Any, ...]:
        """A vector of numbers; IndexError, ValueError when it ends outside the file."""
        length = self._count(getattr(table, field + "Length")(), limit)
        return tuple(getattr(table, field + "AsNumpy")().tolist()) if length else ()

    def _buffer(self, index: int, buffer: Any) -> Buffer:
        size = buffer.DataLength()
        # Field 0 of the Buffer table; the generated class gives the data but not its position.
        slot = buffer._tab.Offset(4)
        offset = buffer._tab.Vector(slot) if slot and size else 0
        if not size and buffer.Offset() > 1:  # 0 and 1 mean "no data behind the FlatBuffer"
            offset, size = buffer.Offset(), buffer.Size()
        if offset < 0 or offset + size > self.size:
            raise ModelError(
                f"{self.path}: truncated: the data of buffer {index} ends at byte "
                f"{offset + size}, the file has {self.size}; fetch it again"
            )
        return Buffer(offset, size)

    @staticmethod
    def _opcode(code: Any) -> tuple[str, bool]:
        # Old files have the code only in the deprecated 8-bit field.
        builtin = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        if builtin == schema.BuiltinOperator.CUSTOM:
            return _text(code.CustomCode()) or "CUSTOM", True
        return _OPERATORS.get(builtin, f"BUILTIN_{builtin}"), False

    def _subgraph(
        self, table: Any, codes: tuple[tuple[str, bool], ...], subgraphs: int, buffers: int
    ) -> Subgraph:
        self.tables -= table.TensorsLength() + table.OperatorsLength()
        if self.tables < 0:
            raise ValueError(f"more than {MAX_TABLES} tensors and operators")
        tensors = tuple(self._tensor(t, buffers) for _, t in self._each(table, "Tensors"))
        known = len(tensors)

        def indices(owner: Any, field: str, lowest: int) -> tuple[int, ...]:
            found = self._vector(owner, field)
            if any(not lowest <= i < known for i in found):
                raise ValueError(f"a tensor index outside 0..{known - 1}")
            return found

        operators = []
        for _, node in self._each(table, "Operators"):
            code = node.OpcodeIndex()
            if code >= len(codes):
                raise ValueError(f"operator code {code} of {len(codes)}")
            called, composite, axis = _options(node)
            if any(not 0 <= i < subgraphs for i in called):
                raise ValueError("a call of a subgraph that is not there")
            name, custom = codes[code]
            operators.append(
                Operator(
                    name,
                    custom,
                    indices(node, "Inputs", -1),
                    indices(node, "Outputs", -1),
                    called,
                    composite,
                    axis,
                )
            )
        return Subgraph(
            tensors,
            tuple(operators),
            indices(table, "Inputs", 0),
            indices(table, "Outputs", 0),
        )

    def _tensor(self, table: Any, buffers: int) -> Tensor:
        buffer = table.Buffer()
        if buffer >= max(buffers, 1):
            raise ValueError(f"buffer {buffer} of {buffers}")
        scale: tuple[float, ...] = ()
        zero_point: tuple[int, ...] = ()
        dimension = 0
        if quantization := table.Quantization():
            scale = self._vector(quantization, "Scale", MAX_SCALES)
            zero_point = self._vector(quantization, "ZeroPoint", MAX_SCALES)
            dimension = quantization.QuantizedDimension()
            if not all(map(math.isfinite, scale)):
                scale = zero_point = ()
        has_signature = table.ShapeSignatureLength() > 0
        return Tensor(
            name=_text(table.Name()),
            dtype=_DTYPES.get(table.Type(), "unknown"),
            shape=self._vector(table, "Shape", MAX_RANK),
            shape_signature=self._vector(table, "ShapeSignature", MAX_RANK)
            if has_signature
            else None,
            buffer=buffer,
            scale=scale,
            zero_point=zero_point,
            quantized_dimension=dimension,
            variable=table.IsVariable(),
        )

    def _signature(self, table: Any, subgraphs: tuple[Subgraph, ...]) -> Signature:
        index = table.SubgraphIndex()
        if index >= len(subgraphs):
            raise ValueError(f"a signature of subgraph {index} of {len(subgraphs)}")
        known = len(subgraphs[index].tensors)

        def mapping(field: str) -> tuple[tuple[str, int], ...]:
            found = [(_text(m.Name()), m.TensorIndex()) for _, m in self._each(table, field)]
            if any(tensor >= known for _, tensor in found):
                raise ValueError(f"a signature's tensor index outside 0..{known - 1}")
            return _distinct(found)

        return Signature(_text(table.SignatureKey()), index, mapping("Inputs"), mapping("Outputs"))


def _options(node: Any) -> tuple[tuple[int, ...], str | None, int]:
    """(subgraphs called, composite name, axis) of the operators that have them."""
    kind, kinds = node.BuiltinOptionsType(), schema.BuiltinOptions
    if node.BuiltinOptions2Type() == schema.BuiltinOptions2.StableHLOCompositeOptions:
        options = _union(node.BuiltinOptions2(), schema.StableHLOCompositeOptions())
        return (options.DecompositionSubgraphIndex(),), _text(options.Name()), 0
    if kind == kinds.GatherOptions:
        return (), None, _union(node.BuiltinOptions(), schema.GatherOptions()).Axis()
    if kind == kinds.OneHotOptions:
        return (), None, _union(node.BuiltinOptions(), schema.OneHotOptions()).Axis()
    if kind == kinds.CallOptions:
        return (_union(node.BuiltinOptions(), schema.CallOptions()).Subgraph(),), None, 0
    if kind == kinds.IfOptions:
        options = _union(node.BuiltinOptions(), schema.IfOptions())
        return (options.ThenSubgraphIndex(), options.ElseSubgraphIndex()), None, 0
    if kind == kinds.WhileOptions:
        options = _union(node.BuiltinOptions(), schema.WhileOptions())
        return (options.CondSubgraphIndex(), options.BodySubgraphIndex()), None, 0
    if kind == kinds.CallOnceOptions:
        options = _union(node.BuiltinOptions(), schema.CallOnceOptions())
        return (options.InitSubgraphIndex(),), None, 0
    return (), None, 0


def _union(table: Any, options: Any) -> Any:
    options.Init(table.Bytes, table.Pos)
    return options


def _text(data: bytes | None) -> str:
    # The runtime does not care about UTF-8 in names; a stray byte is no reason to refuse a model.
    return (data or b"").decode("utf-8", errors="replace")


def _distinct(pairs: list[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """The pairs with repeated names told apart as `name#2`, `name#3`, …"""
    taken = {name for name, _ in pairs}
    seen: dict[str, int] = {}
    result = []
    for name, tensor in pairs:
        number = seen.get(name, 0) + 1
        unique = name
        while number > 1 and (unique := f"{name}#{number}") in taken:
            number += 1
        seen[name] = number
        taken.add(unique)
        result.append((unique, tensor))
    return tuple(result)


def _default_signature(subgraph: Subgraph) -> Signature:
    """What a file without signatures offers: subgraph 0, under its tensors' own names."""

    def mapping(indices: tuple[int, ...]) -> tuple[tuple[str, int], ...]:
        return _distinct([(subgraph.tensors[i].name, i) for i in indices])

    return Signature("", 0, mapping(subgraph.inputs), mapping(subgraph.outputs))

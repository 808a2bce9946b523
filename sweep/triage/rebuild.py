"""Reading a `.tflite` into the schema's object tree, and writing such a tree as a file again.

The tree (`schema.ModelT` of `ai_edge_litert`) can be changed and written, unlike the checked
values of `sweep.tflite`. What the generated code does not do is done here: data behind the
FlatBuffer is taken in, buffers are aligned to 16 bytes as the schema demands, and anything that
would be lost on the way is refused.
"""

from __future__ import annotations

import copy
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sweep.errors import ModelError
from sweep.tflite import IDENTIFIER, read_graph

MAX_BYTES = 2**31 - 2**20
"""A FlatBuffer ends below 2 GB."""

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class CutError(ModelError):
    """A sub-model that cannot be cut, or not without changing what it computes."""


@dataclass(frozen=True)
class ModelFile:
    """A parsed model to be cut. Treat the tree as read-only: cuts share its parts."""

    name: str
    """The file's name, for messages."""
    tree: Any
    """`schema.ModelT`; every buffer's and operator's data is in it, none behind the FlatBuffer."""


Source = Path | bytes | ModelFile
"""What the cutting functions take. Open a model once when cutting it many times."""


def open_model(source: Source) -> ModelFile:
    """Read a model file, or the bytes of one.

    A path is first checked by `sweep.tflite.read_graph`, since the object tree trusts every
    offset; bytes are meant for what this package has cut itself. Weights stay in the file
    (memory-mapped) until a cut takes them.

    Raises:
        ModelError: not a readable `.tflite`.
        CutError: the model keeps weights in other files, or has operator options that the
            installed schema does not know and could not write again.
    """
    if isinstance(source, ModelFile):
        return source
    data: Any = source
    name = "the cut model"
    if isinstance(source, Path):
        name = source.name
        read_graph(source)
        with source.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    elif source[4:8] != IDENTIFIER:
        raise ModelError("the bytes are not a .tflite model: no TFL3 at byte 4")
    try:
        tree = schema.ModelT.InitFromPackedBuf(data, 0)
    except (
        struct.error,
        IndexError,
        ValueError,
        TypeError,
        AttributeError,
        OverflowError,
    ) as error:
        raise ModelError(
            f"{name}: not a well-formed .tflite model ({type(error).__name__}: {error})"
        ) from error
    _check_indices(tree, name)
    try:
        _take_in(tree, data)
    except ValueError as error:
        raise ModelError(f"{name}: a buffer lies outside the file ({error})") from error
    _refuse_losses(tree, name)
    return ModelFile(name, tree)


def _check_indices(tree: Any, name: str) -> None:
    """Whatever points somewhere must point at something: strangers write these files."""

    def within(what: str, index: int, count: int, lowest: int = 0) -> None:
        if not lowest <= index < count:
            raise ModelError(f"{name}: not a well-formed .tflite model ({what} {index} of {count})")

    buffers, codes = len(tree.buffers or []), len(tree.operatorCodes or [])
    for graph in tree.subgraphs or []:
        tensors = len([] if graph.tensors is None else graph.tensors)
        for tensor in graph.tensors or []:
            within("buffer", tensor.buffer, buffers)
        for operator in graph.operators or []:
            within("operator code", operator.opcodeIndex, codes)
            for index in _listed(operator.inputs):
                within("tensor", index, tensors, -1)  # -1: an input that is left out
            for index in (*_listed(operator.outputs), *_listed(operator.intermediates)):
                within("tensor", index, tensors)
        for index in (*_listed(graph.inputs), *_listed(graph.outputs)):
            within("tensor", index, tensors)
    for metadata in tree.metadata or []:
        within("buffer", metadata.buffer, buffers)


def _listed(values: Any) -> list[int]:
    """A vector of the object tree, which may be a list, an array or None."""
    return [] if values is None else [int(value) for value in values]


def _take_in(tree: Any, data: Any) -> None:
    """Data that lies behind the FlatBuffer (offset above 1) becomes part of the tree."""
    for buffer in tree.buffers or []:
        if buffer.offset > 1 and (buffer.data is None or not len(buffer.data)):
            buffer.data = np.frombuffer(data, np.uint8, buffer.size, buffer.offset)
        buffer.offset = buffer.size = 0
    for graph in tree.subgraphs or []:
        for operator in graph.operators or []:
            if operator.largeCustomOptionsOffset > 1:
                operator.customOptions = np.frombuffer(
                    data,
                    np.uint8,
                    operator.largeCustomOptionsSize,
                    operator.largeCustomOptionsOffset,
                )
            operator.largeCustomOptionsOffset = operator.largeCustomOptionsSize = 0


def _refuse_losses(tree: Any, name: str) -> None:
    for graph in tree.subgraphs or []:
        if any(tensor.externalBuffer for tensor in graph.tensors or []):
            raise CutError(
                f"{name}: weights lie in other files (external buffers); "
                "such a model cannot be cut, convert it to a single file"
            )
        for index, operator in enumerate(graph.operators or []):
            unknown = (operator.builtinOptionsType and operator.builtinOptions is None) or (
                operator.builtinOptions2Type and operator.builtinOptions2 is None
            )
            if unknown:
                raise CutError(
                    f"{name}: operator {index} has options that the installed ai-edge-litert does "
                    "not know and would lose; install a newer one"
                )


class _AlignedBuffer:
    """`schema.BufferT` as the schema wants it written: `data: [ubyte] (force_align: 16)`.

    The generated code aligns the vector to one byte. Kernels read weights in place.
    """

    def __init__(self, data: Bytes | None) -> None:
        self.data = data

    def Pack(self, builder: Any) -> int:  # noqa: N802  # the generated code's name
        vector = None
        if self.data is not None:
            count = len(self.data)
            builder.StartVector(1, count, 16)
            builder.head = head = builder.Head() - count
            builder.Bytes[head : head + count] = self.data.tobytes()
            vector = builder.EndVector()
        schema.BufferStart(builder)
        if vector is not None:
            schema.BufferAddData(builder, vector)
        packed: int = schema.BufferEnd(builder)
        return packed


def pack_model(tree: Any) -> bytes:
    """The tree as the bytes of a `.tflite` file; the same tree gives the same bytes.

    Raises CutError where the result would be 2 GB or more.
    """
    weights = sum(len(b.data) for b in tree.buffers if b.data is not None)
    if weights > MAX_BYTES:
        raise CutError(f"the sub-model has {weights} bytes of weights; a file holds below 2 GB")
    writable = copy.copy(tree)
    writable.buffers = [_AlignedBuffer(buffer.data) for buffer in tree.buffers]
    builder = flatbuffers.Builder(min(MAX_BYTES, weights + 16 * len(tree.buffers) + 65_536))
    builder.Finish(writable.Pack(builder), file_identifier=IDENTIFIER)
    return bytes(builder.Output())

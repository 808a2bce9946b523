"""Inspection: what a `.tflite` file says about itself, read without running it."""

from __future__ import annotations

from typing import Literal

from sweep.config import Frozen

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

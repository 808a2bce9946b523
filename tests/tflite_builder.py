"""Builds small `.tflite` models through the schema package's object API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema


class ModelBuilder:
    """Collects tensors, operators and signatures; `build` gives the file's bytes."""

    def __init__(self, description: str | None = "built by a test") -> None:
        self.model = schema.ModelT(version=3, description=description)
        self.model.operatorCodes, self.model.subgraphs = [], []
        self.model.buffers = [schema.BufferT()]
        self.model.signatureDefs, self.model.metadata = [], []
        self.subgraph()

    def subgraph(self) -> None:
        """Begins another subgraph; tensors, operators and signatures go there from now on."""
        self.graph = schema.SubGraphT(tensors=[], operators=[], inputs=[], outputs=[])
        self.model.subgraphs.append(self.graph)

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        data: Any = None,
        scale: Sequence[float] | None = None,
        zero_point: Sequence[int] | None = None,
        shape_signature: Sequence[int] | None = None,
    ) -> int:
        """Adds a tensor, constant when it has data (values, or raw bytes); returns its index."""
        tensor = schema.TensorT(name=name.encode(), shape=list(shape))
        tensor.type = getattr(schema.TensorType, dtype.upper())
        if shape_signature is not None:
            tensor.shapeSignature = list(shape_signature)
        if scale is not None:
            tensor.quantization = schema.QuantizationParametersT(scale=scale, zeroPoint=zero_point)
        if data is not None:
            raw = data if isinstance(data, bytes) else np.asarray(data, dtype).tobytes()
            tensor.buffer = self._stored(raw)
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def op(
        self, name: str, inputs: Sequence[int], outputs: Sequence[int], options: Any = None
    ) -> None:
        """Adds an operator: a builtin by its name, anything else as a custom one.

        options: an options object of the schema; its union type follows from its class.
        """
        builtin = getattr(schema.BuiltinOperator, name, None)
        code = schema.OperatorCodeT(version=1)
        if builtin is None:
            builtin = schema.BuiltinOperator.CUSTOM
            code.customCode = name.encode()
        code.builtinCode, code.deprecatedBuiltinCode = builtin, min(builtin, 127)
        self.model.operatorCodes.append(code)
        operator = schema.OperatorT(opcodeIndex=len(self.model.operatorCodes) - 1)
        operator.inputs, operator.outputs = list(inputs), list(outputs)
        if options is not None:
            kind = type(options).__name__.removesuffix("T")
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
            operator.builtinOptions = options
        self.graph.operators.append(operator)

    def signature(self, key: str, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> None:
        """Adds a signature; its tensors become inputs and outputs of the subgraph."""
        entry = schema.SignatureDefT(signatureKey=key.encode())
        entry.subgraphIndex = len(self.model.subgraphs) - 1
        entry.inputs, entry.outputs = _named(inputs), _named(outputs)
        self.model.signatureDefs.append(entry)
        for have, new in ((self.graph.inputs, inputs), (self.graph.outputs, outputs)):
            have.extend(index for index in new.values() if index not in have)

    def metadata(self, name: str, data: bytes) -> None:
        """Adds a named piece of metadata."""
        self.model.metadata.append(schema.MetadataT(name=name.encode(), buffer=self._stored(data)))

    def build(self) -> bytes:
        """The file."""
        return packed(self.model)

    def _stored(self, data: bytes) -> int:
        self.model.buffers.append(schema.BufferT(data=np.frombuffer(data, np.uint8)))
        return len(self.model.buffers) - 1


def packed(model: Any) -> bytes:
    """The file of a `ModelT`."""
    packer = flatbuffers.Builder(1024)
    packer.Finish(model.Pack(packer), file_identifier=b"TFL3")
    return bytes(packer.Output())


def _named(tensors: Mapping[str, int]) -> list[Any]:
    return [schema.TensorMapT(name=n.encode(), tensorIndex=i) for n, i in tensors.items()]


def add_model(
    shape: Sequence[int] = (1, 8), dtype: str = "float32", constant: float = 2.0
) -> bytes:
    """y = x + constant."""
    b = ModelBuilder()
    x, y = b.tensor("x", shape, dtype), b.tensor("y", shape, dtype)
    c = b.tensor("c", (1,), dtype, data=[constant])
    b.op("ADD", [x, c], [y], schema.AddOptionsT())
    b.signature("serving_default", {"x": x}, {"y": y})
    return b.build()


def fully_connected_model(input_shape: Sequence[int], units: int = 3, seed: int = 7) -> bytes:
    """y = FULLY_CONNECTED(x, W, b); an input of more than two dimensions is flattened implicitly.

    On ML Drift a 4-D input whose height times width exceeds 1 gives wrong values.
    """
    rng = np.random.default_rng(seed)
    features = int(np.prod(input_shape[1:]))
    b = ModelBuilder()
    x = b.tensor("x", input_shape)
    w = b.tensor("w", (units, features), data=rng.standard_normal((units, features)))
    bias = b.tensor("b", (units,), data=rng.standard_normal(units))
    y = b.tensor("y", (input_shape[0], units))
    b.op("FULLY_CONNECTED", [x, w, bias], [y], schema.FullyConnectedOptionsT())
    b.signature("serving_default", {"x": x}, {"y": y})
    return b.build()


def log_softmax_model(shape: Sequence[int] = (1, 8)) -> bytes:
    """y = LOG_SOFTMAX(x + 1): the delegate takes the ADD and leaves the rest to the CPU."""
    b = ModelBuilder()
    x, m, y = b.tensor("x", shape), b.tensor("m", shape), b.tensor("y", shape)
    c = b.tensor("c", (1,), data=[1.0])
    b.op("ADD", [x, c], [m], schema.AddOptionsT())
    b.op("LOG_SOFTMAX", [m], [y], schema.LogSoftmaxOptionsT())
    b.signature("serving_default", {"x": x}, {"y": y})
    return b.build()


def custom_op_model(shape: Sequence[int] = (1, 4)) -> bytes:
    """y = NO_SUCH_OP(x): no runtime has the operator."""
    b = ModelBuilder()
    x, y = b.tensor("x", shape), b.tensor("y", shape)
    b.op("NO_SUCH_OP", [x], [y])
    b.signature("serving_default", {"x": x}, {"y": y})
    return b.build()


def square_root_model() -> bytes:
    """y = SQRT(x − 10): not a number for every input below 10."""
    b = ModelBuilder()
    x, m, y = (b.tensor(name, (1, 8)) for name in "xmy")
    c = b.tensor("c", (1,), data=[10.0])
    b.op("SUB", [x, c], [m], schema.SubOptionsT())
    b.op("SQRT", [m], [y])
    b.signature("serving_default", {"x": x}, {"y": y})
    return b.build()


def two_signature_model() -> bytes:
    """`double` gives x + x, `next` gives x + 1, each from a subgraph of its own."""
    b = ModelBuilder()
    x, y = b.tensor("x", (1, 8)), b.tensor("twice", (1, 8))
    b.op("ADD", [x, x], [y], schema.AddOptionsT())
    b.signature("double", {"x": x}, {"y": y})
    b.subgraph()
    x, y = b.tensor("x", (1, 8)), b.tensor("after", (1, 8))
    one = b.tensor("one", (1,), data=[1.0])
    b.op("ADD", [x, one], [y], schema.AddOptionsT())
    b.signature("next", {"x": x}, {"y": y})
    return b.build()


def gather_model(rows: int = 11) -> bytes:
    """y = GATHER(table of `rows` rows, ids) + ids' mask as a float."""
    b = ModelBuilder()
    ids = b.tensor("ids", (1, 6), "int32")
    mask = b.tensor("attention_mask", (1, 6), "int32")
    table = b.tensor("table", (rows, 4), data=np.arange(rows * 4).reshape(rows, 4))
    picked = b.tensor("picked", (1, 6, 4))
    asfloat = b.tensor("asfloat", (1, 6))
    b.op("GATHER", [table, ids], [picked], schema.GatherOptionsT())
    kind = schema.TensorType
    cast = schema.CastOptionsT(inDataType=kind.INT32, outDataType=kind.FLOAT32)
    b.op("CAST", [mask], [asfloat], cast)
    b.signature(
        "serving_default", {"ids": ids, "attention_mask": mask}, {"y": picked, "m": asfloat}
    )
    return b.build()


def dynamic_model() -> bytes:
    """y = x + 2 with a first dimension of any size (stored as 1)."""
    b = ModelBuilder()
    x = b.tensor("x", (1, 4), shape_signature=(-1, 4))
    y = b.tensor("y", (1, 4), shape_signature=(-1, 4))
    c = b.tensor("c", (1,), data=[2.0])
    b.op("ADD", [x, c], [y], schema.AddOptionsT())
    b.signature("serving_default", {"x": x}, {"y": y})
    return b.build()


def quantized_model() -> bytes:
    """A uint8 ADD of two inputs, each with scale and zero point."""
    b = ModelBuilder()
    x = b.tensor("x", (1, 64), "uint8", scale=[0.02], zero_point=[120])
    y = b.tensor("y", (1, 64), "uint8", scale=[0.03], zero_point=[128])
    z = b.tensor("z", (1, 64), "uint8", scale=[0.05], zero_point=[125])
    b.op("ADD", [x, y], [z], schema.AddOptionsT())
    b.signature("serving_default", {"x": x, "y": y}, {"z": z})
    return b.build()

"""Models, and the faults that strike them in the page, with the results that they must have."""

from __future__ import annotations

from dataclasses import dataclass

from ai_edge_litert import schema_py_generated as schema

from sweep.config import Backend, Precision
from tests import tflite_builder as build
from tests.tflite_builder import ModelBuilder


@dataclass(frozen=True)
class Expected:
    """What one backend's result must say; `flags` are all but those of the surroundings."""

    status: str
    failure_class: str | None = None
    cause: str | None = None
    flags: frozenset[str] = frozenset()
    against: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Case:
    """A model, how it is swept, and its results."""

    model: bytes
    wasm: Expected
    webgpu: Expected
    desktop: bool = True
    precision: Precision = "default"
    timed: bool = False
    seconds: float | None = None
    """That a first run may take."""
    sha256: str | None = None


def expected(
    status: str,
    failure_class: str | None = None,
    cause: str | None = None,
    *flags: str,
    against: tuple[str, ...] | None = None,
) -> Expected:
    return Expected(status, failure_class, cause, frozenset(flags), against)


def struck(fault: str, model: bytes | None = None) -> bytes:
    """A model that names its fault; y = x + 2 over 16 channels by default."""
    tree = schema.ModelT.InitFromPackedBuf(model or build.add_model((1, 16)), 0)
    tree.description = f"fault:{fault}"
    return build.packed(tree)


def cancelling_model(height: float = 100.0) -> bytes:
    """y = MAX_POOL_2D(x + height, 1×1) − height: the steps of float16 at `height` remain."""
    b = ModelBuilder()
    shape = (1, 4, 4, 8)
    x, up, pooled, y = (b.tensor(name, shape) for name in ("x", "up", "pooled", "y"))
    plus, minus = b.tensor("plus", (1,), data=[height]), b.tensor("minus", (1,), data=[-height])
    pool = schema.Pool2DOptionsT()
    pool.filterHeight = pool.filterWidth = pool.strideH = pool.strideW = 1
    b.op("ADD", [x, plus], [up], schema.AddOptionsT())
    b.op("MAX_POOL_2D", [up], [pooled], pool)
    b.op("ADD", [pooled, minus], [y], schema.AddOptionsT())
    b.signature("serving_default", {"x": x}, {"y": y})
    return b.build()


def without_outputs() -> bytes:
    """x + 2, in a signature that has no outputs."""
    b = ModelBuilder()
    x, y = b.tensor("x", (1, 8)), b.tensor("y", (1, 8))
    b.op("ADD", [x, b.tensor("c", (1,), data=[2.0])], [y], schema.AddOptionsT())
    b.signature("serving_default", {"x": x}, {})
    return b.build()


def nothing_left() -> bytes:
    """y = 0 · x."""
    b = ModelBuilder()
    x, y = b.tensor("x", (1, 16)), b.tensor("y", (1, 16))
    b.op("MUL", [x, b.tensor("c", (1,), data=[0.0])], [y], schema.MulOptionsT())
    b.signature("serving_default", {"x": x}, {"y": y})
    return b.build()


def of_any_height() -> bytes:
    """A dynamic first dimension of known rank, as converters write it."""
    tree = schema.ModelT.InitFromPackedBuf(build.dynamic_model(), 0)
    for tensor in tree.subgraphs[0].tensors:
        tensor.hasRank = True
    return build.packed(tree)


TWINS = {
    "wasm-nan": ("wasm", build.add_model((1, 16), constant=float("nan"))),
    "wasm-zeros": ("wasm", nothing_left()),
    "wasm-custom": ("wasm", build.custom_op_model((1, 16))),
    "wasm-garbage": ("wasm", b"<!doctype html><title>404</title>"),
}
"""What a backend is given instead of the model that names the fault."""

ALTERED_KERNELS = (
    "nan", "zeros", "scaled", "permuted", "unlike", "deaf", "partial-unlike", "noise", "not-wgsl",
)  # fmt: skip
FRESH: dict[str, Backend] = {
    # The runtime keeps compiled kernels: an altered one would be the next model's, too.
    **dict.fromkeys(ALTERED_KERNELS, "webgpu_mldrift"),
    # In a fresh page it need not hang twice.
    "wasm-hangs": "wasm_xnnpack",
}
"""Cases that get a page of their own on one backend."""

PASS = expected("pass")
FC = build.fully_connected_model((1, 16))
NO_OUTPUT = expected("run_failed", "no_output", "unknown")
UNPREPARED = {
    name: expected("load_failed", name)
    for name in ("fetch_failed", "checksum_mismatch", "parse_error")
}
DISAGREES = "reference_disagrees_with_desktop"

CASES: dict[str, Case] = {
    "as-it-is": Case(FC, expected("pass", against=("desktop",)),
                     expected("pass", against=("wasm", "desktop"))),
    # Kernels of the GPU that are wrong.
    "nan": Case(struck("nan"), PASS,
                expected("output_mismatch", "non_finite", "nan_gpu_only", "non_finite")),
    "zeros": Case(struck("zeros"), PASS,
                  expected("output_mismatch", None, "zero_output", "all_zero",
                           "input_independent")),
    "scaled": Case(struck("scaled"), PASS, expected("output_mismatch", None, "scale_error")),
    "permuted": Case(struck("permuted"), PASS,
                     expected("output_mismatch", None, "permuted_output")),
    "unlike": Case(struck("unlike"), PASS, expected("output_mismatch", None, "unknown")),
    "deaf": Case(struck("deaf"), PASS,
                 expected("output_mismatch", None, "unknown", "input_independent")),
    "partial": Case(build.log_softmax_model(), PASS, expected("fallback")),
    "partial-unlike": Case(struck("unlike", build.log_softmax_model()), PASS,
                           expected("output_mismatch", None, "partial_delegation")),
    "noise": Case(struck("noise", build.quantized_model()), PASS,
                  expected("output_mismatch", None, "quantization_noise")),
    "not-wgsl": Case(struck("not-wgsl"), PASS,
                     expected("output_mismatch", None, "gpu_validation_error", "all_zero",
                              "input_independent")),
    # A GPU that is right, but …
    "refused": Case(struck("refused"), PASS,
                    expected("run_failed", "backend_error", "gpu_validation_error")),
    "drifting": Case(struck("drifting"), PASS, expected("pass", None, None, "nondeterministic")),
    "silent-cpu": Case(struck("silent-cpu", FC), PASS,
                       expected("pass", None, None, "suspect_fallback")),
    "starved": Case(struck("starved"), PASS, expected("run_failed", "memory_ceiling", "unknown")),
    "late": Case(struck("late"), PASS, PASS, timed=True),
    # What models are.
    "float16": Case(cancelling_model(), PASS, expected("output_mismatch", None, "precision"),
                    precision="fp16"),
    "square-root": Case(build.square_root_model(),
                        expected("unverified", None, "nan_both", "non_finite"),
                        expected("unverified", None, "nan_both", "non_finite")),
    "nothing-left": Case(nothing_left(), expected("pass", None, None, "all_zero"),
                         expected("pass", None, None, "all_zero")),
    "custom": Case(build.custom_op_model(),
                   expected("run_failed", "run_error", "unknown", "desktop_failed"),
                   expected("load_failed", "compile_error", "unknown", "desktop_failed")),
    "any-height": Case(of_any_height(), expected("run_failed", "dynamic_shape", "unknown"),
                       expected("run_failed", "dynamic_shape", "unknown")),
    "without-outputs": Case(without_outputs(), NO_OUTPUT, NO_OUTPUT),
    "lost-outputs": Case(struck("lost-outputs"), NO_OUTPUT, NO_OUTPUT),
    "cut-outputs": Case(struck("cut-outputs"), NO_OUTPUT, NO_OUTPUT),
    # A wasm reference that is wrong beside a GPU that is right.
    "wasm-nan": Case(struck("wasm-nan"),
                     expected("output_mismatch", "non_finite", "unknown", "non_finite",
                              DISAGREES, "input_independent"),
                     expected("pass", None, None, DISAGREES, against=("desktop",))),
    "wasm-nan-alone": Case(struck("wasm-nan"), expected("unverified", None, None, "non_finite"),
                           expected("unverified", None, "reference_invalid"), desktop=False),
    "wasm-zeros": Case(struck("wasm-zeros"),
                       expected("output_mismatch", None, "zero_output", "all_zero", DISAGREES),
                       expected("pass", None, None, DISAGREES, against=("desktop",))),
    "wasm-zeros-alone": Case(struck("wasm-zeros"), expected("unverified", None, None, "all_zero"),
                             expected("unverified", None, "reference_invalid"), desktop=False),
    "wasm-custom": Case(struck("wasm-custom"), expected("run_failed", "run_error", "unknown"),
                        expected("pass", None, None, "reference_missing",
                                 against=("desktop",))),
    "wasm-custom-alone": Case(struck("wasm-custom"),
                              expected("run_failed", "run_error", "unknown"),
                              expected("unverified", None, "reference_invalid",
                                       "reference_missing"), desktop=False),
    "wasm-hangs": Case(struck("wasm-hangs"), expected("run_failed", "timeout", "unknown"),
                       expected("unverified", None, None, "reference_missing"), desktop=False,
                       seconds=4),
    "wasm-garbage": Case(struck("wasm-garbage"), expected("load_failed", "parse_error", "unknown"),
                         expected("pass", None, None, "reference_missing",
                                  against=("desktop",))),
    # Models that never come to the page.
    "no-such-file": Case(b"", UNPREPARED["fetch_failed"], UNPREPARED["fetch_failed"]),
    "another-file": Case(FC, UNPREPARED["checksum_mismatch"], UNPREPARED["checksum_mismatch"],
                         sha256="0" * 64),
    "no-model": Case(b"<!doctype html><title>404</title>", UNPREPARED["parse_error"],
                     UNPREPARED["parse_error"]),
}  # fmt: skip

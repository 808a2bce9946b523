"""Reading consoles: recorded ones of five releases, and the lines of two known bad cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweep.console import ConsoleFacts, UnsupportedOp, is_telling, normalise, read_console
from sweep.protocol import ConsoleLine, Stage

RECORDINGS = Path(__file__).parent / "data" / "console"


def recording(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((RECORDINGS / f"{name}.json").read_text(encoding="utf-8"))
    return data


def console_lines(data: dict[str, Any]) -> list[ConsoleLine]:
    return [
        ConsoleLine(stage=stage, level=level, count=count, text=text)
        for stage, level, count, text in data["console"]
    ]


def facts(name: str) -> ConsoleFacts:
    return read_console(console_lines(recording(name)))


def line(text: str, stage: Stage = "load", level: str = "error", count: int = 1) -> ConsoleLine:
    return ConsoleLine(level=level, text=text, stage=stage, count=count)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("0.1.1.wasm.lrt_max_unpooling_2d_valid", "LiteRtMaxUnpooling2D"),
        ("0.1.1.webgpu.selfie_segmentation", "Convolution2DTransposeBias"),
        ("2.0.0.wasm.lrt_max_unpooling_2d_valid", "LiteRtMaxUnpooling2D"),
        ("2.5.2.wasm.lrt_max_unpooling_2d_valid", "LiteRtMaxUnpooling2D"),
        ("2.5.3.wasm.lrt_simple_add_op.sm8750", "DISPATCH_OP"),
        ("2.5.3.wasm.face_landmark_with_attention", "Landmarks2TransformMatrix"),
        ("2.5.3.webgpu.lrt_MTKEXT_CONV_2D", "MTKEXT_CONV_2D"),
    ],
)
def test_an_operator_that_cannot_run_is_fatal(name: str, op: str) -> None:
    fatal = [f.text for f in facts(name).fatal]
    assert fatal[0] == f"ERROR: Encountered unresolved custom op: {op}."
    assert any(t.startswith("ERROR: Node number ") and t.endswith("prepare.") for t in fatal)


@pytest.mark.parametrize(
    "name",
    sorted(
        p.stem
        for p in RECORDINGS.glob("*.json")
        if not any(
            part in p.name
            for part in (
                "max_unpooling", "sm8750", "attention", "MTKEXT", "0.1.1.webgpu.selfie",
                "validation", "webgpu.hand_landmark_sparse",
            )
        )
    ),
)  # fmt: skip
def test_other_recorded_runs_have_no_fatal_line(name: str) -> None:
    got = facts(name)
    assert got.fatal == ()
    assert got.gpu_validation == ()


def test_every_run_repeats_the_fatal_lines_and_they_are_counted() -> None:
    got = facts("2.5.3.wasm.lrt_max_unpooling_2d_valid")
    assert [(f.text, f.stage, f.count) for f in got.fatal] == [
        ("ERROR: Encountered unresolved custom op: LiteRtMaxUnpooling2D.", "first_run", 2),
        ("ERROR: Node number 0 (LiteRtMaxUnpooling2D) failed to prepare.", "first_run", 2),
        ("ERROR: [litert_compiled_model.cc:164] Failed to allocate tensors", "first_run", 2),
    ]


def test_info_lines_are_noise_although_they_arrive_as_errors() -> None:
    data = recording("2.5.3.webgpu.hand_landmark_sparse")
    got = read_console(console_lines(data))
    assert got.scanned == len(data["console"])
    assert [e.text for e in got.evidence][:3] == [
        "WARNING: [npu_registry.cc:34] NPU accelerator could not be loaded and registered:"
        " kLiteRtStatusErrorInvalidArgument.",
        "WARNING: [model_load.cc:303] Sparsity tensors may not yet be fully supported.",
        "ERROR: Following operations are not supported by GPU delegate:",
    ]
    assert [e.count for e in got.evidence][:2] == [2, 37]
    assert not any("INFO" in e.text or e.text.startswith("I ") for e in got.evidence)


def test_no_address_time_port_or_styling_survives() -> None:
    for path in RECORDINGS.glob("*.json"):
        for e in facts(path.stem).evidence:
            assert "%c" not in e.text
            assert "background:" not in e.text
            assert "127.0.0.1" not in e.text
            assert not any(p in e.text for p in ("0xca", "0xcb", "03:5"))


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("E0813 06:04:13.123456  755312 gpu_model.cc:3820] Shape mismatch",
         "E gpu_model.cc:3820] Shape mismatch"),
        ("E0813 06:04:13 delegate.cc:7] lost", "E delegate.cc:7] lost"),
        ("\x1b[31mERROR: x\x1b[0m ptr=0x7ffe12", "ERROR: x ptr=0x…"),
        ("at wasm-function[1042]:0x1f3a2", "at wasm-function[1042]:0x…"),
        ("at f (http://127.0.0.1:45363/0123456789abcdefghijkl_-MNOP/page/index.js:88:11)",
         "at f (http://page/page/index.js:88:11)"),
        ("GET http://localhost:80/0123456789abcdefghijkl_-MNOP/blob/Zx81_aQ-kd9TTqwe failed",
         "GET http://page/blob/… failed"),
        ("See https://www.tensorflow.org/lite/guide/ops_custom ",
         "See https://www.tensorflow.org/lite/guide/ops_custom"),
    ],
)  # fmt: skip
def test_normalise(raw: str, clean: str) -> None:
    assert normalise(raw) == clean


def test_the_same_console_at_another_time_gives_the_same_evidence() -> None:
    one = "W0828 19:20:35.020999  755312 gpu_model_builder.cc:3820] Shape mismatch at 0x12a8"
    two = "W0829 07:00:01.000001  655360 gpu_model_builder.cc:3820] Shape mismatch at 0x9f00"
    assert read_console([line(one)]) == read_console([line(two)])
    assert read_console([line(one), line(two)]).evidence[0].count == 2


def test_the_fatal_line_is_found_beyond_any_cap() -> None:
    flood = [line(f"RESHAPE: Tensor dimensions must be less than 5. t{i}") for i in range(3000)]
    got = read_console([*flood, line("ERROR: Failed to invoke", stage="timed")], dropped=7)
    assert [f.text for f in got.fatal] == ["ERROR: Failed to invoke"]
    assert (got.scanned, got.dropped) == (3001, 7)


@pytest.mark.parametrize(
    "text",
    [
        "ERROR: Node number 7 (TfLiteXNNPackDelegate) failed to invoke.",
        "ERROR: [litert_compiled_model.cc:164] Failed to allocate tensors",
        "Failed to invoke signature runner: INTERNAL",
        "ERROR: Failed to set custom allocation for tensor: x",
        "ERROR: [a.cc:1] Failed to set custom allocation for input tensor x (index 3): 1",
        "ERROR: Encountered an unresolved custom op. Did you miss a custom op or delegate?",
        "ERROR: Invoke called on model that is not ready.",
        "ERROR: Input tensor 3 lacks data",
        "ERROR: Select TensorFlow op(s), included in the given model, is(are) not supported by"
        " this interpreter. Make sure you apply/link the Flex delegate before inference.",
    ],
)
def test_fatal_kin(text: str) -> None:
    assert [f.text for f in read_console([line(text, stage="first_run")]).fatal] == [text]
    assert is_telling(text)


@pytest.mark.parametrize(
    "text",
    [
        "INFO: Failed to load OpenCL library with dlopen: dynamic linking not enabled.",
        "WARNING: [npu_registry.cc:34] NPU accelerator could not be loaded and registered",
        "ERROR: Following operations are not supported by GPU delegate:",
        "No operations will run on the GPU, and all 1 operations will run on the CPU.",
        "[LiteRT] Model not fully compiled for webgpu. Partially delegating to WASM execution.",
    ],
)
def test_not_fatal(text: str) -> None:
    got = read_console([line(text)])
    assert got.fatal == ()
    assert got.gpu_validation == ()
    assert not is_telling(text)


def test_a_delegation_that_was_undone_while_loading_is_not_fatal() -> None:
    failed = line("ERROR: Node number 12 (MlDriftDelegate) failed to prepare.")
    undone = line("ERROR: Restored original execution plan after delegate application failure.")
    whole = line(
        "%c[LiteRT]%c Model not fully compiled for webgpu on non-JSPI browser. Falling back to"
        " WASM execution. background: #D32F2F; color: white; color: #D32F2F; font-weight: bold;",
        level="warning",
    )
    assert len(read_console([failed]).fatal) == 1
    for repair in (undone, whole):
        got = read_console([failed, repair])
        assert got.fatal == ()
        assert got.evidence[0].text.endswith("failed to prepare.")
        assert read_console([repair, failed]).fatal != ()
        later = line("ERROR: Node number 0 (ADD) failed to invoke.", stage="first_run")
        assert len(read_console([failed, repair, later]).fatal) == 1


def test_gpu_validation_errors_of_chromium() -> None:
    got = facts("validation.chromium")
    assert [(v.text.splitlines()[0], v.count) for v in got.gpu_validation] == [
        ("Dispatch workgroup count Y (66752) exceeds max compute workgroups per dimension"
         " (65535).", 2),
        ("[Invalid CommandBuffer] is invalid due to a previous error.", 3),
        ("Binding usage (BufferUsage::Uniform) of [Buffer (unlabeled)] doesn't match expected"
         " usage (BufferUsage::Storage).", 1),
        ("[Invalid BindGroup (unlabeled)] is invalid due to a previous error.", 1),
        ("Error while parsing WGSL: :1:10 error: expected ')' for function declaration", 1),
    ]  # fmt: skip
    assert got.evidence == got.gpu_validation
    popped = "GPU error: GPUValidationError at: invoke"  # error scopes of the 0.x cores
    assert read_console([line(popped)]).gpu_validation[0].text == popped


@pytest.mark.parametrize(
    ("name", "gpu", "cpu"),
    [
        ("0.1.1.webgpu.lrt_fallback_model", 1, 1),
        ("0.2.1.webgpu.hand_landmark_sparse", 103, 101),
        ("2.0.0.webgpu.lrt_fallback_model", 1, 1),
        ("2.5.2.webgpu.lrt_fallback_model", 1, 1),
        ("2.5.3.webgpu.hand_landmark_sparse", 66, 138),
        ("2.5.3.webgpu.lrt_l2_norm_composite", 0, 1),
        ("2.5.3.webgpu.lrt_torchaudio_conformer", 100, 38),
        # two subgraphs: 14 and 31, then none and 12
        ("2.5.3.webgpu.alexa", 14, 43),
        ("2.5.3.webgpu.rnet", None, None),
        ("2.5.3.wasm.lrt_fallback_model", None, None),
    ],
)
def test_operator_counts(name: str, gpu: int | None, cpu: int | None) -> None:
    got = facts(name).delegation
    assert (got.ops_on_gpu, got.ops_on_cpu) == (gpu, cpu)
    assert got.fallback is (True if cpu else None)


def test_unsupported_operators_with_reason_and_tensor() -> None:
    got = facts("2.5.3.webgpu.lrt_torchaudio_conformer").delegation
    tensor = (
        "torchaudio.models.conformer.ConformerLayer/"
        "torch.nn.modules.activation.MultiheadAttention_self_attn;14"
    )
    assert got.unsupported[0] == UnsupportedOp(
        op="RESHAPE", reason="Tensor dimensions must be less than 5.", tensor=tensor
    )
    assert got.unsupported[2] == UnsupportedOp(
        op="TRANSPOSE", reason="Permutation for transpose is invalid."
    )
    assert f"RESHAPE: Tensor dimensions must be less than 5. {tensor}" in got.evidence
    counted = facts("2.5.3.webgpu.alexa").delegation.unsupported
    assert {u.op: u.count for u in counted} == {
        "ASSIGN_VARIABLE": 2, "CALL_ONCE": 1, "READ_VARIABLE": 1, "VAR_HANDLE": 2,
    }  # fmt: skip
    densify = facts("2.5.3.webgpu.hand_landmark_sparse").delegation.unsupported
    assert [(u.op, u.reason) for u in densify] == [
        ("DENSIFY", "Operation is not supported."),
        ("DEQUANTIZE", ""),
        ("DEQUANTIZE", "Dequantize for Densify is not supported"),
    ]


def test_reasons_without_a_tensor_stay_whole() -> None:
    got = read_console(
        [
            line("ERROR: Following operations are not supported by GPU delegate:"),
            line("RELU_0_TO_1: Not supported op RELU_0_TO_1"),
            line("SLICE: Slicing is unsupported for input with rank > 4"),
            line("W0828 19:20:35.020999  755312 builder.cc:3820] Shape: mismatch", level="warning"),
            line("BATCH_MATMUL: Not supported batched mat mul case: non-constant tensor"),
            line("71 operations will run on the GPU, and the remaining 384 operations will run"
                 " on the CPU."),
            line("ADD: not of the block"),
        ]
    ).delegation  # fmt: skip
    assert [(u.op, u.reason, u.tensor) for u in got.unsupported] == [
        ("RELU_0_TO_1", "Not supported op RELU_0_TO_1", None),
        ("SLICE", "Slicing is unsupported for input with rank > 4", None),
        ("BATCH_MATMUL", "Not supported batched mat mul case: non-constant tensor", None),
    ]


def test_partitions_come_from_info_lines() -> None:
    info = (
        "INFO: Replacing 66 out of 204 node(s) with delegate (LiteRT ML Drift) node, yielding 9"
        " partitions for subgraph 0 (main)."
    )
    xnn = (
        "INFO: Replacing 12 out of 204 node(s) with delegate (TfLiteXNNPackDelegate) node,"
        " yielding 4 partitions for subgraph 0."
    )
    got = read_console([line(info), line(xnn)])
    assert got.delegation.partitions == 9
    assert got.delegation.evidence == (info, xnn)
    assert got.evidence == ()
    assert read_console([line(xnn)]).delegation.partitions == 4


def test_both_ways_of_falling_back_are_read() -> None:
    partial = facts("2.5.3.webgpu.lrt_fallback_model").delegation
    assert partial.evidence[-1] == (
        "[LiteRT] Model not fully compiled for webgpu. Partially delegating to WASM execution."
    )
    whole = line(
        "%c[LiteRT]%c Model not fully compiled for webgpu on non-JSPI browser. Falling back to"
        " WASM execution.",
        level="warning",
    )
    assert read_console([whole]).delegation.fallback is True

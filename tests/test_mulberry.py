"""The 1.0 generator against its published test vectors and a plain scalar form of it."""

from __future__ import annotations

import numpy as np
import pytest

from sweep.mulberry import mulberry32, tensor_1_0


def scalar(seed: int, count: int) -> list[int]:
    """mulberry32 one draw at a time, in Python's integers."""
    mask, s, out = 2**32 - 1, seed & (2**32 - 1), []
    for _ in range(count):
        s = (s + 0x6D2B79F5) & mask
        t = ((s ^ (s >> 15)) * (s | 1)) & mask
        t ^= (t + (((t ^ (t >> 7)) * (t | 61)) & mask)) & mask
        out.append(t ^ (t >> 14))
    return out


def test_published_vectors_of_seed_42() -> None:
    u = mulberry32(42, 3) / 2.0**32
    assert u.round(10).tolist() == [0.6011037519, 0.4482905590, 0.8524657935]
    floats = tensor_1_0(42, 0, (3,), "float32")
    assert floats.dtype == np.float32
    assert [f"{x:.10f}" for x in floats] == ["0.2022075057", "-0.1034188792", "0.7049316168"]
    assert tensor_1_0(42, 0, (1, 3), "int32").tolist() == [[9, 7, 13]]


@pytest.mark.parametrize("seed", [0, 42, 2**32 - 1, 42 + 5 * 1_000_003, -1])
def test_the_vectorised_stream_is_the_scalar_one(seed: int) -> None:
    assert mulberry32(seed, 500).tolist() == scalar(seed, 500)
    assert mulberry32(seed, 100, start=400).tolist() == scalar(seed, 500)[400:]


def test_a_tensor_has_a_stream_of_its_own() -> None:
    expected = [x >> 28 for x in scalar(42 + 2 * 1_000_003, 4)]
    assert tensor_1_0(42, 2, (2, 2), "int32").reshape(-1).tolist() == expected


def test_chunks_join_without_a_seam() -> None:
    size = (1 << 20) + 3
    tail = tensor_1_0(7, 0, (size,), "int32")[-5:]
    assert tail.tolist() == (mulberry32(7, 5, start=size - 5) >> np.uint32(28)).tolist()


def test_types_that_the_1_0_format_had_not() -> None:
    u = [x / 2**32 for x in scalar(42, 64)]
    assert tensor_1_0(42, 0, (64,), "uint8").tolist() == [int(256 * x) for x in u]
    assert tensor_1_0(42, 0, (64,), "int8").tolist() == [int(256 * x) - 128 for x in u]
    assert tensor_1_0(42, 0, (64,), "bool").tolist() == [x >= 0.5 for x in u]
    with pytest.raises(ValueError, match="complex64"):
        tensor_1_0(42, 0, (1,), "complex64")

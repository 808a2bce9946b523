"""The 1.0 input generator, for comparability with 1.0 records: mulberry32, one stream per tensor.

Its state is a counter, so the whole stream is computed at once:
stream seed = (seed + tensor_index * 1000003) mod 2^32; draw k (from 1) has
s = stream seed + k * 0x6d2b79f5; t = imul(s ^ s>>>15, s|1); t ^= t + imul(t ^ t>>>7, t|61);
u = (t ^ t>>>14) / 2^32, all in uint32 arithmetic. Source of the constants: Tommy Ettinger's
mulberry32 (public domain).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

STREAM_STEP = 1_000_003
_CHUNK = 1 << 20


def mulberry32(seed: int, count: int, start: int = 0) -> npt.NDArray[np.uint32]:
    """Draws `start` to `start + count` of the stream, as the uint32 before division by 2^32."""
    draws = np.arange(start + 1, start + count + 1, dtype=np.uint64)
    state = (np.uint64(seed % 2**32) + draws * np.uint64(0x6D2B79F5)).astype(np.uint32)
    t = (state ^ (state >> np.uint32(15))) * (state | np.uint32(1))
    t = t ^ (t + (t ^ (t >> np.uint32(7))) * (t | np.uint32(61)))
    result: npt.NDArray[np.uint32] = t ^ (t >> np.uint32(14))
    return result


def tensor_1_0(
    seed: int, tensor_index: int, shape: tuple[int, ...], dtype: str
) -> npt.NDArray[Any]:
    """The input tensor that the 1.0 generator makes.

    float32 (and float16, float64): fround(2u - 1), in [-1, 1). int32 (and the other wide
    integers): floor(16u), in 0..15. The 1.0 generator made no other types; here uint8 is
    floor(256u), int8 is floor(256u) - 128 and bool is floor(2u).

    Args:
        seed: of the sweep, 42 in the public records.
        tensor_index: position of the input in the model, from 0.
        shape: of the tensor.
        dtype: a numpy name; anything but floats, integers and bool raises ValueError.
    """
    kind = np.dtype(dtype)
    if kind.kind not in "fiub":
        raise ValueError(f"the 1.0 generator makes no {dtype}")
    stream = seed + tensor_index * STREAM_STEP
    result = np.empty(shape, kind)
    flat = result.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        u = mulberry32(stream, min(_CHUNK, flat.size - start), start)
        part = flat[start : start + u.size]
        if kind.kind == "f":
            # 2u - 1 is exact in float64 (33 bits); the assignment rounds once, as fround does.
            part[:] = u.astype(np.float64) * 2.0**-31 - 1.0
        elif kind.kind == "b":
            part[:] = u >> np.uint32(31)
        elif kind.itemsize == 1:
            part[:] = (u >> np.uint32(24)).astype(np.int16) - (128 if kind.kind == "i" else 0)
        else:
            part[:] = u >> np.uint32(28)
    return result

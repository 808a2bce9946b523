"""Errors per channel: a small channel that is all wrong, which a large one beside it hides.

A channel is an index of the last axis (NHWC, features), or of axis 1 where there are three or more
(NCHW). At most 262,144 elements are looked at per axis, drawn evenly with a fixed seed: a channel
that is wrong throughout is wrong in any sample of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sweep.config import Frozen

Array = npt.NDArray[Any]

MAX_CHANNELS = 4096
MIN_SAMPLES = 16
"""Elements a channel must have: fewer may disagree by chance."""
SAMPLED_ELEMENTS = 1 << 18
LOST = 0.5
"""Error over signal (both RMS, of one channel) from which the channel is lost."""
OTHERS = 0.8
MAX_LOST = 8


class LostChannel(Frozen):
    """A channel whose error is as large as its signal; RMS values over the elements sampled."""

    axis: int
    index: int
    signal: float
    """RMS of the reference in the channel."""
    error: float
    """RMS of the error in the channel."""
    others: float
    """The error (RMS) that four fifths of the axis' channels do not exceed."""


def lost_channels(measured: Array, reference: Array) -> tuple[LostChannel, ...]:
    """The worst 8 channels at most with error ≥ signal / 2, largest error first.

    Args:
        measured, reference: of one shape, finite throughout, C-contiguous. Axes with fewer than 2
            or more than 4,096 channels, or fewer than 16 elements per channel, are passed over.
    """
    found: list[LostChannel] = []
    last = reference.ndim - 1
    for axis in sorted({1, last} if reference.ndim >= 3 else {last} if last == 1 else set()):
        channels = reference.shape[axis]
        if not 2 <= channels <= MAX_CHANNELS or reference.size < MIN_SAMPLES * channels:
            continue
        o, r = _samples(measured, axis), _samples(reference, axis)
        signal = np.sqrt(np.mean(np.square(r), axis=0))
        error = np.sqrt(np.mean(np.square(o - r), axis=0))
        others = float(np.quantile(error, OTHERS, method="lower"))
        for index in np.flatnonzero((signal > 0) & (error >= LOST * signal)):
            found.append(
                LostChannel(
                    axis=axis, index=int(index), signal=float(signal[index]),
                    error=float(error[index]), others=others,
                )
            )  # fmt: skip
    found.sort(key=lambda c: (-c.error, c.axis, c.index))
    return tuple(found[:MAX_LOST])


def _samples(array: Array, axis: int) -> npt.NDArray[np.float64]:
    """Elements of every channel, [samples, channels], at places that depend on the shape alone."""
    channels = array.shape[axis]
    count = max(MIN_SAMPLES, SAMPLED_ELEMENTS // channels)
    rng = np.random.default_rng(0)
    if axis == array.ndim - 1:
        rows = array.reshape(-1, channels)
        return rows[_places(rng, rows.shape[0], count)].astype(np.float64)
    planes = array.reshape(array.shape[0], channels, -1)
    places = _places(rng, planes.shape[0] * planes.shape[2], count)
    item, place = np.divmod(places, planes.shape[2])
    return planes[item, :, place].astype(np.float64)


def _places(rng: np.random.Generator, total: int, count: int) -> npt.NDArray[np.int64]:
    """`count` of `range(total)`, in order; all of them where there are no more."""
    if total <= count:
        return np.arange(total)
    return np.sort(rng.integers(0, total, count))

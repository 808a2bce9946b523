"""Agreement of the largest scores, where an output looks like scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

MIN_CLASSES, MAX_CLASSES = 2, 100_000
MAX_LOGIT_ROWS = 64
MAX_ROWS = 4096
_PROBED_ROWS = 64
_BLOCK_ELEMENTS = 1 << 18


def looks_like_scores(reference: Array) -> bool:
    """Whether the last axis (2 … 100,000 long) may be read as one score per class.

    Either every probed row is a distribution (non-negative, sum 1 ± 0.02), whatever the rank, or
    the output is one axis, or two with at most 64 rows ([batch, classes] logits; landmarks and
    embeddings of that shape pass as well: for them the agreement is merely uninteresting).
    Finite values are the caller's duty.
    """
    if reference.ndim == 0 or not MIN_CLASSES <= reference.shape[-1] <= MAX_CLASSES:
        return False
    rows = reference.reshape(-1, reference.shape[-1])
    if reference.ndim <= 2 and rows.shape[0] <= MAX_LOGIT_ROWS:
        return True
    if reference.dtype.kind != "f" or rows.shape[0] == 0:
        return False
    probe = rows[_spread(rows.shape[0], _PROBED_ROWS)].astype(np.float64)
    return bool((probe >= 0).all() and (np.abs(probe.sum(axis=1) - 1) <= 0.02).all())


def score_agreement(measured: Array, reference: Array) -> tuple[bool | None, float | None]:
    """(argmax agrees in every row, mean overlap of the five largest per row), or (None, None).

    A row agrees when the measured score at the reference's argmax is the measured maximum, so that
    ties are not disagreements. With five classes or fewer the overlap is of the largest N−1. At
    most 4,096 rows, evenly spread, are looked at.
    """
    if not looks_like_scores(reference):
        return None, None
    classes = reference.shape[-1]
    m, r = measured.reshape(-1, classes), reference.reshape(-1, classes)
    chosen = _spread(r.shape[0], MAX_ROWS)
    k = min(5, classes - 1)
    agree, shared = True, 0
    step = max(1, _BLOCK_ELEMENTS // classes)
    for start in range(0, chosen.size, step):
        at = chosen[start : start + step]
        rows_m, rows_r = m[at], r[at]
        line = np.arange(at.size)
        agree = agree and bool((rows_m[line, rows_r.argmax(axis=1)] == rows_m.max(axis=1)).all())
        # Stable, so that equal scores are taken in the same order on both sides.
        top_m, top_r = (
            np.argsort(rows, axis=1, kind="stable")[:, -k:] for rows in (rows_m, rows_r)
        )
        shared += int((top_m[:, :, None] == top_r[:, None, :]).sum())
    return agree, shared / (k * chosen.size)


def _spread(count: int, limit: int) -> npt.NDArray[np.int64]:
    """At most `limit` indices, evenly over `range(count)`."""
    return np.unique(np.linspace(0, count - 1, min(count, limit)).round().astype(np.int64))

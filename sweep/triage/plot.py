"""The error along the graph as inline SVG: one mark per tensor, in the order of execution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from sweep.triage.findings import TensorError

WIDTH, HEIGHT = 960, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 14, 40
LOWEST, HIGHEST = -9, 2
"""Decades of normalised RMSE that are drawn; beyond them marks lie on the edge."""

_MARKS = {"exact": "ok", "rounding": "ok", "precision": "ok", "divergent": "bad", "broken": "bad"}


def error_plot(errors: Sequence[TensorError], boundary: int | None = None) -> str:
    """SVG of normalised RMSE (logarithmic) over the position of the operator in the file.

    Circles are tensors that were exposed as further outputs, squares are models that end there.
    A text alternative is in the title.
    """
    if not errors:
        return ""
    last = max(e.position for e in errors) or 1

    def x(position: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (position + 0.5) / (last + 1)

    def y(nrmse: float | None) -> float:
        if nrmse is None or not math.isfinite(nrmse):
            level = float(HIGHEST)
        elif nrmse <= 0:
            level = float(LOWEST)
        else:
            level = min(max(math.log10(nrmse), LOWEST), HIGHEST)
        return TOP + (HEIGHT - TOP - BOTTOM) * (HIGHEST - level) / (HIGHEST - LOWEST)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" class="plot" '
        'xmlns="http://www.w3.org/2000/svg">',
        f"<title>{escape(_words(errors))}</title>",
    ]
    for level in range(LOWEST, HIGHEST + 1):
        height = y(10.0**level)
        label = f"1e{level}" if level not in (0, 1, 2) else f"{10**level}"
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height:.1f}" '
            f'y2="{height:.1f}"/><text class="axis" x="{LEFT - 8}" y="{height + 4:.1f}" '
            f'text-anchor="end">{label}</text>'
        )
    step = max(1, (last + 1) // 16)
    for position in range(0, last + 1, step):
        parts.append(
            f'<text class="axis" x="{x(position):.1f}" y="{HEIGHT - BOTTOM + 18}" '
            f'text-anchor="middle">{position}</text>'
        )
    parts.append(
        f'<text class="axis" x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 4}" text-anchor="middle">'
        "operator, in the order of execution</text>"
    )
    if boundary is not None:
        parts.append(
            f'<line class="edge" x1="{x(boundary):.1f}" x2="{x(boundary):.1f}" y1="{TOP}" '
            f'y2="{HEIGHT - BOTTOM}"/>'
        )
    exposed = [e for e in errors if e.how == "exposed"]
    if len(exposed) > 1:
        points = " ".join(f"{x(e.position):.1f},{y(e.nrmse):.1f}" for e in exposed)
        parts.append(f'<polyline class="line" points="{points}"/>')
    for e in errors:
        title = escape(f"{e.position} {e.op} → {e.name}: {_size(e)} ({e.grade}, {e.how})")
        css = _MARKS.get(e.grade, "ok")
        cx, cy = x(e.position), y(e.nrmse)
        shape = (
            f'<circle class="{css}" cx="{cx:.1f}" cy="{cy:.1f}" r="4">'
            f"<title>{title}</title></circle>"
            if e.how == "exposed"
            else f'<rect class="{css} cut" x="{cx - 6:.1f}" y="{cy - 6:.1f}" width="12" '
            f'height="12"><title>{title}</title></rect>'
        )
        parts.append(shape)
    return "".join([*parts, "</svg>"])


def _size(e: TensorError) -> str:
    return f"normalised RMSE {e.nrmse:.3g}" if e.nrmse is not None else "no number"


def _words(errors: Sequence[TensorError]) -> str:
    wrong = [e for e in errors if _MARKS.get(e.grade) == "bad"]
    if not wrong:
        return f"Error of {len(errors)} tensors; none is wrong."
    first = min(wrong, key=lambda e: e.position)
    return (
        f"Error of {len(errors)} tensors; {len(wrong)} are wrong, the first after operator "
        f"{first.position} ({first.op})."
    )

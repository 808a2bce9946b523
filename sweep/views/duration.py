"""A time span for a person."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 20 min`: as exact as an estimate deserves."""
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"

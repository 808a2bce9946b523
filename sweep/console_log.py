"""The console of one job as the driver hears it: bounded, without losing what decides."""

from __future__ import annotations

from dataclasses import dataclass, field

from sweep.console import is_telling, normalise
from sweep.protocol import ConsoleLine, Stage

MAX_CONSOLE_LINES = 20_000
"""Lines kept per job; a page that floods the console is cut here, and the cut is recorded."""
MAX_LINE_LENGTH = 8_000
MAX_SCANNED_PARTS = 200
"""Lines of one over-long message that are looked through beyond its kept part."""


@dataclass
class ConsoleLog:
    """The console of one job, with runs of the same line folded."""

    lines: list[ConsoleLine] = field(default_factory=list)
    dropped: int = 0
    stage: Stage | None = None

    def add(self, level: str, text: str) -> None:
        """Appends a line; beyond the limit it is only counted, unless it can decide a verdict."""
        text = _shortened(text)
        if self.lines:
            last = self.lines[-1]
            if (last.level, last.text, last.stage) == (level, text, self.stage):
                self.lines[-1] = last.model_copy(update={"count": last.count + 1})
                return
        if len(self.lines) >= MAX_CONSOLE_LINES:
            # Telling lines have as much room again: no flood can push them out.
            room = len(self.lines) < 2 * MAX_CONSOLE_LINES
            if not (room and is_telling(normalise(text))):
                self.dropped += 1
                return
        self.lines.append(ConsoleLine(level=level, text=text, stage=self.stage))


def _shortened(text: str) -> str:
    """A line of bounded length that still holds what can decide a verdict."""
    if len(text) <= MAX_LINE_LENGTH:
        return text
    rest = text[MAX_LINE_LENGTH:].splitlines()[:MAX_SCANNED_PARTS]
    telling = [part[:MAX_LINE_LENGTH] for part in rest]
    telling = [part for part in telling if is_telling(normalise(part))]
    return "\n".join([text[:MAX_LINE_LENGTH], *telling[:1]])

"""The log file: one JSON object per line, without secrets."""

from __future__ import annotations

import datetime
import json
import logging

from sweep.secrets import redact


class JsonLines(logging.Formatter):
    """`time` (UTC), `level`, `logger`, `message`, and what the event itself says beside them."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; facts given as `extra={"facts": {…}}` become fields of their own."""
        when = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line: dict[str, object] = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        facts = getattr(record, "facts", None)
        if isinstance(facts, dict):
            line |= {name: value for name, value in facts.items() if name not in line}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(_clean(line), ensure_ascii=False, default=str)


def _clean(value: object) -> object:
    # Before quoting: a secret with a quote in it would otherwise look different.
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {str(name): _clean(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in value]
    return value

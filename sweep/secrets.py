"""Secrets of the environment: kept from child processes that do not need them, and out of texts."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping

_NAME = re.compile(
    r"token(?!iz)|secret|passw|credential|api_?key|access_?key|private_?key|_auth\b|authorization",
    re.IGNORECASE,
)
_PROXY = re.compile(r"(?:https?|all|ftp|socks)_proxy", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/@\s]+@")
_SHORTEST = 6
"""A shorter value would strike common words out of every text."""

HIDDEN = "***"


def is_secret(name: str, value: str) -> bool:
    """Whether an environment variable holds something that must not be passed on."""
    return bool(_NAME.search(name) or _USER_INFO.search(value))


def public_environ(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without its secrets, for processes that run strangers' files.

    A browser and an interpreter need no token; neither can a flaw in them then give one away.
    """
    given = os.environ if environ is None else environ
    return {name: value for name, value in given.items() if not is_secret(name, value)}


def redact(text: str, environ: Mapping[str, str] | None = None) -> str:
    """`text` without the user part of URLs and without any secret value of the environment."""
    text = _USER_INFO.sub(f"{HIDDEN}@", text)
    given = os.environ if environ is None else environ
    for name, value in given.items():
        if _NAME.search(name) and len(value) >= _SHORTEST:
            text = text.replace(value, HIDDEN)
        elif _PROXY.fullmatch(name) and (user := _USER_INFO.search(value)):
            for part in user[0].rstrip("@").split(":"):
                if len(part) >= _SHORTEST:
                    text = text.replace(part, HIDDEN)
    return text


class RedactingFormatter(logging.Formatter):
    """A formatter whose lines hold no secrets, whatever the messages and tracebacks hold."""

    def format(self, record: logging.LogRecord) -> str:
        """As the base class, redacted."""
        return redact(super().format(record))

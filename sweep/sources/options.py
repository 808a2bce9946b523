"""What a fetch may do, and what it gives back."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pydantic import Field

from sweep.config import Frozen

GIB = 1024**3


class FetchOptions(Frozen):
    """Bounds and permissions of a fetch. Times in seconds, sizes in bytes."""

    max_bytes: int = Field(2 * GIB, gt=0, description="largest model; a flatbuffer ends at 2 GiB")
    max_archive_bytes: int = Field(2 * GIB, gt=0, description="largest npm or PyPI archive")
    max_unpacked_bytes: int = Field(8 * GIB, gt=0, description="an archive may unpack to this")
    total_timeout: float = Field(3600, gt=0)
    stall_timeout: float = Field(60, gt=0, description="no byte for this long: try again")
    connect_timeout: float = Field(30, gt=0)
    attempts: int = Field(5, ge=1, description="tries that gain nothing before giving up")
    retry_wait: float = Field(1.0, ge=0, description="first wait between tries, then doubling")
    offline: bool = False
    allow_insecure: bool = Field(False, description="plain http sources and redirects")
    allow_private: bool = Field(
        False, description="loopback, private and link-local addresses of https sources"
    )
    hf_endpoint: str | None = Field(None, description="None: the hub's own, or HF_ENDPOINT")
    python: str = Field(sys.executable, description="the Python whose pip is asked")

    @classmethod
    def from_env(cls) -> FetchOptions:
        """The defaults, with `LITERTJS_SWEEP_OFFLINE=1` and `LITERTJS_SWEEP_ALLOW_PRIVATE=1`."""
        return cls(
            offline=_switch("LITERTJS_SWEEP_OFFLINE"),
            allow_private=_switch("LITERTJS_SWEEP_ALLOW_PRIVATE"),
        )


class FetchedModel(Frozen):
    """A checked file on this machine."""

    path: Path
    sha256: str
    bytes: int
    resolved: str
    """The source, made exact where it was not (`hf:…@<commit>`); holds no secrets."""


def _switch(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() in {"1", "true", "yes", "on"}

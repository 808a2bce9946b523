"""Shards: a catalog split over machines, stable by model id."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from pydantic import Field

from sweep.catalog import CatalogEntry
from sweep.config import Frozen
from sweep.errors import UsageError

MAX_SHARDS = 10_000


class Shard(Frozen):
    """One of `count` parts of a catalog."""

    number: int = Field(ge=1)
    """From 1 to `count`."""
    count: int = Field(ge=1, le=MAX_SHARDS)


def parse_shard(text: str) -> Shard:
    """`K/N`, K from 1 to N.

    Raises:
        UsageError: not of that form.
    """
    found = re.fullmatch(r"([0-9]{1,5})/([0-9]{1,5})", text)
    number, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= count <= MAX_SHARDS:
        raise UsageError(
            f"--shard {text!r} is no shard: write K/N with K from 1 to N, N at most {MAX_SHARDS}, "
            "as in 1/4."
        )
    return Shard(number=number, count=count)


def shard_number(model_id: str, count: int) -> int:
    """The shard, from 1 to `count`, that a model belongs to.

    The first eight bytes of the SHA-256 of the model id, big-endian, modulo `count`, plus one: the
    same on every machine, and whatever else the catalog has or however it is ordered.
    """
    digest = hashlib.sha256(model_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") % count + 1


def take_shard(entries: Sequence[CatalogEntry], shard: Shard | None) -> tuple[CatalogEntry, ...]:
    """The entries of a shard in their order, which may be none; all of them for None."""
    return tuple(
        entry
        for entry in entries
        if shard is None or shard_number(entry.model_id, shard.count) == shard.number
    )

"""Options → configuration, with one message per mistake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer
from pydantic import ValidationError

from sweep.catalog import Catalog, CatalogEntry
from sweep.config import DEFAULT_BACKENDS, SweepConfig, Timeouts
from sweep.errors import UsageError
from sweep.profiles import find_leg
from sweep.record import STATUSES
from sweep.shard import parse_shard, take_shard


def make_config(
    *,
    core: str,
    backends: Sequence[str] | None,
    leg: str = "default",
    timeout: float | None = None,
    **fields: Any,
) -> SweepConfig:
    """The configuration of a sweep from its options.

    Raises:
        UsageError: a value that cannot be.
    """
    try:
        limits = Timeouts()
        if timeout is not None:
            limits = Timeouts.model_validate(dict.fromkeys(Timeouts.model_fields, timeout))
        return SweepConfig(
            core_version=core,
            backends=tuple(backends) if backends else DEFAULT_BACKENDS,
            leg=find_leg(leg),
            timeouts=limits,
            **fields,
        )
    except ValidationError as error:
        lines = [
            f"--{'-'.join(str(part) for part in item['loc'][:1]).replace('_', '-')}: {item['msg']}"
            for item in error.errors()
        ]
        raise UsageError("These options do not fit:\n  " + "\n  ".join(lines)) from error


def select_entries(catalog: Catalog, only: str | None) -> tuple[CatalogEntry, ...]:
    """The entries whose ids were asked for, in catalog order.

    Raises:
        UsageError: an id that the catalog does not have.
    """
    if only is None:
        return catalog.entries
    wanted = [name.strip() for name in only.split(",") if name.strip()]
    known = {entry.model_id for entry in catalog.entries}
    missing = [name for name in wanted if name not in known]
    if missing:
        raise UsageError(
            f"{catalog.path} has no model {', '.join(missing)}. It has: {', '.join(sorted(known))}."
        )
    return tuple(entry for entry in catalog.entries if entry.model_id in wanted)


def select_shard(entries: Sequence[CatalogEntry], shard: str | None) -> tuple[CatalogEntry, ...]:
    """The entries of `--shard K/N`; ends the command with 0 where that is none of them.

    Raises:
        UsageError: not K/N.
    """
    chosen = take_shard(entries, parse_shard(shard) if shard is not None else None)
    if not chosen:
        typer.echo(f"Shard {shard} has none of these {len(entries)} models: nothing to do.")
        raise typer.Exit
    return chosen


def fleet_needs(
    needs: Sequence[str] | None, machine_label: str | None, require_hardware: bool
) -> tuple[str, ...]:
    """What workers must offer, from the options that say it.

    Raises:
        UsageError: not `name=value` of something that workers advertise.
    """
    wanted = list(needs or ())
    for need in wanted:
        name, sign, value = need.partition("=")
        if name not in ("os", "adapter", "machine", "backend") or not (sign and value):
            raise UsageError(
                f"--needs {need!r}: write os=…, adapter=hardware, adapter=software, machine=… "
                "or backend=…"
            )
    if machine_label is not None:
        wanted.append(f"machine={machine_label}")
    if require_hardware:
        wanted.append("adapter=hardware")
    return tuple(wanted)


def parse_fail_on(text: str | None) -> tuple[str, ...]:
    """Statuses of `--fail-on`.

    Raises:
        UsageError: a word that is no status.
    """
    words = tuple(word.strip() for word in (text or "").split(",") if word.strip())
    wrong = [word for word in words if word not in STATUSES]
    if wrong:
        raise UsageError(
            f"--fail-on: {', '.join(wrong)} is no status. Statuses: {', '.join(STATUSES)}."
        )
    return words

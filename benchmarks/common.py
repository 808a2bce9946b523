"""What the benchmarks share: a bench to sweep on, the environment of the numbers, statistics."""

from __future__ import annotations

import contextlib
import datetime
import os
import statistics
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from sweep.bench import Bench, open_bench
from sweep.browser_search import find_browser
from sweep.catalog import CatalogEntry
from sweep.config import SweepConfig
from sweep.env import host_facts, load_average
from sweep.paths import cache_dir
from sweep.runtime import ensure_core

TODAY = datetime.date.today().isoformat()


@contextlib.asynccontextmanager
async def opened(**fields: Any) -> AsyncIterator[Bench]:
    """A bench on the newest cached or published core; `fields` as of SweepConfig."""
    core = await ensure_core("latest", cache_dir())
    config = SweepConfig(core_version=core.version, **fields)
    choice = await find_browser()
    async with open_bench(config, core, choice, machine_label="benchmark") as bench:
        yield bench


def entries_of(paths: Sequence[Path]) -> list[CatalogEntry]:
    """Catalog entries of local files."""
    return [
        CatalogEntry(model_id=path.stem, source=str(path), license="Apache-2.0") for path in paths
    ]


def show_environment() -> None:
    """One line: what the numbers below depend on."""
    facts = host_facts()
    load = load_average()
    memory = (facts.memory_bytes or 0) / 2**30
    print(
        f"{facts.os} {facts.os_version}, {facts.cpu_count}× {facts.cpu}, "
        f"{memory:.0f} GiB, load {'?' if load is None else f'{load:.1f}'}"
    )


def rss_mb() -> float:
    """Resident memory of this process alone, in MB (10⁶ bytes), file mappings left out."""
    info = psutil.Process(os.getpid()).memory_info()
    return (info.rss - getattr(info, "shared", 0)) / 1e6


def spread(values: Sequence[float]) -> str:
    """Median and range."""
    return f"{statistics.median(values):.1f} ({min(values):.1f} … {max(values):.1f})"

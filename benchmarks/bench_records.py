"""Validating and indexing 100,000 records.

    python -m benchmarks.bench_records [--models 5000] [--sweeps 20]

`validate` reads every record through the store, strictly; `index` folds them into the dashboard's
tables as `site` does. A plain `json.loads` of the same files is timed beside them.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

from benchmarks.common import rss_mb, show_environment
from sweep.store import BadFile, StoredRecord, iter_records
from sweep.views.site_environment import EnvironmentTable
from sweep.views.site_index import build_index
from sweep.views.site_summary import summarise
from tests.make_records import write_records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=5000)
    parser.add_argument("--sweeps", type=int, default=20)
    options = parser.parse_args()
    show_environment()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        count = write_records(root, options.models, options.sweeps)
        size = sum(path.stat().st_size for path in root.rglob("*.json"))
        print(f"{count:,} records, {size / 1e6:.0f} MB, on average {size / count / 1e3:.1f} kB")
        before = rss_mb()
        began = time.perf_counter()
        for path in root.rglob("*.json"):
            json.loads(path.read_bytes())
        plain = time.perf_counter() - began
        print(f"  json.loads alone           {plain:6.1f} s")
        began = time.perf_counter()
        bad = sum(isinstance(entry, BadFile) for entry in iter_records(root))
        validated = time.perf_counter() - began
        assert bad == 0
        print(
            f"  validate                   {validated:6.1f} s, memory + {rss_mb() - before:.0f} MB"
        )
        table = EnvironmentTable()
        began = time.perf_counter()
        index = build_index(
            (
                summarise(e.record, e.path.relative_to(root).with_suffix("").as_posix(), table)
                for e in iter_records(root)
                if isinstance(e, StoredRecord)
            ),
            table,
        )
        indexed = time.perf_counter() - began
        assert index.files["index"]["records"] == count
        print(f"  validate and index         {indexed:6.1f} s, memory + {rss_mb() - before:.0f} MB")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"(f) {count:,} records validated and indexed in {indexed:.0f} s (goal: < 60)")
        print(f"    {indexed / plain:.1f} × json.loads alone; peak memory {peak:.0f} MB")


if __name__ == "__main__":
    main()

"""Coverage-guided fuzzing of what reads strangers' bytes; needs atheris (`pip install atheris`).

    python fuzz/fuzz_inspect.py model|record|cut [libFuzzer options] [corpus directory]

e.g. `-max_total_time=60 -timeout=10 -rss_limit_mb=1500`. Every end but the documented errors is a
finding.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["sweep"]):
    from sweep.errors import ModelError, RecordError
    from sweep.model import inspect_model, rounding_may_differ
    from sweep.store import parse_record
    from sweep.triage.cut import CutError, op_model, prefix


def fuzz_model(data: bytes) -> None:
    """Inspection: ModelError or facts."""
    path = _file(data)
    with contextlib.suppress(ModelError):
        inspect_model(path)
        rounding_may_differ(path)


def fuzz_record(data: bytes) -> None:
    """Record reading: RecordError or a record."""
    with contextlib.suppress(RecordError):
        parse_record(data)


def fuzz_cut(data: bytes) -> None:
    """Cutting: CutError or ModelError, or a sub-model that can be inspected."""
    path = _file(data)
    for cut in (lambda: op_model(path, 0), lambda: prefix(path, 2)):
        with contextlib.suppress(CutError, ModelError):
            cut()


def _file(data: bytes) -> Path:
    path = Path(SCRATCH) / "model.tflite"
    path.write_bytes(data)
    return path


if __name__ == "__main__":
    targets = {"model": fuzz_model, "record": fuzz_record, "cut": fuzz_cut}
    target = targets[sys.argv.pop(1)]
    with tempfile.TemporaryDirectory(prefix="fuzz-") as SCRATCH:
        atheris.Setup(sys.argv, target)
        atheris.Fuzz()

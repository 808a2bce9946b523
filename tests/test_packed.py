"""Records held packed."""

from __future__ import annotations

import json

from sweep.packed import PackedRecords
from sweep.store import parse_record
from tests.make_records import make_record


def test_what_comes_out_is_what_went_in() -> None:
    records = [
        parse_record(json.dumps(make_record(name, index=i)).encode())
        for i, name in enumerate(("a", "b", "c"))
    ]
    packed = PackedRecords(records[:2])
    packed.append(records[2])
    assert list(packed) == records
    assert len(packed) == 3
    assert packed[-1] == records[2]
    assert packed[1:] == records[1:]
    whole = sum(len(record.model_dump_json()) for record in records)
    assert sum(map(len, packed._packed)) < whole / 2

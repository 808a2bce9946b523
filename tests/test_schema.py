from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from sweep.record import Record
from sweep.schema import SCHEMA_FILE, main, record_schema
from sweep.store import dump_record
from tests.make_records import make_hostile_record, make_record


def test_the_committed_schema_is_that_of_the_models(tmp_path: Path) -> None:
    main([str(tmp_path / "schema.json")])
    committed = Path(__file__).parents[1] / SCHEMA_FILE
    assert committed.read_bytes() == (tmp_path / "schema.json").read_bytes(), (
        "the record models changed: run `python -m sweep.schema` and commit the file"
    )


def test_the_schema_accepts_what_is_written() -> None:
    validator = jsonschema.Draft202012Validator(record_schema())
    validator.check_schema(record_schema())
    for raw in (make_record("a"), make_record("b", rig=1), make_hostile_record()):
        record = Record.model_validate(raw)
        validator.validate(json.loads(dump_record(record)))


@pytest.mark.parametrize(
    ("field", "value"), [("status", "fine"), ("loads", "yes"), ("surprise", 1), ("env", {})]
)
def test_the_schema_refuses_what_is_not_a_record(field: str, value: object) -> None:
    raw = json.loads(dump_record(Record.model_validate(make_record("a"))))
    raw["results"][1][field] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(raw, record_schema())

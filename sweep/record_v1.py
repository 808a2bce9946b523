"""The 1.0 sweep format: strict models of it, and the way from it and back without loss.

1.0 has no `status`; `read_v1` sets one from what such a record holds, and never says more than it
shows. Every 1.0 field is kept as it stands; where 2.0 has no place for how it was said (a field
left out instead of null, another name of a failure class), `Record.v1_form` keeps it.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from sweep.config import Backend, Provenance
from sweep.env import Environment, WebGpuAdapter
from sweep.record import DateString, ModelId, Record, RecordConfig, Result, V1Form
from sweep.verdict_v1 import judge_v1


def _not_null(value: object) -> object:
    if value is None:
        raise ValueError("may be left out, but not be null")
    return value


NonEmpty = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
Bound = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]
OptionalText = Annotated[str | None, BeforeValidator(_not_null)]
"""A string that may be left out (read as None), but not be null."""
OptionalFlag = Annotated[bool | None, BeforeValidator(_not_null)]


class _V1(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AdapterV1(_V1):
    """`webgpu_adapter` of the 1.0 format."""

    vendor: OptionalText = None
    architecture: OptionalText = None
    device: OptionalText = None
    description: OptionalText = None


class EnvV1(_V1):
    """`env` of the 1.0 format."""

    browser: NonEmpty
    browser_version: NonEmpty
    headless: bool
    os: NonEmpty
    os_version: OptionalText = None
    jspi: OptionalFlag = None
    webgpu_adapter: AdapterV1 | None = None
    litertjs_core_version: NonEmpty
    machine_label: NonEmpty


class ConfigV1(_V1):
    """`config` of the 1.0 format."""

    warmup_runs: Count
    timed_runs: Annotated[int, Field(ge=1)]
    tolerance_abs: Bound
    tolerance_rel: Bound
    input_seed: int


class ResultV1(_V1):
    """One model × one backend in the 1.0 format."""

    backend: Backend
    loads: bool
    runs: bool
    failure_class: str | None = None
    error: str | None = None
    full_delegation: bool | None
    output_match: bool | None
    max_abs_diff: Number | None
    max_rel_diff: Number | None
    latency_p50_ms: Number | None
    delegation_evidence: tuple[str, ...]
    env: EnvV1
    date: DateString
    provenance: Provenance


class RecordV1(_V1):
    """A whole 1.0 record."""

    schema_version: Literal["1.0"]
    model_id: ModelId
    source: NonEmpty
    license: NonEmpty
    input_spec: NonEmpty
    notes: OptionalText = None
    config: ConfigV1
    results: Annotated[tuple[ResultV1, ...], Field(min_length=1)]


_FROM_V1 = {"wasm_memory_ceiling": "memory_ceiling"}
_TO_V1 = {new: old for old, new in _FROM_V1.items()}
_ADAPTER_FIELDS = ("vendor", "architecture", "device", "description")


def read_v1(old: RecordV1) -> Record:
    """Convert a 1.0 record to 2.0 and classify each result by `judge_v1`."""
    absent: list[str] = []
    renamed: dict[str, str] = {}
    results: list[Result] = []
    for position, result in enumerate(old.results):
        at = f"results/{position}"
        absent += [
            f"{at}/{f}" for f in ("failure_class", "error") if f not in result.model_fields_set
        ]
        if "webgpu_adapter" not in result.env.model_fields_set:
            absent.append(f"{at}/env/webgpu_adapter")
        adapter = result.env.webgpu_adapter
        if adapter is not None:
            absent += [
                f"{at}/env/webgpu_adapter/{f}"
                for f in _ADAPTER_FIELDS
                if f not in adapter.model_fields_set
            ]
        name = result.failure_class
        failure_class = _FROM_V1.get(name, name) if name is not None else None
        if name is not None and _v1_failure_class(failure_class) != name:
            renamed[str(position)] = name
        results.append(
            Result.model_validate(
                {
                    **result.model_dump(exclude={"env"}),
                    "failure_class": failure_class,
                    "env": _environment(result.env),
                }
            )
        )
    record = Record(
        model_id=old.model_id,
        source=old.source,
        license=old.license,
        input_spec=old.input_spec,
        notes=old.notes,
        config=RecordConfig(**old.config.model_dump(), tolerance_policy="strict"),
        results=tuple(results),
        imported_from="1.0",
        v1_form=V1Form(absent=tuple(absent), failure_class=renamed) if absent or renamed else None,
    )
    return judge_v1(record)


def to_v1(record: Record) -> dict[str, Any]:
    """The strict 1.0 form of a record, as a JSON value. Raises ValidationError if it has none.

    Drops what 1.0 has no place for. Where the model could not be read, `input_spec` is `unknown`:
    2.0 leaves it empty then, 1.0 wants a text.
    """
    form = record.v1_form or V1Form()
    value: dict[str, Any] = {
        "schema_version": "1.0",
        "model_id": record.model_id,
        "source": record.source,
        "license": record.license,
        "input_spec": record.input_spec or "unknown",
        "config": {name: getattr(record.config, name) for name in ConfigV1.model_fields},
        "results": [],
    }
    if record.notes is not None:
        value["notes"] = record.notes
    for position, result in enumerate(record.results):
        at = f"results/{position}"
        one = {name: getattr(result, name) for name in ResultV1.model_fields if name != "env"}
        one["delegation_evidence"] = list(result.delegation_evidence)
        one["failure_class"] = form.failure_class.get(
            str(position), _v1_failure_class(result.failure_class)
        )
        one["env"] = _env_to_v1(result.env)
        _drop(one, at, form.absent)
        value["results"].append(one)
    RecordV1.model_validate_json(json.dumps(value), strict=True)
    return value


def dump_v1(record: Record) -> bytes:
    """The file of a 1.0 record: sorted keys, 2-space indent, and numbers as JavaScript spells them.

    1.0 records are written from JavaScript (`0.00001`, `52`, not `1e-05`, `52.0`), and so are
    these: a record read and written again has the same bytes.
    """
    return _spell(to_v1(record), "").encode() + b"\n"


def _v1_failure_class(name: str | None) -> str | None:
    return _TO_V1.get(name, name) if name is not None else None


def _environment(env: EnvV1) -> Environment:
    adapter = None
    if env.webgpu_adapter is not None:
        adapter = WebGpuAdapter(**env.webgpu_adapter.model_dump(exclude_none=True))
    return Environment(**env.model_dump(exclude={"webgpu_adapter"}), webgpu_adapter=adapter)


def _env_to_v1(env: Environment) -> dict[str, Any]:
    value = {name: getattr(env, name) for name in EnvV1.model_fields}
    value["webgpu_adapter"] = env.webgpu_adapter.model_dump() if env.webgpu_adapter else None
    for name in ("os_version", "jspi"):
        if value[name] is None:
            del value[name]
    return value


def _drop(result: dict[str, Any], at: str, absent: tuple[str, ...]) -> None:
    """Leave out again what the 1.0 record left out."""
    for path in absent:
        if path.startswith(f"{at}/"):
            *parents, name = path.removeprefix(f"{at}/").split("/")
            place: Any = result
            for parent in parents:
                place = place.get(parent) if isinstance(place, dict) else None
            if isinstance(place, dict):
                place.pop(name, None)


def _spell(value: object, indent: str) -> str:
    deeper = indent + "  "
    if isinstance(value, dict):
        if not value:
            return "{}"
        items = (f"{deeper}{_text(k)}: {_spell(value[k], deeper)}" for k in sorted(value))
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, list | tuple):
        if not value:
            return "[]"
        return "[\n" + ",\n".join(f"{deeper}{_spell(v, deeper)}" for v in value) + f"\n{indent}]"
    if isinstance(value, float):
        return js_number(value)
    return _text(value)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def js_number(value: float) -> str:
    """A finite double as `Number.prototype.toString` spells it (ECMA-262, Number::toString).

    Both languages take the shortest digits that read back as the same double; they differ in when
    they turn to exponents (JavaScript from 1e21 on and below 1e-6) and in how they write them.
    """
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    raw = whole + fraction
    digits = raw.lstrip("0")
    if not digits:
        return "0"
    # value = 0.digits × 10^point
    point = len(whole) + int(exponent or 0) - (len(raw) - len(digits))
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        return f"{sign}{digits}{'0' * (point - count)}"
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    power = f"e{point - 1:+d}"
    rest = f".{digits[1:]}" if count > 1 else ""
    return f"{sign}{digits[0]}{rest}{power}"

"""Catalogs: the models to sweep, from TOML or the 1.0 CSV form.

Every defect of a catalog is collected and reported at once, with file and line, before anything
runs. The TOML form is documented in `docs/catalogs.md`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
)

from sweep.config import Backend, Frozen
from sweep.errors import CatalogError
from sweep.input_rules import InputRule
from sweep.record import ModelId
from sweep.sources.spec import PathSource, parse_source
from sweep.toml_lines import key_lines, line_of

MAX_CATALOG_BYTES = 16 << 20


def _dims_in_words(value: object, check: ValidatorFunctionWrapHandler) -> object:
    try:
        return check(value)
    except ValidationError:
        raise ValueError(
            f"write one dimension from 1 up, or a whole shape as a list, not {_short(value)}"
        ) from None


Dimension = Annotated[int, Field(ge=1, le=1 << 31, strict=True)]
Dims = Annotated[Dimension | list[Dimension], WrapValidator(_dims_in_words)]
Tag = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=60)]
Location = tuple[str | int, ...]

_SPEC_ITEM = re.compile(r"^([1-9]\d*(?:x[1-9]\d*)*):(float32|int32|uint8)$")


class CatalogEntry(Frozen):
    """One model to sweep."""

    model_id: ModelId
    source: str = Field(min_length=1)
    license: str = Field(min_length=1, pattern=r"\S")
    sha256: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")
    inputs: dict[str, InputRule] = Field(default_factory=dict)
    """By input name: how to fill it where the default is not what the model expects."""
    dims: dict[str, Dims] = Field(default_factory=dict)
    """By input name: an int for every dynamic dimension of it, or its whole shape."""
    input_spec: str | None = None
    """1.0: shapes and dtypes of all inputs in order. Not needed for a normal model."""
    notes: str | None = None
    backends: tuple[Backend, ...] | None = Field(None, min_length=1)
    """None: the backends of the sweep."""
    tags: tuple[Tag, ...] = ()
    variant_of: ModelId | None = None
    """The model this one is another form of, e.g. the fp32 parent of an fp16 twin."""

    @field_validator("input_spec")
    @classmethod
    def _spec_is_readable(cls, value: str | None) -> str | None:
        if value is not None:
            parse_input_spec(value)
        return value

    @field_validator("backends", "tags")
    @classmethod
    def _no_repeats(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None and len(set(value)) != len(value):
            raise ValueError("names something twice")
        return value


class Catalog(Frozen):
    """A checked catalog: ids are unique, sources readable, `variant_of` resolved."""

    path: Path
    name: str
    description: str | None = None
    entries: tuple[CatalogEntry, ...]


class Defect(Frozen):
    """One thing wrong with a catalog."""

    line: int
    message: str


class RawEntry(Frozen):
    """One entry as written, and where: what both file forms are read into before checking."""

    values: dict[str, Any]
    line: int
    locate: Callable[[Location], int]
    """Line of a field of this entry."""


class RawCatalog(Frozen):
    """A catalog as written."""

    name: str
    description: str | None = None
    entries: tuple[RawEntry, ...]
    defects: tuple[Defect, ...] = ()


class _Head(Frozen):
    name: str | None = Field(None, min_length=1)
    description: str | None = None


def load_catalog(path: Path) -> Catalog:
    """Read and check a catalog; `.csv` is the 1.0 form, everything else is TOML.

    Raises:
        CatalogError: all defects, one per line as `file:line: what is wrong`.
    """
    text = _read(path)
    if path.suffix.lower() == ".csv":
        from sweep.catalog_csv import read_csv

        raw = read_csv(path, text)
    else:
        raw = _read_toml(path, text)
    entries, defects = _check(raw, path.parent)
    if not raw.entries and not defects:
        defects = [
            Defect(line=1, message="no models; add one, see `litertjs-sweep catalog --help`")
        ]
    if defects:
        raise _report(path, defects)
    return Catalog(path=path, name=raw.name, description=raw.description, entries=tuple(entries))


def parse_input_spec(text: str) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Shapes and dtypes of a 1.0 `input_spec`: `1x3x224x224:float32;1x77:int32`.

    Raises:
        ValueError: it is not of that form.
    """
    items = []
    for item in text.split(";"):
        found = _SPEC_ITEM.match(item.strip())
        if found is None:
            raise ValueError(
                f"{item.strip()!r} is not a shape and dtype; write 1x3x224x224:float32, several "
                "joined by ;, with dtype float32, int32 or uint8"
            )
        items.append((tuple(int(dim) for dim in found[1].split("x")), found[2]))
    return tuple(items)


def explain(error: ValidationError) -> list[tuple[Location, str]]:
    """Each defect of a ValidationError as (field path, words for a person)."""
    explained: list[tuple[Location, str]] = []
    items = error.errors(include_url=False)
    deepest = [item["loc"] for item in items]
    for item in items:
        here = item["loc"]
        if item["type"] == "too_short" and any(
            other[: len(here)] == here and len(other) > len(here) for other in deepest
        ):
            continue  # only too short because its items are wrong, which is said of them
        place = tuple(part for part in here if not _is_branch(part))
        name = ".".join(str(part) for part in place)
        match item["type"]:
            case "extra_forbidden":
                text = f"unknown key `{name}`"
            case "missing":
                text = f"`{name}` is missing"
            case "value_error":
                text = f"`{name}`: {item['ctx']['error']}"
            case _:
                text = f"`{name}`: {item['msg']}, not {_short(item['input'])}"
        if (place, text) not in explained:
            explained.append((place, text))
    return explained


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CATALOG_BYTES + 1)
    except OSError as error:
        raise CatalogError(
            f"cannot read the catalog {path}: {error.strerror}. Check the path."
        ) from error
    if len(data) > MAX_CATALOG_BYTES:
        raise CatalogError(f"{path} is larger than {MAX_CATALOG_BYTES >> 20} MiB: not a catalog")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CatalogError(f"{path}:{line}: not UTF-8 text; save the file as UTF-8") from error


def _read_toml(path: Path, text: str) -> RawCatalog:
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = re.search(r"at line (\d+)", str(error))
        line = int(found[1]) if found else max(1, text.count("\n"))
        raise CatalogError(f"{path}:{line}: not valid TOML: {error}") from error
    lines = key_lines(text)
    defects = [
        Defect(line=line_of(lines, (key,)), message=f"unknown table or key `{key}`")
        for key in document
        if key not in ("catalog", "model")
    ]
    head = _Head()
    try:
        head = _Head.model_validate(document.get("catalog", {}))
    except ValidationError as error:
        defects += [
            Defect(line=line_of(lines, ("catalog", *place)), message=f"[catalog]: {text}")
            for place, text in explain(error)
        ]
    models = document.get("model", [])
    if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
        defects.append(
            Defect(line=line_of(lines, ("model",)), message="write each model as [[model]]")
        )
        models = []
    entries = tuple(
        RawEntry(
            values=model,
            line=line_of(lines, ("model", index)),
            locate=lambda place, index=index: line_of(lines, ("model", index, *place)),
        )
        for index, model in enumerate(models)
    )
    return RawCatalog(
        name=head.name or path.stem,
        description=head.description,
        entries=entries,
        defects=tuple(defects),
    )


def _check(raw: RawCatalog, base_dir: Path) -> tuple[list[CatalogEntry], list[Defect]]:
    defects = list(raw.defects)
    entries: list[CatalogEntry] = []
    for item in raw.entries:
        try:
            entries.append(CatalogEntry.model_validate(item.values))
        except ValidationError as error:
            label = _label(item.values)
            defects += [
                Defect(line=item.locate(place), message=f"{label}{text}")
                for place, text in explain(error)
            ]
        defects += _check_files(item, base_dir)
    return entries, defects + _check_ids(raw.entries)


def _check_files(item: RawEntry, base_dir: Path) -> list[Defect]:
    """What needs the directory of the catalog: source syntax, and local files that must exist."""
    defects = []
    label = _label(item.values)
    source = item.values.get("source")
    if isinstance(source, str) and source:
        try:
            parsed = parse_source(source, base_dir)
            if isinstance(parsed, PathSource) and not parsed.path.is_file():
                raise CatalogError(f"there is no file {parsed.path}")
        except (CatalogError, OSError) as error:
            defects.append(Defect(line=item.locate(("source",)), message=f"{label}{error}"))
    rules = item.values.get("inputs")
    for name, rule in rules.items() if isinstance(rules, dict) else ():
        file = rule.get("file") if isinstance(rule, dict) else None
        if isinstance(file, str) and not _is_file(base_dir / file):
            defects.append(
                Defect(
                    line=item.locate(("inputs", name, "file")),
                    message=f"{label}`inputs.{name}.file`: there is no file {base_dir / file}",
                )
            )
    return defects


def _check_ids(items: tuple[RawEntry, ...]) -> list[Defect]:
    """Ids are unique; `variant_of` names an entry that is not itself a variant."""
    defects = []
    first: dict[str, RawEntry] = {}
    for item in items:
        model_id = item.values.get("model_id")
        if not isinstance(model_id, str):
            continue
        if model_id in first:
            line = first[model_id].locate(("model_id",))
            defects.append(
                Defect(
                    line=item.locate(("model_id",)),
                    message=f"model_id {model_id!r} is already taken by line {line}",
                )
            )
        first.setdefault(model_id, item)
    for item in items:
        parent = item.values.get("variant_of")
        if not isinstance(parent, str):
            continue
        problem = None
        if parent == item.values.get("model_id"):
            problem = "a model is not a variant of itself"
        elif parent not in first:
            problem = f"no model {parent!r} in this catalog"
        elif "variant_of" in first[parent].values:
            problem = f"{parent!r} is itself a variant; name the model it is a variant of"
        if problem:
            defects.append(
                Defect(
                    line=item.locate(("variant_of",)),
                    message=f"{_label(item.values)}`variant_of`: {problem}",
                )
            )
    return defects


def _report(path: Path, defects: list[Defect]) -> CatalogError:
    ordered = sorted({(defect.line, defect.message) for defect in defects})
    count = f"{len(ordered)} defect{'s' if len(ordered) > 1 else ''}"
    listed = "\n".join(f"{path}:{line}: {message}" for line, message in ordered)
    return CatalogError(f"{listed}\n{count} in the catalog {path}; nothing was run.")


def _label(values: Mapping[str, Any]) -> str:
    model_id = values.get("model_id")
    return f"{model_id}: " if isinstance(model_id, str) else ""


def _is_branch(part: str | int) -> bool:
    """Pydantic puts the branch of a union into the location; it is not a key of the file."""
    return isinstance(part, str) and (
        part in ("int", "constrained-int") or part.startswith(("list[", "constrained-"))
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"

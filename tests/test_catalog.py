"""Catalogs: what they say, and that everything wrong with one is said at once, by line."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.catalog import CatalogEntry, load_catalog, parse_input_spec
from sweep.errors import CatalogError
from sweep.toml_lines import key_lines, line_of

CATALOGS = Path(__file__).parents[1] / "configs" / "catalogs"


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def defects_of(path: Path) -> dict[int, list[str]]:
    """Line → messages of the error that loading the catalog raises."""
    with pytest.raises(CatalogError) as caught:
        load_catalog(path)
    assert caught.value.exit_code == 2
    found: dict[int, list[str]] = {}
    for line in str(caught.value).splitlines()[:-1]:
        place = re.match(rf"{re.escape(str(path))}:(\d+): (.*)", line)
        assert place is not None, line
        found.setdefault(int(place[1]), []).append(place[2])
    return found


def test_every_field_arrives(tmp_path: Path) -> None:
    (tmp_path / "a.tflite").touch()
    path = write(
        tmp_path / "mine.toml",
        f"""
[catalog]
name = "Mine"
description = "Two models"

[[model]]
model_id = "a"
source = "a.tflite"
license = "MIT"

[[model]]
model_id = "a-fp16"
source = "npm:@scope/pkg@1.2.3/a.tflite"
license = "Apache-2.0"
sha256 = "{"0" * 64}"
notes = "Half."
backends = ["wasm_xnnpack"]
tags = ["fp16"]
variant_of = "a"
dims = {{ ids = 77, image = [1, 224, 224, 3] }}
input_spec = "1x77:int32"

[model.inputs.ids]
range = [0, 10]
""",
    )
    catalog = load_catalog(path)
    assert (catalog.name, catalog.description) == ("Mine", "Two models")
    plain, twin = catalog.entries
    assert plain == CatalogEntry(model_id="a", source="a.tflite", license="MIT")
    assert plain.backends is None
    assert twin.sha256 == "0" * 64
    assert twin.dims == {"ids": 77, "image": [1, 224, 224, 3]}
    assert (twin.backends, twin.tags, twin.variant_of) == (("wasm_xnnpack",), ("fp16",), "a")
    assert set(twin.inputs) == {"ids"}
    assert tuple(twin.inputs["ids"].range or ()) == (0, 10)


def test_all_defects_are_reported_at_once_by_line(tmp_path: Path) -> None:
    path = write(
        tmp_path / "bad.toml",
        '''[catalog]
nam = "x"

[[model]]
model_id = "Upper"
source = "npm:x@^1/y.tflite"
notes = """
[[model]]
model_id = "text, not a table"
"""
[model.inputs."a.b"]
no_such_rule = 3

[[model]]
model_id = "b"
source = "missing.tflite"
license = "MIT"
variant_of = "zz"
sha256 = "12"
dims.x = [
  1, -2,
]
backends = ["gpu"]

[[model]]
model_id = "b"
source = "https://host/x.tflite"
license = " "
input_spec = "1x3:float16"
color = 1

[modle]
''',
    )
    found = defects_of(path)
    assert {line: len(messages) for line, messages in found.items()} == {
        2: 1, 4: 1, 5: 1, 6: 1, 12: 1, 16: 1, 18: 1, 19: 1, 20: 1, 23: 1, 26: 1, 28: 1, 29: 1,
        30: 1, 32: 1,
    }  # fmt: skip
    assert "`license` is missing" in found[4][0]
    assert "^1" in found[6][0]
    assert "no_such_rule" in found[12][0]
    assert str(tmp_path / "missing.tflite") in found[16][0]
    assert "'zz'" in found[18][0]
    assert "dims.x" in found[20][0]
    assert "line 15" in found[26][0]


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        ({"a": "a"}, "not a variant of itself"),
        ({"b": "a", "c": "b"}, "itself a variant"),
        ({"a": "b", "b": "a"}, "itself a variant"),
    ],
)
def test_variants_point_to_a_model_that_is_no_variant(
    tmp_path: Path, parents: dict[str, str], message: str
) -> None:
    tables = [
        f'[[model]]\nmodel_id = "{name}"\nsource = "https://h/{name}"\nlicense = "MIT"\n'
        + (f'variant_of = "{parents[name]}"\n' if name in parents else "")
        for name in "abc"
    ]
    found = defects_of(write(tmp_path / "c.toml", "".join(tables)))
    assert message in str(found)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b'[[model]]\nmodel_id = "a"\nsource = \n', ":3: not valid TOML"),
        (b'[[model]]\n# caf\xe9\nmodel_id = "a"\n', ":2: not UTF-8"),
        (b"", ":1: no models"),
        (b'model = "x"\n', ":1: write each model as [[model]]"),
        (b"[[model]]\nmodel_id = 3\n", ":2: `model_id`"),
        (b"a = " + b"[" * 5000, "not valid TOML"),
    ],
)
def test_files_that_are_no_catalogs(tmp_path: Path, content: bytes, place: str) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(content)
    with pytest.raises(CatalogError) as caught:
        load_catalog(path)
    assert place in str(caught.value)


def test_a_missing_catalog_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"nope\.toml: No such file"):
        load_catalog(tmp_path / "nope.toml")


def test_csv_of_1_0(tmp_path: Path) -> None:
    path = write(
        tmp_path / "old.csv",
        "# models of the 1.0 sweep\n"
        "model_id,source,input_spec,license,notes\n"
        "\n"
        'clip,https://host/clip.tflite,1x3x224x224:float32;1x77:int32,mit,"two inputs, one ""q"""\n'
        "# left out,https://host/no.tflite,,mit,\n"
        'odd,https://host/odd.tflite,,apache-2.0,"a note\n# that goes on"\n',
    )
    clip, odd = load_catalog(path).entries
    assert clip.input_spec is not None
    assert parse_input_spec(clip.input_spec) == (
        ((1, 3, 224, 224), "float32"),
        ((1, 77), "int32"),
    )
    assert clip.notes == 'two inputs, one "q"'
    assert odd.input_spec is None
    assert odd.notes == "a note\n# that goes on"


def test_csv_defects_by_line(tmp_path: Path) -> None:
    path = write(
        tmp_path / "old.csv",
        "model_id,source,input_spec,license,notes\n"
        "a,https://host/a,1x0:float32,mit,\n"
        '# comment\nb,https://host/b,,,"x\ny"\n'
        "a,https://host/c,,mit,\n"
        "d,https://host/d,,mit,one,too many\n",
    )
    found = defects_of(path)
    assert sorted(found) == [2, 4, 6, 7]
    assert "1x0:float32" in found[2][0]
    assert "`license` is missing" in found[4][0]
    assert "already taken by line 2" in found[6][0]
    assert "6 fields, but the header has 5" in found[7][0]


def test_csv_with_a_wrong_header(tmp_path: Path) -> None:
    found = defects_of(write(tmp_path / "old.csv", "model,source,license\nx,y,z\n"))
    assert sorted(found) == [1]
    assert "unknown column 'model'" in str(found[1])
    assert "column 'model_id' is missing" in str(found[1])


@given(st.text(max_size=200))
def test_input_spec_either_reads_back_or_is_refused(text: str) -> None:
    try:
        items = parse_input_spec(text)
    except ValueError:
        return
    written = ";".join(f"{'x'.join(map(str, shape))}:{dtype}" for shape, dtype in items)
    assert parse_input_spec(written) == items
    assert all(dim > 0 for shape, _ in items for dim in shape)


def test_lines_inside_strings_and_arrays_are_not_keys() -> None:
    lines = key_lines(
        "a = '''\nb = 1\n'''\nc = [\n  { d = 1 },\n]\n[[t]]\ne.f = 2\n[[t]]\n[t.u]\ng=1\n"
    )
    assert lines == {
        ("a",): 1, ("c",): 4, ("t", 0): 7, ("t", 0, "e"): 8, ("t", 0, "e", "f"): 8, ("t", 1): 9,
        ("t", 1, "u"): 10, ("t", 1, "u", "g"): 11,
    }  # fmt: skip
    assert line_of(lines, ("t", 1, "u", "nowhere")) == 10
    assert line_of(lines, ("nowhere",)) == 1


@pytest.mark.parametrize("name", ["starter", "litert-community"])
def test_shipped_catalogs_load(name: str) -> None:
    catalog = load_catalog(CATALOGS / f"{name}.toml")
    assert catalog.name == name
    assert len(catalog.entries) >= 12
    assert all(entry.notes for entry in catalog.entries)


def test_starter_is_pinned_and_varied() -> None:
    entries = load_catalog(CATALOGS / "starter.toml").entries
    assert all(entry.sha256 for entry in entries)
    assert {entry.source.partition(":")[0] for entry in entries} == {"npm", "pypi"}
    tags = {tag for entry in entries for tag in entry.tags}
    assert tags >= {"float32", "uint8", "int8", "multi-output", "large", "small", "dynamic"}
    assert tags >= {"known-failure", "known-wrong"}


def test_sam_decoder_comes_first_of_the_hub_models() -> None:
    first = load_catalog(CATALOGS / "litert-community.toml").entries[0]
    assert first.source == (
        "hf:litert-community/SAM2.1-Hiera-Tiny-Mask-Decoder/sam2_tiny_mask_decoder_fp16.tflite"
    )
    assert first.sha256 == "8fc29cfa6e41741e03d8dbc53c18c945d5f98c8eb4a07376390022cc91d91ad5"


def test_starter_agrees_with_the_truth_table(shared_dir: Path) -> None:
    with (shared_dir / "truth.tsv").open(encoding="utf-8") as file:
        known = {row["sha256"]: row for row in csv.DictReader(file, delimiter="\t")}
    entries = load_catalog(CATALOGS / "starter.toml").entries
    rows = {entry.model_id: known.get(entry.sha256 or "") for entry in entries}
    unknown = {model_id for model_id, row in rows.items() if row is None}
    assert unknown == {"efficientnet_lite0", "face_landmark_with_attention"}
    wrong = {m for m, row in rows.items() if row and row["webgpu_status"] == "output_mismatch"}
    assert wrong == {entry.model_id for entry in entries if "known-wrong" in entry.tags}

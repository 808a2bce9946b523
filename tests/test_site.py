from __future__ import annotations

import hashlib
import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sweep.errors import EnvironmentProblem, UsageError
from sweep.record import Record
from sweep.views.site import build_site, load_data_file, write_data_file
from sweep.views.site_environment import EnvironmentTable, adapter_kind
from sweep.views.site_index import build_index
from sweep.views.site_summary import STATUS_NAMES, delegation_share, summarise
from tests.make_records import make_hostile_record, make_record, write_record, write_records

DAY = date(2026, 3, 1)


def _index(*records: tuple[str, dict[str, Any]]) -> Any:
    table = EnvironmentTable()
    summaries = [summarise(Record.model_validate(r), place, table) for place, r in records]
    return build_index(summaries, table)


def _tree(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_newest_result_is_by_version_and_not_by_text() -> None:
    old = make_record("m", core="2.9.0", day=date(2026, 5, 1), statuses=("pass", "pass"))
    new = make_record("m", core="2.10.0", day=DAY, statuses=("pass", "output_mismatch"))
    index = _index(("2.10.0/2026-03-01/m", new), ("2.9.0/2026-05-01/m", old))
    head = index.files["index"]
    assert [s["core"] for s in head["sweeps"]] == ["2.9.0", "2.10.0"]
    assert head["rows"]["backend"] == "01"
    status = [STATUS_NAMES[int(c)] for c in index.files["latest"]["status"]]
    assert status == ["pass", "output_mismatch"]
    # One row per backend: the same rig, although the core version differs.
    assert index.files["history"]["status"] == ["66", "63"]


def test_rigs_keep_software_hardware_and_threads_apart() -> None:
    soft = make_record("m", day=DAY, rig=0)
    hard = make_record("m", day=date(2026, 3, 2), rig=1)
    threaded = make_record("m", day=date(2026, 3, 3), rig=1)
    for result in threaded["results"]:
        result["env"] |= {"threads": 4, "leg": None}
    updated = make_record("m", day=date(2026, 3, 4), rig=1, browser_version="157.0.1.1")
    index = _index(
        ("2.5.3/2026-03-01/m", soft), ("2.5.3/2026-03-02/m", hard),
        ("2.5.3/2026-03-03/m", threaded), ("2.5.3/2026-03-04/m", updated),
    )  # fmt: skip
    head = index.files["index"]
    assert len(head["rigs"]) == 3
    assert sorted(rig["kind"] for rig in head["rigs"]) == ["hardware", "hardware", "software"]
    # A browser update is another environment of the same rig.
    assert len(head["envs"]) == 4
    assert len(head["rows"]["model"]) == 6


def test_wasm_result_shares_the_environment_of_its_webgpu_neighbour() -> None:
    record = make_record("m", day=DAY)
    record["results"][0]["env"] = {
        **record["results"][0]["env"],
        "webgpu_adapter": None,
        "adapter_class": None,
        "adapter_is_fallback": None,
    }
    assert len(_index(("2.5.3/2026-03-01/m", record)).files["index"]["envs"]) == 1


@pytest.mark.parametrize(
    ("adapter", "kind"),
    [
        ({"vendor": "apple", "architecture": "metal-3"}, "hardware"),
        ({"vendor": "google", "architecture": "swiftshader"}, "software"),
        ({"vendor": "mesa", "description": "llvmpipe (LLVM 19)"}, "software"),
        ({"vendor": "", "architecture": ""}, "unknown"),
        (None, "unknown"),
    ],
)
def test_adapter_kind_of_records_that_do_not_say(adapter: dict[str, str] | None, kind: str) -> None:
    record = make_record("m", day=DAY)
    env = {**record["results"][1]["env"], "adapter_class": None, "adapter_is_fallback": None}
    env["webgpu_adapter"] = adapter
    record["results"][1]["env"] = env
    assert adapter_kind(Record.model_validate(record).results[1].env) == kind


def test_delegation_share() -> None:
    record = Record.model_validate(make_record("m", day=DAY, statuses=("pass", "fallback")))
    wasm, webgpu = record.results
    assert delegation_share(wasm) is None
    assert delegation_share(webgpu) == round(53 / 60, 4)
    unreported = webgpu.model_copy(update={"delegation": None, "full_delegation": False})
    assert delegation_share(unreported) is None, "not fully delegated is not zero per cent"


def test_order_of_reading_does_not_matter() -> None:
    pairs = [
        (f"{core}/{DAY}/{name}", make_record(name, index=n, core=core, day=DAY, rig=n % 2))
        for core in ("2.5.2", "2.5.3")
        for n, name in enumerate(("a", "b", "c"))
    ]
    one, other = _index(*pairs), _index(*reversed(pairs))
    assert one.files == other.files
    assert one.model_file("b") == other.model_file("b")


def test_site_is_deterministic_and_names_bad_files(tmp_path: Path) -> None:
    data = tmp_path / "data" / "sweep"
    count = write_records(data, 6, 2)
    place = f"2.5.3/{DAY.isoformat()}"
    write_record(data, f"{place}/hostile-model.json", make_hostile_record(day=DAY))
    bad = data / place / "broken.json"
    bad.write_text("<html>not found</html>")

    report = build_site(data, tmp_path / "site")
    assert (report.records, report.models) == (count + 1, 7)
    assert [entry.path.name for entry in report.bad] == ["broken.json"]
    index = load_data_file(tmp_path / "site" / "data" / "index.js")
    assert index["bad"][0]["path"] == f"{place}/broken.json"
    assert str(tmp_path) not in json.dumps(index), "a published site must not show local paths"

    first = _tree(tmp_path / "site")
    build_site(data, tmp_path / "again")
    assert _tree(tmp_path / "again") == first
    # Rebuilt in place, without a trace of records that are gone.
    bad.unlink()
    (data / place / "hostile-model.json").unlink()
    build_site(data, tmp_path / "site")
    rebuilt = _tree(tmp_path / "site")
    assert not any("hostile" in name for name in rebuilt)
    assert set(rebuilt) < set(first)
    assert not list(tmp_path.glob(".site*")), "nothing temporary is left"


def test_site_asks_nothing_of_the_network(tmp_path: Path) -> None:
    write_records(tmp_path / "data", 2, 1)
    build_site(tmp_path / "data", tmp_path / "site")
    html = (tmp_path / "site" / "index.html").read_text("utf-8")
    assert "http:" not in html
    assert "https:" not in html
    assert "default-src 'none'" in html
    assert "unsafe" not in html


@pytest.mark.parametrize(
    "value",
    ["it's", 'a "quote"', "back\\slash", "\\'", "\\u2028", "line\u2028end\u2029", "a\nb\r",
     "</script>"],
)  # fmt: skip
def test_data_files_keep_every_character(tmp_path: Path, value: str) -> None:
    thing = {"__proto__": value, value: [value]}
    for ascii_only in (True, False):
        write_data_file(tmp_path, "a/b", json.dumps(thing, ensure_ascii=ascii_only))
        assert load_data_file(tmp_path / "a" / "b.js") == thing


def test_foreign_directories_are_never_replaced(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_records(data, 1, 1)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="will not be replaced"):
        build_site(data, tmp_path / "home")
    with pytest.raises(UsageError, match="would replace the records"):
        build_site(data, data)
    with pytest.raises(UsageError, match="no directory"):
        build_site(tmp_path / "nothing", tmp_path / "site")
    assert (tmp_path / "home" / "thesis.txt").read_text() == "mine"


def test_without_npm_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_records(tmp_path / "data", 1, 1)
    monkeypatch.setenv("LITERTJS_SWEEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(EnvironmentProblem, match=r"npm.*not on PATH.*Node"):
        build_site(tmp_path / "data", tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_triage_reports_are_copied_but_links_are_not(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_record(data, f"2.5.3/{DAY}/m.json", make_record("m", day=DAY))
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    report = tmp_path / "triage" / "m"
    report.mkdir(parents=True)
    (report / "report.html").write_text("<p>report")
    (report / "report.json").write_text(
        json.dumps({"culprits": [{"op": "FULLY_CONNECTED", "confidence": 0.9}, 7, {"op": []}]})
    )
    (report / "notes.txt").symlink_to(secret)
    (tmp_path / "triage" / "unknown").mkdir()
    (tmp_path / "triage" / "unknown" / "report.html").write_text("of no model here")
    built = build_site(data, tmp_path / "site", triage_root=tmp_path / "triage")
    assert built.triage == ("m",)
    index = load_data_file(tmp_path / "site" / "data" / "index.js")
    assert index["triage"][0]["culprits"] == ["FULLY_CONNECTED (confidence: 0.9)"]
    copied = _tree(tmp_path / "site" / "triage")
    assert set(copied) == {"m/report.html", "m/report.json"}

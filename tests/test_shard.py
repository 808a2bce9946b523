from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from sweep.catalog import CatalogEntry
from sweep.cli.release_sweep import release_sweep_command
from sweep.cli.run import run_command
from sweep.errors import UsageError
from sweep.shard import Shard, parse_shard, shard_number, take_shard

ENTRIES = [
    CatalogEntry(model_id=f"model-{n}", source="x.tflite", license="MIT") for n in range(200)
]


def test_every_model_is_in_one_shard_whatever_else_there_is() -> None:
    taken = [take_shard(ENTRIES, Shard(number=k, count=4)) for k in (1, 2, 3, 4)]
    assert sorted(e.model_id for part in taken for e in part) == sorted(e.model_id for e in ENTRIES)
    assert all(30 < len(part) < 70 for part in taken)
    fewer = take_shard(ENTRIES[::-3], Shard(number=2, count=4))
    assert fewer == tuple(e for e in ENTRIES[::-3] if e in taken[1])
    assert take_shard(ENTRIES, None) == take_shard(ENTRIES, Shard(number=1, count=1))


def test_the_shard_of_a_model_never_changes() -> None:
    # As documented: SHA-256, first eight bytes, big-endian. `printf rnet | sha256sum` begins with
    # the digits below.
    digits = int("ed46944b8901c97a", 16)
    assert [shard_number("rnet", n) for n in (1, 2, 7, 1000)] == [
        digits % n + 1 for n in (1, 2, 7, 1000)
    ]


@pytest.mark.parametrize("text", ["0/2", "3/2", "1/0", "1", "a/b", "1/2/3", "-1/2", "1/10001", ""])
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(UsageError, match="K/N"):
        parse_shard(text)


def test_shards() -> None:
    assert parse_shard("2/3") == Shard(number=2, count=3)


@pytest.mark.parametrize("command", [run_command, release_sweep_command])
def test_an_empty_shard_is_done_at_once(tmp_path: Path, command: Any) -> None:
    catalog = tmp_path / "catalog.toml"
    catalog.write_text("[[model]]\nmodel_id = 'rnet'\nsource = 'rnet.tflite'\nlicense = 'MIT'\n")
    (tmp_path / "rnet.tflite").touch()
    app = typer.Typer()
    app.command()(command)
    number = shard_number("rnet", 2) % 2 + 1
    out = tmp_path / "out"
    args = [str(catalog), "--shard", f"{number}/2", "--out", str(out)]
    result = CliRunner().invoke(app, args)
    assert (result.exit_code, result.output) == (
        0, f"Shard {number}/2 has none of these 1 models: nothing to do.\n"
    )  # fmt: skip
    assert not out.exists()

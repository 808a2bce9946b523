"""Temporary directories of dead processes, secrets, and the log."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sweep.logs import JsonLines
from sweep.scratch import remove_stale, scratch_prefix
from sweep.secrets import public_environ, redact


def test_only_what_a_dead_process_of_ours_left_is_removed(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-c", "import tempfile, sys; from sweep.scratch import scratch_prefix; "
         "print(tempfile.mkdtemp(prefix=scratch_prefix(), dir=sys.argv[1]))", str(tmp_path)],
        cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True,
    )  # fmt: skip
    dead = Path(made.stdout.strip())
    (dead / "profile").mkdir()
    mine = Path(tempfile.mkdtemp(prefix=scratch_prefix(), dir=tmp_path))
    parts = dead.name.split("-")
    elsewhere = tmp_path / "-".join([*parts[:2], "0000", *parts[3:]])  # of another machine
    foreign = tmp_path / "litertjs-sweep-something"
    for path in (elsewhere, foreign):
        path.mkdir()
    target = tmp_path / "target"
    target.mkdir()
    link = tmp_path / (dead.name + "x")
    link.symlink_to(target)
    assert remove_stale(tmp_path) == [dead]
    assert sorted(tmp_path.iterdir()) == sorted([mine, elsewhere, foreign, target, link])


def test_a_number_that_another_process_has_now_does_not_protect(tmp_path: Path) -> None:
    parts = scratch_prefix().split("-")
    reused = tmp_path / "-".join([*parts[:4], "1000", "x"])  # our number, another start
    reused.mkdir()
    assert remove_stale(tmp_path) == [reused]


SECRETS = {
    "HF_TOKEN": "hf_aVerySecretValue",
    "NPM_TOKEN": "npm_anotherSecret",
    "https_proxy": "http://someuser:proxypassword@proxy.example:3128",
    "AWS_SECRET_ACCESS_KEY": "aws/secret+key",
    "npm_config_//registry.example/:_authToken": "registry-token",
}


def test_secrets_are_kept_from_children_and_texts() -> None:
    environ = {
        **SECRETS,
        "PATH": "/bin",
        "HOME": "/root",
        "LANG": "C",
        "TOKENIZERS_PARALLELISM": "1",
    }
    assert set(public_environ(environ)) == {"PATH", "HOME", "LANG", "TOKENIZERS_PARALLELISM"}
    text = "; ".join(f"{name} is {value}" for name, value in SECRETS.items())
    shown = redact(f"{text} https://me:mypassword@host/x", environ)
    for secret in ("aVerySecretValue", "anotherSecret", "proxypassword", "aws/secret", "mypassword",
                   "registry-token", "someuser"):  # fmt: skip
        assert secret not in shown
    assert "host/x" in shown
    assert redact("nothing to hide", environ) == "nothing to hide"


def test_a_log_line_is_json_and_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", 'hf_with"quote')
    try:
        raise ValueError('hf_with"quote in a traceback')
    except ValueError:
        record = logging.LogRecord(
            "sweep.x", logging.ERROR, "", 0, "said %s", ('hf_with"quote',), sys.exc_info()
        )
    record.facts = {"event": "failed", "inner": ['hf_with"quote'], "message": "does not win"}
    line = JsonLines().format(record)
    value = json.loads(line)
    assert "\n" not in line
    assert "with" not in json.dumps([value["message"], value["inner"]])
    assert 'hf_with"quote' not in value["traceback"]
    assert (value["event"], value["level"], value["message"]) == ("failed", "error", "said ***")
    assert value["time"].endswith("+00:00")
    assert os.environ["HF_TOKEN"]

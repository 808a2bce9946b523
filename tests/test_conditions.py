"""The machine's state around a measurement."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from sweep.conditions import Conditions, ConditionsWatch, _shares, _Usage, noise_of

QUIET = Conditions(
    load_average=0.5, other_cpu_share=0.02, stolen_share=0.0, cpu_mhz=3000, cpu_max_mhz=3600,
    hot=False, on_battery=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"load_average": 2.5}, "busy"),
        ({"other_cpu_share": 0.3}, "busy"),
        ({"stolen_share": 0.05}, "hypervisor"),
        ({"cpu_mhz": 1200}, "frequency"),
        ({"hot": True}, "hot"),
        ({"on_battery": True}, "battery"),
    ],
)
def test_each_condition_is_named(change: dict[str, Any], word: str) -> None:
    assert noise_of(QUIET, 4) == ()
    (only,) = noise_of(QUIET.model_copy(update=change), 4)
    assert word in only


def test_a_machine_that_tells_nothing_is_not_accused() -> None:
    assert noise_of(Conditions(), None) == ()


SPIN = "while True: pass"


def test_children_count_as_ours() -> None:
    with subprocess.Popen([sys.executable, "-c", SPIN]) as child:
        time.sleep(0.2)  # its start-up
        family = psutil.Process(child.pid)
        watch = ConditionsWatch()
        began, before = sum(family.cpu_times()[:2]), watch._usage(refresh=True)
        time.sleep(0.6)
        ended, after = sum(family.cpu_times()[:2]), watch._usage(refresh=False)
        child.kill()
    assert ended - began > 0.03
    assert after.ours - before.ours > 0.9 * (ended - began)


def test_shares_of_a_window() -> None:
    before = _Usage(at=0, busy=10.0, stolen=1.0, total=100.0, ours=4.0)
    after = _Usage(at=1, busy=11.2, stolen=1.04, total=102.0, ours=4.9)
    assert _shares(before, after) == (0.15, 0.02)
    # One of ours ended and took its count with it.
    assert _shares(before, dataclasses.replace(after, ours=3.0)) == (None, None)


def test_a_window_too_short_for_the_clock_says_nothing() -> None:
    end = ConditionsWatch().begin()
    assert end().other_cpu_share is None


def test_sensors_are_read_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        psutil,
        "cpu_freq",
        lambda percpu: [
            SimpleNamespace(current=900.0, min=800.0, max=4000.0),
            SimpleNamespace(current=1500.0, min=800.0, max=4000.0),
        ],
    )
    heat = {"core": [SimpleNamespace(current=99.0, high=98.0), SimpleNamespace(current=50, high=0)]}
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: heat, raising=False)
    monkeypatch.setattr(
        psutil, "sensors_battery", lambda: SimpleNamespace(power_plugged=False), raising=False
    )
    seen = ConditionsWatch().begin()()
    assert (seen.cpu_mhz, seen.cpu_max_mhz) == (1500.0, 4000.0)
    assert seen.hot is True
    assert seen.on_battery is True
    words = " ".join(noise_of(seen, psutil.cpu_count()))
    assert "frequency" in words
    assert "hot" in words
    assert "battery" in words


def test_a_machine_without_sensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_freq", lambda percpu: [])
    monkeypatch.delattr(psutil, "sensors_temperatures", raising=False)
    monkeypatch.setattr(psutil, "sensors_battery", lambda: None, raising=False)
    seen = ConditionsWatch().begin()()
    assert (seen.cpu_mhz, seen.cpu_max_mhz, seen.hot, seen.on_battery) == (None,) * 4

"""The state of a running sweep and the estimate of what is to come."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.errors import StoreError
from sweep.estimate import remaining_seconds
from sweep.orchestrate import Event
from sweep.state import STATE_FILE, SweepAbout, keep_state, life, read_state
from sweep.store import list_sweeps
from sweep.views.duration import duration

ABOUT = SweepAbout(core_version="2.5.3", date="2026-12-01", leg="default")


def test_the_state_follows_the_events(tmp_path: Path) -> None:
    ids = ("a", "b", "c", "d")
    with keep_state(tmp_path, ABOUT, ids, {"d": 40.0}) as note:
        assert read_state(tmp_path).total == 4
        note(Event("skipped", "a", 0, 4))
        note(Event("start", "b", 1, 4))
        state = read_state(tmp_path)
        assert [running.model_id for running in state.running] == ["b"]
        assert state.remaining_s == 120  # b, c like d
        note(Event("failed", "b", 1, 4, problem="no room"))
        note(Event("start", "c", 2, 4))
        note(Event("done", "c", 2, 4))
        state = read_state(tmp_path)
        assert (state.done, state.skipped, state.failed) == (1, 1, {"b": "no room"})
        assert state.remaining_s == 40
        assert life(state) == "running"
        note(Event("done", "b", 1, 4))  # written after all
        assert read_state(tmp_path).failed == {}
        assert life(state.model_copy(update={"process_started": 1000})) == "killed"
        assert life(state.model_copy(update={"host": "elsewhere"})) == "unknown"
    assert life(read_state(tmp_path)) == "ended"
    assert list_sweeps(tmp_path) == ()
    assert [path.name for path in tmp_path.iterdir()] == [STATE_FILE]


def test_a_state_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    with keep_state(tmp_path / "nowhere", ABOUT, ("a",), {}) as note:
        note(Event("done", "a", 0, 1))
    with pytest.raises(StoreError, match="holds no state"):
        read_state(tmp_path / "nowhere")
    (tmp_path / STATE_FILE).write_bytes(b"\xff" * 10)
    with pytest.raises(StoreError, match="Delete it"):
        read_state(tmp_path)


def test_the_estimate_learns_from_the_running_sweep() -> None:
    expected = {"a": 10.0, "b": 20.0, "c": 30.0}
    assert remaining_seconds(expected, {}, ["a", "b", "c"]) == 60
    # This sweep is twice as fast as the records say; an unknown model counts as the mean.
    assert remaining_seconds(expected, {"a": 5.0}, ["b", "c", "new"]) == 10 + 15 + 5
    assert remaining_seconds({}, {}, ["new"]) is None
    assert remaining_seconds({}, {"x": 4.0}, ["y", "z"]) == 8


def test_durations_for_a_person() -> None:
    assert [duration(s) for s in (0.2, 40, 720, 12_000)] == ["1 s", "40 s", "12 min", "3 h 20 min"]

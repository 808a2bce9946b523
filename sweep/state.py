"""The state file of a running sweep: what `litertjs-sweep status` reads, while and after it runs.

`<out>/.sweep.state.json` is replaced at every event, so that a reader never sees half of it. It is
no record: views overlook it.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import psutil
from pydantic import Field, ValidationError

from sweep.config import Frozen
from sweep.errors import StoreError
from sweep.estimate import remaining_seconds
from sweep.orchestrate import Event

STATE_FILE = ".sweep.state.json"
MAX_STATE_BYTES = 4 * 2**20
MAX_PROBLEMS = 100


class SweepAbout(Frozen):
    """What is being swept."""

    core_version: str
    date: str
    leg: str


class Running(Frozen):
    """A model that a browser works on."""

    model_id: str
    since: str
    """UTC, ISO 8601."""


class SweepState(Frozen):
    """Where a sweep stands."""

    about: SweepAbout
    pid: int
    process_started: int
    """Seconds since the epoch; tells the process from a later one of the same number."""
    host: str
    started: str
    updated: str
    ended: bool
    """False in the file of a sweep that was killed, too: see `life`."""
    total: int = Field(ge=0)
    done: int = Field(ge=0)
    skipped: int = Field(ge=0)
    failed: dict[str, str]
    """Models without a new record and why; the first hundred."""
    statuses: dict[str, int]
    """How many results have each status."""
    running: tuple[Running, ...]
    remaining_s: float | None
    """Estimate of the seconds to come; None while nothing is known."""


@contextlib.contextmanager
def keep_state(
    out: Path, about: SweepAbout, model_ids: tuple[str, ...], expected: Mapping[str, float]
) -> Iterator[Callable[[Event], None]]:
    """Yields what is to be called with every event of the sweep.

    A state that cannot be written is no reason to stop a sweep: it is left as it was.

    Args:
        out: root of the store.
        model_ids: of the whole catalog.
        expected: seconds per model, from `expected_seconds`.
    """
    keeper = _Keeper(out, about, model_ids, expected)
    keeper.write()
    try:
        yield keeper.note
    finally:
        keeper.running.clear()
        keeper.write(ended=True)


class _Keeper:
    def __init__(
        self,
        out: Path,
        about: SweepAbout,
        model_ids: tuple[str, ...],
        expected: Mapping[str, float],
    ) -> None:
        self._path = out / STATE_FILE
        self._about = about
        self._expected = expected
        self._left = dict.fromkeys(model_ids)
        self._total = len(model_ids)
        self._started = _now()
        self._process_started = int(psutil.Process().create_time())
        self._took: dict[str, float] = {}
        self._done: set[str] = set()
        self._skipped = 0
        self._failed: dict[str, str] = {}
        self._statuses: Counter[str] = Counter()
        self._mark = time.monotonic()
        self.running: dict[str, str] = {}

    def note(self, event: Event) -> None:
        model_id = event.model_id
        if event.kind == "start":
            self.running[model_id] = _now()
        else:
            self.running.pop(model_id, None)
            self._left.pop(model_id, None)
            if event.record is not None:
                self._statuses.update(str(result.status) for result in event.record.results)
            if event.kind == "done":
                self._done.add(model_id)
                self._failed.pop(model_id, None)
                # From the end of one model to that of the next: several browsers share the time.
                self._took[model_id] = time.monotonic() - self._mark
            elif event.kind == "skipped":
                self._skipped += 1
            elif len(self._failed) < MAX_PROBLEMS:
                self._failed[model_id] = event.problem or "no reason given"
            self._mark = time.monotonic()
        self.write()

    def write(self, *, ended: bool = False) -> None:
        state = SweepState(
            about=self._about,
            pid=os.getpid(),
            process_started=self._process_started,
            host=socket.gethostname(),
            started=self._started,
            updated=_now(),
            ended=ended,
            total=self._total,
            done=len(self._done),
            skipped=self._skipped,
            failed=self._failed,
            statuses=dict(sorted(self._statuses.items())),
            running=tuple(
                Running(model_id=model_id, since=since) for model_id, since in self.running.items()
            ),
            remaining_s=remaining_seconds(self._expected, self._took, self._left),
        )
        # Not made durable: after a power cut nobody asks how far the sweep was.
        temporary = self._path.with_suffix(".tmp")
        with contextlib.suppress(OSError):
            temporary.write_text(state.model_dump_json(indent=2) + "\n", "utf-8")
            temporary.replace(self._path)


def read_state(out: Path) -> SweepState:
    """The state of the sweep that last ran on a store.

    Raises:
        StoreError: there is none, or the file is damaged.
    """
    path = out / STATE_FILE
    try:
        with path.open("rb") as file:
            data = file.read(MAX_STATE_BYTES)
        return SweepState.model_validate_json(data)
    except FileNotFoundError:
        raise StoreError(
            f"{out} holds no state of a sweep: none has run there yet. Name the directory that "
            "the sweep was given with --out."
        ) from None
    except (OSError, ValidationError, ValueError) as error:
        raise StoreError(
            f"{path} cannot be read as the state of a sweep ({type(error).__name__}). Delete it; "
            "the next sweep writes a new one."
        ) from error


Life = Literal["running", "ended", "killed", "unknown"]


def life(state: SweepState) -> Life:
    """Whether the sweep still runs; `unknown` where it ran on another machine and has not ended."""
    if state.ended:
        return "ended"
    if state.host != socket.gethostname():
        return "unknown"
    try:
        process = psutil.Process(state.pid)
        alive = process.status() != psutil.STATUS_ZOMBIE
        same = abs(int(process.create_time()) - state.process_started) <= 2
    except psutil.NoSuchProcess:
        return "killed"
    except psutil.Error:
        return "unknown"
    return "running" if alive and same else "killed"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")

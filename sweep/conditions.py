"""The state of the machine around a measurement: who else used it, and whether it held its speed.

Everything is read before and after a job, never during its timed runs. None: this machine does not
tell (virtual machines and containers hide most of it, Windows has no load average).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from sweep.config import Frozen
from sweep.env import load_average

BUSY_LOAD = 0.5
"""Load average per CPU from which other work may have disturbed the runs."""
BUSY_OTHERS = 0.10
"""Share of the machine's CPU time taken by other processes from which they may have."""
STOLEN = 0.02
"""Share of CPU time that the hypervisor gave to others from which it shows in samples."""
SLOW_CLOCK = 0.6
"""Share of its highest frequency below which the fastest core counts as slowed down."""
SHORTEST_WINDOW_S = 0.2
"""CPU time is counted in ticks of 10 ms: over less than this, shares would be mostly rounding."""
REFRESH_S = 5.0


class Conditions(Frozen):
    """What was seen around one job."""

    load_average: float | None = None
    """1-minute load of the machine before the job."""
    other_cpu_share: float | None = None
    """CPU time of processes that are not ours, as a share of all CPUs' time during the job."""
    stolen_share: float | None = None
    """CPU time that a hypervisor kept from this machine, likewise."""
    cpu_mhz: float | None = None
    """Of the fastest core just after the job."""
    cpu_max_mhz: float | None = None
    hot: bool | None = None
    """A sensor stood at or above the temperature that its maker calls high."""
    on_battery: bool | None = None


def noise_of(conditions: Conditions, cpus: int | None) -> tuple[str, ...]:
    """Why a latency measured under these conditions should be read with care."""
    found = []
    load, others = conditions.load_average, conditions.other_cpu_share
    if (load is not None and cpus and load / cpus > BUSY_LOAD) or (others or 0) > BUSY_OTHERS:
        found.append("the machine was busy with other work")
    if (conditions.stolen_share or 0) > STOLEN:
        found.append("the hypervisor gave CPU time to other machines")
    highest = conditions.cpu_max_mhz
    if conditions.cpu_mhz and highest and conditions.cpu_mhz < SLOW_CLOCK * highest:
        found.append("the CPU ran well below its highest frequency")
    if conditions.hot:
        found.append("the machine was hot and may have slowed down")
    if conditions.on_battery:
        found.append("the machine ran on battery")
    return tuple(found)


@dataclass
class _Usage:
    """CPU seconds since boot, and ours among them, at one moment."""

    at: float
    busy: float
    stolen: float
    total: float
    ours: float


@dataclass
class ConditionsWatch:
    """Reads the machine's state around jobs. One per sweep: it remembers our own processes."""

    remote: bool = False
    """The browser runs on another machine, of which nothing of this can be seen."""
    _family: list[psutil.Process] = field(default_factory=list)
    _refreshed: float = float("-inf")

    def begin(self) -> Callable[[], Conditions]:
        """Call it before a job; what it returns, called after the job, gives the conditions."""
        if self.remote:
            return Conditions
        load = load_average()
        before = self._usage(time.monotonic() - self._refreshed > REFRESH_S)

        def end() -> Conditions:
            # The job may have opened a page, which is a process of its own.
            others, stolen = _shares(before, self._usage(refresh=True))
            mhz, max_mhz = _clock()
            return Conditions(
                load_average=load,
                other_cpu_share=others,
                stolen_share=stolen,
                cpu_mhz=mhz,
                cpu_max_mhz=max_mhz,
                hot=_hot(),
                on_battery=_on_battery(),
            )

        return end

    def _usage(self, refresh: bool) -> _Usage:
        now = time.monotonic()
        if refresh:
            # The browser and the desktop reference are our children, and their load is our own.
            me = psutil.Process()
            self._family, self._refreshed = [me, *me.children(recursive=True)], now
        ours = 0.0
        for process in self._family:
            with contextlib.suppress(psutil.Error):
                spent = process.cpu_times()
                ours += spent.user + spent.system
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        stolen = float(getattr(times, "steal", 0.0))
        # `guest` is part of `user` already.
        guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
        total = sum(times) - guest
        return _Usage(now, total - idle - stolen, stolen, total, ours)


def _shares(before: _Usage, after: _Usage) -> tuple[float | None, float | None]:
    total = after.total - before.total
    if after.at - before.at < SHORTEST_WINDOW_S or total <= 0:
        return None, None
    # A process that ended takes its time out of `ours`: then nothing can be said.
    ours = after.ours - before.ours
    if ours < 0:
        return None, None
    others = max(0.0, (after.busy - before.busy - ours) / total)
    return round(others, 3), round(max(0.0, after.stolen - before.stolen) / total, 3)


def _clock() -> tuple[float | None, float | None]:
    """The fastest core's present and highest frequency, in MHz."""
    try:
        cores = psutil.cpu_freq(percpu=True) or []
    except (OSError, NotImplementedError, AttributeError):
        return None, None
    fastest = max(cores, key=lambda core: core.current, default=None)
    if fastest is None or not fastest.current:
        return None, None
    return round(fastest.current, 1), round(fastest.max, 1) or None


def _hot() -> bool | None:
    try:
        sensors = psutil.sensors_temperatures()
    except (OSError, AttributeError):  # macOS and Windows have no such function
        return None
    known = [(s.current, s.high) for group in sensors.values() for s in group if s.high]
    return any(now >= high for now, high in known) if known else None


def _on_battery() -> bool | None:
    try:
        battery = psutil.sensors_battery()
    except (OSError, AttributeError):
        return None
    return None if battery is None or battery.power_plugged is None else not battery.power_plugged

"""Temporary directories that say whose they are, so that those of a killed run can be removed.

A run that ends in whatever orderly way removes its own. One that was killed (SIGKILL, the kernel's
out-of-memory killer, a power cut) cannot: the next run on the machine does it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import re
import shutil
import socket
import tempfile
from pathlib import Path

import psutil

log = logging.getLogger(__name__)

_OWNED = re.compile(r"litertjs-sweep-([0-9a-f]{4})-(\d{1,10})-([0-9a-f]{1,10})-.+")
"""Host, process, its start; short, since sockets that lie below may have paths of 108 bytes."""


def scratch_prefix() -> str:
    """Prefix for `tempfile.mkdtemp`: names this machine and this process, and when it started."""
    return f"litertjs-sweep-{_host()}-{os.getpid()}-{_started(psutil.Process()):x}-"


def remove_stale(directory: Path | None = None) -> list[Path]:
    """Remove what dead processes of this user and machine left; returns what was removed.

    Processes that still use such a directory (a browser that outlived its driver) are killed
    first. Never raises: what cannot be removed stays.

    Args:
        directory: where to look; None: the system's directory of temporary files.
    """
    removed = []
    try:
        found = sorted((directory or Path(tempfile.gettempdir())).glob("litertjs-sweep-*"))
    except OSError:
        return []
    for path in found:
        if _is_stale(path):
            _end_users(path)
            shutil.rmtree(path, ignore_errors=True)
            if not path.exists():
                removed.append(path)
                log.info("removed %s, which a killed run left", path)
    return removed


def _is_stale(path: Path) -> bool:
    owner = _OWNED.fullmatch(path.name)
    # Another host's process cannot be looked up from here (a shared directory, a container).
    if owner is None or owner[1] != _host():
        return False
    try:
        about = path.lstat()
    except OSError:
        return False
    mine = not hasattr(os, "geteuid") or about.st_uid == os.geteuid()
    if not mine or path.is_symlink() or not path.is_dir():
        return False
    try:
        process = psutil.Process(int(owner[2]))
        if process.status() == psutil.STATUS_ZOMBIE:
            return True
        # The clock that start times are counted from may be set by a second.
        return abs(_started(process) - int(owner[3], 16)) > 2
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


def _end_users(path: Path) -> None:
    """Kill the browser that was started with its profile in `path`, if it still runs."""
    profile = f"--user-data-dir={path}{os.sep}"
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(argument.startswith(profile) for argument in process.cmdline()):
                process.kill()
                process.wait(5)


def _started(process: psutil.Process) -> int:
    return int(process.create_time())


@functools.cache
def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:4]

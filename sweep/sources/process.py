"""Run the user's package client: bounded in time, whole process tree ended, secrets removed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path

from sweep.config import Frozen

_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_TOKEN = re.compile(
    r"(?i)\b(_?auth(?:Token|orization)?|token|password|bearer)(\s*[=: ]\s*)"
    r"(?:(?:bearer|basic)\s+)?\S+"
)


class Finished(Frozen):
    """What a command left behind. `stderr` is redacted and cut to its last lines."""

    code: int
    stdout: bytes
    stderr: str


class CommandTimeoutError(Exception):
    """The command did not end in time and was killed."""


async def run_command(
    command: Sequence[str], *, cwd: Path, timeout_s: float, stdin: bytes | None = None
) -> Finished:
    """Run a command to its end.

    Args:
        command: program and arguments; no shell is involved.
        cwd: working directory.
        timeout_s: seconds before the process and its children are killed.
        stdin: bytes to give it; None for no input.

    Raises:
        FileNotFoundError: there is no such program.
        CommandTimeoutError: it was killed.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_s):
            stdout, stderr = await process.communicate(stdin)
    except TimeoutError:
        raise CommandTimeoutError(
            f"{Path(command[0]).name} did not end in {timeout_s:g} s"
        ) from None
    finally:
        await _end(process)
    assert process.returncode is not None
    lines = redact(stderr.decode(errors="replace")).strip().splitlines()
    return Finished(code=process.returncode, stdout=stdout, stderr="\n".join(lines[-15:]))


def redact(text: str) -> str:
    """Without user names, passwords and tokens of URLs and headers."""
    return _TOKEN.sub(r"\1\2***", _CREDENTIALS.sub("***@", text))


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    await process.wait()

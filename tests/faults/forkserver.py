"""Starts `litertjs-sweep` by fork, with everything imported: thirty starts take no minute.

One JSON line per start on stdin, {"argv": [...], "log": path}; the answer is the process id. The
child is what the console script would be, in a process group of its own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback

import sweep.catalog
import sweep.cli.checks
import sweep.cli.run
import sweep.sweeper
import sweep.views.table  # noqa: F401
from sweep.cli.main import main


def child(argv: list[str], log: str) -> None:
    os.setsid()
    stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    sys.argv = ["litertjs-sweep", *argv]
    code = 0
    try:
        main()
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serve() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps what the tests kill
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            child(request["argv"], request["log"])
        print(pid, flush=True)


if __name__ == "__main__":
    serve()

"""The process in which the desktop reference runs: ai-edge-litert may abort it, nothing else.

Started by `sweep.reference` as `python -m sweep.reference_worker`. It answers one JSON line per
JSON line on stdin, and moves tensors as `.npy` files in the directory that the request names:

request   {"dir": str, "model": str, "kernels": "xnnpack" | "builtin", "threads": int,
           "inputs": {signature: {input: file}}}
reply     {"status": "ok", "outputs": {signature: {output: file}}}
          {"status": "failed", "error": str}

The first line it writes is a greeting, {"package": str, "version": str | None,
"error": str | None}, where `error` says why the package cannot be used. It ends when stdin does.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import IO, Any

import numpy as np

PACKAGE = "ai-edge-litert"

_PR_SET_PDEATHSIG = 1
"""From <linux/prctl.h>."""

Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]


def limit_memory(data_bytes: int) -> None:
    """Make this process, rather than the machine, run out of memory.

    The limit is on private writable memory (RLIMIT_DATA), not on the address space: weights are
    mapped from the file, and thread pools reserve far more address space than they use.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        data_bytes = min(data_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        # Linux: where the kernel has to kill for memory, let it be this process.
        Path("/proc/self/oom_score_adj").write_text("1000")


def die_with_parent() -> None:
    """Linux: a run that hangs in native code must not outlive a parent that was killed."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def run_signature(model: str, signature: str, inputs: Arrays, kernels: str, threads: int) -> Arrays:
    """Run one entry point once, from the model's initial state (a new interpreter each time).

    Inputs whose shape differs from the stored one are resized to, which is how dynamic dimensions
    get their values. Raises whatever the interpreter raises (ValueError, RuntimeError).
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = {
        "xnnpack": OpResolverType.AUTO,
        "builtin": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    }[kernels]
    interpreter = Interpreter(
        model_path=model, num_threads=threads, experimental_op_resolver_type=resolver
    )
    keys = interpreter.get_signature_list()
    if signature:
        if signature not in keys:
            known = ", ".join(map(repr, keys)) or "none"
            raise ValueError(f"the file has no signature {signature!r} (it has: {known})")
        runner = interpreter.get_signature_runner(signature)
        _check_names(set(runner.get_input_details()), set(inputs))
        outputs: Arrays = runner(**inputs)
        return outputs

    from sweep.tflite import read_graph

    entry = read_graph(Path(model)).signatures[0]  # names as the rest of the package has them
    if (entry.key, entry.subgraph) != ("", 0):
        raise ValueError(f"the file has signatures ({', '.join(keys)}): name one of them")
    indices = dict(entry.inputs)
    _check_names(set(indices), set(inputs))
    for name, value in inputs.items():
        interpreter.resize_tensor_input(indices[name], value.shape)
    interpreter.allocate_tensors()
    for name, value in inputs.items():
        interpreter.set_tensor(indices[name], value)
    interpreter.invoke()
    return {name: interpreter.get_tensor(index) for name, index in entry.outputs}


def _check_names(expected: set[str], given: set[str]) -> None:
    if expected != given:
        raise ValueError(
            f"the inputs are {sorted(expected)}, but values were given for {sorted(given)}"
        )


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Answer one request. An exception becomes a `failed` reply; a crash cannot be caught here."""
    directory = Path(request["dir"])
    replies: dict[str, dict[str, str]] = {}
    try:
        for s, (signature, files) in enumerate(request["inputs"].items()):
            inputs = {name: np.load(directory / file) for name, file in files.items()}
            outputs = run_signature(
                request["model"], signature, inputs, request["kernels"], request["threads"]
            )
            replies[signature] = {}
            for o, (name, value) in enumerate(outputs.items()):
                file = f"out-{s}-{o}.npy"
                if value.dtype == object:  # strings
                    value = value.astype(np.bytes_)
                np.save(directory / file, value, allow_pickle=False)
                replies[signature][name] = file
    except Exception as error:
        return {
            "status": "failed",
            "error": str(error) or f"{type(error).__name__} without a message",
        }
    return {"status": "ok", "outputs": replies}


def serve(requests: IO[str], replies: IO[str]) -> None:
    """Answer requests until there are none; see the module for their form."""

    def send(message: dict[str, Any]) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    greeting: dict[str, Any] = {"package": PACKAGE, "version": None, "error": None}
    try:
        greeting["version"] = importlib.metadata.version(PACKAGE)
        import ai_edge_litert.interpreter  # noqa: F401
    except Exception as error:
        greeting["error"] = f"{type(error).__name__}: {error}"
    send(greeting)
    for line in requests:
        send(handle(json.loads(line)))


def main() -> None:
    """Arguments: the exchange directory, and the memory limit in bytes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when we end
    root, memory = Path(sys.argv[1]), int(sys.argv[2])
    die_with_parent()
    limit_memory(memory)
    # Native code writes to stdout as it likes: keep the real one for replies only.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        serve(sys.stdin, replies)
    except BrokenPipeError:
        pass
    finally:  # the parent removes it too, unless it was killed
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()

"""The page that measures a visitor's model in the visitor's browser, with the sweep's harness."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from pathlib import Path

from sweep.console import page_patterns
from sweep.paths import resource_dir
from sweep.runtime import CoreFiles

IMPORTS = {
    "@litertjs/core": "./core/dist/index.js",
    "@litertjs/wasm-utils": "./wasm-utils/dist/index.js",
}
_HARNESS = ("harness.js", "runtime_adapter.js", "gpu_watch.js", "base64.js")
"""Taken as they are. Only the transport is another: bytes stay in the page."""

SETTINGS = {
    "warmup": 2, "min_runs": 5, "max_runs": 20, "budget_ms": 5000,
    "strict": {"abs": 1e-5, "rel": 1e-3},
    "nrmse_bound": 1e-3,
}  # fmt: skip
"""`nrmse_bound` is the calibrated policy's guard rail for fp32, where no noise floor is known."""


def write_check(static: Path, core: CoreFiles, out: Path) -> None:
    """Write the page into `out`: harness, core package (without its threaded build), settings."""
    out.mkdir(parents=True)
    pages = static / "check"
    for name in ("index.html", "hooks.js"):
        shutil.copyfile(pages / name, out / name)
    harness = out / "harness"
    harness.mkdir()
    for name in _HARNESS:
        shutil.copyfile(resource_dir("web_harness") / name, harness / name)
    shutil.copyfile(pages / "transport.js", harness / "transport.js")
    import_map = json.dumps({"imports": IMPORTS}, sort_keys=True)
    digest = base64.b64encode(hashlib.sha256(import_map.encode()).digest()).decode()
    runner = (pages / "runner.html").read_text("utf-8")
    (out / "runner.html").write_text(
        runner.replace("{{IMPORT_MAP}}", import_map).replace("{{IMPORT_MAP_SHA256}}", digest),
        encoding="utf-8",
        newline="\n",
    )
    _copy_tree(core.core_dir / "dist", out / "core" / "dist", {".js"})
    _copy_tree(core.core_dir / "wasm", out / "core" / "wasm", {".js", ".wasm"})
    _copy_tree(core.wasm_utils_dir / "dist", out / "wasm-utils" / "dist", {".js"})
    settings = {**SETTINGS, "core": core.version, "patterns": page_patterns()}
    (out / "settings.js").write_text(
        f"sweepCheckSettings({json.dumps(settings, sort_keys=True)})\n",
        encoding="utf-8",
        newline="\n",
    )


def _copy_tree(source: Path, target: Path, suffixes: set[str]) -> None:
    for path in sorted(source.rglob("*")):
        if path.suffix in suffixes and path.is_file() and "threaded" not in path.name:
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)

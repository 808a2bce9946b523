"""Where things are kept: the per-user cache, and the files that ship with the package."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import platformdirs

CACHE_ENV = "LITERTJS_SWEEP_CACHE"
"""Names another directory for the cache of core packages and models."""

Resource = Literal["web_harness", "static", "configs"]


def cache_dir() -> Path:
    """The per-user cache directory (not created here): `$LITERTJS_SWEEP_CACHE`, or the platform's.

    Core packages lie in `core/<version>/` below it.
    """
    override = os.environ.get(CACHE_ENV)
    if override:
        return Path(override).expanduser().absolute()
    return platformdirs.user_cache_path("litertjs-sweep", appauthor=False)


def resource_dir(name: Resource) -> Path:
    """A directory of files that ship beside the code, in a wheel or in a checkout.

    A wheel holds them inside the package as `sweep/_<name>`; a checkout (and so an editable
    install) holds them in its root.
    """
    package = Path(__file__).parent
    installed = package / f"_{name}"
    directory = installed if installed.is_dir() else package.parent / name
    assert directory.is_dir(), f"{name} is missing from the installation at {package}"
    return directory


def data_dir() -> Path:
    """The per-user directory of results that were not given a place of their own."""
    return platformdirs.user_data_path("litertjs-sweep", appauthor=False)

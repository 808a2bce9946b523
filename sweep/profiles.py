"""Profiles: named lists of legs, read from `configs/profiles/*.toml`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from pydantic import Field, ValidationError, field_validator

from sweep.config import Frozen, Leg
from sweep.errors import UsageError
from sweep.paths import resource_dir

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


class Profile(Frozen):
    """The legs that a sweep runs, in order."""

    name: str
    description: str = ""
    legs: tuple[Leg, ...] = Field(min_length=1, alias="leg")

    @field_validator("legs")
    @classmethod
    def _distinct(cls, legs: tuple[Leg, ...]) -> tuple[Leg, ...]:
        if len({leg.name for leg in legs}) < len(legs):
            raise ValueError("two legs have the same name")
        return legs


def profiles_dir() -> Path:
    """Where the shipped profiles lie."""
    return resource_dir("configs") / "profiles"


def load_profile(name_or_path: str) -> Profile:
    """A shipped profile by name, or any profile by its path.

    Raises:
        UsageError: there is no such profile, or it is not a valid one, or it gives another meaning
            to a leg of a shipped profile (records are keyed by the name of their leg).
    """
    if _NAME.fullmatch(name_or_path):
        path = profiles_dir() / f"{name_or_path}.toml"
    else:
        path = Path(name_or_path)
    if path.suffix != ".toml" or not path.is_file():
        known = ", ".join(sorted(p.stem for p in profiles_dir().glob("*.toml")))
        raise UsageError(
            f"There is no profile {name_or_path!r}. Shipped profiles: {known}; one of your own is "
            "named by the path of its .toml file."
        )
    profile = _read(path)
    for shipped in sorted(profiles_dir().glob("*.toml")):
        for leg in _read(shipped).legs:
            if any(own.name == leg.name and own != leg for own in profile.legs):
                raise UsageError(
                    f"{path}: the leg {leg.name!r} is another one in {shipped.stem}: give yours a "
                    "name of its own."
                )
    return profile


def _read(path: Path) -> Profile:
    try:
        return Profile.model_validate(tomllib.loads(path.read_text("utf-8")))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not readable TOML: {error}") from error
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise UsageError(f"{path} is not a profile:\n  " + "\n  ".join(lines)) from error


def find_leg(name: str) -> Leg:
    """A leg of any shipped profile, by its name.

    Raises:
        UsageError: no shipped profile has such a leg.
    """
    legs = {
        leg.name: leg for path in sorted(profiles_dir().glob("*.toml")) for leg in _read(path).legs
    }
    if name not in legs:
        raise UsageError(f"There is no leg {name!r}. Legs: {', '.join(sorted(legs))}.")
    return legs[name]

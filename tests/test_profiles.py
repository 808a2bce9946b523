from __future__ import annotations

from pathlib import Path

import pytest

from sweep.config import Leg
from sweep.errors import UsageError
from sweep.profiles import find_leg, load_profile, profiles_dir


def test_shipped_profiles() -> None:
    names = sorted(path.stem for path in profiles_dir().glob("*.toml"))
    assert names == ["default", "precision", "release"]
    assert all(load_profile(name).name == name for name in names)
    assert load_profile("default").legs == (Leg(),)
    assert {
        leg.name: (leg.jspi, leg.threads, leg.webgpu) for leg in load_profile("release").legs
    } == {
        "default": (None, False, True),
        "jspi-off": (False, False, True),
        "threads": (None, True, True),
        "no-webgpu": (None, False, False),
    }
    assert [leg.precision for leg in load_profile("precision").legs] == ["fp32", "fp16"]


def test_one_name_is_one_leg_in_every_profile() -> None:
    """Records are keyed by the name of their leg alone."""
    seen: dict[str, Leg] = {}
    for path in profiles_dir().glob("*.toml"):
        for leg in load_profile(str(path)).legs:
            assert seen.setdefault(leg.name, leg) == leg


def test_legs_by_name() -> None:
    assert find_leg("threads") == Leg(name="threads", threads=True)
    with pytest.raises(UsageError, match=r"no leg 'thread'.*jspi-off, no-webgpu, threads"):
        find_leg("thread")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = 'x'\n", "leg: Field required"),
        ("name = 'x'\n[[leg]]\nname = 'a'\n[[leg]]\nname = 'a'\n", "two legs have the same name"),
        ("name = 'x'\n[[leg]]\nname = 'a/b'\n", "leg.0.name"),
        ("name = 'x'\n[[leg]]\nname = 'a'\nthread = true\n", "leg.0.thread"),
        ("name = 'x'\n[[leg]\n", "not readable TOML"),
        ("name = 'x'\nlegs = 3\n[[leg]]\nname = 'a'\n", "legs: Extra inputs"),
        ("name = 'x'\nleg = 3\n", "leg: Input should be a valid tuple"),
        # Records are keyed by the name: threads that are none would be compared with threads.
        ("name = 'x'\n[[leg]]\nname = 'threads'\n", "the leg 'threads' is another one in release"),
    ],
)
def test_a_bad_profile_says_what_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=says):
        load_profile(str(path))


def test_a_profile_that_is_not_there(tmp_path: Path) -> None:
    for name in ("nightly", str(tmp_path / "mine.toml"), "../profiles/default"):
        with pytest.raises(UsageError, match=r"Shipped profiles: default, precision, release"):
            load_profile(name)


def test_a_profile_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("name = 'mine'\n[[leg]]\nname = 'four'\nthreads = true\nnum_threads = 4\n")
    assert load_profile(str(path)).legs == (Leg(name="four", threads=True, num_threads=4),)

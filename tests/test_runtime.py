"""The runtime's releases, against a stand-in `npm` that serves tarballs from a directory."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from sweep.errors import EnvironmentProblem, UsageError
from sweep.npm import _npm_message, unpack
from sweep.runtime import (
    CORE,
    WASM_UTILS,
    cached_versions,
    ensure_core,
    local_core,
    published_versions,
    version_key,
)

NPM = """#!{python}
import json, os, shutil, sys
registry = json.load(open({registry!r}))
if sys.argv[1] == "--version":
    sys.exit(print("11.0.0"))
open({calls!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
if os.path.exists({offline!r}):
    sys.exit("npm error code ECONNREFUSED\\nnpm error network connect https://me:pw@registry/x")
command, spec = sys.argv[1], sys.argv[2]
name, _, wanted = spec[1:].partition("@")
versions = registry["@" + name]
if command == "view" and not wanted:
    print(json.dumps({{"versions": list(versions), "dist-tags": {{"latest": "1.1.0"}},
                      "time": {{v: "2026-05-18T10:57:02.280Z" for v in versions}}}}))
elif command == "view":
    print(json.dumps({{"version": wanted, "dist.integrity": versions[wanted]["integrity"]}}))
else:
    hits = [v for v in versions if v == wanted or v[0] == wanted.lstrip("^")[0] and "^" in wanted]
    if not hits:
        sys.exit("npm error code ETARGET\\nnpm error notarget No matching version found for x.")
    to = [a for a in sys.argv if a.startswith("--pack-destination=")][0].split("=")[1]
    shutil.copy(versions[hits[-1]]["tarball"], to)
"""


def tarball(path: Path, files: dict[str, bytes]) -> str:
    """Write an npm tarball; return its SSRI."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return "sha512-" + base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()


class Registry:
    """What the stand-in npm serves; `break_integrity` and `offline` spoil it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.packages: dict[str, dict[str, dict[str, str]]] = {}

    def publish(self, name: str, version: str, needs: str | None = None) -> None:
        package = {"name": name, "version": version}
        if needs:
            package |= {"dependencies": {WASM_UTILS: needs}}  # type: ignore[dict-item]
        archive = self.directory / f"{name.replace('/', '-').strip('@')}-{version}.tgz"
        integrity = tarball(
            archive,
            {
                "package/package.json": json.dumps(package).encode(),
                "package/dist/index.js": b"export {}",
                "package/wasm/core.wasm": f"wasm of {version}".encode(),
            },
        )
        entry = {"tarball": str(archive), "integrity": integrity}
        self.packages.setdefault(name, {})[version] = entry
        self.save()

    def save(self) -> None:
        (self.directory / "registry.json").write_text(json.dumps(self.packages))

    def break_integrity(self, version: str) -> None:
        self.packages[CORE][version]["integrity"] = "sha512-" + base64.b64encode(b"x" * 64).decode()
        self.save()

    def offline(self) -> None:
        (self.directory / "offline").touch()

    def calls(self) -> list[str]:
        return (self.directory / "calls").read_text().splitlines()


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    directory = tmp_path / "registry"
    directory.mkdir()
    npm = directory / "npm"
    npm.write_text(
        NPM.format(
            python=sys.executable,
            registry=str(directory / "registry.json"),
            calls=str(directory / "calls"),
            offline=str(directory / "offline"),
        )
    )
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory))
    served = Registry(directory)
    # Published out of order, as maintenance releases are.
    for version in ("1.1.0", "0.10.0", "0.9.1", "1.2.0-rc.10", "1.2.0-rc.9"):
        served.publish(CORE, version, needs=f"^{version[0]}.0.0")
    served.publish(WASM_UTILS, "0.4.0")
    served.publish(WASM_UTILS, "1.0.3")
    return served


def test_prereleases_come_before_their_release_and_numbers_are_numbers() -> None:
    ordered = ["0.9.1", "0.10.0", "1.2.0-alpha", "1.2.0-alpha.1", "1.2.0-rc.9", "1.2.0-rc.10",
               "1.2.0"]  # fmt: skip
    assert sorted(set(ordered), key=version_key) == ordered
    with pytest.raises(ValueError, match=r"1\.2"):
        version_key("1.2")


async def test_published_versions_are_in_version_order(registry: Registry) -> None:
    releases = await published_versions()
    assert [r.version for r in releases] == [
        "0.9.1", "0.10.0", "1.1.0", "1.2.0-rc.9", "1.2.0-rc.10",
    ]  # fmt: skip
    assert [r.version for r in releases if "latest" in r.tags] == ["1.1.0"]
    assert releases[0].date is not None
    assert releases[0].date.year == 2026


async def test_installs_core_with_its_own_wasm_utils(registry: Registry, tmp_path: Path) -> None:
    core = await ensure_core("0.10.0", tmp_path / "cache")
    assert (core.core_dir / "wasm/core.wasm").read_text() == "wasm of 0.10.0"
    assert (core.wasm_utils_version, core.wasm_utils_dir.name) == ("0.4.0", "wasm-utils")
    assert core.integrity == registry.packages[CORE]["0.10.0"]["integrity"]
    assert core.wasm_utils_integrity == registry.packages[WASM_UTILS]["0.4.0"]["integrity"]
    assert all("--ignore-scripts" in c for c in registry.calls() if c.startswith("pack"))


async def test_latest_offline_is_the_newest_cached(registry: Registry, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for version in ("0.10.0", "0.9.1"):
        await ensure_core(version, cache)
    assert cached_versions(cache) == ["0.9.1", "0.10.0"]
    assert (await ensure_core("latest", cache)).version == "1.1.0"
    shutil.rmtree(cache / "core" / "1.1.0")
    registry.offline()
    before = len(registry.calls())
    assert (await ensure_core("latest", cache, offline=True)).version == "0.10.0"
    assert len(registry.calls()) == before
    assert (await ensure_core("latest", cache)).version == "0.10.0"
    with pytest.raises(EnvironmentProblem, match=r"1\.1\.0 is not cached.*0\.9\.1, 0\.10\.0"):
        await ensure_core("1.1.0", cache, offline=True)
    with pytest.raises(EnvironmentProblem) as caught:
        await ensure_core("1.1.0", cache)
    assert "connect https://***@registry/x" in str(caught.value)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("damage", ["changed", "missing", "extra", "manifest"])
async def test_a_damaged_cache_is_reinstalled_or_reported(
    registry: Registry, tmp_path: Path, damage: str
) -> None:
    core = await ensure_core("1.1.0", tmp_path)
    wasm = core.core_dir / "wasm" / "core.wasm"
    match damage:
        case "changed":
            wasm.write_text("wasm of 1.1.1")
        case "missing":
            wasm.unlink()
        case "extra":
            (core.core_dir / "dist" / "other.js").touch()
        case _:
            (core.core_dir.parent / "manifest.json").write_text("{")
    with pytest.raises(EnvironmentProblem, match=r"1\.1\.0 is broken \(.*setup --core 1\.1\.0"):
        await ensure_core("1.1.0", tmp_path, offline=True)
    again = await ensure_core("1.1.0", tmp_path)
    assert again == core
    assert wasm.read_text() == "wasm of 1.1.0"
    assert sorted(p.name for p in (tmp_path / "core").iterdir() if p.name[0] == ".") == []
    registry.offline()
    assert (await ensure_core("1.1.0", tmp_path)).version == "1.1.0"


async def test_a_tarball_that_is_not_the_promised_one_is_refused(
    registry: Registry, tmp_path: Path
) -> None:
    registry.break_integrity("1.1.0")
    with pytest.raises(EnvironmentProblem, match=r"core@1\.1\.0: the archive's sha512"):
        await ensure_core("1.1.0", tmp_path)
    registry.packages[CORE]["1.1.0"]["integrity"] = ""
    registry.save()
    with pytest.raises(EnvironmentProblem, match="no sha512 integrity"):
        await ensure_core("1.1.0", tmp_path)
    assert cached_versions(tmp_path) == []


async def test_a_version_that_does_not_exist_is_named_with_those_that_do(
    registry: Registry, tmp_path: Path
) -> None:
    with pytest.raises(EnvironmentProblem, match=r"9\.9\.9 does not exist; .*0\.9\.1, 0\.10\.0"):
        await ensure_core("9.9.9", tmp_path)
    with pytest.raises(EnvironmentProblem, match="no dist-tag 'next'"):
        await ensure_core("next", tmp_path)
    with pytest.raises(UsageError):
        await ensure_core("../../etc", tmp_path)


async def test_without_npm(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(EnvironmentProblem, match=r"npm was not found.*Node\.js"):
        await ensure_core("1.1.0", tmp_path)


@pytest.mark.parametrize("name", ["package/../../evil", "/etc/evil", "package/a\\..\\evil"])
def test_unpacking_stays_inside(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "a.tgz"
    tarball(archive, {name: b"x"})
    with pytest.raises(EnvironmentProblem, match="suspicious"):
        unpack(archive, tmp_path / "out")
    assert not list(tmp_path.rglob("*evil*"))


def test_unpacking_refuses_links(tmp_path: Path) -> None:
    archive = tmp_path / "a.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        link = tarfile.TarInfo("package/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(EnvironmentProblem, match="suspicious"):
        unpack(archive, tmp_path / "out")


def test_a_local_build_uses_the_wasm_utils_beside_it(tmp_path: Path) -> None:
    core, utils = tmp_path / "packages" / "core", tmp_path / "packages" / "wasm_utils"
    for directory, name, version in ((core, CORE, "2.6.0-dev.1"), (utils, WASM_UTILS, "2.5.9")):
        (directory / "dist").mkdir(parents=True)
        (directory / "package.json").write_text(json.dumps({"name": name, "version": version}))
    with pytest.raises(EnvironmentProblem, match=r"dist/index\.js"):
        local_core(core)
    (core / "dist" / "index.js").touch()
    with pytest.raises(EnvironmentProblem, match=r"wasm/\*\.wasm"):
        local_core(core)
    (core / "wasm").mkdir()
    (core / "wasm" / "a.wasm").touch()
    found = local_core(core)
    assert (found.version, found.wasm_utils_version, found.integrity) == (
        "2.6.0-dev.1", "2.5.9", None,
    )  # fmt: skip
    assert found.wasm_utils_dir == utils
    shutil.rmtree(utils)
    with pytest.raises(EnvironmentProblem, match="npm install --no-save"):
        local_core(core)


def test_npm_messages_hold_no_credentials() -> None:
    shown = _npm_message(
        "npm error code E401\nnpm error 401 https://u:p@host/x //host/:_authToken=npm_abc123\n"
        "npm error A complete log of this run can be found in: /home/me/.npm/_logs/x.log\n",
        "",
    )
    assert "E401" in shown
    for secret in ("u:p", "abc123", "/home/me"):
        assert secret not in shown


@pytest.mark.network
async def test_the_real_registry(tmp_path: Path) -> None:
    try:
        versions = [r.version for r in await published_versions()]
    except EnvironmentProblem as problem:
        pytest.skip(f"npm cannot reach its registry: {problem}")
    assert {"0.1.1", "2.5.3"} <= set(versions)
    core = await ensure_core("0.1.1", tmp_path)
    assert core.wasm_utils_version == "0.1.1"
    assert (core.core_dir / "wasm" / "litert_wasm_internal.wasm").stat().st_size == 7521693

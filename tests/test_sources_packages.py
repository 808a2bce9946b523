"""Packages and hub files, through the real npm, pip and huggingface_hub."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from sweep.errors import SourceError
from sweep.sources import FetchOptions, ModelCache, fetch_model, parse_source
from sweep.sources.pip_client import ClientError, choose
from tests.test_sources import MODEL, OPTIONS, SHA, tgz


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ModelCache]:
    with ModelCache(tmp_path / "cache") as made:
        yield made


# --- PyPI, through the real pip ---------------------------------------------------------------


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that pip takes packages from; no index is asked."""
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    wheel = links / "my_pkg-1.0-cp39-cp39-win_amd64.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("my_pkg/a.tflite", MODEL)
    canary = f"open({str(tmp_path / 'canary')!r}, 'w')"
    tgz(
        links / "my-pkg-1.0.tar.gz",
        ("my-pkg-1.0/setup.py", canary.encode()),
        ("my-pkg-1.0/data/b.tflite", MODEL + b"sdist"),
    )
    return links


async def test_wheels_for_other_platforms_and_sdists_without_running_them(
    tmp_path: Path, index: Path, cache: ModelCache
) -> None:
    async def get(path: str) -> bytes:
        source = parse_source(f"pypi:my.pkg==1.0/{path}", tmp_path)
        got = await fetch_model(source, sha256=None, cache=cache, options=OPTIONS)
        return got.path.read_bytes()

    assert await get("my_pkg/a.tflite") == MODEL
    assert await get("my-pkg-1.0/data/b.tflite") == MODEL + b"sdist"
    assert not (tmp_path / "canary").exists()
    shutil.rmtree(index)  # both are pinned: the network is not asked again
    assert await get("my_pkg/a.tflite") == MODEL


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("pypi:my-pkg==2.0/a", "no wheel or sdist of version 2.0; its latest: 1.0"),
        ("pypi:absent==1.0/a", "has no absent"),
        ("pypi:my-pkg==1.0/my_pkg/c.tflite", r"Models in it: my_pkg/a\.tflite"),
    ],
)
async def test_what_pypi_does_not_have(
    index: Path, cache: ModelCache, source: str, message: str
) -> None:
    with pytest.raises(SourceError, match=message):
        await fetch_model(parse_source(source, index), sha256=None, cache=cache, options=OPTIONS)


def test_the_choice_of_an_archive() -> None:
    names = [
        "p-1.0.tar.gz", "p-1.0-cp311-cp311-win_amd64.whl", "p-1.0-cp311-cp311-linux_x86_64.whl",
        "p-1.1-py3-none-any.whl", "p-1.0.exe", "q-1.0.tar.gz", "p-x.tar.gz",
    ]  # fmt: skip
    assert choose(names, "P", "1.0", "wheel") == "p-1.0-cp311-cp311-linux_x86_64.whl"
    assert choose([*names, "p-1.0-py3-none-any.whl"], "p", "1", "wheel").endswith("any.whl")
    assert choose(names, "p", "1.0", "sdist") == "p-1.0.tar.gz"
    with pytest.raises(ClientError, match=r"version 3; its latest: 1\.0, 1\.1"):
        choose(names, "p", "3", "wheel")


# --- npm, through the real npm ----------------------------------------------------------------


@pytest.fixture
async def registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[dict[str, object]]:
    """A registry on loopback with one package; the yielded dict is its `dist`."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    package = json.dumps({"name": "@s/pkg", "version": "1.0.0"}).encode()
    tarball = tgz(
        tmp_path / "pkg.tgz", ("package/package.json", package), ("package/a.tflite", MODEL)
    ).read_bytes()
    digest = base64.b64encode(hashlib.sha512(tarball).digest()).decode()
    dist: dict[str, object] = {"integrity": f"sha512-{digest}", "requests": 0}

    async def serve(request: web.BaseRequest) -> web.Response:
        assert isinstance(dist["requests"], int)
        dist["requests"] += 1
        if request.path.endswith(".tgz"):
            return web.Response(body=tarball)
        if request.path != "/@s/pkg":
            return web.json_response({"error": "Not found"}, status=404)
        url = f"http://{request.host}/pkg.tgz"
        shown = {"tarball": url, "integrity": dist.pop("promised", dist["integrity"])}
        version = {"name": "@s/pkg", "version": "1.0.0", "dist": shown}
        return web.json_response(
            {"name": "@s/pkg", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        )

    runner = web.ServerRunner(web.Server(serve))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{runner.addresses[0][1]}/")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    monkeypatch.setenv("npm_config_update_notifier", "false")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield dist
    await runner.cleanup()


async def test_npm_packages_are_fetched_once_for_all_their_models(
    tmp_path: Path, registry: dict[str, object], cache: ModelCache
) -> None:
    source = parse_source("npm:@s/pkg@1.0.0/a.tflite", tmp_path)
    got = await fetch_model(source, sha256=SHA, cache=cache, options=OPTIONS)
    assert got.path.read_bytes() == MODEL
    before = registry["requests"]
    with pytest.raises(SourceError, match=r"Models in it: package/a\.tflite"):
        await fetch_model(
            parse_source("npm:@s/pkg@1.0.0/b.tflite", tmp_path),
            sha256=None, cache=cache, options=OPTIONS,
        )  # fmt: skip
    assert registry["requests"] == before


async def test_a_tampered_npm_package_is_refused(
    tmp_path: Path, registry: dict[str, object], cache: ModelCache
) -> None:
    # Only `npm view` is told another hash: npm itself would retry a mismatch for long.
    registry["promised"] = "sha512-" + base64.b64encode(bytes(64)).decode()
    source = parse_source("npm:@s/pkg@1.0.0/a.tflite", tmp_path)
    with pytest.raises(SourceError, match="sha512"):
        await fetch_model(source, sha256=SHA, cache=cache, options=OPTIONS)
    assert cache.size() == 0


async def test_without_npm_and_offline(
    tmp_path: Path, cache: ModelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = parse_source("npm:@s/pkg@1.0.0/a.tflite", tmp_path)
    with pytest.raises(SourceError, match="LITERTJS_SWEEP_OFFLINE"):
        await fetch_model(source, sha256=SHA, cache=cache, options=FetchOptions(offline=True))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SourceError, match="npm was not found"):
        await fetch_model(source, sha256=SHA, cache=cache, options=OPTIONS)


# --- the hub, through its own client ----------------------------------------------------------


async def test_hub_files_stay_in_the_hubs_cache_and_name_their_commit(
    tmp_path: Path, cache: ModelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "0123456789" * 4
    asked: list[tuple[str, str | None]] = []

    async def serve(request: web.BaseRequest) -> web.Response:
        asked.append((request.method, request.headers.get("Authorization")))
        if request.path not in ("/o/r/resolve/main/a.tflite", f"/o/r/resolve/{commit}/a.tflite"):
            return web.Response(status=404, headers={"X-Error-Code": "EntryNotFound"})
        headers = {"ETag": f'"{SHA}"', "X-Repo-Commit": commit}
        return web.Response(body=MODEL, headers=headers)

    runner = web.ServerRunner(web.Server(serve))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    options = FetchOptions(hf_endpoint=f"http://127.0.0.1:{runner.addresses[0][1]}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    try:
        source = parse_source("hf:o/r/a.tflite", tmp_path)
        got = await fetch_model(source, sha256=SHA, cache=cache, options=options)
        assert got.resolved == f"hf:o/r/a.tflite@{commit}"
        assert got.path.is_relative_to(tmp_path / "hub")
        assert got.path.read_bytes() == MODEL
        assert cache.size() == 0
        assert {token for _, token in asked} == {"Bearer hf_secret"}
        with pytest.raises(SourceError, match=r"o/r has no file 'b\.tflite'") as caught:
            await fetch_model(
                parse_source("hf:o/r/b.tflite", tmp_path),
                sha256=None, cache=cache, options=options,
            )  # fmt: skip
        assert "hf_secret" not in str(caught.value)
        small = options.model_copy(update={"max_bytes": 10})
        with pytest.raises(SourceError, match="the limit is 10"):
            await fetch_model(source, sha256=None, cache=cache, options=small)
    finally:
        await runner.cleanup()
    # The server is gone: a commit that the hub's cache has needs none.
    pinned = parse_source(f"hf:o/r/a.tflite@{commit}", tmp_path)
    assert (await fetch_model(pinned, sha256=None, cache=cache, options=options)).sha256 == SHA

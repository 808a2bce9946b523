"""Source strings, archives, the cache, local files, and how commands are run."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.errors import CatalogError, SourceError
from sweep.sources import FetchOptions, ModelCache, fetch_model, parse_source
from sweep.sources.archive import ArchiveError, extract_member
from sweep.sources.cache import SourceNote
from sweep.sources.process import CommandTimeoutError, redact, run_command
from sweep.sources.spec import HfSource, HttpsSource, NpmSource, PathSource, PypiSource

MODEL = b"\x1c\x00\x00\x00TFL3" + bytes(range(256)) * 40
SHA = hashlib.sha256(MODEL).hexdigest()
OPTIONS = FetchOptions()
HERE = Path("/catalogs")


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ModelCache]:
    with ModelCache(tmp_path / "cache") as made:
        yield made


# --- source strings ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("m/a.tflite", PathSource(text="m/a.tflite", path=HERE / "m/a.tflite")),
        ("/m/a.tflite", PathSource(text="/m/a.tflite", path=Path("/m/a.tflite"))),
        ("https://h/a?download=true", HttpsSource(text="*", url="https://h/a?download=true")),
        ("hf:o/r/d/a.tflite", HfSource(text="*", repo="o/r", file="d/a.tflite")),
        ("hf:o/r/a@refs/pr/1", HfSource(text="*", repo="o/r", file="a", revision="refs/pr/1")),
        ("npm:p@1.2.3/d/a", NpmSource(text="*", package="p", version="1.2.3", path="d/a")),
        (
            "npm:@s/p@0.4.1-rc.1/a@2x",
            NpmSource(text="*", package="@s/p", version="0.4.1-rc.1", path="a@2x"),
        ),
        ("pypi:P.q==1.0rc1/d/a", PypiSource(text="*", package="P.q", version="1.0rc1", path="d/a")),
    ],
)
def test_sources_are_read(text: str, source: HttpsSource) -> None:
    assert parse_source(text, HERE) == source.model_copy(update={"text": text})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (" a", "blanks around"),
        ("a\nb", "control characters"),
        ("file:///etc/passwd", "plain path"),
        ("ftp://h/x", "unknown kind 'ftp'"),
        ("http://h/x", "use https"),
        ("https://", "not a URL"),
        ("https://h:port/x", "not a URL"),
        ("https://u:secret@h/x", "credentials"),
        ("https://h/x?X-Amz-Signature=secret", "signed URL"),
        ("https://h/x#a", "fragment"),
        ("hf:org/a.tflite", "write hf:"),
        ("hf:o/r/../a", "plain path inside"),
        ("hf:o/r/a@", "not a branch"),
        ("hf:o/r/a@../x", "not a branch"),
        ("npm:p/a", "write npm:"),
        ("npm:p@latest/a", "one exact version"),
        ("npm:p@^1.0.0/a", "one exact version"),
        ("npm:p@1.0.0/../a", "plain path inside"),
        ("npm:p@1.0.0//a", "plain path inside"),
        ("npm:../p@1.0.0/a", "write npm:"),
        ("npm:-g@1.0.0/a\\b", "plain path inside"),
        ("pypi:p/a", "write pypi:"),
        ("pypi:p==1.*/a", "one exact version"),
        ("pypi:--index-url==1/a", "write pypi:"),
    ],
)
def test_bad_sources_are_explained_without_their_secrets(text: str, message: str) -> None:
    with pytest.raises(CatalogError, match=message) as caught:
        parse_source(text, HERE)
    assert "secret" not in str(caught.value)


@given(st.text(max_size=60) | st.from_regex(r"(https|hf|npm|pypi):[\w@/.=-]{0,40}", fullmatch=True))
def test_any_text_is_a_source_or_a_catalog_error(text: str) -> None:
    try:
        source = parse_source(text, HERE)
    except CatalogError:
        return
    assert source.text == text
    if isinstance(source, NpmSource | PypiSource):
        assert ".." not in Path(source.path).parts
        assert not source.package.startswith("--")


def test_paths_below_name_version_are_in_the_sdist() -> None:
    for path, expected in (("My.Pkg-1.0/a", True), ("my_pkg-1/a", True), ("my_pkg-2/a", False)):
        source = parse_source(f"pypi:my-pkg==1.0/{path}", HERE)
        assert isinstance(source, PypiSource)
        assert source.in_sdist is expected


# --- archives ---------------------------------------------------------------------------------


def tgz(path: Path, *members: tuple[str, bytes | tarfile.TarInfo]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members:
            if isinstance(content, tarfile.TarInfo):
                content.name = name
                tar.addfile(content)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return path


def link(target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo()
    info.type, info.linkname = kind, target
    return info


def take(archive: Path, member: str, limit: int = 1 << 20, unpacked: int = 1 << 22) -> bytes:
    target = archive.parent / "taken"
    extract_member(archive, member, target, max_bytes=limit, max_unpacked=unpacked)
    return target.read_bytes()


def test_a_member_is_found_with_and_without_the_root(tmp_path: Path) -> None:
    npm = tgz(tmp_path / "a.tgz", ("package/d/a.tflite", MODEL), ("package/a.tflite", b"other"))
    assert take(npm, "package/d/a.tflite") == take(npm, "d/a.tflite") == MODEL
    nested = tgz(tmp_path / "b.tgz", ("package/package/a", b"inner"), ("package/a", b"outer"))
    assert (take(nested, "package/a"), take(nested, "package/package/a")) == (b"outer", b"inner")
    with pytest.raises(ArchiveError, match=r"Models in it: package/a\.tflite, package/d/a\.tflite"):
        take(npm, "package/b.tflite")


def test_a_model_inside_a_bundle_is_found(tmp_path: Path) -> None:
    bundle = io.BytesIO(b"")
    with zipfile.ZipFile(bundle, "w") as file:
        file.writestr("face_detector.tflite", MODEL)
    padded = b"\0" * 16 + bundle.getvalue()
    npm = tgz(tmp_path / "a.tgz", ("package/m/face.task", padded))
    assert take(npm, "m/face.task/face_detector.tflite") == MODEL
    with pytest.raises(ArchiveError, match=r"Models in it: face_detector\.tflite"):
        take(npm, "m/face.task/other.tflite")
    assert not list(tmp_path.glob("*.bundle"))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("package/a", link("/etc/passwd"))], "link or special"),
        ([("package/a", link("package/b", tarfile.LNKTYPE)), ("package/b", b"x")], "link"),
        ([("package/a", b"1"), ("package/a", b"2")], "twice"),
        ([("../../a", b"x"), ("package/b", b"x")], "it has no 'package/a'"),
        ([("package/a", bytes(2 << 20))], "claims 2097152 bytes"),
        ([("package/z", bytes(5 << 20)), ("package/a", b"x")], "unpacks to more than 4194304"),
    ],
)
def test_hostile_tars(
    tmp_path: Path, members: list[tuple[str, bytes | tarfile.TarInfo]], message: str
) -> None:
    archive = tgz(tmp_path / "a.tgz", *members)
    with pytest.raises(ArchiveError, match=message):
        take(archive, "package/a")
    assert not (tmp_path / "taken").exists()


def test_a_header_cannot_claim_memory(tmp_path: Path) -> None:
    info = tarfile.TarInfo("package/pax")
    info.type, info.size = tarfile.XHDTYPE, 1 << 32
    archive = tmp_path / "a.tgz"
    archive.write_bytes(gzip.compress(info.tobuf(tarfile.USTAR_FORMAT) + bytes(1024)))
    with pytest.raises(ArchiveError, match="header of unreasonable size"):
        take(archive, "package/a")


def test_zips(tmp_path: Path) -> None:
    archive = tmp_path / "a.whl"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("pkg/a.tflite", MODEL)
        file.writestr("pkg/bomb", bytes(2 << 20))
        info = zipfile.ZipInfo("pkg/link")
        info.external_attr = 0o120777 << 16
        file.writestr(info, "/etc/passwd")
    assert take(archive, "pkg/a.tflite") == MODEL
    with pytest.raises(ArchiveError, match="link or special"):
        take(archive, "pkg/link")
    with pytest.raises(ArchiveError, match="claims"):
        take(archive, "pkg/bomb")
    lying = archive.read_bytes().replace((2 << 20).to_bytes(4, "little"), b"\x10\0\0\0")
    archive.write_bytes(lying)
    with pytest.raises(ArchiveError, match="damaged"):
        take(archive, "pkg/bomb")


@given(cut=st.integers(0, 400), flip=st.integers(0, 400), zipped=st.booleans())
def test_damaged_archives_end_in_an_archive_error(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flip: int, zipped: bool
) -> None:
    archive = tmp_path_factory.mktemp("damaged") / "a"
    if zipped:
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("package/a", MODEL)
    else:
        tgz(archive, ("package/a", MODEL))
    data = bytearray(archive.read_bytes())
    data[flip % len(data)] ^= 0xFF
    archive.write_bytes(data[: len(data) - cut])
    try:
        take(archive, "package/a")
    except ArchiveError:
        return


# --- the cache --------------------------------------------------------------------------------


def put(cache: ModelCache, content: bytes) -> str:
    sha256 = hashlib.sha256(content).hexdigest()
    file = cache.partial / sha256
    file.write_bytes(content)
    cache.add(file, sha256)
    return sha256


def test_the_oldest_unused_files_go_first_and_used_ones_stay(tmp_path: Path) -> None:
    with ModelCache(tmp_path, max_bytes=10_000) as earlier:
        ids = [put(earlier, bytes([i]) * 1000) for i in range(4)]
        for age, sha256 in enumerate(ids):
            stamp = tmp_path / "blobs" / f"{sha256}.json"
            os.utime(stamp, (1000 + age, 1000 + age))
        earlier.find(ids[0])  # used just now: the youngest
        assert ModelCache(tmp_path, max_bytes=1000).evict() == []  # all in use by this process
    with ModelCache(tmp_path, max_bytes=2000) as later:
        later.find(ids[1])  # the oldest, but in use
        assert later.evict() == [ids[2], ids[3]]
        assert later.size() == 2000
        assert later.find(ids[2]) is None


def test_pins_of_dead_processes_do_not_count(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from sweep.sources import ModelCache\n"
        "cache = ModelCache(Path(sys.argv[1])); file = cache.partial / 'x'\n"
        "file.write_bytes(b'x' * 1000); cache.add(file, sys.argv[2])\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    sha256 = hashlib.sha256(b"x" * 1000).hexdigest()
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), sha256],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    assert other.stdin is not None
    assert other.stdout is not None
    with other, ModelCache(tmp_path, max_bytes=0) as cache:
        assert other.stdout.readline() == b"ready\n"
        assert cache.evict() == []
        other.kill()
        other.wait()
        assert cache.evict() == [sha256]
    assert [holder.name for holder in (tmp_path / "pins").iterdir()] == []


def test_damage_is_noticed_and_notes_are_not_believed_blindly(
    tmp_path: Path, cache: ModelCache
) -> None:
    sha256 = put(cache, MODEL)
    path = cache.find(sha256)
    assert path is not None
    os.utime(path, (1, 1))  # touched, but whole: hashed again and kept
    assert cache.find(sha256) == path
    path.chmod(0o644)
    path.write_bytes(MODEL[:-1])
    assert cache.find(sha256) is None
    assert not path.exists()
    cache.write_note(SourceNote(source="s", sha256=sha256, resolved="s"))
    assert cache.note("s") is not None
    (note,) = (cache.root / "sources").iterdir()
    note.write_text('{"source": "s", "sha256": "../../x", "resolved": "s"}')
    assert cache.note("s") is None


def test_old_partial_downloads_are_swept(cache: ModelCache) -> None:
    old, young = cache.partial / "old.part", cache.partial / "young.part"
    for file, age in ((old, 8 * 86400), (young, 6 * 86400)):
        file.touch()
        os.utime(file, (time.time() - age,) * 2)
    cache.evict()
    assert (old.exists(), young.exists()) == (False, True)


def test_an_unwritable_cache_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match="LITERTJS_SWEEP_CACHE"):
        ModelCache(tmp_path / "file" / "cache")


# --- local files ------------------------------------------------------------------------------


async def test_local_files_are_read_in_place(tmp_path: Path, cache: ModelCache) -> None:
    (tmp_path / "a.tflite").write_bytes(MODEL)
    source = parse_source("a.tflite", tmp_path)
    got = await fetch_model(source, sha256=SHA, cache=cache, options=OPTIONS)
    assert (got.path, got.sha256, got.bytes) == (tmp_path / "a.tflite", SHA, len(MODEL))
    with pytest.raises(SourceError, match="checksum mismatch") as caught:
        await fetch_model(source, sha256="0" * 64, cache=cache, options=OPTIONS)
    assert caught.value.failure_class == "checksum_mismatch"
    with pytest.raises(SourceError, match="No such file"):
        await fetch_model(
            parse_source("b.tflite", tmp_path), sha256=None, cache=cache, options=OPTIONS
        )


# --- commands ---------------------------------------------------------------------------------


async def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    script = f"sleep 60 & echo $! > {tmp_path}/child; wait"
    with pytest.raises(CommandTimeoutError, match=r"sh did not end in 0\.5 s"):
        await run_command(["/bin/sh", "-c", script], cwd=tmp_path, timeout_s=0.5)
    child = int((tmp_path / "child").read_text())
    for _ in range(50):
        status = Path(f"/proc/{child}/stat")
        if not status.exists() or status.read_text().split()[2] == "Z":
            return
        await asyncio.sleep(0.02)
    pytest.fail("the child still runs")


def test_secrets_are_taken_out_of_messages() -> None:
    text = redact("GET http://me:pw@host/x failed; _authToken=abc Authorization: Bearer xyz")
    assert "pw" not in text
    assert "abc" not in text
    assert "xyz" not in text
    assert "host/x failed" in text

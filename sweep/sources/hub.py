"""Files of the Hugging Face hub, through its own client: its cache, token and settings apply."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from sweep.config import Frozen
from sweep.errors import SourceError
from sweep.sources.checks import storage_error
from sweep.sources.options import FetchOptions
from sweep.sources.process import redact
from sweep.sources.spec import HfSource


class HubFile(Frozen):
    """A file in the hub client's cache."""

    path: Path
    commit: str
    """The commit that the revision stood for."""


async def download_hub(source: HfSource, options: FetchOptions, *, again: bool = False) -> HubFile:
    """Fetch `source` into the hub client's own cache; resumed and locked by that client.

    `again` downloads it even where the cache has it.

    Raises:
        SourceError: with what the hub said and what to do.
    """
    try:
        async with asyncio.timeout(options.total_timeout):
            return await asyncio.to_thread(_download, source, options, again)
    except TimeoutError:
        raise SourceError(
            f"{source.text}: not finished after {options.total_timeout:g} s. What came is kept; "
            "run again to go on."
        ) from None


def _download(source: HfSource, options: FetchOptions, again: bool) -> HubFile:
    # Imported here: it is slow, and not needed for other sources.
    from huggingface_hub import (
        get_hf_file_metadata,
        hf_hub_download,
        hf_hub_url,
        try_to_load_from_cache,
    )
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        cached = try_to_load_from_cache(source.repo, source.file, revision=source.revision)
        if not (options.offline or (source.pinned and isinstance(cached, str))):
            url = hf_hub_url(
                source.repo, source.file, revision=source.revision, endpoint=options.hf_endpoint
            )
            size = None
            with contextlib.suppress(Exception):  # the download below tells why
                size = get_hf_file_metadata(url).size
            if size is not None and size > options.max_bytes:
                raise SourceError(f"{source.text}: {size} bytes; the limit is {options.max_bytes}.")
        path = Path(
            hf_hub_download(
                source.repo,
                source.file,
                revision=source.revision,
                endpoint=options.hf_endpoint,
                local_files_only=options.offline,
                force_download=again,
            )
        )
    except SourceError:
        raise
    except GatedRepoError as error:
        raise SourceError(
            f"{source.text}: the repository is gated. Accept its terms on the hub, then log in "
            "with `hf auth login` or set HF_TOKEN."
        ) from error
    except RepositoryNotFoundError as error:
        raise SourceError(
            f"{source.text}: there is no repository {source.repo}, or it is private. Correct the "
            "source, or log in with `hf auth login` or HF_TOKEN."
        ) from error
    except RevisionNotFoundError as error:
        raise SourceError(
            f"{source.text}: {source.repo} has no revision {source.revision!r}. Correct the source."
        ) from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        raise SourceError(
            f"{source.text}: not in the hub's cache, and the hub cannot be reached (or is switched "
            "off by offline mode). Run once online, or download it by hand and give the path."
        ) from error
    except EntryNotFoundError as error:
        raise SourceError(
            f"{source.text}: {source.repo} has no file {source.file!r}. Correct the source."
        ) from error
    except HfHubHTTPError as error:
        raise SourceError(
            f"{source.text}: the hub answered {redact(str(error))}. Try again later."
        ) from error
    except OSError as error:
        if error.errno is not None and error.filename is not None:
            raise storage_error(error, Path(error.filename), source.text) from error
        raise SourceError(
            f"{source.text}: {redact(str(error))}. Check the network and try again."
        ) from error
    except Exception as error:
        # The client raises what its HTTP library raises, which changed between its releases.
        raise SourceError(
            f"{source.text}: {type(error).__name__}: {redact(str(error))}. Check the network and "
            "try again."
        ) from error
    return HubFile(path=path, commit=_commit_of(path))


def _commit_of(path: Path) -> str:
    """The hub's cache keeps files in `snapshots/<commit>/<file>`."""
    parts = path.parts
    return parts[len(parts) - 1 - parts[::-1].index("snapshots") + 1]

"""Download one wheel or sdist through pip, without installing or building anything.

Run as a program by the Python whose pip is to be used. `pip download` itself cannot do this: it
runs the build backend of an sdist (foreign code) and refuses wheels for other platforms, while
only a data file is wanted here. So pip's own session, index reading and settings are used (index,
extra indexes, find-links, proxies, certificates, credentials), and the file is stored unopened.

    python pip_client.py NAME VERSION DIRECTORY wheel|sdist MAX_BYTES

prints JSON: {"file": name, "url": without credentials, "hash_name": …, "hash": …}, or
{"error": …}.

pip's internals are not a promised interface; the parts used here are the same in pip 22.3 to 26.0.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class ClientError(Exception):
    """Said to the caller as {"error": …}."""


def fetch(name: str, version: str, directory: Path, prefer: str, max_bytes: int) -> dict[str, Any]:
    """Download the best archive of one exact version into `directory`."""
    from pip._internal.commands import create_command
    from pip._internal.index.collector import LinkCollector, parse_links
    from pip._internal.utils.misc import redact_auth_from_url

    command: Any = create_command("download")
    options, _ = command.parse_args(["-q", "--no-input", "--no-deps", name])
    with command.main_context():
        session = command.get_default_session(options)
        collector: Any = LinkCollector.create(session, options=options)

        def links_of(page: Any) -> list[Any]:
            response = collector.fetch_response(page)
            return [] if response is None else list(parse_links(response))

        sources = collector.collect_sources(project_name=name, candidates_from_page=links_of)
        links: dict[str, Any] = {}
        for source in [*sources.find_links, *sources.index_urls]:
            if source is not None:
                for link in [*source.page_candidates(), *source.file_links()]:
                    links.setdefault(link.filename, link)
        chosen = choose(links, name, version, prefer)
        link = links[chosen]
        response = session.get(
            link.url_without_fragment, headers={"Accept-Encoding": "identity"}, stream=True
        )
        response.raise_for_status()
        store(response, directory / chosen, max_bytes)
        return {
            "file": chosen,
            "url": redact_auth_from_url(link.url_without_fragment),
            "hash_name": link.hash_name,
            "hash": link.hash,
        }


def choose(filenames: Iterable[str], name: str, version: str, prefer: str) -> str:
    """The archive to download: of the preferred kind where there is one; a wheel for any platform
    before one for Linux on x86-64 before others (data files are the same in all), then by name."""
    from pip._vendor.packaging.utils import (
        InvalidSdistFilename,
        InvalidWheelFilename,
        canonicalize_name,
        parse_sdist_filename,
        parse_wheel_filename,
    )
    from pip._vendor.packaging.version import InvalidVersion, Version

    wanted = Version(version)
    ranked: list[tuple[bool, bool, bool, str]] = []
    versions = set()
    for filename in filenames:
        wheel = filename.endswith(".whl")
        if not wheel and not filename.endswith((".tar.gz", ".zip")):
            continue
        try:
            parsed = parse_wheel_filename(filename) if wheel else parse_sdist_filename(filename)
        except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
            continue
        if parsed[0] != canonicalize_name(name):
            continue
        versions.add(parsed[1])
        if parsed[1] == wanted:
            ranked.append(
                (
                    wheel != (prefer == "wheel"),
                    wheel and not filename.endswith("-any.whl"),
                    wheel and "x86_64" not in filename,
                    filename,
                )
            )
    if ranked:
        return min(ranked)[3]
    if not versions:
        raise ClientError(
            f"the package index that pip is set to has no {name}, or could not be reached"
        )
    known = ", ".join(str(item) for item in sorted(versions)[-5:])
    raise ClientError(f"{name} has no wheel or sdist of version {version}; its latest: {known}")


def store(response: Any, target: Path, max_bytes: int) -> None:
    """Write the body of a response, refusing one that is too large or ends early."""
    claimed = str(response.headers.get("Content-Length", ""))  # an int for files on disk
    total = int(claimed) if claimed.isdigit() else None
    if total is not None and total > max_bytes:
        raise ClientError(f"{target.name} has {total} bytes; the limit is {max_bytes}")
    size = 0
    with target.open("xb") as file:
        for chunk in response.iter_content(1 << 18):
            size += len(chunk)
            if size > max_bytes:
                raise ClientError(f"{target.name} has more than {max_bytes} bytes, the limit")
            file.write(chunk)
    if total is not None and size != total:
        raise ClientError(f"{target.name} ended after {size} of {total} bytes; try again")


def main(arguments: list[str]) -> None:
    """Entry point, see the module's text."""
    name, version, directory, prefer, max_bytes = arguments
    try:
        answer = fetch(name, version, Path(directory), prefer, int(max_bytes))
    except ClientError as error:
        answer = {"error": str(error)}
    except (ImportError, AttributeError, TypeError) as error:
        answer = {"error": f"this pip cannot be used ({error}); install pip 22.3 or later"}
    except Exception as error:  # whatever pip or the network raised is said to a person
        answer = {"error": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])

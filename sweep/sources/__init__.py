"""A source string → a checked local file: `parse_source`, then `fetch_model`."""

from sweep.sources.cache import ModelCache
from sweep.sources.fetch import fetch_model
from sweep.sources.options import FetchedModel, FetchOptions
from sweep.sources.spec import Source, parse_source

__all__ = [
    "FetchOptions",
    "FetchedModel",
    "ModelCache",
    "Source",
    "fetch_model",
    "parse_source",
]

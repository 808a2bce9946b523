"""Tiny models, built here: `y = x · c` over one row, told apart by how wide the row is."""

from __future__ import annotations

from pathlib import Path

from ai_edge_litert import schema_py_generated as schema

from sweep.catalog import CatalogEntry
from tests.tflite_builder import ModelBuilder


def scaling_model(width: int, *, extra_constants: int = 0) -> bytes:
    """A float32 model with one MUL over [1, width] and a signature; values are 1, 2, 3, …

    `extra_constants`: bytes of weights that a second MUL uses, for a file of some size.
    """
    b = ModelBuilder(description=None)
    shape = (1, width)
    x, c = b.tensor("x", shape), b.tensor("c", shape, data=range(1, width + 1))
    y = b.tensor("y", shape)
    b.op("MUL", [x, c], [y], schema.MulOptionsT())
    outputs = {"out0": y}
    if extra_constants:
        rows = extra_constants // (4 * width)
        w = b.tensor("w", (rows, width), data=bytes(rows * 4 * width))
        outputs["out1"] = b.tensor("z", (rows, width))
        b.op("MUL", [y, w], [outputs["out1"]], schema.MulOptionsT())
    b.signature("serving_default", {"x": x}, outputs)
    return b.build()


def write_models(directory: Path, widths: dict[str, int]) -> tuple[CatalogEntry, ...]:
    """Model files, and the catalog entries that name them."""
    entries = []
    for model_id, width in widths.items():
        if width > 0:  # else the test has written a file of its own
            (directory / f"{model_id}.tflite").write_bytes(scaling_model(width))
        entries.append(
            CatalogEntry(model_id=model_id, source=f"{model_id}.tflite", license="Apache-2.0")
        )
    return tuple(entries)


def catalog_text(entries: tuple[CatalogEntry, ...]) -> str:
    """The same entries as a catalog file."""
    models = "".join(
        f'[[model]]\nmodel_id = "{e.model_id}"\nsource = "{e.source}"\nlicense = "{e.license}"\n'
        for e in entries
    )
    return f'[catalog]\nname = "faults"\n{models}'

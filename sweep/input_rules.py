"""Catalog rules for one input: what to fill it with where the default is not right."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import model_validator

from sweep.config import Frozen
from sweep.errors import CatalogError

MAX_FILE_BYTES = 1 << 30


class InputRule(Frozen):
    """Exactly one of `fill`, `range`, `file`, `distribution`; a distribution may have a range."""

    fill: Literal["zeros", "ones"] | float | None = None
    """The same value everywhere."""
    range: tuple[float, float] | None = None
    """Uniform in [a, b); integers include neither more nor less than a..b−1."""
    file: str | None = None
    """An `.npy` file or an image, relative to the catalog; the same in every input set."""
    distribution: Literal["uniform", "normal"] | None = None
    """`normal`: mean 0, standard deviation 1."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        given = [
            n for n in ("fill", "range", "file", "distribution") if getattr(self, n) is not None
        ]
        if not given:
            raise ValueError("give one of fill, range, file, distribution")
        if len(given) > 1 and set(given) != {"range", "distribution"}:
            raise ValueError(f"{' and '.join(given)} do not go together")
        numbers = [n for n in (*(self.range or ()), self.fill) if isinstance(n, float)]
        if not all(map(math.isfinite, numbers)):
            raise ValueError("fill and range must be finite numbers")
        if self.range is not None and not self.range[0] < self.range[1]:
            raise ValueError(f"range {list(self.range)} is empty: the first must be the smaller")
        if self.range is not None and self.distribution == "normal":
            raise ValueError("a normal distribution has no range")
        return self


def load_file(
    rule_file: str, base_dir: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """The array of a `file` rule, in the input's dtype and shape.

    An `.npy` must have the input's number of elements. An image is read as RGB (one channel for a
    one-channel input), resized by its nearest pixels to the input's height and width, NHWC or NCHW
    as the shape says, and scaled to [0, 1] for float inputs.

    Raises:
        CatalogError: the file is missing, is neither, or does not fit.
    """
    path = base_dir / rule_file
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise CatalogError(f"input {name}: {path} is larger than {MAX_FILE_BYTES >> 30} GiB.")
        if path.suffix == ".npy":
            array = np.load(path, allow_pickle=False)
        else:
            array = _image(path, name, shape)
            if dtype.kind == "f":
                array = array / np.float32(255)
    except (OSError, ValueError) as error:
        raise CatalogError(f"input {name}: {path} cannot be read: {error}") from error
    size = int(np.prod(shape, dtype=np.int64))
    if array.size != size:
        raise CatalogError(
            f"input {name}: {path} has shape {list(array.shape)}, the input {list(shape)}."
        )
    result: np.ndarray[Any, Any] = array.astype(dtype).reshape(shape)
    return result


def _image(path: Path, name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    try:
        from PIL import Image
    except ImportError as error:
        raise CatalogError(
            f"input {name}: reading {path} needs Pillow: pip install pillow, or give an .npy."
        ) from error
    if len(shape) not in (3, 4):
        raise CatalogError(f"input {name} has shape {list(shape)}, which no image fits.")
    height_first = shape[-3:]
    channels_last = height_first[2] in (1, 3)
    if channels_last:
        height, width, channels = height_first
    else:
        channels, height, width = height_first
    with Image.open(path) as image:
        mode = "L" if channels == 1 else "RGB"
        pixels = np.asarray(
            image.convert(mode).resize((width, height), Image.Resampling.NEAREST), dtype=np.uint8
        ).reshape(height, width, -1)
    if not channels_last:
        pixels = np.moveaxis(pixels, -1, 0)
    return np.broadcast_to(pixels, shape)

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
    rule_file: str,
    base_dir: Path,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    white: float,
) -> np.ndarray[Any, Any]:
    """The array of a `file` rule, in the input's dtype and shape.

    An `.npy` must have the input's number of elements, and values that the input's type holds
    (floats may be rounded). An image is read with the input's 1, 3 or 4 channels (grey, RGB,
    RGBA), resized by its nearest pixels to the input's height and width, NHWC or NCHW as the shape
    says, and for float inputs scaled so that 255 becomes `white`.

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
                array = array * np.float32(white) / np.float32(255)
    except (OSError, ValueError, EOFError) as error:
        raise CatalogError(f"input {name}: {path} cannot be read: {error}") from error
    size = math.prod(shape)
    if array.size != size:
        raise CatalogError(
            f"input {name}: {path} has shape {list(array.shape)}, the input {list(shape)}."
        )
    if array.dtype.kind not in "fiub":
        raise CatalogError(f"input {name}: {path} holds {array.dtype}, not numbers.")
    with np.errstate(invalid="ignore", over="ignore"):
        result: np.ndarray[Any, Any] = array.astype(dtype).reshape(shape)
    if dtype.kind != "f" and not np.array_equal(result.reshape(-1), array.reshape(-1)):
        raise CatalogError(f"input {name}: {path} ({array.dtype}) has values that {dtype} lacks.")
    return result


def _image(path: Path, name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    try:
        from PIL import Image
    except ImportError as error:
        raise CatalogError(
            f"input {name}: reading {path} needs Pillow: pip install pillow, or give an .npy."
        ) from error
    modes = {1: "L", 3: "RGB", 4: "RGBA"}
    last = len(shape) in (3, 4) and shape[-1] in modes
    if len(shape) not in (3, 4) or not (last or shape[-3] in modes):
        raise CatalogError(
            f"input {name} has shape {list(shape)}: an image needs 1, 3 or 4 channels."
        )
    height, width, channels = shape[-3:] if last else (*shape[-2:], shape[-3])
    try:
        with Image.open(path) as image:
            converted = image.convert(modes[channels])
            resized = converted.resize((width, height), Image.Resampling.NEAREST)
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from error
    pixels = np.asarray(resized, dtype=np.uint8).reshape(height, width, channels)
    return np.broadcast_to(pixels if last else np.moveaxis(pixels, -1, 0), shape)

"""Rows that lie in a file as they lie in memory: .npy and .safetensors."""

import contextlib
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from jaxgeom import _checks

_HEADER_LIMIT = 100 << 20  # bytes; a larger header is none
_SAFETENSORS_DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}


@dataclass(frozen=True)
class RawPart:
    """A C-ordered matrix at `offset` in a file."""

    name: str
    n_rows: int
    n_features: int
    dtype: np.dtype
    offset: int

    @contextlib.contextmanager
    def rows(self, start: int, stop: int) -> Iterator["RawReader"]:
        """Open the rows from `start` up to `stop`."""
        with FileIO(self.name) as file:
            file.seek(self.offset + start * self.n_features * self.dtype.itemsize)
            yield RawReader(file, stop - start)


class RawReader:
    """Rows read straight into the buffer of whoever asks."""

    def __init__(self, file: FileIO, n_rows: int) -> None:
        self.file, self.left = file, n_rows

    def read(self, out: np.ndarray) -> int:
        """Fill `out` as far as there are rows."""
        rows = min(len(out), self.left)
        target = out[:rows].view(np.uint8).reshape(-1).data
        while target:
            came = self.file.readinto(target)
            if not came:
                raise ValueError(f"{self.file.name} ended early: it was cut off while it was read")
            target = target[came:]
        self.left -= rows
        return rows


def open_npy(path: Path, _: str | None) -> RawPart:
    """Read the header of a .npy file."""
    with path.open("rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            read_header = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }[version]
            shape, in_fortran_order, dtype = read_header(file)
        except (ValueError, KeyError) as error:
            raise ValueError(f"{path} must be a .npy file: {error}") from error
        offset = file.tell()
    if in_fortran_order and min(shape, default=0) > 1:
        raise ValueError(
            f"{path} must be in C order, rows one after the other, got Fortran order; "
            "save np.ascontiguousarray(x)"
        )
    return _checked(path, shape, dtype, offset, path.stat().st_size)


def open_safetensors(path: Path, key: str | None) -> RawPart:
    """Read the header of a .safetensors file."""
    with path.open("rb") as file:
        header = _safetensors_header(path, file.read(8), file.read)
        offset = file.tell()
    header.pop("__metadata__", None)
    if key is None and len(header) == 1:
        key = next(iter(header))
    if key not in header:
        names = ", ".join(header)
        raise ValueError(f"key must be one of the tensors of {path} ({names}), got {key}")
    entry = header[key]
    dtype = _SAFETENSORS_DTYPES.get(entry["dtype"], entry["dtype"])
    offset += entry["data_offsets"][0]
    return _checked(path, tuple(entry["shape"]), dtype, offset, path.stat().st_size)


def _safetensors_header(path: Path, length: bytes, read: Any) -> dict[str, Any]:
    """Return the JSON object at the head of a file."""
    try:
        (size,) = struct.unpack("<Q", length)
        if size > _HEADER_LIMIT:
            raise ValueError(f"its header would be {size} bytes long")
        header = json.loads(read(size))
        if not isinstance(header, dict):
            raise ValueError("its header is no object")
    except (ValueError, struct.error) as error:
        raise ValueError(f"{path} must be a .safetensors file: {error}") from error
    return header


def _checked(path: Path, shape: tuple[int, ...], dtype: Any, offset: int, size: int) -> RawPart:
    """Return the matrix if it is one, floating, and all there."""
    if getattr(dtype, "name", dtype) not in _checks.FLOATS:
        floats = ", ".join(_checks.FLOATS)
        raise TypeError(f"{path} must have one of the dtypes {floats}, got {dtype}")
    if not dtype.isnative:
        raise TypeError(f"{path} must be in this machine's byte order, got {dtype.str}")
    if len(shape) != 2:
        raise ValueError(f"{path} must be a matrix [n d], got shape {list(shape)}")
    n, d = shape
    needed = offset + n * d * dtype.itemsize
    if size < needed:
        raise ValueError(f"{path} is truncated: {n} x {d} needs {needed} bytes, it has {size}")
    return RawPart(str(path), n, d, dtype, offset)

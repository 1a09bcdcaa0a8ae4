"""What a file's rows are read through, whatever its format: readers into the caller's buffers."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class Reader(Protocol):
    """An open run of rows."""

    def read(self, out: np.ndarray) -> int:
        """Fill `out` [b d] and return how many rows came: fewer than b at the end alone."""


@runtime_checkable
class Part(Protocol):
    """The matrix in one file."""

    @property
    def name(self) -> str:
        """Path of the file."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def n_features(self) -> int:
        """Width d."""

    @property
    def dtype(self) -> np.dtype:
        """What a row is read in."""

    def rows(self, start: int, stop: int) -> AbstractContextManager[Reader]:
        """Open the rows from `start` up to `stop`."""


class Chain:
    """Readers one after the other, as one."""

    def __init__(self, readers: Iterator[Reader]) -> None:
        self.readers = readers
        self.current = next(readers, None)

    def read(self, out: np.ndarray) -> int:
        """Fill `out` across the borders of files."""
        filled = 0
        while self.current is not None and filled < len(out):
            filled += self.current.read(out[filled:])
            if filled < len(out):
                self.current = next(self.readers, None)
        return filled


class Blocks:
    """A reader of matrices that come in whatever sizes."""

    def __init__(self, blocks: Iterator[np.ndarray]) -> None:
        self.blocks = blocks
        self.rest: np.ndarray | None = None

    def read(self, out: np.ndarray) -> int:
        """Fill `out` across the borders of blocks."""
        filled = 0
        while filled < len(out):
            if self.rest is None or not len(self.rest):
                self.rest = next(self.blocks, None)
                if self.rest is None:
                    break
            taken = self.rest[: len(out) - filled]
            out[filled : filled + len(taken)] = taken
            self.rest = self.rest[len(taken) :]
            filled += len(taken)
        return filled

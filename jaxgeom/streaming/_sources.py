"""Matrices that are read front to back, as often as a statistic needs: files, folders, iterables.

A file is read by `readinto` a buffer that is used again, not mapped: mapped pages count as memory.
"""

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from jaxgeom import _checks, distributed
from jaxgeom.streaming._columns import open_columns
from jaxgeom.streaming._raw import open_npy, open_safetensors
from jaxgeom.streaming._readers import Blocks, Chain, Part, Reader

OPENERS: dict[str, Callable[[Path, str | None], Part]] = {
    ".npy": open_npy,
    ".safetensors": open_safetensors,
    ".parquet": open_columns,
    ".arrow": open_columns,
    ".feather": open_columns,
}


@dataclass(frozen=True)
class Source:
    """Rows start..stop - 1 of the files of one matrix, in order; made by `open_source`."""

    name: str
    parts: tuple[Part, ...]
    start: int
    stop: int

    @property
    def n_features(self) -> int:
        """Width d of the matrix."""
        return self.parts[0].n_features

    @property
    def dtype(self) -> np.dtype:
        """What a row is read in."""
        return self.parts[0].dtype

    @property
    def n_rows(self) -> int | None:
        """Number of rows n; None where only reading them tells."""
        return self.stop - self.start

    def shard(self) -> "Source":
        """Return this process's share of the rows; all of them where there is one process."""
        rows = distributed.share(self.stop - self.start)
        return replace(self, start=self.start + rows.start, stop=self.start + rows.stop)

    @contextlib.contextmanager
    def open(self) -> Iterator[Reader]:
        """Open the rows for one pass."""
        with contextlib.closing(self._pieces()) as readers:
            yield Chain(readers)

    def _pieces(self) -> Generator[Reader, None, None]:
        """Yield an open reader for each file that has rows in the range."""
        offset = 0
        for part in self.parts:
            low, high = max(self.start - offset, 0), min(self.stop - offset, part.n_rows)
            if low < high:
                with part.rows(low, high) as reader:
                    yield reader
            offset += part.n_rows

    def where(self, row: int) -> str:
        """Say in which file, and in which of its rows, a row of this source lies."""
        row += self.start
        for part in self.parts:
            if row < part.n_rows:
                return f"{part.name}, row {row}"
            row -= part.n_rows
        raise IndexError(row)


class IterableSource:
    """Rows from any iterable of matrices [b d]; several passes need one that starts anew.

    With several processes each gives its own rows.
    """

    start = 0
    n_rows: int | None = None

    def __init__(self, blocks: Iterable[Any], name: str = "blocks") -> None:
        self.name, self._blocks, self._used = name, blocks, False
        once = iter(blocks)
        self._is_iterator = once is blocks
        first = next(once, None)
        if first is None:
            raise ValueError(f"{name} must yield matrices [b d], got none")
        self._head = np.asarray(first)
        _checks.matrix(f"{name}[0]", self._head, "b d")
        self.n_features, self.dtype = self._head.shape[1], self._head.dtype

    def shard(self) -> "IterableSource":
        """Return the source: its rows are this process's own."""
        return self

    @contextlib.contextmanager
    def open(self) -> Iterator[Reader]:
        """Open the rows for one pass."""
        if self._is_iterator and self._used:
            raise ValueError(
                f"{self.name} must start anew for another pass over it (a list, or an object whose "
                "__iter__ does), got an iterator that is used up"
            )
        self._used = True
        yield Blocks(self._checked())

    def _checked(self) -> Iterator[np.ndarray]:
        """Yield the blocks, all of one width and dtype."""
        blocks = iter(self._blocks)
        if self._is_iterator:
            yield self._head
        for i, block in enumerate(map(np.asarray, blocks), int(self._is_iterator)):
            if block.ndim != 2 or block.shape[1] != self.n_features or block.dtype != self.dtype:
                raise ValueError(
                    f"{self.name}[{i}] must be {self.dtype} [b d] with d = {self.n_features}, "
                    f"got {block.dtype} {list(block.shape)}"
                )
            yield block

    def where(self, row: int) -> str:
        """Say which row is meant."""
        return f"{self.name}, row {row}"


AnySource = Source | IterableSource
SourceLike = AnySource | str | PathLike | Iterable


def open_source(x: SourceLike, *, key: str | None = None) -> AnySource:
    """Return a source of rows; nothing but headers is read.

    Args:
        x: a file (.npy in C order; .safetensors; .parquet, .arrow or .feather, which need the extra
            `hf`), a folder of such files of one kind, read in the order of their names, or an
            iterable of matrices [b d]. A source is returned as it is.
        key: the tensor of a .safetensors file or the column of a table, where there are several.

    Returns:
        A source with `n_features`, `dtype` and `n_rows` (None for an iterable).

    Raises:
        ImportError: a table, and pyarrow is not installed.
        OSError: no such file.
        TypeError: a matrix that is not floating.
        ValueError: a file that is truncated, empty or of another kind; files of different widths.

    Example:
        >>> import numpy as np
        >>> source = open_source([np.zeros((3, 2)), np.ones((4, 2))])
        >>> source.n_features
        2
    """
    if isinstance(x, Source | IterableSource):
        return x
    if not isinstance(x, str | PathLike):
        return IterableSource(x)
    path = Path(x)
    paths = _files(path) if path.is_dir() else [path]
    parts = tuple(_open(file, key) for file in paths)
    for part in parts[1:]:
        _same_kind(part, parts[0])
    return Source(str(path), parts, 0, sum(part.n_rows for part in parts))


def _files(folder: Path) -> list[Path]:
    """Return the matrices of a folder, by name; they are of one kind."""
    paths = sorted(p for p in folder.iterdir() if p.suffix in OPENERS and p.name[0] != ".")
    suffixes = sorted({path.suffix for path in paths})
    if len(suffixes) != 1:
        kinds = ", ".join(OPENERS)
        raise ValueError(
            f"{folder} must hold files of one of the kinds {kinds}, got {', '.join(suffixes) or 0}"
        )
    return paths


def _open(path: Path, key: str | None) -> Part:
    """Open one file by its suffix."""
    if path.suffix not in OPENERS:
        raise ValueError(f"{path} must be a folder or one of {', '.join(OPENERS)}")
    part = OPENERS[path.suffix](path, key)
    if part.n_rows == 0 or part.n_features == 0:
        raise ValueError(f"{path} must not be empty, got [{part.n_rows}, {part.n_features}]")
    return part


def _same_kind(part: Part, first: Part) -> None:
    """Raise unless two files are of one width and dtype."""
    for what in ("n_features", "dtype"):
        here, there = getattr(part, what), getattr(first, what)
        if here != there:
            raise ValueError(
                f"{part.name} must have the {what} of {first.name} = {there}, got {here}"
            )

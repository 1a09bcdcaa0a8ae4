"""Rows in a column of a table, a list of numbers each: Parquet and Arrow, through pyarrow."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jaxgeom.streaming._readers import Blocks

_Batch = tuple[int, Callable[[], Any]]  # its length, and what reads its column
_DTYPES: dict[str, np.dtype] = {
    "halffloat": np.dtype(np.float16),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
}


def _pyarrow() -> Any:
    """Return pyarrow, or say which extra brings it."""
    try:
        import pyarrow  # noqa: PLC0415
        import pyarrow.compute  # noqa: PLC0415
        import pyarrow.ipc  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            "Parquet and Arrow files need pyarrow: pip install 'jaxgeom[hf]'"
        ) from error
    return pyarrow


@dataclass(frozen=True)
class ColumnPart:
    """A column of lists of one length."""

    name: str
    column: str
    n_rows: int
    n_features: int
    dtype: np.dtype

    @contextlib.contextmanager
    def rows(self, start: int, stop: int) -> Iterator[Blocks]:
        """Open the rows from `start` up to `stop`."""
        yield Blocks(self._blocks(start, stop))

    def _blocks(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Yield the rows in the batches of the file."""
        offset = 0
        for length, read in _batches(Path(self.name), self.column):
            low, high = max(start - offset, 0), min(stop - offset, length)
            if low < high:
                yield from self._matrices(read(), low, high)
            offset += length

    def _matrices(self, column: Any, start: int, stop: int) -> Iterator[np.ndarray]:
        """Yield some rows of a column as matrices."""
        for chunk in column.slice(start, stop - start).chunks:
            values = chunk.flatten()
            if chunk.null_count or values.null_count:
                raise ValueError(f"{self.name}: column {self.column} must have no nulls")
            other = [n for n in _lengths(chunk).unique().to_pylist() if n != self.n_features]
            if other:
                raise ValueError(
                    f"{self.name}: column {self.column} must have lists of {self.n_features} "
                    f"numbers, got one of {other[0]}"
                )
            yield values.to_numpy(zero_copy_only=False).reshape(-1, self.n_features)


def open_columns(path: Path, key: str | None) -> ColumnPart:
    """Read the schema of a table and the length of its first list."""
    arrow = _pyarrow()
    n_rows, width = 0, 0
    try:
        name = _column_name(path, key)
        for length, read in _batches(path, name, arrow.memory_map):  # touches lengths alone
            if length and not width:
                width = len(read()[0].as_py() or ())
            n_rows += length
        value_type = str(_schema(path).field(name).type.value_type)
    except arrow.ArrowInvalid as error:
        kind = "Parquet" if path.suffix == ".parquet" else "Arrow"
        raise ValueError(f"{path} must be a whole {kind} file: {error}") from error
    return ColumnPart(str(path), name, n_rows, width, _DTYPES[value_type])


def _lengths(lists: Any) -> Any:
    """Return the length of each list."""
    return _pyarrow().compute.list_value_length(lists)


def _column_name(path: Path, key: str | None) -> str:
    """Return the column of vectors: the named one, or the only one."""
    schema = _schema(path)
    lists = [f.name for f in schema if str(getattr(f.type, "value_type", "")) in _DTYPES]
    if key is None and len(lists) == 1:
        return lists[0]
    if key is not None and key in lists:
        return key
    if key in schema.names:
        found = schema.field(key).type
        raise TypeError(f"{path}: column {key} must be lists of floating numbers, got {found}")
    names = ", ".join(lists) or "none"
    raise ValueError(f"key must be one of the columns of vectors of {path} ({names}), got {key}")


def _schema(path: Path) -> Any:
    """Return the schema of a table."""
    arrow = _pyarrow()
    if path.suffix == ".parquet":
        return arrow.parquet.read_schema(path)
    with arrow.OSFile(str(path)) as file:
        return _arrow_file(file).schema


def _batches(path: Path, column: str, open_file: Callable | None = None) -> Iterator[_Batch]:
    """Yield the length of each batch of a table, and what reads its column."""
    arrow = _pyarrow()
    if path.suffix == ".parquet":
        with arrow.parquet.ParquetFile(path) as table:
            for i in range(table.num_row_groups):
                length = table.metadata.row_group(i).num_rows
                yield length, partial(_read_group, path, i, column)
        return
    with (open_file or arrow.OSFile)(str(path)) as file:
        reader = _arrow_file(file)
        if isinstance(reader, arrow.ipc.RecordBatchFileReader):
            reader = map(reader.get_batch, range(reader.num_record_batches))
        for batch in reader:
            yield batch.num_rows, partial(_of_batch, batch, column)


def _of_batch(batch: Any, column: str) -> Any:
    """Return the column of a batch in memory."""
    return _pyarrow().chunked_array([batch.column(column)])


def _read_group(path: Path, group: int, column: str) -> Any:
    """Return the column of one row group of a Parquet file."""
    with _pyarrow().parquet.ParquetFile(path) as table:
        return table.read_row_group(group, columns=[column]).column(column)


def _arrow_file(file: Any) -> Any:
    """Open either of Arrow's formats: with an index at its end, or a mere stream."""
    arrow = _pyarrow()
    try:
        return arrow.ipc.open_file(file)
    except arrow.ArrowInvalid:
        file.seek(0)
        return arrow.ipc.open_stream(file)

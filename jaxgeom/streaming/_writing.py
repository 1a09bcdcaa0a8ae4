"""Changed matrices to disk, chunk by chunk, as a .npy that is whole or absent."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import BinaryIO

import jax
import numpy as np
from jax.sharding import Mesh
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxgeom import distributed
from jaxgeom._files import replacing
from jaxgeom._mesh import COMMON, ROWS
from jaxgeom.kernels._removal import Change
from jaxgeom.results import Removal
from jaxgeom.streaming._driver import Options, chunks, local_mesh
from jaxgeom.streaming._sources import AnySource, Source, SourceLike, open_source
from jaxgeom.streaming._statistics import change

_NPY_DTYPES = ("float16", "float32", "float64")


def apply_removal(
    x: SourceLike,
    removal: Removal,
    output: str | PathLike,
    centroids: ArrayLike | None = None,
    *,
    chunk_rows: int | None = None,
    progress: bool = True,
) -> int:
    """Write the rows less their cluster's mean and their share along its directions, in one pass.

    Args:
        x: [n d] a source, or what `open_source` makes one of.
        removal: from `fit_removal`, for c clusters.
        output: a .npy file. It appears when it is whole: whatever happens before, a file of that
            name is left as it was.
        centroids: [c d] where there are several clusters: a row is of the nearest one.
        chunk_rows: rows read at once.
        progress: whether a bar is shown.

    Returns:
        Number of rows written: [n d] in the dtype of the source (float32 where that is bfloat16,
        which .npy cannot say). With several processes number 0 reads and writes all rows.

    Raises:
        As `moments`; `OSError` where the disk is full; `ValueError` where a shape does not fit, the
        output is no .npy, or lies among the files that are read.

    Example:
        >>> import tempfile, numpy as np
        >>> from jaxgeom import streaming
        >>> x = np.array([[3.0, 1.0], [5.0, 1.0], [7.0, 2.0]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     streaming.apply_removal([x], streaming.fit_removal([x]), folder + "/y.npy")
        ...     np.load(folder + "/y.npy")[:, 0].tolist()
        3
        [-2.0, 0.0, 2.0]
    """
    source, output = open_source(x), Path(output)
    changed = change(removal, centroids, source)
    require_output(output, source)
    options = Options(chunk_rows, progress)
    written = np.zeros((), np.int64)

    def write() -> None:
        written[...] = _write(source, changed, output, options)

    distributed.on_writer(write)
    return int(distributed.gather(written)[0])


def require_output(output: Path, source: AnySource) -> None:
    """Raise `ValueError` unless the changed rows can be written there."""
    if output.suffix != ".npy":
        raise ValueError(f"output must be a .npy file, got {output}")
    if isinstance(source, Source):
        if Path(source.name).is_dir() and output.resolve().parent == Path(source.name).resolve():
            raise ValueError(f"output must not lie among the files that are read, got {output}")
    elif distributed.process_count() > 1:
        raise ValueError("x must be files where several processes run, got an iterable")


def _write(source: AnySource, changed: Change | None, output: Path, options: Options) -> int:
    """Write all rows; return their number."""
    dtype = source.dtype if source.dtype.name in _NPY_DTYPES else np.dtype(np.float32)
    row, n_written, mesh = source.n_features * dtype.itemsize, 0, local_mesh()
    output.parent.mkdir(parents=True, exist_ok=True)
    _require_room(output, (source.n_rows or 0) * row)
    with _whole_npy(output, source.n_features, dtype) as (file, finish):
        for x, _, chunk in chunks(source, mesh, "write", options):
            y = np.asarray(_changed(changed, x, mesh=mesh))[: len(chunk)]
            file.write(np.ascontiguousarray(y, dtype).data)
            n_written += len(chunk)
        finish(n_written)
    return n_written


@partial(jax.jit, static_argnames="mesh")
def _changed(changed: Change, x: Float[Array, "n d"], *, mesh: Mesh) -> Float[Array, "n d"]:
    """Change each device's rows."""
    specs = (COMMON, ROWS)
    run = jax.shard_map(
        lambda change, x: change(x), mesh=mesh, in_specs=specs, out_specs=ROWS, check_vma=False
    )
    return run(changed, x)


@contextmanager
def _whole_npy(path: Path, n_features: int, dtype: np.dtype) -> Iterator[tuple[BinaryIO, partial]]:
    """Yield a file to write rows to, and what completes it with their number."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        _header(file, n_features, dtype, 0)
        yield file, partial(_header, file, n_features, dtype)
        file.flush()
        os.fsync(file.fileno())


def _header(file: BinaryIO, n_features: int, dtype: np.dtype, n_rows: int) -> None:
    """Write the header: NumPy leaves room in it for any number of rows."""
    file.seek(0)
    shape = {"shape": (n_rows, n_features), "fortran_order": False, "descr": dtype.str}
    np.lib.format.write_array_header_1_0(file, shape)


def _require_room(output: Path, needed: int) -> None:
    """Raise `OSError` before anything is written where it cannot fit."""
    free = shutil.disk_usage(output.parent).free
    if needed > free:
        raise OSError(f"{output} needs {needed / 1e9:.3g} GB; {free / 1e9:.3g} GB are free")

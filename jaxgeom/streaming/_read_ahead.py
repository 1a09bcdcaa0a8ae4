"""Rows of a source in two buffers that are used again, and the thread that reads ahead."""

from collections.abc import Iterator
from queue import Queue
from threading import Thread

import numpy as np

from jaxgeom.streaming._sources import AnySource

_LINE = 64  # bytes of a cache line


def read_ahead(source: AnySource, rows: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the rows of a source in chunks that a thread reads while the one before is computed on.

    Args:
        source: what is read.
        rows: rows of a chunk, b.

    Yields:
        A buffer [b d] and how many of its rows count: all but in the last chunk. There are two
        buffers; asking for the next chunk gives this one back to the thread.
    """
    free: Queue[np.ndarray | None] = Queue()
    full: Queue[tuple[np.ndarray, int] | BaseException] = Queue()
    for _ in range(2):
        free.put(_aligned((rows, source.n_features), source.dtype))
    thread = Thread(target=_fill, args=(source, free, full), daemon=True)
    thread.start()
    try:
        while True:
            came = full.get()
            if isinstance(came, BaseException):
                raise came
            buffer, n = came
            if n:
                yield buffer, n
            if n < rows:
                return
            free.put(buffer)
    finally:
        while not free.empty():
            free.get()
        free.put(None)
        thread.join()


def _fill(source: AnySource, free: Queue, full: Queue) -> None:
    """Read into whichever buffer is free until the rows, or the wish for them, are at an end."""
    try:
        with source.open() as reader:
            while (buffer := free.get()) is not None:
                n = reader.read(buffer)
                full.put((buffer, n))
                if n < len(buffer):
                    return
    except BaseException as error:  # it is raised where the chunks are asked for
        full.put(error)


def _aligned(shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """Return a buffer that starts on a cache line: JAX can compute on it without a copy."""
    size = shape[0] * shape[1] * dtype.itemsize
    flat = np.zeros(size + _LINE, np.uint8)  # what no row fills is read too, and masked
    start = -flat.ctypes.data % _LINE
    return flat[start : start + size].view(dtype).reshape(shape)

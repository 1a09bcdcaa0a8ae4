"""Means over segments of rows that are read from disk: sentence vectors out of token vectors."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from jaxgeom import _checks, distributed
from jaxgeom.kernels._pool import segment_sums
from jaxgeom.kernels._removal import Change
from jaxgeom.results import Removal
from jaxgeom.streaming._driver import Options, chunks, local_mesh
from jaxgeom.streaming._sources import AnySource, SourceLike, open_source
from jaxgeom.streaming._statistics import change


def segment_mean(
    x: SourceLike,
    segment_ids: ArrayLike,
    *,
    num_segments: int,
    removal: Removal | None = None,
    centroids: ArrayLike | None = None,
    chunk_rows: int | None = None,
    progress: bool = True,
) -> np.ndarray:
    """Return the mean of the rows of each segment, such as a sentence's tokens, in one pass.

    Args:
        x: [n d] a source, or what `open_source` makes one of.
        segment_ids: [n] integers in 0..num_segments - 1, in any order, in memory.
        num_segments: s.
        removal: what is taken from every row first, see `fit_removal`; nothing by default.
        centroids: [c d] where the removal has several clusters: a row is of the nearest one.
        chunk_rows: rows read at once.
        progress: whether a bar is shown.

    Returns:
        [s d] float32 (float64 under x64 for such rows); 0 for a segment without rows.

    Raises:
        As `moments`; `TypeError` for ids that are no integers; `ValueError` where one is out of
        range, or there is not one a row.

    Numerics:
        Sums over a chunk as in `jaxgeom.segment_mean`, then float64.

    Example:
        >>> import numpy as np
        >>> x = [np.array([[1.0], [3.0]]), np.array([[8.0]])]
        >>> segment_mean(x, np.array([0, 0, 1]), num_segments=2).tolist()
        [[2.0], [8.0]]
    """
    source, ids = open_source(x), np.asarray(segment_ids)
    _checks.integer("num_segments", num_segments, 1)
    expected = len(ids) if source.n_rows is None else source.n_rows
    _checks.labels("segment_ids", ids, expected, num_segments)
    changed, options = change(removal, centroids, source), Options(chunk_rows, progress)
    own = distributed.together(lambda: _sums(source, ids, num_segments, changed, options))
    total, count = map(sum, zip(*distributed.gather(own), strict=True))
    dtype = jnp.promote_types(jnp.result_type(np.zeros((), source.dtype)), jnp.float32)
    return (total / np.maximum(count, 1)[:, None]).astype(dtype)


def _sums(
    source: AnySource, ids: np.ndarray, n: int, changed: Change | None, options: Options
) -> tuple[np.ndarray, np.ndarray]:
    """Return the float64 sum and the count of each segment over this process's rows."""
    own = source.shard()
    total, count = np.zeros((n, source.n_features)), np.zeros(n, np.int64)
    row = own.start
    for x, _, chunk in chunks(own, local_mesh(), "pool", options):
        there, local = np.unique(ids[row : row + len(chunk)], return_inverse=True)
        if len(local) < len(chunk):
            raise ValueError(f"segment_ids must have one entry a row, got {len(ids)}")
        local = np.pad(local, (0, len(x) - len(chunk)), constant_values=-1).astype(np.int32)
        # a power of two: compiled a few times, not for every number of segments
        sums, counts = _chunk_sums(changed, x, local, num_segments=1 << len(there).bit_length())
        total[there] += np.asarray(sums)[: len(there)]
        count[there] += np.asarray(counts)[: len(there)]
        row += len(chunk)
    if own.n_rows is None and row != len(ids):
        raise ValueError(f"segment_ids must have one entry a row = {row}, got {len(ids)}")
    return total, count


@partial(jax.jit, static_argnames="num_segments")
def _chunk_sums(
    changed: Change | None, x: Float[Array, "b d"], ids: Int[Array, " b"], *, num_segments: int
) -> tuple[Float[Array, "s d"], Int[Array, " s"]]:
    """Change the rows and sum them by segment; JAX spreads it over the devices."""
    return segment_sums(x if changed is None else changed(x), ids, num_segments)

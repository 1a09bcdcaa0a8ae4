"""The kernels over the devices of a mesh, of one process or of many: rows sharded, any number.

    rows = sharded.shard_rows(x, sharded.row_mesh())
    sharded.isotropy(rows)

Each device folds its own rows with the accumulators of `jaxgeom.kernels`, and collectives merge the
states. Where the rows do not divide, the last ones of a process are padding that a mask hides.

The functions take `ShardedRows` and, but for the layout of labels and changed rows, return what
those of `jaxgeom` do: arguments, errors and numerics are theirs. Sums are merged in float32; beyond
some 10^7 rows a device `jaxgeom.streaming`, which merges in float64, is the better driver.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from jaxgeom import _checks, distributed
from jaxgeom._mesh import AXIS, COMMON, ROWS, row_mesh
from jaxgeom.kernels._accumulate import Accumulator, fold
from jaxgeom.kernels._arrays import as_array, as_matrix, compute_dtype
from jaxgeom.kernels._isotropy import isotropy_along
from jaxgeom.kernels._kmeans import INIT, _kmeans, _typed_key
from jaxgeom.kernels._linalg import eigenbasis
from jaxgeom.kernels._log_partition import LogPartitionAccumulator
from jaxgeom.kernels._moments import (
    MomentsAccumulator,
    _cluster_moments,
    all_reduce_moments,
    scatter_about_zero,
)
from jaxgeom.kernels._nearest import nearest_labels
from jaxgeom.kernels._pca import pca_of_moments
from jaxgeom.kernels._pool import segment_sums
from jaxgeom.kernels._removal import WHICH, _remove_from_clusters, removal_of_moments
from jaxgeom.kernels._seeding import seed_centroids
from jaxgeom.results import PCA, Isotropy, KMeans, Moments, Removal

__all__ = [
    "ShardedRows",
    "apply_removal",
    "assign",
    "cluster_moments",
    "fit_removal",
    "isotropy",
    "kmeans",
    "local_rows",
    "log_partition",
    "moments",
    "pca",
    "row_mesh",
    "segment_mean",
    "shard_labels",
    "shard_rows",
]
_shard_map = partial(jax.shard_map, check_vma=False)


@dataclass(frozen=True)
class ShardedRows:
    """A matrix whose rows lie on the devices of a mesh, padded to a multiple of their number."""

    x: Float[Array, "m d"]
    mask: Bool[Array, " m"]  # which rows are real
    n_rows: int  # real ones, of all processes
    mesh: Mesh


def shard_rows(x: ArrayLike, mesh: Mesh) -> ShardedRows:
    """Spread the rows of `x` over a mesh.

    Args:
        x: [n d] floating; with several processes the rows of this one, any number of them.
        mesh: from `row_mesh`.

    Returns:
        The rows, to be given to the other functions of this module.

    Raises:
        TypeError: `x` is not floating.
        ValueError: `x` is not a non-empty matrix, or the mesh has other axes.

    Example:
        >>> import numpy as np
        >>> rows = shard_rows(np.array([[1.0], [3.0], [8.0]]), row_mesh())
        >>> moments(rows).mean.tolist()
        [4.0]
    """
    if mesh.axis_names != (AXIS,):
        raise ValueError(f"mesh must have the one axis {AXIS!r}, got {mesh.axis_names}")
    x = as_array("x", x)
    n, _ = _checks.matrix("x", x)
    counts = [int(c) for c in distributed.gather(np.asarray(n))]
    local = mesh.size // len(counts)
    size = -(-max(counts) // local) * local
    mask = np.arange(size) < n
    return ShardedRows(_spread(x, size, mesh), _spread(mask, size, mesh), sum(counts), mesh)


def shard_labels(labels: ArrayLike, rows: ShardedRows, n_clusters: int) -> Int[Array, " m"]:
    """Lay labels out as the rows are.

    Args:
        labels: [n] integers in 0..n_clusters - 1; with several processes those of this one's rows.
        rows: the rows they belong to.
        n_clusters: what the labels lie below.

    Returns:
        [m] int32, -1 where there is padding.

    Raises:
        TypeError: `labels` is not integer.
        ValueError: there is not one a row, or one is out of range.
    """
    labels = np.asarray(labels)
    _checks.labels("labels", labels, _own_rows(rows), n_clusters)
    size = rows.mask.shape[0] // distributed.process_count()
    shifted = np.asarray(labels, np.int32) + 1  # so that the padding, 0, becomes no cluster
    return _minus_one(_spread(shifted, size, rows.mesh))


def local_rows(values: Array, rows: ShardedRows) -> np.ndarray:
    """Return what this process's devices hold of an array laid out as the rows, less the padding.

    Args:
        values: [m ...] labels, or the `x` of changed rows.
        rows: whose layout it has.

    Returns:
        [n ...] NumPy; with several processes the rows of this one.

    Example:
        >>> import numpy as np
        >>> rows = shard_rows(np.array([[0.0], [9.0]]), row_mesh())
        >>> local_rows(assign(rows, np.array([[1.0], [8.0]])), rows).tolist()
        [0, 1]
    """
    shards = sorted(values.addressable_shards, key=lambda s: s.index[0].start or 0)
    return np.concatenate([np.asarray(s.data) for s in shards])[: _own_rows(rows)]


def moments(rows: ShardedRows) -> Moments:
    """Return count, mean and scatter of all rows; see `jaxgeom.moments`."""
    return _reduced(MomentsAccumulator(), rows.x, rows.mask, mesh=rows.mesh)


def pca(rows: ShardedRows, n_components: int | None = None, *, center: bool = True) -> PCA:
    """Return the principal components of all rows; see `jaxgeom.pca`."""
    limit = min(rows.n_rows, rows.x.shape[1])
    if rows.n_rows < 2:
        raise ValueError(f"rows must be at least 2 for a variance, got {rows.n_rows}")
    k = limit if n_components is None else n_components
    _checks.integer("n_components", k, 1, limit, "min(n, d)")
    return pca_of_moments(moments(rows), n_components=k, center=bool(center))


def log_partition(rows: ShardedRows, components: ArrayLike) -> Float[Array, "2 k"]:
    """Return ln F(+u) and ln F(-u) over all rows; see `jaxgeom.log_partition`."""
    components = as_matrix("components", components, "k d")
    _checks.same_width("components", components, "rows", rows.x)
    accumulator = LogPartitionAccumulator(components.astype(compute_dtype(rows.x, components)))
    state = _reduced(accumulator, rows.x, rows.mask, mesh=rows.mesh)
    return jnp.asarray(accumulator.finalise(state))


def isotropy(rows: ShardedRows) -> Isotropy:
    """Return the isotropy of all rows; see `jaxgeom.isotropy`."""
    fitted = moments(rows)
    eigenvalues, components = eigenbasis(scatter_about_zero(fitted))
    log_f = log_partition(rows, components)
    return isotropy_along(components, eigenvalues, log_f, fitted.count)


def kmeans(
    rows: ShardedRows,
    n_clusters: int,
    *,
    key: Array | None = None,
    init: str | ArrayLike = "k-means++",
    n_init: int = 10,
    max_iter: int = 300,
    tol: float = 0.0,
) -> KMeans:
    """Return the best of `n_init` k-means clusterings; see `jaxgeom.kmeans`.

    The same key draws the same centroids as in memory, whatever the number of devices, up to
    rounding. Labels lie as the rows do, -1 where there is padding.
    """
    n_clusters = _checks.integer("n_clusters", n_clusters, 1, rows.n_rows, "n")
    n_init = _checks.integer("n_init", n_init, 1)
    max_iter = _checks.integer("max_iter", max_iter, 1)
    _checks.non_negative("tol", tol)
    if isinstance(init, str):
        _checks.option("init", init, INIT)
        options = {"n_clusters": n_clusters, "n_init": n_init, "init": init}
        key = _typed_key(key)
        start = _seeded(rows.x, rows.mask, key, rows.mesh, rows.n_rows, **options)
    else:
        start = as_array("init", init)
        _checks.shape("init", start, (n_clusters, rows.x.shape[1]), "c d")
        start = jnp.asarray(start, compute_dtype(rows.x))[None]
    limits = jnp.asarray(max_iter, jnp.int32), jnp.asarray(tol, start.dtype)
    return _clustered(rows.x, rows.mask, start, *limits, mesh=rows.mesh)


def assign(rows: ShardedRows, centroids: ArrayLike) -> Int[Array, " m"]:
    """Return each row's nearest centroid, laid out as the rows; -1 where there is padding."""
    centroids = as_matrix("centroids", centroids, "c d")
    _checks.same_width("centroids", centroids, "rows", rows.x)
    return _labelled(rows.x, rows.mask, centroids, mesh=rows.mesh)


def cluster_moments(rows: ShardedRows, labels: Int[Array, " m"], *, n_clusters: int) -> Moments:
    """Return count, mean and scatter of each cluster; labels from `assign` or `shard_labels`."""
    return _cluster_reduced(rows.x, labels, mesh=rows.mesh, n_clusters=n_clusters)


def fit_removal(
    rows: ShardedRows,
    labels: Int[Array, " m"] | None = None,
    *,
    n_clusters: int = 1,
    n_directions: int = 0,
    which: str = "top",
) -> Removal:
    """Return what to take from the rows of each cluster; see `jaxgeom.fit_removal`."""
    _checks.integer("n_directions", n_directions, 0, rows.x.shape[1] - 1, "d - 1")
    _checks.option("which", which, WHICH)
    if labels is None:
        _checks.labels_given("labels", n_clusters)
        fitted = jax.tree.map(lambda a: a[None], moments(rows))
    else:
        fitted = cluster_moments(rows, labels, n_clusters=n_clusters)
    return removal_of_moments(fitted, n_directions=n_directions, which=which)


def apply_removal(
    rows: ShardedRows, removal: Removal, labels: Int[Array, " m"] | None = None
) -> ShardedRows:
    """Return the rows less what the removal takes; see `jaxgeom.apply_removal`."""
    n_clusters, _, _ = _checks.removal(removal, rows.x.shape[1])
    if labels is None:
        _checks.labels_given("labels", n_clusters)
        labels = _minus_one(rows.mask.astype(jnp.int32))
    x = _changed(rows.x, rows.mask, labels, removal, mesh=rows.mesh)
    return ShardedRows(x, rows.mask, rows.n_rows, rows.mesh)


def segment_mean(
    rows: ShardedRows, segment_ids: Int[Array, " m"], *, num_segments: int
) -> Float[Array, "s d"]:
    """Return the mean of the rows of each segment; ids laid out by `shard_labels`."""
    return _pooled(rows.x, segment_ids, mesh=rows.mesh, num_segments=num_segments)


@partial(jax.jit, static_argnames="mesh")
def _reduced(accumulator: Accumulator[Any], x: Array, mask: Array, *, mesh: Mesh) -> Any:
    """Fold every device's rows and merge the states."""

    def on_device(accumulator: Any, x: Array, mask: Array) -> Any:
        state = accumulator.init(x.shape[1], compute_dtype(x))
        return accumulator.all_reduce(fold(accumulator, state, x, mask), AXIS)

    specs = (COMMON, ROWS, ROWS)
    return _shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=COMMON)(accumulator, x, mask)


@partial(jax.jit, static_argnames=("mesh", "n_rows", "n_clusters", "n_init", "init"))
def _seeded(x: Array, mask: Array, key: Array, mesh: Mesh, n_rows: int, **options: Any) -> Array:
    """Draw first centroids from all devices' rows."""

    def on_device(x: Array, mask: Array, key: Array) -> Array:
        return seed_centroids(x, key, mask, chunk_size=None, axis=AXIS, n_rows=n_rows, **options)

    specs = (ROWS, ROWS, COMMON)
    return _shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=COMMON)(x, mask, key)


@partial(jax.jit, static_argnames="mesh")
def _clustered(
    x: Array, mask: Array, start: Array, max_iter: Array, tol: Array, *, mesh: Mesh
) -> KMeans:
    """Run Lloyd's iterations over all devices."""

    def on_device(x: Array, mask: Array, *rest: Array) -> KMeans:
        fit = _kmeans(x, *rest, mask, axis=AXIS)
        return fit._replace(labels=jnp.where(mask, fit.labels, -1))

    specs = (ROWS, ROWS, COMMON, COMMON, COMMON)
    outs = KMeans(*[COMMON] * len(KMeans._fields))._replace(labels=ROWS)
    run = _shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=outs)
    return run(x, mask, start, max_iter, tol)


@partial(jax.jit, static_argnames="mesh")
def _labelled(x: Array, mask: Array, centroids: Array, *, mesh: Mesh) -> Array:
    """Assign every device's rows."""

    def on_device(x: Array, mask: Array, centroids: Array) -> Array:
        return jnp.where(mask, nearest_labels(x, centroids), -1)

    specs = (ROWS, ROWS, COMMON)
    return _shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=ROWS)(x, mask, centroids)


@partial(jax.jit, static_argnames=("mesh", "n_clusters"))
def _cluster_reduced(x: Array, labels: Array, *, mesh: Mesh, n_clusters: int) -> Moments:
    """Take every device's moments and merge them."""

    def on_device(x: Array, labels: Array) -> Moments:
        return all_reduce_moments(_cluster_moments(x, labels, n_clusters=n_clusters), AXIS)

    return _shard_map(on_device, mesh=mesh, in_specs=(ROWS, ROWS), out_specs=COMMON)(x, labels)


@partial(jax.jit, static_argnames="mesh")
def _changed(x: Array, mask: Array, labels: Array, removal: Removal, *, mesh: Mesh) -> Array:
    """Change every device's rows; padding becomes 0."""

    def on_device(x: Array, mask: Array, labels: Array, removal: Removal) -> Array:
        return jnp.where(mask[:, None], _remove_from_clusters(x, removal, labels), 0)

    specs = (ROWS, ROWS, ROWS, COMMON)
    run = _shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=ROWS)
    return run(x, mask, labels, removal)


@partial(jax.jit, static_argnames=("mesh", "num_segments"))
def _pooled(x: Array, ids: Array, *, mesh: Mesh, num_segments: int) -> Array:
    """Sum every device's rows by segment and divide the totals."""

    def on_device(x: Array, ids: Array) -> Array:
        total, count = jax.lax.psum(segment_sums(x, ids, num_segments), AXIS)
        return total / jnp.maximum(count, 1)[:, None]

    return _shard_map(on_device, mesh=mesh, in_specs=(ROWS, ROWS), out_specs=COMMON)(x, ids)


_minus_one = jax.jit(lambda a: a - 1)


def _spread(values: Any, size: int, mesh: Mesh) -> Array:
    """Return this process's values, padded with zeros to `size`, as its part of a global array."""
    missing = size - values.shape[0]
    if missing:
        pad = np.pad if isinstance(values, np.ndarray) else jnp.pad
        values = pad(values, ((0, missing),) + ((0, 0),) * (values.ndim - 1))
    sharding = NamedSharding(mesh, ROWS)
    if distributed.process_count() == 1:
        return jax.device_put(values, sharding)
    return jax.make_array_from_process_local_data(sharding, np.asarray(values))


def _own_rows(rows: ShardedRows) -> int:
    """Return how many real rows lie on this process's devices."""
    return sum(int(np.asarray(shard.data).sum()) for shard in rows.mask.addressable_shards)

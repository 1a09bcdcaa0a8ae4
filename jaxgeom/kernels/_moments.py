"""Count, mean and scatter of rows, of all of them or cluster by cluster."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float, Int

from jaxgeom import _checks
from jaxgeom.kernels._accumulate import fold_rows, namespace, sum_over_devices
from jaxgeom.kernels._arrays import as_array, as_labels, as_matrix, compute_dtype
from jaxgeom.kernels._blocks import fold_blocks, in_range, plan_blocks
from jaxgeom.kernels._linalg import gram, matmul
from jaxgeom.kernels._nearest import nearest_labels
from jaxgeom.kernels._triangle import Triangle
from jaxgeom.results import Moments


class MomentsAccumulator(NamedTuple):
    """`Moments` as a commutative monoid (Chan, Golub and LeVeque 1983); the state is the result."""

    @property
    def sliced(self) -> bool:
        """See `Accumulator`."""
        return True

    def init(self, n_features: int, dtype: DTypeLike) -> Moments:
        """Return the moments of no rows."""
        d = n_features
        return Moments(jnp.zeros((), jnp.int32), jnp.zeros(d, dtype), jnp.zeros((d, d), dtype))

    def update(
        self,
        state: Moments,
        x: Float[Array, "b d"],
        mask: Bool[Array, " b"] | None = None,
        *,
        product: Callable[[Array], Any] = gram,
    ) -> Moments:
        """Return the moments with the rows of `x` added.

        The step between the two means joins the Gram product as one more row, so that the merge
        costs no pass of its own over [d d]. The first rows are read relative to one of them, so
        that a common offset costs no digits and constant data has a scatter of exactly 0. With
        another `product` than `gram` the scatter is held in whatever that returns.
        """
        dtype = state.mean.dtype
        x = x.astype(dtype)
        mask = jnp.ones(x.shape[0], bool) if mask is None else mask
        added = mask.sum(dtype=jnp.int32)
        count = state.count + added
        first = lax.stop_gradient(x[jnp.argmax(mask)])
        origin = jnp.where((state.count == 0) & (added > 0), first, state.mean)
        x = jnp.where(mask[:, None], x - origin[None, :], 0)
        step = x.sum(0) / jnp.maximum(added, 1)
        centred = jnp.where(mask[:, None], x - step[None, :], 0)
        share = (added / jnp.maximum(count, 1)).astype(dtype)
        rows = jnp.concatenate([centred, jnp.sqrt(state.count * share) * step[None, :]])
        scatter = jax.tree.map(jnp.add, state.scatter, product(rows))
        return Moments(count, origin + step * share, scatter)

    def merge(self, a: Moments, b: Moments) -> Moments:
        """Return the moments of the rows of both; leading axes are clusters."""
        return merge_moments(a, b)

    def all_reduce(self, state: Moments, axis: str) -> Moments:
        """Return the moments of the rows of all devices."""
        return all_reduce_moments(state, axis)


class ClusterMomentsAccumulator(NamedTuple):
    """Moments of each cluster, where a row belongs to its nearest centroid: no label is kept.

    A whole block is one update: each costs a merge of [c d d].
    """

    centroids: Float[Array, "c d"]

    @property
    def sliced(self) -> bool:
        """See `Accumulator`."""
        return False

    def init(self, n_features: int, dtype: DTypeLike) -> Moments:
        """Return the moments of no rows."""
        c, d = self.centroids.shape[0], n_features
        return Moments(
            jnp.zeros(c, jnp.int32), jnp.zeros((c, d), dtype), jnp.zeros((c, d, d), dtype)
        )

    def update(
        self, state: Moments, x: Float[Array, "b d"], mask: Bool[Array, " b"] | None = None
    ) -> Moments:
        """Return the moments with the rows of `x` added."""
        labels = nearest_labels(x, self.centroids)
        labels = labels if mask is None else jnp.where(mask, labels, -1)
        return self.merge(state, _cluster_moments(x, labels, n_clusters=self.centroids.shape[0]))

    def merge(self, a: Moments, b: Moments) -> Moments:
        """Return the moments of the rows of both."""
        return merge_moments(a, b)

    def all_reduce(self, state: Moments, axis: str) -> Moments:
        """Return the moments of the rows of all devices."""
        return all_reduce_moments(state, axis)


def all_reduce_moments(state: Moments, axis: str) -> Moments:
    """Return the moments of the rows of all devices along a mesh axis; a leading axis is clusters.

    The mean is summed relative to a common point, so that a far cloud loses no digits.
    """
    dtype = state.mean.dtype
    count = lax.psum(state.count, axis)
    origin = lax.pmean(state.mean, axis)
    share = (state.count / jnp.maximum(count, 1)).astype(dtype)[..., None]
    mean = origin + lax.psum(share * (state.mean - origin), axis)
    step = state.mean - mean
    outer = step[..., :, None] * step[..., None, :]
    between = state.count.astype(dtype)[..., None, None] * outer
    return Moments(count, mean, lax.psum(state.scatter + between, axis))


def merge_moments(a: Moments, b: Moments) -> Moments:
    """Return the moments of the rows of `a` and `b` together; works on NumPy arrays too."""
    count = a.count + b.count
    share = b.count / (count + (count == 0))
    step = b.mean - a.mean
    outer = step[..., :, None] * step[..., None, :]
    return Moments(
        count,
        a.mean + step * share[..., None],
        a.scatter + b.scatter + outer * (a.count * share)[..., None, None],
    )


def moments_of_all(clusters: Moments) -> Moments:
    """Return the moments of all clusters' rows together; NumPy moments stay such."""
    xp = namespace(clusters.mean)
    count = clusters.count.sum()
    held = xp.asarray(clusters.count, clusters.mean.dtype)[:, None]
    origin = clusters.mean[xp.argmax(clusters.count)]  # a far cloud loses no digits
    mean = origin + (held * (clusters.mean - origin[None, :])).sum(0) / xp.maximum(count, 1)
    step = xp.sqrt(held) * (clusters.mean - mean[None, :])
    return Moments(count, mean, clusters.scatter.sum(0) + step.T @ step)


def scatter_about_zero(fitted: Moments) -> Array | np.ndarray:
    """Return WᵀW of rows with these moments; NumPy moments, in float64, stay such."""
    mean = fitted.mean
    outer = mean[..., :, None] * mean[..., None, :]
    return fitted.scatter + fitted.count[..., None, None] * outer


def moments(
    x: ArrayLike, *, mask: ArrayLike | None = None, chunk_size: int | None = None
) -> Moments:
    """Return count, mean and scatter of the rows of `x`.

    Args:
        x: [n d] floating; rows are samples.
        mask: [n] bool, which rows count; all of them by default.
        chunk_size: rows held in the cache at once (static); by default chosen from d.

    Returns:
        `Moments(count [] int32, mean [d], scatter [d d])`; the scatter is the sum of
        (x - mean)(x - mean)ᵀ, not divided by the count.

    Raises:
        TypeError: `x` is not floating or `mask` not boolean.
        ValueError: `x` is not a non-empty matrix, or `mask` has another length.

    Numerics:
        float32 accumulation (float64 for float64 data under x64); rows are centred before they are
        squared. With no row masked in, everything is 0. NaN in a counted row gives NaN.
        Differentiable in `x`.

    Source:
        Chan, Golub and LeVeque (1983), "Algorithms for computing the sample variance".

    Example:
        >>> import numpy as np, jaxgeom as jg
        >>> jg.moments(np.array([[0.0, 1.0], [2.0, 1.0]])).mean.tolist()
        [1.0, 1.0]
    """
    x = as_matrix("x", x)
    if mask is not None:
        mask = as_array("mask", mask)
        _checks.vector("mask", mask, x.shape[0], "bool")
    return _moments(x, mask, chunk_size=_checks.chunk_size(chunk_size))


@partial(jax.jit, static_argnames="chunk_size")
def _moments(
    x: Float[Array, "n d"], mask: Bool[Array, " n"] | None, *, chunk_size: int | None = None
) -> Moments:
    """Fold the accumulator over slices."""
    triangle = Triangle(x.shape[1])
    accumulator = MomentsAccumulator()
    start = accumulator.init(x.shape[1], compute_dtype(x))
    start = start._replace(scatter=triangle.cut(start.scatter))
    update = partial(accumulator.update, product=triangle.gram)
    state = fold_rows(update, start, x, mask, chunk_size=chunk_size)
    return state._replace(scatter=triangle.whole(state.scatter))


def cluster_moments(x: ArrayLike, labels: ArrayLike, *, n_clusters: int) -> Moments:
    """Return count, mean and scatter of each cluster of rows.

    Args:
        x: [n d] floating.
        labels: [n] integer in 0..n_clusters - 1.
        n_clusters: c, static.

    Returns:
        `Moments(count [c] int32, mean [c d], scatter [c d d])`; zeros for an empty cluster.

    Raises:
        TypeError: `x` is not floating or `labels` not integer.
        ValueError: a shape does not fit, or a label is out of range. Under a transformation labels
            cannot be read: there a row with a label out of range counts for no cluster.

    Numerics:
        As `moments`; a row with NaN or infinity makes NaN of its own cluster's mean and scatter,
        and reaches no other cluster. Differentiable in `x`; labels carry no gradient.

    Example:
        >>> import numpy as np, jaxgeom as jg
        >>> x = np.array([[0.0], [2.0], [7.0]])
        >>> jg.cluster_moments(x, np.array([0, 0, 1]), n_clusters=2).mean.tolist()
        [[1.0], [7.0]]
    """
    x = as_matrix("x", x)
    n_clusters = _checks.integer("n_clusters", n_clusters, 1)
    labels = as_labels("labels", labels, x.shape[0], n_clusters)
    return _cluster_moments(x, labels, n_clusters=n_clusters)


@partial(jax.jit, static_argnames="n_clusters")
def _cluster_moments(
    x: Float[Array, "n d"], labels: Int[Array, " n"], *, n_clusters: int
) -> Moments:
    """Sum cluster by cluster in two passes: the means, then the scatter about them."""
    d, dtype = x.shape[1], compute_dtype(x)
    count, mean = cluster_means(x, labels, n_clusters)

    def update(
        state: tuple,
        block: Float[Array, "b d"],
        mask: Bool[Array, " b"],
        _: Int[Array, " b"],
        cluster: Int[Array, ""],
    ) -> tuple:
        # Blocks of a cluster follow each other: its sum stays in the cache, and is only written.
        scatter, own, last = state
        centred = jnp.where(mask[:, None], block.astype(dtype) - mean[cluster][None, :], 0)
        own = tuple(
            jnp.where(cluster == last, part, 0) + added
            for part, added in zip(own, triangle.gram(centred), strict=True)
        )
        scatter = tuple(
            lax.dynamic_update_index_in_dim(parts, part, cluster, 0)
            for parts, part in zip(scatter, own, strict=True)
        )
        return scatter, own, cluster

    triangle = Triangle(d)
    plan = plan_blocks(labels, n_clusters)
    none = triangle.cut(jnp.zeros((d, d), dtype))
    start = tuple(jnp.zeros((n_clusters, *part.shape), dtype) for part in none)
    parts, _, _ = fold_blocks(update, (start, none, plan.cluster[0]), x, plan)
    return Moments(count, mean, lax.map(triangle.whole, parts))


def cluster_means(
    x: Float[Array, "n d"], labels: Int[Array, " n"], n_clusters: int
) -> tuple[Int[Array, " c"], Float[Array, "c d"]]:
    """Return each cluster's count and mean; that of a cluster with a row that is not finite is NaN.

    Rows are taken relative to the first of a cluster, so that a common offset costs no digits; rows
    of no cluster are never read.
    """
    d, dtype = x.shape[1], compute_dtype(x)
    origin = lax.stop_gradient(x[jnp.argmax(in_range(labels, n_clusters))]).astype(dtype)
    origin = jnp.where(jnp.isfinite(origin), origin, 0)

    def update(state: tuple, part: Float[Array, "b d"], part_labels: Int[Array, " b"]) -> tuple:
        count, spoiled, total = state
        member = jax.nn.one_hot(part_labels, n_clusters, dtype=dtype)
        shifted = part.astype(dtype) - origin[None, :]
        shifted = jnp.where(in_range(part_labels, n_clusters)[:, None], shifted, 0)
        added, marked = _sums_apart(member, shifted)
        return count + member.sum(0).astype(jnp.int32), spoiled | marked, total + added

    none = jnp.zeros(n_clusters, jnp.int32)
    start = (none, none > 0, jnp.zeros((n_clusters, d), dtype))
    count, spoiled, total = fold_rows(update, start, x, labels)
    mean = total / jnp.maximum(count, 1)[:, None] + origin[None, :]
    mean = jnp.where(spoiled[:, None], jnp.nan, mean)
    return count, jnp.where(count[:, None] > 0, mean, 0)


def _sums_apart(
    member: Float[Array, "b c"], rows: Float[Array, "b d"]
) -> tuple[Float[Array, "c d"], Bool[Array, " c"]]:
    """Return each cluster's sum over its finite rows, and which clusters hold others.

    In the product with a one-hot matrix 0 x NaN is NaN: such a row shows in every cluster's sum.
    Only then are the rows looked at.
    """
    total = matmul(member.T, rows)

    def without_the_others() -> tuple[Float[Array, "c d"], Bool[Array, " c"]]:
        finite = jnp.isfinite(rows).all(1)
        marked = ((member > 0) & ~finite[:, None]).any(0)
        return matmul(member.T, jnp.where(finite[:, None], rows, 0)), marked

    none = jnp.zeros(member.shape[1], bool)
    return lax.cond(jnp.isfinite(total).all(), lambda: (total, none), without_the_others)


def mean_of_rows(
    x: Float[Array, "n d"],
    chunk_size: int | None = None,
    mask: Bool[Array, " n"] | None = None,
    axis: str | None = None,
) -> Float[Array, " d"]:
    """Return the mean of the rows that `mask` keeps, of all devices along a mesh axis.

    They are summed relative to a common point: the first row, or the mean of the devices' first.
    """
    origin = x[0] if mask is None else jnp.where(mask.any(), x[jnp.argmax(mask)], 0)
    origin = origin.astype(compute_dtype(x))
    origin = origin if axis is None else lax.pmean(origin, axis)

    def update(
        total: Float[Array, " d"], part: Float[Array, "b d"], kept: Bool[Array, " b"] | None
    ) -> Float[Array, " d"]:
        part = part.astype(origin.dtype) - origin[None, :]
        return total + (part if kept is None else jnp.where(kept[:, None], part, 0)).sum(0)

    total = fold_rows(update, jnp.zeros_like(origin), x, mask, chunk_size=chunk_size)
    return origin + sum_over_devices(total, axis) / count_rows(x, mask, axis)


def count_rows(
    x: Float[Array, "n d"], mask: Bool[Array, " n"] | None, axis: str | None
) -> Int[Array, ""] | int:
    """Return how many rows `mask` keeps on all devices along a mesh axis."""
    if mask is None and axis is None:
        return x.shape[0]
    kept = jnp.asarray(x.shape[0] if mask is None else mask.sum(dtype=jnp.int32), jnp.int32)
    return sum_over_devices(kept, axis)

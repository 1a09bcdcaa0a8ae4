"""Count, mean and scatter of rows, of all of them or cluster by cluster."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from jaxgeom import _checks
from jaxgeom.kernels._accumulate import fold_rows
from jaxgeom.kernels._arrays import as_array, as_labels, as_matrix, compute_dtype
from jaxgeom.kernels._blocks import fold_blocks, in_range, plan_blocks
from jaxgeom.kernels._linalg import gram, matmul
from jaxgeom.kernels._triangle import Triangle
from jaxgeom.results import Moments


class MomentsAccumulator:
    """`Moments` as a commutative monoid (Chan, Golub and LeVeque 1983); the state is the result.

    With another `product` than `gram` the scatter is held in whatever that returns.
    """

    def __init__(
        self, n_features: int, dtype: jnp.dtype, product: Callable[[Array], Any] = gram
    ) -> None:
        self.n_features, self.dtype, self.product = n_features, dtype, product

    def init(self) -> Moments:
        """Return the moments of no rows."""
        d = self.n_features
        return Moments(
            jnp.zeros((), jnp.int32), jnp.zeros(d, self.dtype), jnp.zeros((d, d), self.dtype)
        )

    def update(
        self, state: Moments, x: Float[Array, "b d"], mask: Bool[Array, " b"] | None = None
    ) -> Moments:
        """Return the moments with the rows of `x` added.

        The step between the two means joins the Gram product as one more row, so that the merge
        costs no pass of its own over [d d]. The first rows are read relative to one of them, so
        that a common offset costs no digits and constant data has a scatter of exactly 0.
        """
        x = x.astype(self.dtype)
        mask = jnp.ones(x.shape[0], bool) if mask is None else mask
        added = mask.sum(dtype=jnp.int32)
        count = state.count + added
        first = lax.stop_gradient(x[jnp.argmax(mask)])
        origin = jnp.where((state.count == 0) & (added > 0), first, state.mean)
        x = jnp.where(mask[:, None], x - origin[None, :], 0)
        step = x.sum(0) / jnp.maximum(added, 1)
        centred = jnp.where(mask[:, None], x - step[None, :], 0)
        weight = state.count * (added / jnp.maximum(count, 1)).astype(self.dtype)
        rows = jnp.concatenate([centred, jnp.sqrt(weight) * step[None, :]])
        mean = origin + step * (added / jnp.maximum(count, 1)).astype(self.dtype)
        return Moments(count, mean, jax.tree.map(jnp.add, state.scatter, self.product(rows)))

    def merge(self, a: Moments, b: Moments) -> Moments:
        """Return the moments of the rows of both; leading axes are clusters."""
        return merge_moments(a, b)


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
    accumulator = MomentsAccumulator(x.shape[1], compute_dtype(x), triangle.gram)
    start = accumulator.init()
    start = start._replace(scatter=triangle.cut(start.scatter))
    state = fold_rows(accumulator.update, start, x, mask, chunk_size=chunk_size)
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
        As `moments`, but NaN in a row of one cluster may reach the others. Differentiable in `x`;
        labels carry no gradient.

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
        scatter: tuple[Array, ...],
        block: Float[Array, "b d"],
        mask: Bool[Array, " b"],
        _: Int[Array, " b"],
        cluster: Int[Array, ""],
    ) -> tuple[Array, ...]:
        centred = jnp.where(mask[:, None], block.astype(dtype) - mean[cluster][None, :], 0)
        return tuple(
            lax.dynamic_update_index_in_dim(part, part[cluster] + added, cluster, 0)
            for part, added in zip(scatter, triangle.gram(centred), strict=True)
        )

    triangle = Triangle(d)
    plan = plan_blocks(labels, n_clusters)
    start = tuple(
        jnp.zeros((n_clusters, *part.shape), dtype) for part in triangle.cut(jnp.zeros((d, d)))
    )
    parts = fold_blocks(update, start, x, plan)
    return Moments(count, mean, lax.map(triangle.whole, parts))


def cluster_means(
    x: Float[Array, "n d"], labels: Int[Array, " n"], n_clusters: int
) -> tuple[Int[Array, " c"], Float[Array, "c d"]]:
    """Return each cluster's count and mean, by products with a one-hot matrix.

    Rows are taken relative to the first of a cluster, so that a common offset costs no digits; rows
    of no cluster are never read: 0 x NaN in the product would be NaN.
    """
    d, dtype = x.shape[1], compute_dtype(x)
    origin = lax.stop_gradient(x[jnp.argmax(in_range(labels, n_clusters))]).astype(dtype)

    def update(state: tuple, part: Float[Array, "b d"], part_labels: Int[Array, " b"]) -> tuple:
        count, total = state
        member = jax.nn.one_hot(part_labels, n_clusters, dtype=dtype)
        shifted = part.astype(dtype) - origin[None, :]
        shifted = jnp.where(in_range(part_labels, n_clusters)[:, None], shifted, 0)
        return count + member.sum(0).astype(jnp.int32), total + matmul(member.T, shifted)

    start = (jnp.zeros(n_clusters, jnp.int32), jnp.zeros((n_clusters, d), dtype))
    count, total = fold_rows(update, start, x, labels)
    mean = total / jnp.maximum(count, 1)[:, None] + origin[None, :]
    return count, jnp.where(count[:, None] > 0, mean, 0)


def mean_of_rows(x: Float[Array, "n d"], chunk_size: int | None = None) -> Float[Array, " d"]:
    """Return the mean of the rows, summed relative to the first one."""
    dtype = compute_dtype(x)
    origin = x[0].astype(dtype)

    def update(total: Float[Array, " d"], part: Float[Array, "b d"]) -> Float[Array, " d"]:
        return total + (part.astype(dtype) - origin[None, :]).sum(0)

    total = fold_rows(update, jnp.zeros_like(origin), x, chunk_size=chunk_size)
    return origin + total / x.shape[0]

"""Fit and apply a `Removal`: of each cluster its mean, then its top or least principal directions.

Every setting of the study but the baseline is this one kernel: zero-mean (1 cluster, 0
directions), Global (1, 12), Clustering+ZM (27, 0), Cluster-based (27, 12), and the same with the
least directions.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from jaxgeom import _checks
from jaxgeom.kernels._arrays import as_array, as_labels, as_matrix, compute_dtype
from jaxgeom.kernels._blocks import fold_blocks, plan_blocks
from jaxgeom.kernels._linalg import eigenbasis, leading_eigenvectors_of_each, matmul
from jaxgeom.kernels._moments import _cluster_moments, _moments, cluster_means, mean_of_rows
from jaxgeom.kernels._nearest import nearest_labels
from jaxgeom.results import Moments, Removal

WHICH = ("top", "least")


def fit_removal(
    x: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    n_clusters: int = 1,
    n_directions: int = 0,
    which: str = "top",
    clusters: Moments | None = None,
) -> Removal:
    """Return what to take from the rows of `x`: of each cluster its mean and `n_directions`.

    Args:
        x: [n d] floating.
        labels: [n] integer in 0..n_clusters - 1; may be left out for one cluster.
        n_clusters: c, static.
        n_directions: k in 0..d - 1, static: how many principal directions of each cluster.
        which: "top", the heaviest k directions, or "least", the lightest (static).
        clusters: what `cluster_moments` returned for these rows and labels: it spares that pass.

    Returns:
        `Removal(means [c d], components [c k d], counts [c], vanishes [c])`, each cluster's
        directions in the order of descending variance. An empty cluster has count 0.

    Raises:
        TypeError: `x` is not floating or `labels` not integer.
        ValueError: a shape does not fit; an option or a label is out of range; labels are missing.

    Numerics:
        As `pca`, cluster by cluster. With "top", a cluster of at most k + 1 rows is spanned by its
        directions: it is marked in `vanishes`, and its rows become exactly 0. A row with NaN or
        infinity reaches its own cluster alone. Differentiable in `x`; labels carry no gradient.

    Source:
        Mu and Viswanath (2018) for one cluster; Rajaee and Pilehvar (2021), "A Cluster-based
        Approach for Improving Isotropy in Contextual Embedding Space", for several.

    Example:
        >>> import numpy as np, jaxgeom as jg
        >>> fit = jg.fit_removal(np.array([[3.0, 1.0], [5.0, 1.0], [7.0, 1.0]]), n_directions=1)
        >>> fit.means.tolist(), fit.components.tolist()
        ([[5.0, 1.0]], [[[1.0, 0.0]]])
    """
    x = as_matrix("x", x)
    n_clusters = _checks.integer("n_clusters", n_clusters, 1)
    k = _checks.integer("n_directions", n_directions, 0, x.shape[1] - 1, "d - 1")
    _checks.option("which", which, WHICH)
    labels = _optional_labels(labels, x.shape[0], n_clusters)
    if clusters is not None:
        clusters = Moments(
            *map(as_array, (f"clusters.{name}" for name in Moments._fields), clusters)
        )
        _checks.cluster_moments("clusters", clusters, n_clusters, x.shape[1])
        return removal_of_moments(clusters, n_directions=k, which=which)
    return _fit_removal(x, labels, n_clusters=n_clusters, n_directions=k, which=which)


@partial(jax.jit, static_argnames=("n_clusters", "n_directions", "which"))
def _fit_removal(
    x: Float[Array, "n d"],
    labels: Int[Array, " n"] | None,
    *,
    n_clusters: int,
    n_directions: int,
    which: str,
) -> Removal:
    """Take moments as far as they are needed, then directions."""
    if n_directions == 0:
        count, mean = _means(x, labels, n_clusters)
        fitted = Moments(count, mean, jnp.zeros((n_clusters, 0, 0), mean.dtype))
    elif labels is None:
        fitted = jax.tree.map(lambda a: a[None], _moments(x, None))
    else:
        fitted = _cluster_moments(x, labels, n_clusters=n_clusters)
    return removal_of_moments(fitted, n_directions=n_directions, which=which)


@partial(jax.jit, static_argnames=("n_directions", "which"))
def removal_of_moments(clusters: Moments, *, n_directions: int, which: str) -> Removal:
    """Return the removal that moments with a leading cluster axis call for."""
    if n_directions == 0:
        n_clusters, d = clusters.mean.shape
        none = jnp.zeros((n_clusters, 0, d), clusters.mean.dtype)
        return Removal(clusters.mean, none, clusters.count, jnp.zeros(n_clusters, bool))
    few = (clusters.count > 0) & (clusters.count <= n_directions + 1)
    vanishes = few if which == "top" else jnp.zeros_like(few)
    if which == "top":
        components = leading_eigenvectors_of_each(clusters.scatter, n_directions)[1]
    else:
        components = lax.map(lambda s: eigenbasis(s)[1][-n_directions:], clusters.scatter)
    return Removal(clusters.mean, components, clusters.count, vanishes)


def _means(
    x: Float[Array, "n d"], labels: Int[Array, " n"] | None, n_clusters: int
) -> tuple[Int[Array, " c"], Float[Array, "c d"]]:
    """Return each cluster's count and mean."""
    if labels is None:
        return jnp.array([x.shape[0]], jnp.int32), mean_of_rows(x)[None]
    return cluster_means(x, labels, n_clusters)


def _optional_labels(
    labels: ArrayLike | None, length: int, n_clusters: int
) -> Int[Array, " n"] | None:
    """Return checked labels, or None for a single cluster."""
    if labels is None:
        _checks.labels_given("labels", n_clusters)
        return None
    return as_labels("labels", labels, length, n_clusters)


def apply_removal(
    x: ArrayLike, removal: Removal, labels: ArrayLike | None = None
) -> Float[Array, "n d"]:
    """Return the rows of `x` less their cluster's mean and their share along its directions.

    Args:
        x: [n d] floating; the rows `removal` was fitted on, or others.
        removal: from `fit_removal`, for c clusters and k directions.
        labels: [n] integer in 0..c - 1; may be left out for one cluster.

    Returns:
        [n d] in the dtype of `x`.

    Raises:
        TypeError: `x` is not floating or `labels` not integer.
        ValueError: a shape does not fit, a label is out of range, or labels are missing. Under a
            transformation labels cannot be read: there a row out of range comes out NaN.

    Numerics:
        Computed in float32 (float64 for float64 data). Rows of a vanishing cluster are exactly 0,
        but for those with NaN. NaN in a row, or in its cluster's mean or directions, gives a row
        with NaN and reaches no other. Differentiable in `x` and `removal`.

    Example:
        >>> import numpy as np, jaxgeom as jg
        >>> x = np.array([[3.0, 1.0], [5.0, 1.0], [7.0, 2.0]])
        >>> jg.apply_removal(x, jg.fit_removal(x)).tolist()
        [[-2.0, -0.333...], [0.0, -0.333...], [2.0, 0.666...]]
    """
    x = as_matrix("x", x)
    removal = Removal(*map(as_array, (f"removal.{name}" for name in removal._fields), removal))
    n_clusters, _, _ = _checks.removal(removal, x.shape[1])
    labels = _optional_labels(labels, x.shape[0], n_clusters)
    if labels is None:
        return _remove_from_all(x, removal)
    return _remove_from_clusters(x, removal, labels)


@jax.jit
def _remove_from_all(x: Float[Array, "n d"], removal: Removal) -> Float[Array, "n d"]:
    """Remove the one cluster's mean and directions from every row."""
    one = jax.tree.map(lambda a: a[0], removal)
    return _remove(x, one).astype(x.dtype)


@jax.jit
def _remove_from_clusters(
    x: Float[Array, "n d"], removal: Removal, labels: Int[Array, " n"]
) -> Float[Array, "n d"]:
    """Remove block by block, each block of one cluster."""

    def update(
        out: Float[Array, "n d"],
        block: Float[Array, "b d"],
        _: Bool[Array, " b"],
        rows: Int[Array, " b"],
        cluster: Int[Array, ""],
    ) -> Float[Array, "n d"]:
        changed = _remove(block, jax.tree.map(lambda a: a[cluster], removal))
        return out.at[rows].set(changed.astype(x.dtype), mode="drop")

    plan = plan_blocks(labels, removal.means.shape[0])
    return fold_blocks(update, jnp.full_like(x, jnp.nan), x, plan)


def _remove(x: Float[Array, "b d"], one: Removal) -> Float[Array, "b d"]:
    """Remove one cluster's mean and directions."""
    centred = x.astype(compute_dtype(x, one.means)) - one.means[None, :]
    changed = centred - matmul(matmul(centred, one.components.T), one.components)
    return jnp.where(one.vanishes & jnp.isfinite(changed), 0, changed)


class Change(NamedTuple):
    """A removal whose clusters are found row by row: what it leaves of a block of rows."""

    removal: Removal
    centroids: Float[Array, "c d"] | None = None  # a row belongs to the nearest; None: one cluster

    def __call__(self, x: Float[Array, "b d"]) -> Float[Array, "b d"]:
        """Return the rows as the removal leaves them."""
        if self.centroids is None:
            return _remove_from_all(x, self.removal)
        return _remove_from_clusters(x, self.removal, nearest_labels(x, self.centroids))


def changed_scatter(clusters: Moments, components: ArrayLike) -> Float[Array, "d d"]:
    """Return the scatter about 0 of data after a removal, without the data.

    It is the sum over clusters c of (I - V_c V_cᵀ) S_c (I - V_c V_cᵀ): the changed clusters have
    mean zero. (The shorter S - V Λ Vᵀ is wrong to first order where V is not exact.)

    Args:
        clusters: `Moments` with a leading cluster axis, from `cluster_moments`.
        components: [c k d] floating, orthonormal rows for each cluster.

    Returns:
        [d d], equal to yᵀy of the changed rows y.

    Raises:
        TypeError: `components` is not floating.
        ValueError: a shape does not fit.

    Numerics:
        As accurate as the scatters. Differentiable.

    Example:
        >>> import numpy as np, jaxgeom as jg
        >>> x = np.array([[3.0, 1.0], [5.0, 1.0], [7.0, 1.0]])
        >>> clusters = jg.cluster_moments(x, np.zeros(3, int), n_clusters=1)
        >>> jg.changed_scatter(clusters, np.array([[[1.0, 0.0]]])).tolist()
        [[0.0, 0.0], [0.0, 0.0]]
    """
    scatter = as_array("clusters.scatter", clusters.scatter)
    components = as_array("components", components)
    _checks.scatter_and_components(scatter, components)
    return _changed_scatter(scatter, components)


@jax.jit
def _changed_scatter(
    scatter: Float[Array, "c d d"], components: Float[Array, "c k d"]
) -> Float[Array, "d d"]:
    """Project on both sides, cluster by cluster."""
    dtype = compute_dtype(scatter, components)
    scatter, components = scatter.astype(dtype), components.astype(dtype)

    def project(total: Float[Array, "d d"], cluster: tuple) -> tuple:
        s, v = cluster
        s = s - matmul(v.T, matmul(v, s))
        return total + s - matmul(matmul(s, v.T), v), None

    return lax.scan(project, jnp.zeros_like(scatter[0]), (scatter, components))[0]


def zero_mean(x: ArrayLike) -> Float[Array, "n d"]:
    """Return the rows of `x` [n d] less their mean: `apply_removal` with no directions.

    Raises and numerics are those of `fit_removal` and `apply_removal`.

    Example:
        >>> import numpy as np, jaxgeom as jg
        >>> jg.zero_mean(np.array([[1.0], [3.0]])).tolist()
        [[-1.0], [1.0]]
    """
    return apply_removal(x, fit_removal(x))


def cluster_zero_mean(x: ArrayLike, labels: ArrayLike, *, n_clusters: int) -> Float[Array, "n d"]:
    """Return the rows of `x` [n d], each less the mean of its cluster (`labels` [n] integer).

    Raises and numerics are those of `fit_removal` and `apply_removal`.

    Source:
        "Clustering+ZM": Cai et al. (2021), "Isotropy in the Contextual Embedding Space".

    Example:
        >>> import numpy as np, jaxgeom as jg
        >>> x = np.array([[1.0], [3.0], [9.0]])
        >>> jg.cluster_zero_mean(x, np.array([0, 0, 1]), n_clusters=2).tolist()
        [[-1.0], [1.0], [0.0]]
    """
    return apply_removal(x, fit_removal(x, labels, n_clusters=n_clusters), labels)


def remove_directions(x: ArrayLike, components: ArrayLike) -> Float[Array, "n d"]:
    """Return the rows of `x` less their share along given directions; nothing is centred.

    Args:
        x: [n d] floating.
        components: [k d] floating, orthonormal rows; k = 0 changes nothing.

    Returns:
        [n d] in the dtype of `x`.

    Raises:
        TypeError: an argument is not floating.
        ValueError: a shape does not fit.

    Numerics:
        Computed in float32 (float64 for float64 data). Differentiable in both arguments.

    Example:
        >>> import numpy as np, jaxgeom as jg
        >>> jg.remove_directions(np.array([[1.0, 2.0]]), np.array([[0.0, 1.0]])).tolist()
        [[1.0, 0.0]]
    """
    x, components = as_matrix("x", x), as_array("components", components)
    _checks.directions("components", components, x.shape[1])
    return _remove_directions(x, components)


@jax.jit
def _remove_directions(
    x: Float[Array, "n d"], components: Float[Array, "k d"]
) -> Float[Array, "n d"]:
    """Subtract the projection."""
    wide = x.astype(compute_dtype(x, components))
    v = components.astype(wide.dtype)
    return (wide - matmul(matmul(wide, v.T), v)).astype(x.dtype)

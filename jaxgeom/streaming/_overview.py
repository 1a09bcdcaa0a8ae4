"""The geometry of one matrix in three passes: what `python -m jaxgeom.analyze` reports.

1. moments and norms of all rows, and a sample of them; k-means then runs on the sample;
2. moments of each cluster, a row belonging to its nearest centroid;
3. ln F along their own eigenvectors of the rows as they are, and as each of the study's changes
   would leave them: all five in one pass, and none of them is written.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from jaxgeom import _checks
from jaxgeom.kernels._accumulate import namespace
from jaxgeom.kernels._kmeans import _typed_key
from jaxgeom.kernels._linalg import eigenbasis
from jaxgeom.kernels._moments import (
    ClusterMomentsAccumulator,
    MomentsAccumulator,
    scatter_about_zero,
)
from jaxgeom.kernels._removal import Change, changed_scatter
from jaxgeom.results import Isotropy, Moments, Removal
from jaxgeom.streaming._clusters import SAMPLE_SIZE, as_one_cluster, fit_sample, removal_of
from jaxgeom.streaming._driver import DEFAULTS, Job, Options, fold_source
from jaxgeom.streaming._finite import require_finite
from jaxgeom.streaming._sample import Sample
from jaxgeom.streaming._sources import AnySource
from jaxgeom.streaming._statistics import isotropies, on_device

# Each of the study's changes: whether cluster by cluster, and whether directions go too.
TRANSFORMS = {
    "zero_mean": (False, False),
    "cluster_zero_mean": (True, False),
    "global": (False, True),
    "cluster_based": (True, True),
}


class Norms(NamedTuple):
    """Lengths of rows, and the largest magnitude of an entry."""

    n_rows: Int[Array, ""]
    least: Float[Array, ""]
    most: Float[Array, ""]
    total: Float[Array, ""]
    total_of_squares: Float[Array, ""]


class NormsAccumulator(NamedTuple):
    """The lengths of rows as a commutative monoid."""

    @property
    def sliced(self) -> bool:
        """See `Accumulator`."""
        return True

    def init(self, n_features: int, dtype: DTypeLike) -> Norms:
        """Return the lengths of no rows."""
        infinity, zero = jnp.array(jnp.inf, dtype), jnp.zeros((), dtype)
        return Norms(jnp.zeros((), jnp.int32), infinity, -infinity, zero, zero)

    def update(
        self, state: Norms, x: Float[Array, "b d"], mask: Bool[Array, " b"] | None = None
    ) -> Norms:
        """Return the state with the rows of `x` added."""
        squares = jnp.square(x.astype(state.total.dtype)).sum(1)
        kept = jnp.ones(x.shape[0], bool) if mask is None else mask
        norms = jnp.sqrt(jnp.where(kept, squares, 0))
        return Norms(
            state.n_rows + kept.sum(dtype=jnp.int32),
            jnp.minimum(state.least, jnp.where(kept, norms, jnp.inf).min()),
            jnp.maximum(state.most, jnp.where(kept, norms, -jnp.inf).max()),
            state.total + norms.sum(),
            state.total_of_squares + jnp.square(norms).sum(),
        )

    def merge(self, a: Norms, b: Norms) -> Norms:
        """Return the lengths of the rows of both."""
        return Norms(
            a.n_rows + b.n_rows,
            namespace(a.least).minimum(a.least, b.least),
            namespace(a.most).maximum(a.most, b.most),
            a.total + b.total,
            a.total_of_squares + b.total_of_squares,
        )

    def all_reduce(self, state: Norms, axis: str) -> Norms:
        """Return the lengths of the rows of all devices."""
        count, *sums = lax.psum((state.n_rows, state.total, state.total_of_squares), axis)
        return Norms(count, lax.pmin(state.least, axis), lax.pmax(state.most, axis), *sums)


class Overview(NamedTuple):
    """What three passes over a matrix tell."""

    moments: Moments  # of all rows
    norms: Norms
    eigenvalues: np.ndarray  # [d] of the scatter about the mean, descending
    components: np.ndarray  # [d d] its eigenvectors as rows
    centroids: np.ndarray  # [c d]
    clusters: Moments  # of each cluster
    removals: dict[str, Removal]  # of each transform
    isotropies: dict[str, Isotropy]  # of the rows as they are ("baseline") and transformed


def overview(
    source: AnySource,
    *,
    n_clusters: int,
    n_directions: int,
    key: Array,
    sample_size: int = SAMPLE_SIZE,
    options: Options = DEFAULTS,
) -> Overview:
    """Measure a matrix in three passes.

    Args:
        source: the rows [n d].
        n_clusters: c; fewer where the sample has fewer rows.
        n_directions: leading directions that "global" and "cluster_based" take away.
        key: a typed key, for the sample and k-means.
        sample_size: rows that k-means is fitted on.
        options: how a pass is made.

    Returns:
        An `Overview`.

    Raises:
        ValueError: an option out of range, one row alone, or rows with NaN or infinity: their file,
            the first of them and their number.
        As `open_source`.
    """
    _checks.integer("n_directions", n_directions, 0, source.n_features - 1, "d - 1")
    _checks.integer("n_clusters", n_clusters, 1)
    _checks.integer("sample_size", sample_size, n_clusters)
    sample_key, fit_key = jax.random.split(_typed_key(key))
    sample = Sample(source, sample_size, sample_key)
    jobs = [Job(MomentsAccumulator()), Job(NormsAccumulator())]
    whole, norms = fold_source(source, jobs, name="1/3 moments", options=options, watch=sample.see)
    require_finite(source, whole, options)
    if whole.count < 2:
        raise ValueError(f"{source.name} must have at least 2 rows, got {whole.count}")
    found, _ = fit_sample(sample, min(n_clusters, int(whole.count)), key=fit_key)
    job = Job(ClusterMomentsAccumulator(jnp.asarray(found.centroids)))
    (clusters,) = fold_source(source, [job], name="2/3 clusters", options=options)
    removals = _removals(whole, clusters, n_directions)
    changes = _changes(removals, found.centroids)
    spaces: dict[str, tuple[Any, Change | None]] = {"baseline": (scatter_about_zero(whole), None)}
    for name, (clustered, _) in TRANSFORMS.items():
        scatter = _scatter_left(clusters if clustered else as_one_cluster(whole), removals[name])
        spaces[name] = (scatter, changes[name])
    measured = isotropies(
        source, list(spaces.values()), whole.count, name="3/3 isotropy", options=options
    )
    eigenvalues, components = map(np.asarray, eigenbasis(jnp.asarray(whole.scatter)))
    return Overview(
        whole,
        norms,
        np.maximum(eigenvalues, 0),
        components,
        found.centroids,
        clusters,
        removals,
        dict(zip(spaces, measured, strict=True)),
    )


def _removals(whole: Moments, clusters: Moments, n_directions: int) -> dict[str, Removal]:
    """Return the removal that each transform is."""
    of = {True: clusters, False: as_one_cluster(whole)}
    return {
        name: removal_of(of[clustered], n_directions if directed else 0)
        for name, (clustered, directed) in TRANSFORMS.items()
    }


def _changes(removals: dict[str, Removal], centroids: np.ndarray) -> dict[str, Change]:
    """Return how each transform changes a row."""
    return {
        name: Change(on_device(removal), jnp.asarray(centroids) if TRANSFORMS[name][0] else None)
        for name, removal in removals.items()
    }


def _scatter_left(clusters: Moments, removal: Removal) -> Any:
    """Return the scatter of the changed rows; that of a vanishing cluster is 0."""
    kept = ~np.asarray(removal.vanishes)
    left = clusters._replace(scatter=clusters.scatter * kept[:, None, None])
    return changed_scatter(left, removal.components)

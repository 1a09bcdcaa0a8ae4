"""Moments, principal components and isotropy of rows that are read from disk."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxgeom import _checks
from jaxgeom.kernels._curves import isotropy_curve as curve_of
from jaxgeom.kernels._isotropy import isotropy_along
from jaxgeom.kernels._linalg import eigenbasis
from jaxgeom.kernels._log_partition import LogPartitionAccumulator
from jaxgeom.kernels._moments import MomentsAccumulator, scatter_about_zero
from jaxgeom.kernels._pca import pca_of_moments
from jaxgeom.kernels._removal import WHICH, Change
from jaxgeom.results import PCA, Isotropy, IsotropyCurve, Moments, Removal
from jaxgeom.streaming._driver import Job, Options, fold_source
from jaxgeom.streaming._sources import AnySource, SourceLike, open_source


def moments(x: SourceLike, *, chunk_rows: int | None = None, progress: bool = True) -> Moments:
    """Return count, mean and scatter of all rows, in one pass.

    Args:
        x: [n d] a source, or what `open_source` makes one of.
        chunk_rows: rows read at once; by default 32 MiB of them.
        progress: whether a bar is shown, where there is a terminal to show it on.

    Returns:
        `Moments(count, mean [d], scatter [d d])` in NumPy's int64 and float64.

    Raises:
        As `open_source`; `ValueError` where there are no rows.

    Numerics:
        As `jaxgeom.moments` over at most 2^20 rows, then float64. NaN in gives NaN out.

    Example:
        >>> import numpy as np
        >>> moments([np.array([[0.0, 1.0]]), np.array([[2.0, 1.0]])]).mean.tolist()
        [1.0, 1.0]
    """
    options = Options(chunk_rows, progress)
    (fitted,) = fold_source(
        open_source(x), [Job(MomentsAccumulator())], name="moments", options=options
    )
    return fitted


def pca(
    x: SourceLike,
    n_components: int | None = None,
    *,
    center: bool = True,
    chunk_rows: int | None = None,
    progress: bool = True,
) -> PCA:
    """Return the principal components of all rows, in one pass; see `jaxgeom.pca`.

    Args:
        x: [n d] a source, or what `open_source` makes one of.
        n_components: k in 1..min(n, d); min(n, d) by default.
        center: whether the mean is taken off first.
        chunk_rows: rows read at once.
        progress: whether a bar is shown.

    Returns:
        `PCA(mean [d], components [k d], explained_variance [k], explained_variance_ratio [k])`.

    Raises:
        As `moments`; `ValueError` where `n_components` is out of range or there is one row alone.

    Example:
        >>> import numpy as np
        >>> pca([np.array([[0.0, 0.0], [0.0, 2.0], [0.0, 4.0]])], 1).components.tolist()
        [[0.0, 1.0]]
    """
    fitted = moments(x, chunk_rows=chunk_rows, progress=progress)
    n, d = int(fitted.count), len(fitted.mean)
    if n < 2:
        raise ValueError(f"x must have at least 2 rows for a variance, got {n}")
    k = min(n, d) if n_components is None else n_components
    k = _checks.integer("n_components", k, 1, min(n, d), "min(n, d)")
    return pca_of_moments(on_device(fitted), n_components=k, center=bool(center))


def log_partition(
    x: SourceLike,
    components: ArrayLike,
    *,
    removal: Removal | None = None,
    centroids: ArrayLike | None = None,
    chunk_rows: int | None = None,
    progress: bool = True,
) -> np.ndarray:
    """Return ln F(+u) and ln F(-u) over all rows, in one pass; see `jaxgeom.log_partition`.

    Args:
        x: [n d] a source, or what `open_source` makes one of.
        components: [k d] directions u as rows.
        removal: what is taken from every row first, see `fit_removal`; nothing by default.
        centroids: [c d] where the removal has several clusters: a row is of the nearest one.
        chunk_rows: rows read at once.
        progress: whether a bar is shown.

    Returns:
        [2 k] float64.

    Raises:
        As `moments`; `ValueError` where a shape does not fit.

    Example:
        >>> import numpy as np
        >>> log_partition([np.zeros((4, 2))], np.eye(2)).round(4).tolist()
        [[1.3863, 1.3863], [1.3863, 1.3863]]
    """
    source = open_source(x)
    components = jnp.asarray(components)
    _checks.directions("components", components, source.n_features)
    accumulator = LogPartitionAccumulator(components)
    job = Job(accumulator, change(removal, centroids, source))
    options = Options(chunk_rows, progress)
    (state,) = fold_source(source, [job], name="log partition", options=options)
    return np.asarray(accumulator.finalise(state))


def isotropy(
    x: SourceLike,
    *,
    removal: Removal | None = None,
    centroids: ArrayLike | None = None,
    chunk_rows: int | None = None,
    progress: bool = True,
) -> Isotropy:
    """Return the isotropy of all rows, in two passes; see `jaxgeom.isotropy`.

    Args:
        x: [n d] a source, or what `open_source` makes one of.
        removal: what is taken from every row first, see `fit_removal`; nothing changed is written.
        centroids: [c d] where the removal has several clusters: a row is of the nearest one.
        chunk_rows: rows read at once.
        progress: whether a bar is shown.

    Returns:
        `Isotropy(heavier, low, high, symmetric, count, log_partition [2 d], eigenvalues [d],
        components [d d])`.

    Raises:
        As `moments`; `ValueError` where a shape does not fit.

    Numerics:
        The eigenvectors are those of the merged float64 scatter, found in the kernels' precision.

    Example:
        >>> import numpy as np
        >>> cube = np.array([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)])
        >>> round(float(isotropy([cube]).heavier), 4)
        1.0
    """
    source, options = open_source(x), Options(chunk_rows, progress)
    changed = change(removal, centroids, source)
    job = Job(MomentsAccumulator(), changed)
    (fitted,) = fold_source(source, [job], name="moments (1/2)", options=options)
    scatter = scatter_about_zero(fitted)
    (fit,) = isotropies(
        source, [(scatter, changed)], fitted.count, name="isotropy (2/2)", options=options
    )
    return fit


def isotropy_curve(
    x: SourceLike,
    which: str = "top",
    *,
    chunk_rows: int | None = None,
    progress: bool = True,
) -> IsotropyCurve:
    """Return ln I of the rows less their mean after removing 0…d-1 directions, in two passes.

    Args:
        x: [n d] a source, or what `open_source` makes one of.
        which: "top", the heaviest first, or "least", the lightest first.
        chunk_rows: rows read at once.
        progress: whether a bar is shown.

    Returns:
        `IsotropyCurve(heavier [d], low [d], high [d])`; see `jaxgeom.isotropy_curve`.

    Raises:
        As `moments`; `ValueError` where `which` is unknown.

    Example:
        >>> import numpy as np
        >>> curve = isotropy_curve([np.array([[4.0, 1.1], [-2.0, 1.1], [1.0, 0.8]])])
        >>> bool(curve.heavier[1] > curve.heavier[0])
        True
    """
    _checks.option("which", which, WHICH)
    source, options = open_source(x), Options(chunk_rows, progress)
    fitted = moments(source, chunk_rows=chunk_rows, progress=progress)
    centring = Change(only_mean(fitted))
    (fit,) = isotropies(
        source, [(fitted.scatter, centring)], fitted.count, name="isotropy (2/2)", options=options
    )
    return curve_of(fit, which)


def isotropies(
    source: AnySource,
    spaces: list[tuple[Any, Change | None]],
    count: np.ndarray | np.generic,
    *,
    name: str,
    options: Options,
) -> list[Isotropy]:
    """Return the isotropy of several changes of the same rows, in one pass.

    Args:
        source: the rows.
        spaces: [d d] the changed rows' WᵀW, and how they are changed.
        count: number of rows.
        name: of the pass.
        options: how it is made.

    Returns:
        An `Isotropy` for each.
    """
    bases = [eigenbasis(jnp.asarray(scatter)) for scatter, _ in spaces]
    accumulators = [LogPartitionAccumulator(components) for _, components in bases]
    jobs = [Job(a, changed) for a, (_, changed) in zip(accumulators, spaces, strict=True)]
    states = fold_source(source, jobs, name=name, options=options)
    return [
        isotropy_along(components, eigenvalues, jnp.asarray(accumulator.finalise(state)), count)
        for accumulator, (eigenvalues, components), state in zip(
            accumulators, bases, states, strict=True
        )
    ]


def change(
    removal: Removal | None, centroids: ArrayLike | None, source: AnySource
) -> Change | None:
    """Return how a removal, if there is one, changes the rows of a source; check that it fits."""
    if removal is None:
        if centroids is not None:
            raise ValueError("centroids need a removal, got None")
        return None
    n_clusters, _, d = _checks.removal(removal, source.n_features)
    if centroids is None:
        _checks.labels_given("centroids", n_clusters)
    else:
        _checks.shape("centroids", centroids, (n_clusters, d), "c d")
        centroids = jnp.asarray(centroids)
    return Change(on_device(removal), centroids)


def only_mean(fitted: Moments) -> Removal:
    """Return the removal of the mean of all rows."""
    d = len(fitted.mean)
    none = np.zeros((1, 0, d))
    return on_device(Removal(fitted.mean[None], none, fitted.count[None], np.zeros(1, bool)))


def on_device(fitted: Any) -> Any:
    """Return moments or a removal as kernels take them; a count past 2^31 as a float."""
    count = "count" if isinstance(fitted, Moments) else "counts"
    fitted = fitted._replace(**{count: np.asarray(getattr(fitted, count), np.float64)})
    return type(fitted)(*map(jnp.asarray, fitted))

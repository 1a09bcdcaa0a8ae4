"""Principal component analysis from the scatter matrix: one pass over the rows."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxgeom import _checks
from jaxgeom.kernels._arrays import as_matrix
from jaxgeom.kernels._linalg import leading_eigenvectors
from jaxgeom.kernels._moments import _moments, scatter_about_zero
from jaxgeom.results import PCA, Moments


def pca(
    x: ArrayLike,
    n_components: int | None = None,
    *,
    center: bool = True,
    chunk_size: int | None = None,
) -> PCA:
    """Return the principal components of the rows of `x`.

    Args:
        x: [n d] floating.
        n_components: k in 1..min(n, d), static; min(n, d) by default.
        center: whether the mean is taken off first (static).
        chunk_size: rows held in the cache at once (static); by default chosen from d.

    Returns:
        `PCA(mean [d], components [k d], explained_variance [k], explained_variance_ratio [k])`,
        heaviest first. `mean` is 0 where `center` is false.

    Raises:
        TypeError: `x` is not floating.
        ValueError: `x` is not a matrix of at least two rows, or `n_components` is out of range.

    Numerics:
        Eigenvectors of the d x d scatter in float32 (float64 for float64 data under x64): a
        direction is determined to about 1e-7 of the largest eigenvalue over its gap. Constant data
        has variance 0 and ratio NaN. The gradient treats eigenvalues closer than 1e-6 of the
        largest as equal.

    Source:
        As scikit-learn's `PCA`, but for the sign: each component's largest |entry| is positive.

    Example:
        >>> import numpy as np, jaxgeom as jg
        >>> jg.pca(np.array([[0.0, 0.0], [0.0, 2.0], [0.0, 4.0]]), 1).components.tolist()
        [[0.0, 1.0]]
    """
    x = as_matrix("x", x)
    n, d = x.shape
    _checks.two_rows("x", x)
    if n_components is None:
        n_components = min(n, d)
    k = _checks.integer("n_components", n_components, 1, min(n, d), "min(n, d)")
    return _pca(x, n_components=k, center=bool(center), chunk_size=_checks.chunk_size(chunk_size))


@partial(jax.jit, static_argnames=("n_components", "center", "chunk_size"))
def _pca(
    x: Float[Array, "n d"], *, n_components: int, center: bool, chunk_size: int | None = None
) -> PCA:
    """Decompose the scatter."""
    fitted = _moments(x, None, chunk_size=chunk_size)
    return pca_of_moments(fitted, n_components=n_components, center=center)


@partial(jax.jit, static_argnames=("n_components", "center"))
def pca_of_moments(fitted: Moments, *, n_components: int, center: bool) -> PCA:
    """Return the principal components of rows with these moments."""
    count, mean, scatter = fitted
    if not center:
        scatter, mean = scatter_about_zero(fitted), jnp.zeros_like(mean)
    eigenvalues, components = leading_eigenvectors(scatter, n_components)
    eigenvalues = jnp.maximum(eigenvalues, 0)
    ratio = eigenvalues / jnp.trace(scatter)
    return PCA(mean, components, eigenvalues / (count - 1), ratio)

"""Principal components, and the eigenvectors of W^T W that everything here is read from."""

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike

from jaxgeom import _checks
from jaxgeom.reference._arrays import as_matrix, mean_of_rows
from jaxgeom.results import PCA


def pca(x: ArrayLike, n_components: int | None = None, *, center: bool = True) -> PCA:
    """Return the principal components of `x`, heaviest first.

    Args:
        x: [n d] with n >= 2, any floating dtype.
        n_components: k in 1..min(n, d); all min(n, d) where None.
        center: whether the mean is taken off first.

    Returns:
        `PCA`: mean [d] (zero where not centred), components [k d], explained_variance [k],
        explained_variance_ratio [k] (share of all d directions, not of the k).

    Raises:
        TypeError: `x` is not floating, or `n_components` no int.
        ValueError: `x` is no matrix, has fewer than two rows, or k is out of range.

    Numerics:
        Each component's largest |entry| is positive. Constant data has ratio NaN (0/0). NaN gives
        NaN in everything.

    Source:
        Explained variance divides by n - 1, as scikit-learn's does.

    Example:
        >>> import numpy as np
        >>> fit = pca(np.array([[0.0, 1.0], [3.0, 1.0]]), 1)
        >>> fit.components.round(6).tolist(), fit.explained_variance.round(6).tolist()
        ([[1.0, 0.0]], [4.5])
    """
    x = as_matrix("x", x)
    n, d = x.shape
    _checks.two_rows("x", x)
    k = min(n, d) if n_components is None else n_components
    k = _checks.integer("n_components", k, 1, min(n, d), "min(n, d)")
    mean = mean_of_rows(x) if center else np.zeros(d)
    eigenvalues, components = eigenvectors(x - mean[None, :])
    total = eigenvalues.sum()
    ratio = eigenvalues / total if total != 0 else np.full(d, np.nan)
    return PCA(mean, components[:k], eigenvalues[:k] / (n - 1), ratio[:k])


def eigenvectors(
    x: Float64[np.ndarray, "n d"],
) -> tuple[Float64[np.ndarray, " d"], Float64[np.ndarray, "d d"]]:
    """Return all d eigenvalues of x^T x, descending, and its eigenvectors as rows.

    They are x's squared singular values and right singular vectors, read from the triangle of its
    QR decomposition: x^T x is never formed, which would halve the digits of the small ones.
    """
    d = x.shape[1]
    if not np.isfinite(x).all():  # LAPACK would raise
        return np.full(d, np.nan), np.full((d, d), np.nan)
    _, singular, components = np.linalg.svd(np.linalg.qr(x, mode="r"), full_matrices=True)
    eigenvalues = np.zeros(d)
    eigenvalues[: len(singular)] = singular**2
    return eigenvalues, _fix_signs(components)


def _fix_signs(components: Float64[np.ndarray, "k d"]) -> Float64[np.ndarray, "k d"]:
    """Return the rows, each turned so that its entry of largest magnitude is positive."""
    largest = np.abs(components).argmax(axis=1)
    signs = np.sign(components[np.arange(len(components)), largest])
    return components * signs[:, None]

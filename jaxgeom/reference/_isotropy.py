"""Isotropy I(W) = min F / max F over the eigenvectors of W^T W, under four readings of their signs.

F(u) = sum_i exp(u . w_i). An eigenvector has no sign but F(u) is not F(-u), so both are kept:
per direction, l is the smaller and h the larger of ln F(+u) and ln F(-u).
"""

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from jaxgeom import _checks
from jaxgeom.reference._arrays import as_matrix
from jaxgeom.reference._pca import eigenvectors
from jaxgeom.results import Isotropy, LogIsotropy


def log_partition(x: ArrayLike, components: ArrayLike) -> Float64[np.ndarray, "2 k"]:
    """Return ln F(+u) and ln F(-u) of every direction u.

    Args:
        x: [n d], any floating dtype.
        components: [k d], the directions as rows.

    Returns:
        [2 k] float64: ln F(+u) in the first row, ln F(-u) in the second.

    Raises:
        TypeError: an argument is not floating.
        ValueError: an argument is no matrix or empty, or their numbers of columns differ.

    Numerics:
        Nothing overflows: exponentials stay in logs. NaN in any row gives NaN.

    Source:
        Mu and Viswanath (2018), the partition function after Arora et al. (2016).

    Example:
        >>> import numpy as np
        >>> log_partition(np.array([[2.0, 0.0]]), np.eye(2)).tolist()
        [[2.0, 0.0], [-2.0, 0.0]]
    """
    x, components = as_matrix("x", x), as_matrix("components", components, "k d")
    _checks.same_width("components", components, "x", x)
    projections = x @ components.T
    return np.stack([logsumexp(projections, axis=0), logsumexp(-projections, axis=0)])


def isotropy(x: ArrayLike, *, scatter: ArrayLike | None = None) -> Isotropy:
    """Return I(W) over all d eigenvectors of W^T W, not centred, under four readings of the signs.

    Args:
        x: [n d] the matrix W, any floating dtype; n may be below d.
        scatter: [d d] floating, W^T W where it is known already; it is not read: eigenvectors of
            `x` itself have more digits.

    Returns:
        `Isotropy`: heavier, low, high, symmetric [] in 0..1, count [], log_partition [2 d],
        eigenvalues [d] descending, components [d d] (null directions included).

    Raises:
        TypeError: `x` or `scatter` is not floating.
        ValueError: `x` is no matrix or empty, or `scatter` not of shape [d d].

    Numerics:
        A reading below 1e-308 comes out as 0; `log_isotropy(fit.log_partition)` has its logarithm.
        On constant centred data every F is n and I = 1. NaN gives NaN. Inside a repeated eigenvalue
        the basis is the solver's, and with it the value.

    Source:
        Mu and Viswanath (2018), I(W); the readings of the sign are ours, see `log_isotropy`.

    Example:
        >>> import numpy as np
        >>> round(float(isotropy(np.array([[1.0, 0.0], [-1.0, 0.0]])).heavier), 6)  # 1 / cosh 1
        0.648054
    """
    x = as_matrix("x", x)
    if scatter is not None:
        _checks.shape("scatter", scatter, (x.shape[1],) * 2, "d d")
    eigenvalues, components = eigenvectors(x)
    log_f = log_partition(x, components)
    heavier, low, high, symmetric = map(np.exp, log_isotropy(log_f))
    count = np.asarray(len(x))
    return Isotropy(heavier, low, high, symmetric, count, log_f, eigenvalues, components)


def log_isotropy(log_partition: ArrayLike) -> LogIsotropy:
    """Return ln I(W) under four readings of the eigenvectors' free signs.

    Args:
        log_partition: [2 d], ln F(+u) and ln F(-u) of all d directions.

    Returns:
        `LogIsotropy`, all [] and at most 0: `heavier` turns every direction to its heavier side;
        `low` and `high` are the smallest and largest over all 2^d choices of signs, exactly;
        `symmetric` takes U and -U together.

    Raises:
        TypeError: `log_partition` is not floating.
        ValueError: it has not the shape [2 d] with d >= 1.

    Numerics:
        Any NaN gives NaN in all four.

    Example:
        >>> import numpy as np
        >>> fit = log_isotropy(np.array([[3.0, 1.0], [0.0, 2.0]]))
        >>> [float(reading) for reading in fit]
        [-1.0, -2.0, -1.0, -3.0]
    """
    log_f = as_matrix("log_partition", log_partition, "2 d")
    _checks.shape("log_partition", log_f, (2, log_f.shape[1]), "2 d")
    if np.isnan(log_f).any():
        return LogIsotropy(*[np.asarray(np.nan)] * 4)
    l, h = log_f.min(axis=0), log_f.max(axis=0)  # noqa: E741
    readings = h.min() - h.max(), _lowest(l, h), _highest(l, h), l.min() - h.max()
    return LogIsotropy(*map(np.asarray, readings))


def _lowest(l: Float64[np.ndarray, " d"], h: Float64[np.ndarray, " d"]) -> float:  # noqa: E741
    """Return the smallest min - max over all choices: one direction gives l, another gives h."""
    pairs = l[:, None] - h[None, :]
    np.fill_diagonal(pairs, np.inf)  # one direction cannot show both sides at once
    return float(pairs.min()) if len(l) > 1 else 0.0


def _highest(l: Float64[np.ndarray, " d"], h: Float64[np.ndarray, " d"]) -> float:  # noqa: E741
    """Return the largest min - max over all choices, trying every value as the minimum.

    With the minimum set, each direction takes its l where that is not below, else its h.
    """
    floors = [floor for floor in np.concatenate([l, h]) if floor <= h.min()]
    return float(max(floor - np.where(l >= floor, l, h).max() for floor in floors))

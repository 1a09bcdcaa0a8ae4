"""Isotropy and cosines after k = 0...d-1 principal directions were removed, k by k."""

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike

from jaxgeom import _checks
from jaxgeom.reference._arrays import as_matrix, as_shape
from jaxgeom.reference._isotropy import log_isotropy
from jaxgeom.reference._removal import WHICH
from jaxgeom.results import Isotropy, IsotropyCurve

MIN_ENERGY = 1e-6  # the share of its squared norm that a sentence must keep, else its cosine is NaN


def isotropy_curve(fit: Isotropy, which: str = "top") -> IsotropyCurve:
    """Return ln I of centred data after its first or last k eigenvectors were removed, for every k.

    Args:
        fit: what `isotropy` returned for centred data.
        which: "top" removes the heaviest first, "least" the lightest.

    Returns:
        `IsotropyCurve`: heavier, low, high [d], all at most 0; entry k is after k removals.

    Raises:
        TypeError: `fit.log_partition` is not floating.
        ValueError: `which` is unknown or a shape wrong.

    Numerics:
        Entry 0 is `log_isotropy(fit.log_partition)`. A removed direction has F = n exactly, and
        on centred data no F is smaller (Jensen). On data that is not centred the curve means
        nothing. NaN gives NaN.

    Example:
        >>> import numpy as np
        >>> from jaxgeom.reference import isotropy
        >>> x = np.array([[3.0, 1.0], [-3.0, 1.0], [0.0, -2.0]])
        >>> isotropy_curve(isotropy(x)).heavier.round(3).tolist()
        [-0.956, -0.996]
    """
    _checks.option("which", which, WHICH)
    log_f = as_matrix("fit.log_partition", fit.log_partition, "2 d")
    d = log_f.shape[1]
    _checks.shape("fit.log_partition", log_f, (2, d), "2 d")
    readings = []
    for k in range(d):
        removed = log_f.copy()
        removed[:, _first_or_last(k, d, which)] = np.log(fit.count)
        readings.append(log_isotropy(removed))
    heavier, low, high, _ = (np.stack(field) for field in zip(*readings, strict=True))
    return IsotropyCurve(heavier, low, high)


def similarity_curve(
    a: ArrayLike, b: ArrayLike, components: ArrayLike, which: str = "top"
) -> Float64[np.ndarray, "d p"]:
    """Return the cosine of every pair after the first or last k directions were removed.

    Args:
        a: [p d] first sentences, any floating dtype.
        b: [p d] second sentences.
        components: [d d], orthonormal rows, heaviest first.
        which: "top" removes the first rows first, "least" the last.

    Returns:
        [d p] float64; row k is after k removals.

    Raises:
        TypeError: an argument is not floating.
        ValueError: `which` is unknown or a shape wrong.

    Numerics:
        NaN where either sentence keeps at most 1e-6 of its squared norm (a zero one always).

    Example:
        >>> import numpy as np
        >>> a, b = np.array([[3.0, 4.0]]), np.array([[4.0, -3.0]])
        >>> similarity_curve(a, b, np.eye(2)).tolist()
        [[0.0], [-1.0]]
    """
    a = as_matrix("a", a, "p d")
    d = a.shape[1]
    b = as_shape("b", b, a.shape, "p d")
    components = as_shape("components", components, (d, d), "d d")
    _checks.option("which", which, WHICH)
    first, second = a @ components.T, b @ components.T
    removed = [_first_or_last(k, d, which) for k in range(d)]
    return np.stack([_cosines_without(first, second, slots) for slots in removed])


def _first_or_last(k: int, d: int, which: str) -> slice:
    """Return the first ("top") or last ("least") k of d places."""
    return slice(0, k) if which == "top" else slice(d - k, d)


def _cosines_without(
    a: Float64[np.ndarray, "p d"], b: Float64[np.ndarray, "p d"], removed: slice
) -> Float64[np.ndarray, " p"]:
    """Return the cosines of the rows with the coordinates `removed` left out."""
    kept_a, kept_b = (np.delete(x, removed, axis=1) for x in (a, b))
    out = np.full(len(a), np.nan)
    enough = _keeps_enough(a, kept_a) & _keeps_enough(b, kept_b)
    dots = (kept_a * kept_b).sum(axis=1)
    norms = np.linalg.norm(kept_a, axis=1) * np.linalg.norm(kept_b, axis=1)
    out[enough] = dots[enough] / norms[enough]
    return out


def _keeps_enough(
    whole: Float64[np.ndarray, "p d"], kept: Float64[np.ndarray, "p k"]
) -> np.ndarray:
    """Return whether each row keeps more than the least share of its squared norm."""
    return (kept**2).sum(axis=1) > MIN_ENERGY * (whole**2).sum(axis=1)

"""What every number of removed directions does, from k = 0 to d - 1, in one pass.

Removing principal directions of centred data leaves u.w along the others alone, and gives F = n
along the removed ones. So isotropy after k removals needs running maxima only, and sentence cosines
running sums in the eigenbasis.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxgeom import _checks
from jaxgeom.kernels._arrays import as_array, as_matrix, compute_dtype
from jaxgeom.kernels._isotropy import _log_isotropy
from jaxgeom.kernels._linalg import matmul
from jaxgeom.kernels._removal import WHICH
from jaxgeom.results import Isotropy, IsotropyCurve

_LEAST_ENERGY = 1e-6  # share of a vector's squared norm below which its cosine is rounding


def isotropy_curve(fit: Isotropy, which: str = "top") -> IsotropyCurve:
    """Return ln I of centred data after removing k = 0...d-1 principal directions.

    Args:
        fit: `isotropy(x)` of data whose mean is 0, such as `isotropy(zero_mean(x))`.
        which: "top", the heaviest first, or "least", the lightest first (static).

    Returns:
        `IsotropyCurve(heavier [d], low [d], high [d])`; index k is the number removed.

    Raises:
        TypeError: a field of `fit` is not floating.
        ValueError: a field of `fit` has another shape, or `which` is unknown.

    Numerics:
        Exact given `fit`: for centred data F(u) >= n (Jensen), so a removed direction, where F = n,
        is the lightest. Differentiable almost everywhere.

    Example:
        >>> import numpy as np, jaxgeom as jg
        >>> x = np.array([[3.0, 0.1], [-3.0, 0.1], [0.0, -0.2]])
        >>> curve = jg.isotropy_curve(jg.isotropy(x))
        >>> bool(curve.heavier[1] > curve.heavier[0])
        True
    """
    _checks.option("which", which, WHICH)
    log_f = as_matrix("fit.log_partition", fit.log_partition, "2 d")
    _checks.shape("fit.log_partition", log_f, (2, log_f.shape[1]), "2 d")
    log_f = log_f.astype(compute_dtype(log_f))
    return _isotropy_curve(log_f, as_array("fit.count", fit.count), which=which)


@partial(jax.jit, static_argnames="which")
def _isotropy_curve(log_f: Float[Array, "2 d"], count: Array, *, which: str) -> IsotropyCurve:
    """Take running maxima over the directions that are kept."""
    whole = _log_isotropy(log_f)
    log_n = jnp.log(count.astype(log_f.dtype))

    def after(log_f_of_sign: Float[Array, " d"], at_0: Float[Array, ""]) -> Float[Array, " d"]:
        removal_order = log_f_of_sign if which == "top" else log_f_of_sign[::-1]
        heaviest_kept = lax.cummax(removal_order, reverse=True)
        heaviest_kept = jnp.maximum(heaviest_kept, log_n)  # F >= n, but for rounding
        return (log_n - heaviest_kept).at[0].set(at_0)

    heavy, light = log_f.max(0), log_f.min(0)
    return IsotropyCurve(
        after(heavy, whole.heavier), after(heavy, whole.low), after(light, whole.high)
    )


def similarity_curve(
    a: ArrayLike, b: ArrayLike, components: ArrayLike, which: str = "top"
) -> Float[Array, "d p"]:
    """Return the cosine of each pair of vectors after removing k = 0...d-1 directions.

    Mean pooling and projection commute, so `a` and `b` may be means over tokens.

    Args:
        a: [p d] floating; first vector of each pair, less the mean of the data.
        b: [p d] floating; second vector of each pair, likewise.
        components: [d d] floating; orthonormal rows, heaviest first.
        which: "top", the first rows are removed first, or "least", the last (static).

    Returns:
        [d p]; index k is the number removed. NaN where a vector keeps no more than 1e-6 of its
        energy (its squared norm): what is left is rounding.

    Raises:
        TypeError: an argument is not floating.
        ValueError: a shape does not fit, or `which` is unknown.

    Numerics:
        Sums run from the directions that go last, so that nothing cancels. Differentiable.

    Example:
        >>> import numpy as np, jaxgeom as jg
        >>> a, b = np.array([[3.0, 4.0]]), np.array([[3.0, -4.0]])
        >>> jg.similarity_curve(a, b, np.eye(2)).round(2).tolist()
        [[-0.28...], [-1.0]]
    """
    a, b = as_matrix("a", a, "p d"), as_matrix("b", b, "p d")
    _checks.shape("b", b, a.shape, "p d")
    components = as_array("components", components)
    _checks.shape("components", components, (a.shape[1], a.shape[1]), "d d")
    _checks.option("which", which, WHICH)
    return _similarity_curve(a, b, components, which=which)


@partial(jax.jit, static_argnames="which")
def _similarity_curve(
    a: Float[Array, "p d"], b: Float[Array, "p d"], components: Float[Array, "d d"], *, which: str
) -> Float[Array, "d p"]:
    """Sum products of coordinates from the direction that is kept longest."""
    dtype = compute_dtype(a, b, components)
    basis = (components if which == "top" else components[::-1]).astype(dtype)
    a, b = matmul(basis, a.T.astype(dtype)), matmul(basis, b.T.astype(dtype))

    def kept(products: Float[Array, "d p"]) -> Float[Array, "d p"]:
        return lax.cumsum(products, reverse=True)

    dot, a_energy, b_energy = kept(a * b), kept(a * a), kept(b * b)
    enough = (a_energy > _LEAST_ENERGY * a_energy[:1]) & (b_energy > _LEAST_ENERGY * b_energy[:1])
    a_norm, b_norm = (jnp.sqrt(jnp.where(enough, energy, 1)) for energy in (a_energy, b_energy))
    return jnp.where(enough, dot / a_norm / b_norm, jnp.nan)

"""Isotropy I(W) = min F / max F over the eigenvectors of WᵀW, for every reading of their signs."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxgeom import _checks
from jaxgeom.kernels._arrays import as_array, as_matrix, compute_dtype
from jaxgeom.kernels._linalg import eigenbasis
from jaxgeom.kernels._log_partition import _log_partition
from jaxgeom.kernels._moments import _moments, scatter_about_zero
from jaxgeom.results import Isotropy, LogIsotropy


def isotropy(
    x: ArrayLike, *, scatter: ArrayLike | None = None, chunk_size: int | None = None
) -> Isotropy:
    """Return the isotropy of the rows of `x`: 1 for a space with no preferred direction.

    I(W) = min F(u) / max F(u) over all d eigenvectors u of WᵀW, W = `x` as it stands: centre it
    yourself (`zero_mean`) where that is meant. An eigenvector has no sign while F(u) != F(-u), so
    one matrix has many values of I; four readings are returned (see `log_isotropy`).

    Args:
        x: [n d] floating.
        scatter: [d d] floating, WᵀW where it is known already: it spares one pass of two.
        chunk_size: rows held in the cache at once (static); by default chosen from d.

    Returns:
        `Isotropy(heavier, low, high, symmetric, count, log_partition [2 d], eigenvalues [d],
        components [d d])`, eigenvalues descending, eigenvectors as rows.

    Raises:
        TypeError: `x` or `scatter` is not floating.
        ValueError: `x` is not a non-empty matrix, or `scatter` not of shape [d d].

    Numerics:
        I underflows to 0 in float32 below ln I = -87; `log_isotropy(result.log_partition)` does
        not. Directions of null eigenvalues take part (there F = n). NaN in gives NaN out. The
        gradient treats eigenvalues closer than 1e-6 of the largest (1e-12 in float64) as equal.

    Source:
        Mu and Viswanath (2018), "All-but-the-Top", section 2.2; the treatment of signs is ours.

    Example:
        >>> import numpy as np, jaxgeom as jg
        >>> cube = np.array([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)])
        >>> round(float(jg.isotropy(cube).heavier), 4)
        1.0
    """
    x = as_matrix("x", x)
    known = None if scatter is None else as_array("scatter", scatter)
    if known is not None:
        _checks.shape("scatter", known, (x.shape[1],) * 2, "d d")
    return _isotropy(x, known, chunk_size=_checks.chunk_size(chunk_size))


@partial(jax.jit, static_argnames="chunk_size")
def _isotropy(
    x: Float[Array, "n d"],
    scatter: Float[Array, "d d"] | None = None,
    *,
    chunk_size: int | None = None,
) -> Isotropy:
    """Two passes: moments, then ln F along the eigenvectors."""
    if scatter is None:
        known = jnp.asarray(scatter_about_zero(_moments(x, None, chunk_size=chunk_size)))
    else:
        known = scatter.astype(compute_dtype(x, scatter))
    eigenvalues, components = eigenbasis(known)
    log_f = _log_partition(x, components, chunk_size=chunk_size)
    return isotropy_along(components, eigenvalues, log_f, jnp.asarray(x.shape[0], jnp.int32))


def isotropy_along(
    components: Float[Array, "d d"],
    eigenvalues: Float[Array, " d"],
    log_f: Float[Array, "2 d"],
    count: Array | np.ndarray | np.generic,
) -> Isotropy:
    """Return the isotropy of `count` rows whose ln F along the eigenvectors is known."""
    heavier, low, high, symmetric = jax.tree.map(jnp.exp, _log_isotropy(log_f))
    return Isotropy(heavier, low, high, symmetric, count, log_f, eigenvalues, components)


def log_isotropy(log_partition: ArrayLike) -> LogIsotropy:
    """Return ln I under four readings of the signs of the directions.

    With l and h the smaller and the larger of ln F(+u) and ln F(-u):

    * `heavier`: every direction turned to its heavier side, min h - max h. It is the same on every
      backend and under rotation, up to the basis inside equal eigenvalues: the headline.
    * `low`, `high`: the smallest and the largest I over all 2^d choices of signs, exactly. A
      printed figure, whose signs are a solver's accident, can be compared with this interval only.
    * `symmetric`: +u and -u together, min l - max h.

    On centred data with a null direction, `heavier`, `low` and `symmetric` are equal.

    Args:
        log_partition: [2 d] floating, from `log_partition`.

    Returns:
        `LogIsotropy(heavier, low, high, symmetric)`, scalars, all <= 0.

    Raises:
        TypeError: not floating.
        ValueError: not of shape [2 d].

    Numerics:
        Exact up to one subtraction. O(d²) memory. Differentiable almost everywhere.

    Example:
        >>> import numpy as np, jaxgeom as jg
        >>> two = jg.log_isotropy(np.array([[1.0, 2.5], [3.0, 2.0]]))
        >>> two.heavier.item(), two.low.item(), two.high.item(), two.symmetric.item()
        (-0.5, -1.5, -0.5, -2.0)
    """
    log_f = as_matrix("log_partition", log_partition, "2 d")
    _checks.shape("log_partition", log_f, (2, log_f.shape[1]), "2 d")
    return _log_isotropy(log_f.astype(compute_dtype(log_f)))


@jax.jit
def _log_isotropy(log_f: Float[Array, "2 d"]) -> LogIsotropy:
    """Evaluate the four readings."""
    light, heavy = log_f.min(0), log_f.max(0)
    return LogIsotropy(
        heavier=heavy.min() - heavy.max(),
        low=_lowest(light, heavy),
        high=_highest(light, heavy),
        symmetric=light.min() - heavy.max(),
    )


def _lowest(light: Float[Array, " d"], heavy: Float[Array, " d"]) -> Float[Array, ""]:
    """Return the smallest ln I: one direction cannot be the lightest and the heaviest at once."""
    if light.size == 1:
        return light[0] - light[0]  # 0, or NaN
    i, j = light.argmin(), heavy.argmax()
    at = jnp.arange(light.size)
    runner_up = jnp.minimum(
        light[i] - jnp.where(at == i, -jnp.inf, heavy).max(),
        jnp.where(at == j, jnp.inf, light).min() - heavy[j],
    )
    return jnp.where(i == j, runner_up, light[i] - heavy[j])


def _highest(light: Float[Array, " d"], heavy: Float[Array, " d"]) -> Float[Array, ""]:
    """Return the largest ln I.

    Whatever the best choice is, its smallest value t is one of the candidates; and given t, every
    direction does best with its lighter side, if that is at least t. One row a candidate.
    """
    floor = heavy.min()
    candidates = jnp.append(jnp.minimum(light, floor), floor)[:, None]
    chosen = jnp.where(light[None, :] >= candidates, light[None, :], heavy[None, :])
    return (chosen.min(1) - chosen.max(1)).max()

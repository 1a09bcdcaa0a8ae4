"""ln F(u), the log of the partition function along directions u, for both signs of each."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float

from jaxgeom import _checks
from jaxgeom.kernels._accumulate import fold, namespace
from jaxgeom.kernels._arrays import as_matrix, compute_dtype
from jaxgeom.kernels._linalg import matmul

_PLAIN_LIMIT = 40.0  # |u.w| up to which exp(u.w), its reciprocal and their sums stay normal floats


class LogSum(NamedTuple):
    """exp(shift) * total, held so that it neither overflows nor vanishes."""

    shift: Float[Array, "2 k"]
    total: Float[Array, "2 k"]


class LogPartitionAccumulator(NamedTuple):
    """ln F(+u) and ln F(-u) along given directions, as a commutative monoid."""

    components: Float[Array, "k d"]

    @property
    def sliced(self) -> bool:
        """See `Accumulator`."""
        return True

    def init(self, n_features: int, dtype: DTypeLike) -> LogSum:
        """Return the sums over no rows: ln 0."""
        shape = (2, self.components.shape[0])
        return LogSum(jnp.full(shape, -jnp.inf, dtype), jnp.zeros(shape, dtype))

    def update(
        self, state: LogSum, x: Float[Array, "b d"], mask: Bool[Array, " b"] | None = None
    ) -> LogSum:
        """Return the sums with the rows of `x` added; a masked row is never read."""
        x = x if mask is None else jnp.where(mask[:, None], x, 0)
        projected = matmul(x.astype(self.components.dtype), self.components.T)
        return self.merge(state, sum_exponentials(projected, mask))

    def merge(self, a: LogSum, b: LogSum) -> LogSum:
        """Return the sums over the rows of both."""
        xp = namespace(a.shift)
        shift = xp.maximum(a.shift, b.shift)
        finite = xp.where(xp.isneginf(shift), 0, shift)
        total = a.total * xp.exp(a.shift - finite) + b.total * xp.exp(b.shift - finite)
        return LogSum(shift, total)

    def all_reduce(self, state: LogSum, axis: str) -> LogSum:
        """Return the sums over the rows of all devices."""
        shift = lax.pmax(state.shift, axis)
        finite = jnp.where(jnp.isneginf(shift), 0, shift)
        return LogSum(shift, lax.psum(state.total * jnp.exp(state.shift - finite), axis))

    def finalise(self, state: LogSum) -> Float[Array | np.ndarray, "2 k"]:
        """Return ln F(+u) and ln F(-u)."""
        return state.shift + namespace(state.total).log(state.total)


def sum_exponentials(projected: Float[Array, "b k"], mask: Bool[Array, " b"] | None) -> LogSum:
    """Return the sums of exp(+p) and exp(-p) over the rows of `projected`.

    Small exponents, the usual case, need one exponential for both signs: the other is a reciprocal.
    """
    keep = jnp.ones((), bool) if mask is None else mask[:, None]

    def plain() -> LogSum:
        e = jnp.exp(projected)
        total = jnp.stack([jnp.where(keep, e, 0).sum(0), jnp.where(keep, 1 / e, 0).sum(0)])
        return LogSum(jnp.zeros_like(total), total)

    def shifted() -> LogSum:
        both = jnp.stack([projected, -projected])
        both = jnp.where(keep, both, -jnp.inf)
        shift = lax.stop_gradient(both.max(1))
        finite = jnp.where(jnp.isneginf(shift), 0, shift)
        return LogSum(shift, jnp.exp(both - finite[:, None, :]).sum(1))

    return lax.cond(jnp.abs(projected).max() <= _PLAIN_LIMIT, plain, shifted)


def log_partition(
    x: ArrayLike, components: ArrayLike, *, chunk_size: int | None = None
) -> Float[Array, "2 k"]:
    """Return ln F(+u) and ln F(-u), F(u) = sum over rows w of exp(u.w), for each direction u.

    Args:
        x: [n d] floating; rows w, not centred here.
        components: [k d] floating; directions u as rows.
        chunk_size: rows held in the cache at once (static); by default chosen from d.

    Returns:
        [2 k]: ln F(+u) in row 0, ln F(-u) in row 1. An eigenvector has no sign, and the two differ.

    Raises:
        TypeError: an argument is not a floating array.
        ValueError: an argument is not a non-empty matrix, or the widths differ.

    Numerics:
        Overflow-safe for any |u.w|; |error| <= 1e-6 max(1, max |u.w|) in float32. NaN where `x`
        holds one. Differentiable in both arguments.

    Source:
        F is eq. (2) of Mu and Viswanath (2018), "All-but-the-Top".

    Example:
        >>> import numpy as np, jaxgeom as jg
        >>> jg.log_partition(np.zeros((4, 2)), np.eye(2)) - np.log(4)
        Array([[0., 0.],
               [0., 0.]], dtype=float32)
    """
    x, components = as_matrix("x", x), as_matrix("components", components, "k d")
    _checks.same_width("components", components, "x", x)
    return _log_partition(x, components, chunk_size=_checks.chunk_size(chunk_size))


@partial(jax.jit, static_argnames="chunk_size")
def _log_partition(
    x: Float[Array, "n d"], components: Float[Array, "k d"], *, chunk_size: int | None = None
) -> Float[Array, "2 k"]:
    """Fold the accumulator over slices."""
    dtype = compute_dtype(x, components)
    accumulator = LogPartitionAccumulator(components.astype(dtype))
    state = fold(accumulator, accumulator.init(x.shape[1], dtype), x, chunk_size=chunk_size)
    return jnp.asarray(accumulator.finalise(state))

"""One accumulator, many drivers: the in-memory driver, and what an accumulator is.

Every statistic that reads the data is a commutative monoid: a start, an update by a block of rows,
a merge of two states. In memory the driver is a loop over slices inside jit. Slicing never copies
the input (padding or reshaping it would), and what a slice gives rise to stays in the cache: on a
CPU this is faster than one large product, whose [n d] result would travel to memory and back.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from jax import lax
from jaxtyping import Array, Bool, Float

State = TypeVar("State")

_CHUNK_ELEMENTS = 768 * 1024  # 3 MB of float32: the slice and its product fit a second-level cache


class Accumulator(Protocol[State]):
    """A statistic over rows that can be split, merged and streamed."""

    def init(self) -> State:
        """Return the state of no rows."""

    def update(self, state: State, x: Float[Array, "b d"], mask: Bool[Array, " b"] | None) -> State:
        """Return the state with the rows of `x` added, those where `mask` is true."""

    def merge(self, a: State, b: State) -> State:
        """Return the state of the rows of both."""


def default_chunk_size(n_features: int) -> int:
    """Return how many rows of `n_features` make a slice: a power of two from 128 to 8192."""
    rows = max(_CHUNK_ELEMENTS // n_features, 1)
    return min(max(1 << (rows.bit_length() - 1), 128), 8192)


def fold_rows(
    update: Callable[..., State],
    state: State,
    *rows: Array | None,
    chunk_size: int | None = None,
) -> State:
    """Return `state` updated by every slice of the row-aligned arrays `rows`, in order.

    An array that is None is passed on as None. The tail is one smaller update.
    """
    first = next(r for r in rows if r is not None)
    n = first.shape[0]
    size = min(n, chunk_size or default_chunk_size(first.size // n))

    def take(start: Array | int, length: int) -> list[Array | None]:
        return [r if r is None else lax.dynamic_slice_in_dim(r, start, length) for r in rows]

    state = lax.fori_loop(0, n // size, lambda i, s: update(s, *take(i * size, size)), state)
    tail = n % size
    return update(state, *take(n - tail, tail)) if tail else state


def map_rows(
    f: Callable[[Array], Array], x: Float[Array, "n d"], *, chunk_size: int | None = None
) -> Array:
    """Return `f` of every slice of `x`, joined along the rows."""
    n, d = x.shape
    size = min(n, chunk_size or default_chunk_size(d))
    tail = n % size
    out = lax.map(
        lambda i: f(lax.dynamic_slice_in_dim(x, i * size, size)), lax.iota("int32", n // size)
    )
    out = out.reshape(n - tail, *out.shape[2:])
    return lax.concatenate([out, f(x[n - tail :])], 0) if tail else out

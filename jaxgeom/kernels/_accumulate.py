"""One accumulator, three drivers: what an accumulator is, and the driver in memory.

Every statistic that reads the data is a commutative monoid: a start, an update by a block of rows,
a merge of two states. In memory the driver is a loop over slices inside jit. Slicing never copies
the input (padding or reshaping it would), and what a slice gives rise to stays in the cache: on a
CPU this is faster than one large product, whose [n d] result would travel to memory and back.
`jaxgeom.streaming` drives the same accumulators over chunks of a file, `jaxgeom.sharded` over the
devices of a mesh.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

State = TypeVar("State")

_CHUNK_ELEMENTS = 768 * 1024  # 3 MB of float32: the slice and its product fit a second-level cache


@runtime_checkable
class Accumulator(Protocol[State]):
    """A statistic over rows that can be split, merged and streamed.

    An accumulator is a pytree: what it holds (directions, centroids) are arguments of compiled
    code, not constants in it.
    """

    @property
    def sliced(self) -> bool:
        """Whether slices that fit the cache are the faster way."""

    def init(self, n_features: int, dtype: DTypeLike) -> State:
        """Return the state of no rows."""

    def update(
        self, state: State, x: Float[Array, "b d"], mask: Bool[Array, " b"] | None = None
    ) -> State:
        """Return the state with the rows of `x` added, those where `mask` is true."""

    def merge(self, a: State, b: State) -> State:
        """Return the state of the rows of both; NumPy states, in float64, stay such."""

    def all_reduce(self, state: State, axis: str) -> State:
        """Return the state of the rows of all devices along a mesh axis, inside `shard_map`."""


def fold(
    accumulator: Accumulator[State],
    state: State,
    x: Float[Array, "n d"],
    mask: Bool[Array, " n"] | None = None,
    *,
    chunk_size: int | None = None,
) -> State:
    """Return `state` with the rows of `x` added, slice by slice where that is the faster way."""
    if accumulator.sliced:
        return fold_rows(accumulator.update, state, x, mask, chunk_size=chunk_size)
    return accumulator.update(state, x, mask)


def to_host(state: State) -> State:
    """Return a state in NumPy's float64 and int64: a float32 count would stop at 2^24."""

    def widen(a: Array) -> np.ndarray:
        kind = np.float64 if jnp.issubdtype(a.dtype, jnp.floating) else np.int64
        return np.asarray(a).astype(kind)

    return jax.tree.map(widen, state)


def namespace(array: Any) -> ModuleType:
    """Return NumPy for its own arrays, else jax.numpy: a merge on the host keeps float64."""
    return np if isinstance(array, np.ndarray | np.generic) else jnp


def sum_over_devices(tree: State, axis: str | None) -> State:
    """Return the sum along a mesh axis; `tree` itself where there is none."""
    return tree if axis is None else lax.psum(tree, axis)


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
    f: Callable[[Array], Any], x: Float[Array, "n d"], *, chunk_size: int | None = None
) -> Any:
    """Return `f` of every slice of `x`, a tree of arrays, joined along the rows."""
    n, d = x.shape
    size = min(n, chunk_size or default_chunk_size(d))
    tail = n % size
    out = lax.map(
        lambda i: f(lax.dynamic_slice_in_dim(x, i * size, size)), lax.iota("int32", n // size)
    )
    out = jax.tree.map(lambda a: a.reshape(n - tail, *a.shape[2:]), out)
    if not tail:
        return out
    return jax.tree.map(lambda a, b: lax.concatenate([a, b], 0), out, f(x[n - tail :]))

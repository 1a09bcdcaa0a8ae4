"""Lloyd's iterations that leave out distances which cannot matter: the same labels for less work.

Beside its label each row carries an upper bound of the distance to its own centroid and a lower
bound of that to every other one (Elkan 2003, without the bounds between centroids). A centroid that
moves by s loosens them by s. Only rows whose bounds overlap are read again; as the run settles, few
are. Sums are mended by the rows that changed sides, and taken afresh where many did.

This pays where rows can be gathered cheaply, on a CPU. Bounds hold for what is computed, not only
in exact arithmetic: each is taken wider by the rounding error of a squared distance.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxgeom.kernels._accumulate import default_chunk_size, fold_rows, map_rows
from jaxgeom.kernels._linalg import matmul

_UNSURE = 2  # all rows are read where more than one in so many has to be
_CHANGED = 4  # all rows are summed where more than one in so many changed sides
_ROUNDINGS = 32.0  # of |row|^2 + |centroid|^2, in a squared distance


class Rows(NamedTuple):
    """The rows, and what is the same in every iteration."""

    x: Float[Array, "n d"]
    origin: Float[Array, " d"]  # rows and centroids are read relative to it
    square: Float[Array, " n"]  # |row|^2
    chunk_size: int

    def centred(self, x: Float[Array, "b d"]) -> Float[Array, "b d"]:
        """Return a block of rows relative to the origin."""
        return x.astype(self.origin.dtype) - self.origin[None, :]


class Bounded(NamedTuple):
    """A run between two iterations; centroids are relative to the origin."""

    centroids: Float[Array, "c d"]
    previous: Float[Array, "c d"]
    total: Float[Array, "c d"]  # sum of each cluster's rows
    counts: Int[Array, " c"]
    labels: Int[Array, " n"]
    upper: Float[Array, " n"]
    lower: Float[Array, "n c"]
    n_iter: Int[Array, ""]


def rows_of(x: Float[Array, "n d"], origin: Float[Array, " d"], chunk_size: int | None) -> Rows:
    """Return the rows of a run."""
    rows = Rows(x, origin, origin[:0], min(len(x), chunk_size or default_chunk_size(x.shape[1])))
    square = map_rows(lambda part: jnp.square(rows.centred(part)).sum(1), x, chunk_size=chunk_size)
    return rows._replace(square=square)


def start(rows: Rows, centroids: Float[Array, "c d"]) -> Bounded:
    """Return the state before the first iteration: no row has a label, so every one is read."""
    (n, _), c, dtype = rows.x.shape, centroids.shape[0], centroids.dtype
    return Bounded(
        centroids,
        centroids,
        jnp.zeros_like(centroids),
        jnp.zeros(c, jnp.int32),
        jnp.full(n, c, jnp.int32),
        jnp.full(n, jnp.inf, dtype),
        jnp.full((n, c), -jnp.inf, dtype),
        jnp.zeros((), jnp.int32),
    )


def move(rows: Rows, state: Bounded) -> Bounded:
    """Return the state one iteration later: labels for its centroids, then their means."""
    before = state.labels
    state, unsure = _loosened(state)
    state = lax.cond(
        unsure.sum() * _UNSURE > before.size,
        lambda: _read_all(rows, state),
        lambda: _read_some(rows, state, unsure),
    )
    changed = state.labels != before
    state = lax.cond(
        changed.sum() * _CHANGED > before.size,
        lambda: _sum_all(rows, state),
        lambda: _mend_sums(rows, state, before, changed),
    )
    counts = state.counts[:, None]
    means = jnp.where(counts > 0, state.total / jnp.maximum(counts, 1), state.centroids)
    return state._replace(centroids=means, previous=state.centroids, n_iter=state.n_iter + 1)


def _loosened(state: Bounded) -> tuple[Bounded, Bool[Array, " n"]]:
    """Return the state with bounds for the centroids as they moved, and which rows are unsure."""
    step = jnp.sqrt(jnp.square(state.centroids - state.previous).sum(1)) * (1 + 1e-5)
    upper = state.upper + step.at[state.labels].get(mode="clip")
    lower = state.lower - step[None, :]
    own = lax.broadcasted_iota(jnp.int32, lower.shape, 1) == state.labels[:, None]
    unsure = ~(upper < jnp.where(own, jnp.inf, lower).min(1))  # a NaN is never sure
    return state._replace(upper=upper, lower=lower), unsure


def _read(
    rows: Float[Array, "b d"], square: Float[Array, " b"], centroids: Float[Array, "c d"]
) -> tuple[Int[Array, " b"], Float[Array, " b"], Float[Array, "b c"]]:
    """Return labels, upper and lower bounds of a block of rows, from all their distances."""
    of_centroids = jnp.square(centroids).sum(1)
    distance = of_centroids[None, :] - 2 * matmul(rows, centroids.T)  # less |row|^2, common to all
    error = _ROUNDINGS * jnp.finfo(rows.dtype).eps * (square + of_centroids.max())
    return (
        jnp.argmin(distance, axis=1).astype(jnp.int32),
        jnp.sqrt(jnp.maximum(distance.min(1) + square + error, 0)),
        jnp.sqrt(jnp.maximum(distance + (square - error)[:, None], 0)),
    )


def _read_all(rows: Rows, state: Bounded) -> Bounded:
    """Label every row, slice by slice."""
    n, size = rows.x.shape[0], rows.chunk_size

    def update(state: Bounded, first: Int[Array, ""] | int, length: int) -> Bounded:
        part, square = (lax.dynamic_slice_in_dim(a, first, length) for a in (rows.x, rows.square))
        read = _read(rows.centred(part), square, state.centroids)
        labels, upper, lower = (
            lax.dynamic_update_slice_in_dim(old, new, first, 0)
            for old, new in zip((state.labels, state.upper, state.lower), read, strict=True)
        )
        return state._replace(labels=labels, upper=upper, lower=lower)

    state = lax.fori_loop(0, n // size, lambda i, s: update(s, i * size, size), state)
    return update(state, n - n % size, n % size) if n % size else state


def _read_some(rows: Rows, state: Bounded, unsure: Bool[Array, " n"]) -> Bounded:
    """Label the unsure rows."""

    def update(state: Bounded, index: Int[Array, " b"], part: Float[Array, "b d"]) -> Bounded:
        square = rows.square.at[index].get(mode="clip")
        read = _read(part, square, state.centroids)
        labels, upper, lower = (
            old.at[index].set(new, mode="drop")
            for old, new in zip((state.labels, state.upper, state.lower), read, strict=True)
        )
        return state._replace(labels=labels, upper=upper, lower=lower)

    return _fold_chosen(rows, unsure, update, state)


def _sum_all(rows: Rows, state: Bounded) -> Bounded:
    """Sum the rows of every cluster afresh, by products with a one-hot matrix."""

    def update(state: Bounded, part: Float[Array, "b d"], labels: Int[Array, " b"]) -> Bounded:
        member = jax.nn.one_hot(labels, state.counts.size, dtype=rows.origin.dtype)
        return _added(state, member, rows.centred(part))

    emptied = state._replace(total=jnp.zeros_like(state.total), counts=jnp.zeros_like(state.counts))
    return fold_rows(update, emptied, rows.x, state.labels, chunk_size=rows.chunk_size)


def _mend_sums(
    rows: Rows, state: Bounded, before: Int[Array, " n"], changed: Bool[Array, " n"]
) -> Bounded:
    """Move the rows that changed sides from one cluster's sum to the other's."""

    def update(state: Bounded, index: Int[Array, " b"], part: Float[Array, "b d"]) -> Bounded:
        new, old = (
            jax.nn.one_hot(
                labels.at[index].get(mode="fill", fill_value=state.counts.size),
                state.counts.size,
                dtype=part.dtype,
            )
            for labels in (state.labels, before)
        )
        return _added(state, new - old, part)

    return _fold_chosen(rows, changed, update, state)


def _added(state: Bounded, member: Float[Array, "b c"], part: Float[Array, "b d"]) -> Bounded:
    """Return the state with a block of rows added to the sums of their clusters."""
    return state._replace(
        total=state.total + matmul(member.T, part),
        counts=state.counts + member.sum(0).astype(jnp.int32),
    )


def _fold_chosen(
    rows: Rows,
    chosen: Bool[Array, " n"],
    update: Callable[[Bounded, Int[Array, " b"], Float[Array, "b d"]], Bounded],
    state: Bounded,
) -> Bounded:
    """Update by the chosen rows, gathered into blocks; index n, of zeros, fills the last one."""
    n, size = chosen.size, max(rows.chunk_size // 4, 1)
    places = jnp.where(chosen, jnp.cumsum(chosen, dtype=jnp.int32) - 1, n + size)
    packed = jnp.full(n + size, n, jnp.int32).at[places].set(lax.iota(jnp.int32, n), mode="drop")

    def body(i: Int[Array, ""], state: Bounded) -> Bounded:
        index = lax.dynamic_slice_in_dim(packed, i * size, size)
        part = rows.centred(rows.x.at[index].get(mode="clip"))
        return update(state, index, jnp.where((index < n)[:, None], part, 0))

    return lax.fori_loop(0, -(-chosen.sum(dtype=jnp.int32) // size), body, state)

"""Rows sorted into blocks of one cluster each, so that a cluster's work is dense matrix products.

A block plan is a counting sort: which rows stand in which block. It lives inside jit and is
private; the public form of a clustering is one label a row.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxgeom.kernels._linalg import matmul

State = TypeVar("State")

_RANK_ROWS = 128  # rows ranked at once, by a product with a triangle of ones


class BlockPlan(NamedTuple):
    """`rows[j]` are the rows of block j, all of cluster `cluster[j]`; n stands for no row."""

    rows: Int[Array, "j b"]
    cluster: Int[Array, " j"]


def plan_blocks(labels: Int[Array, " n"], n_clusters: int) -> BlockPlan:
    """Return blocks that together hold every row with a label in range exactly once."""
    n = labels.shape[0]
    size = _block_size(n, n_clusters)
    n_blocks = n // size + n_clusters  # the most that n rows can need
    rank, counts = _rank_in_cluster(labels, n_clusters)
    ends = jnp.cumsum(-(-counts // size))
    first_block = ends - (-(-counts // size))
    slot = first_block.at[labels].get(mode="clip") * size + rank
    slot = jnp.where(in_range(labels, n_clusters), slot, n_blocks * size)
    rows = jnp.full(n_blocks * size, n, jnp.int32)
    rows = rows.at[slot].set(lax.iota(jnp.int32, n), mode="drop")
    cluster = jnp.searchsorted(ends, lax.iota(jnp.int32, n_blocks), side="right")
    return BlockPlan(
        rows.reshape(n_blocks, size), jnp.minimum(cluster, n_clusters - 1).astype(jnp.int32)
    )


def fold_blocks(
    update: Callable[..., State], state: State, x: Float[Array, "n d"], plan: BlockPlan
) -> State:
    """Return `state` updated by `update(state, rows_of_x[b d], mask[b], indices[b], cluster[])`."""
    n = x.shape[0]

    def body(j: Int[Array, ""], state: State) -> State:
        rows = plan.rows[j]
        block = x.at[rows].get(mode="fill", fill_value=0)
        return update(state, block, rows < n, rows, plan.cluster[j])

    return lax.fori_loop(0, plan.rows.shape[0], body, state)


def _block_size(n: int, n_clusters: int) -> int:
    """Return a power of two from 8 to 256, so that padding stays below half of a usual cluster."""
    rows = max(n // (2 * n_clusters), 1)
    return min(max(1 << (rows.bit_length() - 1), 8), 256)


def _rank_in_cluster(
    labels: Int[Array, " n"], n_clusters: int
) -> tuple[Int[Array, " n"], Int[Array, " c"]]:
    """Return each row's position among the rows of its cluster, and how many rows each has."""
    n = labels.shape[0]
    size = min(n, _RANK_ROWS)
    padded = jnp.pad(labels, (0, -n % size), constant_values=-1).reshape(-1, size)
    before = jnp.tri(size, k=-1, dtype=jnp.float32)

    def step(
        seen: Int[Array, " c"], part: Int[Array, " b"]
    ) -> tuple[Int[Array, " c"], Int[Array, " b"]]:
        member = jax.nn.one_hot(part, n_clusters, dtype=jnp.float32)
        earlier = matmul(before, member).astype(jnp.int32) + seen[None, :]
        rank = jnp.where(member > 0, earlier, 0).sum(1)
        return seen + member.sum(0).astype(jnp.int32), rank

    counts, ranks = lax.scan(step, jnp.zeros(n_clusters, jnp.int32), padded)
    return ranks.reshape(-1)[:n], counts


def in_range(labels: Int[Array, " n"], n_clusters: int) -> Bool[Array, " n"]:
    """Return which rows belong to a cluster at all."""
    return (labels >= 0) & (labels < n_clusters)

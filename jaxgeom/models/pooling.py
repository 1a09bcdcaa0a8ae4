"""Sentence vectors out of packed rows, inside a compiled function."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxgeom import _checks

POOLINGS = ("mean", "cls")


def pool(
    hidden: Float[Array, "b s h"],
    segment_ids: Int[Array, "b s"],
    n_segments: int,
    *,
    pooling: str = "mean",
) -> Float[Array, "b {n_segments} h"]:
    """Make one vector of each sentence in each row.

    Args:
        hidden: [b s h] Hidden states of packed rows.
        segment_ids: [b s] 0 for padding, 1, 2, … for the sentences of a row.
        n_segments: Sentences that a row has at most (static); later ones are left out.
        pooling: "mean" over all tokens of a sentence, or "cls": its first one.

    Returns:
        [b, n_segments, h] Segment k of a row stands at index k - 1; zeros where it has none.

    Raises:
        ValueError: If `pooling` is neither, or `n_segments` is below 1.

    Numerics:
        Sums in float32, whatever the dtype of `hidden`. A NaN in a row, even in its padding, makes
        NaN of all the row's means.

    Example:
        >>> import jax.numpy as jnp
        >>> hidden = jnp.array([[[1.0], [3.0], [5.0], [9.0]]])
        >>> pool(hidden, jnp.array([[1, 1, 2, 0]]), 3)[..., 0].tolist()
        [[2.0, 5.0, 0.0]]
    """
    _checks.option("pooling", pooling, POOLINGS)
    _checks.integer("n_segments", n_segments, 1)
    numbers = jnp.arange(1, n_segments + 1)
    member = segment_ids[:, None, :] == numbers[None, :, None]
    if pooling == "cls":
        first = jnp.argmax(member, axis=-1)  # [b n_segments]
        vectors = jnp.take_along_axis(hidden, first[:, :, None], axis=1)
        return jnp.where(member.any(axis=-1)[:, :, None], vectors, 0)
    share = member / jnp.maximum(member.sum(axis=-1, keepdims=True), 1)
    return jnp.einsum("bns,bsh->bnh", share, hidden, precision="highest")

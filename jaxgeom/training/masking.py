"""Which tokens a masked language model has to find, drawn afresh whenever a batch is read.

A share of the tokens is chosen; of these, 80 % become the mask token, 10 % another token, and 10 %
stay. Exactly that share of a batch's tokens is chosen, not one by one: so the number of places to
compute logits for is fixed but for padding, and shapes are too.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

MASKED, REPLACED = 0.8, 0.1  # shares of the chosen tokens; the others stay


class Vocabulary(NamedTuple):
    """What masking has to know of a vocabulary."""

    size: int
    n_special: int  # the special tokens are 0 to n_special - 1
    mask_id: int  # one of them


class Masked(NamedTuple):
    """A batch with hidden tokens; k is the most that a batch of this shape has."""

    input_ids: Int[Array, "b s"]
    places: Int[Array, " k"]  # of the chosen tokens, counted through the flattened rows
    targets: Int[Array, " k"]  # what stood there
    weights: Float[Array, " k"]  # 1, or 0 where fewer than k were chosen


def mask_tokens(
    key: Key[Array, ""],
    input_ids: Int[Array | np.ndarray, "b s"],
    vocabulary: Vocabulary,
    *,
    share: float,
) -> Masked:
    """Choose tokens and hide them.

    Args:
        key: Randomness.
        input_ids: [b s] Packed rows; special tokens, padding among them, are never chosen.
        vocabulary: Of the ids.
        share: Of the tokens that are chosen, 0 to 1 (static).

    Returns:
        The batch. Its first round(share × tokens) places count, at least one where there is a
        token.

    Source:
        Devlin et al. (2019), section 3.1; drawn anew each time as in Liu et al. (2019). Theirs
        draws every token by itself, ours exactly the share.
    """
    choose_key, kind_key, id_key = jax.random.split(key, 3)
    ids = jnp.asarray(input_ids).reshape(-1)
    ordinary: Bool[Array, " t"] = ids >= vocabulary.n_special
    scores = jnp.where(ordinary, jax.random.uniform(choose_key, ids.shape), -1.0)
    top, places = jax.lax.top_k(scores, math.ceil(share * ids.size))
    n_chosen = jnp.maximum(jnp.round(share * ordinary.sum()), 1)
    chosen = (jnp.arange(places.size) < n_chosen) & (top >= 0)
    targets = ids[places]
    kind = jax.random.uniform(kind_key, places.shape)
    other = jax.random.randint(id_key, places.shape, vocabulary.n_special, vocabulary.size)
    shown = jnp.where(kind < MASKED, vocabulary.mask_id, targets)
    shown = jnp.where((kind >= MASKED) & (kind < MASKED + REPLACED), other, shown)
    hidden = ids.at[places].set(jnp.where(chosen, shown, targets))
    return Masked(hidden.reshape(input_ids.shape), places, targets, chosen.astype(jnp.float32))

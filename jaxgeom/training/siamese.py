"""The study's fine-tuning: two sentences through one encoder, their cosine drawn to the gold score.

Here are the recipe's settings, its loss and its one compiled step; `finetuning` runs them. What the
study leaves open (optimiser, schedule, clipping) is fixed here; see the fields.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Float, Int, Key

from jaxgeom import _checks
from jaxgeom._mesh import COMMON
from jaxgeom.models import Encoder, pool
from jaxgeom.models.pooling import POOLINGS
from jaxgeom.training.batches import Batch, n_segments
from jaxgeom.training.optimizer import Step, adamw, descend

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}
_TINY = 1e-16  # under it a product of squared lengths counts as this; a zero vector has cosine 0


@dataclasses.dataclass(frozen=True)
class SiameseConfig:
    """Settings of a fine-tuning run; the defaults are the study's, or fixed where it is silent.

    Source:
        Rajaee and Pilehvar (2021), after Reimers and Gurevych (2019): mean pooling, cosine, squared
        error, batches of 32, learning rate 7e-5, 3 epochs. Fixed by us: the rest.

    Example:
        >>> SiameseConfig(learning_rate=2e-5).n_steps(5749)
        540
    """

    batch_size: int = 32  # pairs
    learning_rate: float = 7e-5  # the highest, after the warm-up
    epochs: int = 3
    weight_decay: float = 0.01  # not on biases and layer normalisation
    warmup: float = 0.1  # share of the steps over which the learning rate rises; then it falls to 0
    max_grad_norm: float = 1.0
    pooling: str = "mean"  # over all tokens, or "cls"
    max_length: int = 128  # tokens of a sentence, special ones included
    dtype: str = "float32"  # of matrix products; weights and optimiser are float32 in any case

    def __post_init__(self) -> None:
        _checks.option("pooling", self.pooling, POOLINGS)
        _checks.option("dtype", self.dtype, tuple(DTYPES))
        for name in ("batch_size", "epochs", "max_length"):
            _checks.integer(name, getattr(self, name), 1)
        for name in ("learning_rate", "weight_decay", "warmup", "max_grad_norm"):
            _checks.non_negative(name, getattr(self, name))
        if self.warmup > 1:
            raise ValueError(f"warmup must be in 0..1, a share of the steps, got {self.warmup}")

    def n_steps(self, n_pairs: int) -> int:
        """Return the optimiser steps of a run; an epoch's last batch may be short."""
        return self.epochs * -(-n_pairs // self.batch_size)

    def optimizer(self, n_steps: int) -> optax.GradientTransformation:
        """Return the optimiser of a run of so many steps."""
        return adamw(
            learning_rate=self.learning_rate,
            n_steps=n_steps,
            warmup=self.warmup,
            weight_decay=self.weight_decay,
            max_grad_norm=self.max_grad_norm,
        )


def siamese_loss(
    encoder: Encoder,
    batch: Batch,
    *,
    pooling: str = "mean",
    dropout_key: Key[Array, ""] | None = None,
) -> Float[Array, ""]:
    """Return the mean squared difference between cosines and gold scores.

    Args:
        encoder: The encoder.
        batch: Packed pairs.
        pooling: "mean" or "cls".
        dropout_key: Randomness of the dropout that the encoder's config sets; without it there is
            none.

    Returns:
        A scalar, the mean over the batch's real pairs.

    Numerics:
        Whatever the encoder computes in, from the hidden states on everything is float32. How the
        sentences are packed changes nothing but rounding, as long as dropout is off.
    """
    rngs = None if dropout_key is None else nnx.Rngs(dropout=dropout_key)
    hidden = encoder(*batch.rows, deterministic=rngs is None, rngs=rngs)[-1]
    segments = jnp.asarray(batch.rows.segment_ids)
    vectors = pool(hidden, segments, n_segments(len(batch.scores)), pooling=pooling)
    first, second = vectors.reshape(-1, vectors.shape[-1])[jnp.asarray(batch.places)]
    errors = jnp.square(cosine(first, second) - batch.scores)
    return jnp.sum(batch.weights * errors) / jnp.sum(batch.weights)


def cosine(first: Float[Array, "p h"], second: Float[Array, "p h"]) -> Float[Array, " p"]:
    """Return the cosine of every pair of rows; 0, with a finite gradient, where a row is zero."""
    squares = jnp.square(first).sum(axis=1) * jnp.square(second).sum(axis=1)
    return (first * second).sum(axis=1) * jax.lax.rsqrt(jnp.maximum(squares, _TINY))


@partial(
    jax.jit,
    static_argnames=("graphdef", "config", "n_steps", "mesh"),
    donate_argnames=("params", "opt_state"),
)
def train_step(
    params: Any,
    opt_state: Any,
    batch: Batch,
    dropout_key: Key[Array, ""],
    step: Int[Array, ""] | int,
    *,
    graphdef: nnx.GraphDef,
    config: SiameseConfig,
    n_steps: int,
    mesh: Mesh | None = None,
) -> Step:
    """Take one optimiser step; compiled once for each number of rows.

    Args:
        params: The encoder's parameters, a pure dict. Donated: it cannot be used afterwards.
        opt_state: The optimiser's state; donated as well.
        batch: Packed pairs.
        dropout_key: Of the whole run; a step folds its number in.
        step: The number of the step, from 0 on.
        graphdef: The encoder without its parameters.
        config: The recipe.
        n_steps: Steps of the whole run.
        mesh: Whose devices share the batch's rows, where there are several: `batch` is laid out
            over them, parameters and state are the same on each. Which device computes a row
            changes neither its dropout nor, up to rounding, the result.

    Returns:
        The new parameters and state; loss and gradient norm at the old ones.
    """
    key = jax.random.fold_in(dropout_key, step)

    def loss_of(params: Any) -> Float[Array, ""]:
        encoder = nnx.merge(graphdef, params)
        return siamese_loss(encoder, batch, pooling=config.pooling, dropout_key=key)

    done = descend(config.optimizer(n_steps), loss_of, params, opt_state)
    if mesh is None:
        return done
    return jax.lax.with_sharding_constraint(done, NamedSharding(mesh, COMMON))

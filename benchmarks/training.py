"""Steps of fine-tuning one after the other, for the entries that time them."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxgeom.models import Encoder, Tokenizer
from jaxgeom.tasks import StsPairs
from jaxgeom.training import SiameseConfig
from jaxgeom.training.batches import Batch, batches, row_sizes, tokenize_pairs
from jaxgeom.training.siamese import train_step

STUDY_STEPS = 540


class Training:
    """An encoder under training; each step consumes the state that the one before it left."""

    def __init__(self, encoder: Encoder, recipe: SiameseConfig, n_steps: int) -> None:
        self.config, self.recipe, self.n_steps, self.step = encoder.config, recipe, n_steps, 0
        self.sizes: tuple[int, ...] = ()
        self.graphdef, state = nnx.split(encoder, nnx.Param)
        self.params = jax.tree.map(jnp.copy, nnx.to_pure_dict(state))  # a step destroys them
        self.opt_state = recipe.optimizer(n_steps).init(self.params)
        self.dropout_key = jax.random.key(0)

    def take(self, batch: Batch) -> float:
        """Take a step and return its loss."""
        done = train_step(
            self.params,
            self.opt_state,
            batch,
            self.dropout_key,
            self.step,
            graphdef=self.graphdef,
            config=self.recipe,
            n_steps=self.n_steps,
        )
        self.params, self.opt_state, self.step = done.params, done.opt_state, self.step + 1
        return float(done.loss)

    def batches(self, tokenizer: Tokenizer, pairs: StsPairs) -> Iterator[Batch]:
        """Yield the batches of one pass over the pairs, in their order."""
        max_length = self.recipe.max_length
        tokenized = tokenize_pairs(tokenizer, pairs, self.config, max_length=max_length)
        order, batch_size = np.arange(len(pairs.scores)), self.recipe.batch_size
        options = {"batch_size": batch_size, "max_length": max_length}
        if not self.sizes:  # as in a whole run, however few pairs are timed
            n_passes = -(-STUDY_STEPS * batch_size // len(order))
            self.sizes = row_sizes(tokenized, [order] * n_passes, **options)
        return batches(tokenized, order, self.config, sizes=self.sizes, **options)

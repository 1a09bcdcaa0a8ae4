"""Masked-language-model pre-training: settings, loss and the compiled steps; `pretraining` runs it.

Dropout is off: a model this small, which sees each sentence a handful of times and never twice
under the same mask, has nothing to be kept from learning by heart. Its config carries the usual 0.1
for the fine-tuning that follows. More tokens are hidden than in BERT, since each one hidden is one
to learn from (Wettig et al., 2023); what is measured on held-out text is measured with BERT's 15 %.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Float, Int, Key

from jaxgeom import _checks
from jaxgeom.models import EncoderConfig, Rows
from jaxgeom.models.config import MODEL_TYPES
from jaxgeom.models.masked_lm import MaskedLM
from jaxgeom.training.masking import Vocabulary, mask_tokens
from jaxgeom.training.optimizer import Step, adamw, descend
from jaxgeom.training.siamese import DTYPES
from jaxgeom.training.vocabulary import SPECIAL

HIDDEN_IN_EVALUATION = 0.15  # share of the tokens; held-out figures are comparable to others'


@dataclasses.dataclass(frozen=True)
class MLMConfig:
    """Settings of a pre-training run; everything that shapes its weights but corpus and seed.

    Example:
        >>> MLMConfig(arch="roberta").encoder_config(8192).max_length
        128
    """

    arch: str = "bert"  # or "roberta"
    vocab_size: int = 8192  # of the tokenizer, special tokens included; at most
    hidden_size: int = 256
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    intermediate_size: int = 1024
    row_length: int = 128  # tokens of a packed row, and of the longest sentence
    batch_size: int = 32  # rows
    n_steps: int = 4000
    learning_rate: float = 1e-3  # the highest, after the warm-up
    weight_decay: float = 0.01  # not on biases and layer normalisation
    warmup: float = 0.06  # share of the steps over which the rate rises; then it falls to 0
    max_grad_norm: float = 1.0
    masked_share: float = 0.25  # of the tokens, in training; see `HIDDEN_IN_EVALUATION`
    held_out_share: float = 0.01  # of the sentences
    dtype: str = "float32"  # of matrix products; weights and optimiser are float32 in any case

    def __post_init__(self) -> None:
        _checks.option("arch", self.arch, MODEL_TYPES)
        _checks.option("dtype", self.dtype, tuple(DTYPES))
        for name in ("batch_size", "n_steps"):
            _checks.integer(name, getattr(self, name), 1)
        _checks.integer("row_length", self.row_length, 3)  # a token between two special ones
        for name in ("learning_rate", "weight_decay", "warmup", "max_grad_norm"):
            _checks.non_negative(name, getattr(self, name))
        if self.warmup > 1:
            raise ValueError(f"warmup must be in 0..1, a share of the steps, got {self.warmup}")
        for name in ("masked_share", "held_out_share"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must lie between 0 and 1, got {getattr(self, name)}")

    def encoder_config(self, vocab_size: int) -> EncoderConfig:
        """Return the encoder's config, for a tokenizer with so many entries."""
        roberta = self.arch == "roberta"
        pad_id = SPECIAL[self.arch].pad_id
        return EncoderConfig(
            model_type=self.arch,
            vocab_size=vocab_size,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_hidden_layers,
            num_attention_heads=self.num_attention_heads,
            intermediate_size=self.intermediate_size,
            hidden_act="gelu",
            hidden_dropout_prob=0.1,
            attention_probs_dropout_prob=0.1,
            max_position_embeddings=self.row_length + (pad_id + 1 if roberta else 0),
            type_vocab_size=1 if roberta else 2,
            initializer_range=0.02,
            layer_norm_eps=1e-5 if roberta else 1e-12,
            pad_token_id=pad_id,
        )

    def vocabulary(self, size: int) -> Vocabulary:
        """Return what masking has to know of a tokenizer with so many entries."""
        special = SPECIAL[self.arch]
        return Vocabulary(size, len(special.ids), special.mask_id)

    def optimizer(self) -> optax.GradientTransformation:
        """Return the optimiser of a run."""
        return adamw(
            learning_rate=self.learning_rate,
            n_steps=self.n_steps,
            warmup=self.warmup,
            weight_decay=self.weight_decay,
            max_grad_norm=self.max_grad_norm,
        )


class Found(NamedTuple):
    """How well the hidden tokens of a batch were found: sums over them."""

    loss: Float[Array, ""]  # negative log-likelihoods, in nats
    n_correct: Float[Array, ""]  # tokens whose logit was the largest
    n: Float[Array, ""]


def find_masked(
    model: MaskedLM, rows: Rows, vocabulary: Vocabulary, *, share: float, key: Key[Array, ""]
) -> Found:
    """Hide tokens of a batch and let a model find them, without dropout.

    Args:
        model: The encoder and its head.
        rows: [b s] Packed rows.
        vocabulary: Of the ids.
        share: Of the tokens that are hidden (static).
        key: Randomness: which tokens.

    Returns:
        Sums over the hidden tokens, those shown as they are among them. What is not hidden plays no
        part.
    """
    masked = mask_tokens(key, rows.input_ids, vocabulary, share=share)
    logits = model(masked.input_ids, rows.segment_ids, rows.position_ids, masked.places)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, masked.targets)
    correct = logits.argmax(axis=-1) == masked.targets
    weights = masked.weights
    return Found(jnp.sum(weights * losses), jnp.sum(weights * correct), jnp.sum(weights))


@partial(jax.jit, static_argnames=("graphdef", "vocabulary"))
def evaluation_step(
    params: Any,
    rows: Rows,
    key: Key[Array, ""],
    index: Int[Array, ""] | int,
    *,
    graphdef: nnx.GraphDef,
    vocabulary: Vocabulary,
) -> Found:
    """Return how well a batch's hidden tokens are found; which ones, `key` and `index` decide."""
    model = nnx.merge(graphdef, params)
    key = jax.random.fold_in(key, index)
    return find_masked(model, rows, vocabulary, share=HIDDEN_IN_EVALUATION, key=key)


@partial(
    jax.jit,
    static_argnames=("graphdef", "vocabulary", "config"),
    donate_argnames=("params", "opt_state"),
)
def train_step(
    params: Any,
    opt_state: Any,
    rows: Rows,
    mask_key: Key[Array, ""],
    step: Int[Array, ""] | int,
    *,
    graphdef: nnx.GraphDef,
    vocabulary: Vocabulary,
    config: MLMConfig,
) -> Step:
    """Take one optimiser step; compiled once.

    Args:
        params: The model's parameters, a pure dict. Donated: it cannot be used afterwards.
        opt_state: The optimiser's state; donated as well.
        rows: [b s] Packed rows.
        mask_key: Of the whole run; a step folds its number in.
        step: The number of the step, from 0 on.
        graphdef: The model without its parameters.
        vocabulary: Of the ids.
        config: The recipe.

    Returns:
        The new parameters and state; loss and gradient norm at the old ones.
    """
    key = jax.random.fold_in(mask_key, step)

    def loss_of(params: Any) -> Float[Array, ""]:
        model = nnx.merge(graphdef, params)
        found = find_masked(model, rows, vocabulary, share=config.masked_share, key=key)
        return found.loss / jnp.maximum(found.n, 1)

    return descend(config.optimizer(), loss_of, params, opt_state)

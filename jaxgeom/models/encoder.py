"""BERT and RoBERTa in one module: embeddings, then layers of attention and feed-forward.

The two differ in where positions start, and that the caller's `position_ids` already carry. Several
sentences may share a row: attention stays between tokens of the same segment.

Matrix products run in `dtype`; the residual stream, layer normalisation and the softmax stay in
float32 whatever it is, and so do the hidden states that come out.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from jaxgeom.models.config import EncoderConfig

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_new": partial(jax.nn.gelu, approximate=True),
    "gelu_pytorch_tanh": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}


class Encoder(nnx.Module):
    """A BERT or RoBERTa encoder; a call returns the hidden states of every layer.

    Args:
        config: Shape and settings.
        rngs: Randomness of fresh weights, from the stream `params`: normal with standard deviation
            `config.initializer_range`, biases 0, layer normalisation 1 and 0, and the embedding of
            the padding token 0.
        dtype: In which matrix products are computed.
        param_dtype: In which weights are held.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> from jaxgeom.models import Encoder, EncoderConfig
        >>> config = EncoderConfig(
        ...     model_type="bert", vocab_size=100, hidden_size=8, num_hidden_layers=2,
        ...     num_attention_heads=2, intermediate_size=16, hidden_act="gelu",
        ...     hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
        ...     max_position_embeddings=16, type_vocab_size=2, initializer_range=0.02,
        ...     layer_norm_eps=1e-12, pad_token_id=0)
        >>> encoder = Encoder(config, rngs=nnx.Rngs(0))
        >>> input_ids, segment_ids = jnp.array([[5, 6, 7, 0]]), jnp.array([[1, 1, 2, 0]])
        >>> encoder(input_ids, segment_ids, jnp.array([[0, 1, 0, 0]])).shape
        (3, 1, 4, 8)
    """

    def __init__(
        self,
        config: EncoderConfig,
        *,
        rngs: nnx.Rngs,
        dtype: DTypeLike = jnp.float32,
        param_dtype: DTypeLike = jnp.float32,
    ):
        self.config = config
        self.embeddings = Embeddings(config, rngs, param_dtype)
        self.layers = nnx.List(
            [Layer(config, rngs, dtype, param_dtype) for _ in range(config.num_hidden_layers)]
        )

    def __call__(
        self,
        input_ids: Int[Array | np.ndarray, "b s"],
        segment_ids: Int[Array | np.ndarray, "b s"],
        position_ids: Int[Array | np.ndarray, "b s"],
        *,
        deterministic: bool = True,
        rngs: nnx.Rngs | None = None,
    ) -> Float[Array, "layers_plus_1 b s h"]:
        """Return the hidden states of every layer, the embeddings' output first.

        Args:
            input_ids: [b s] Tokens.
            segment_ids: [b s] 0 for padding, 1, 2, … for the sentences within the row.
            position_ids: [b s] Position within the sentence, from `config.first_position` on.
            deterministic: False turns on the dropout that the config sets.
            rngs: Randomness of the dropout (its stream `dropout`).

        Returns:
            [layers + 1, b, s, h] float32.

        Raises:
            ValueError: If dropout is on and has no `rngs`.

        Numerics:
            A token or position beyond its table makes NaN of its row. What stands in a padding
            place is finite and means nothing.

        Source:
            Devlin et al. (2019) and Liu et al. (2019), as Hugging Face's PyTorch models compute
            them; the token type is 0 throughout.
        """
        if not deterministic and rngs is None:
            raise ValueError("rngs must be given when deterministic is False, got None")
        dropout = {"deterministic": deterministic, "rngs": rngs}
        input_ids, segment_ids, position_ids = map(
            jnp.asarray, (input_ids, segment_ids, position_ids)
        )
        same = segment_ids[:, None, :, None] == segment_ids[:, None, None, :]
        bias = jnp.where(same, 0.0, jnp.finfo(jnp.float32).min)
        hidden = self.embeddings(input_ids, position_ids, **dropout)
        states = [hidden]
        for layer in self.layers:
            hidden = layer(hidden, bias, **dropout)
            states.append(hidden)
        return jnp.stack(states)


class Embeddings(nnx.Module):
    """The sum of a token's, its position's and the first token type's embedding, normalised."""

    def __init__(self, config: EncoderConfig, rngs: nnx.Rngs, param_dtype: DTypeLike):
        normal = nnx.initializers.normal(config.initializer_range)
        padded = partial(_normal_but_one_row, normal, config.pad_token_id)
        of_positions = padded if config.model_type == "roberta" else normal

        def embed(rows: int, init: nnx.Initializer) -> nnx.Embed:
            return nnx.Embed(
                rows,
                config.hidden_size,
                embedding_init=init,
                param_dtype=param_dtype,
                dtype=jnp.float32,
                rngs=rngs,
            )

        self.word_embeddings = embed(config.vocab_size, padded)
        self.position_embeddings = embed(config.max_position_embeddings, of_positions)
        self.token_type_embeddings = embed(config.type_vocab_size, normal)
        self.norm = layer_norm(config, rngs, param_dtype)
        self.dropout = nnx.Dropout(config.hidden_dropout_prob)

    def __call__(
        self, input_ids: Int[Array, "b s"], position_ids: Int[Array, "b s"], **dropout: Any
    ) -> Float[Array, "b s h"]:
        """Embed every token."""
        words, positions = self.word_embeddings(input_ids), self.position_embeddings(position_ids)
        token_type = self.token_type_embeddings.embedding[...][0]
        return self.dropout(self.norm(words + positions + token_type[None, None, :]), **dropout)


class Layer(nnx.Module):
    """Self-attention and a feed-forward network, each added to its input and then normalised."""

    def __init__(
        self, config: EncoderConfig, rngs: nnx.Rngs, dtype: DTypeLike, param_dtype: DTypeLike
    ):
        def linear(n_in: int, n_out: int) -> nnx.Linear:
            return nnx.Linear(
                n_in,
                n_out,
                kernel_init=nnx.initializers.normal(config.initializer_range),
                precision=jax.lax.Precision.HIGHEST,  # or a GPU rounds float32 to 10 bits
                dtype=dtype,
                param_dtype=param_dtype,
                rngs=rngs,
            )

        h, m = config.hidden_size, config.intermediate_size
        self.config = config
        self.query_key_value = linear(h, 3 * h)  # one product is faster than three
        self.attention_output = linear(h, h)
        self.attention_norm = layer_norm(config, rngs, param_dtype)
        self.intermediate = linear(h, m)
        self.output = linear(m, h)
        self.output_norm = layer_norm(config, rngs, param_dtype)
        self.dropout = nnx.Dropout(config.hidden_dropout_prob)
        self.attention_dropout = nnx.Dropout(config.attention_probs_dropout_prob)

    def __call__(
        self, hidden: Float[Array, "b s h"], bias: Float[Array, "b 1 s s"], **dropout: Any
    ) -> Float[Array, "b s h"]:
        """Return the next layer's input."""
        attended = _of_tokens(self.attention_output, self.attend(hidden, bias, **dropout))
        hidden = self.attention_norm(hidden + self.dropout(attended, **dropout))
        activation = _ACTIVATIONS[self.config.hidden_act]
        expanded = activation(_of_tokens(self.intermediate, hidden))
        output = _of_tokens(self.output, expanded)
        return self.output_norm(hidden + self.dropout(output, **dropout))

    def attend(
        self, hidden: Float[Array, "b s h"], bias: Float[Array, "b 1 s s"], **dropout: Any
    ) -> Float[Array, "b s h"]:
        """Return every token's weighted mean of its segment's values, heads side by side."""
        b, s, h = hidden.shape
        projected = _of_tokens(self.query_key_value, hidden)
        heads = projected.reshape(b, s, 3, self.config.num_attention_heads, -1)
        query, key, value = heads.transpose(2, 0, 3, 1, 4)
        context = _attention(query, key, value, bias, partial(self.attention_dropout, **dropout))
        return context.transpose(0, 2, 1, 3).reshape(b, s, h)


def _of_tokens(linear: nnx.Linear, hidden: Float[Array, "b s h"]) -> Float[Array, "b s m"]:
    """Apply a product to every token, all rows as one matrix.

    The weights' gradient is then a plain product too, which on a CPU takes half as long as the one
    that sums over two axes.
    """
    b, s, h = hidden.shape
    return linear(hidden.reshape(b * s, h)).reshape(b, s, -1)


def _attention(
    query: Float[Array, "b n s d"],
    key: Float[Array, "b n s d"],
    value: Float[Array, "b n s d"],
    bias: Float[Array, "b 1 s s"],
    dropout: Callable[[Array], Array],
) -> Float[Array, "b n s d"]:
    """Softmax attention.

    It divides after the product with the values: d numbers a token instead of s. Written like this,
    heads before tokens, it also compiles to something several times faster on a CPU.
    """
    product = partial(
        jnp.einsum, precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32
    )
    scores = product("bnqd,bnkd->bnqk", query, key) * query.shape[-1] ** -0.5 + bias
    largest = jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True))
    weights = jnp.exp(scores - largest)
    total = weights.sum(axis=-1, keepdims=True)
    return product("bnqk,bnkd->bnqd", dropout(weights).astype(value.dtype), value) / total


def layer_norm(config: EncoderConfig, rngs: nnx.Rngs, param_dtype: DTypeLike) -> nnx.LayerNorm:
    """Layer normalisation in float32, by the variance about the mean."""
    return nnx.LayerNorm(
        config.hidden_size,
        epsilon=config.layer_norm_eps,
        use_fast_variance=False,
        dtype=jnp.float32,
        param_dtype=param_dtype,
        rngs=rngs,
    )


def _normal_but_one_row(
    normal: nnx.Initializer, zero_row: int, key: Array, shape: Any, dtype: DTypeLike
) -> Array:
    """Fresh embeddings whose row of the padding token is zero."""
    return normal(key, shape, dtype).at[zero_row].set(0)

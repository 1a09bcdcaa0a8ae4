"""An encoder with its masked-language-model head, on disk as Hugging Face's classes read both.

The head is a product, the activation, layer normalisation, and a product with the word embeddings
themselves (the decoder is tied to them) plus a bias. A saved folder opens as `AutoModel`, as
`AutoModelForMaskedLM`, and with `load_encoder`, which passes the head over.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from jaxgeom import _checks
from jaxgeom.models.config import EncoderConfig, ModelError
from jaxgeom.models.encoder import Encoder, layer_norm
from jaxgeom.models.weights import load_encoder, read_tensors, to_tensors, write_model

STORED = ("float32", "bfloat16")
_ARCHITECTURES = {"bert": "BertForMaskedLM", "roberta": "RobertaForMaskedLM"}
# Parts of the head -> Hugging Face's names for them, by model type.
_PARTS = {
    "bert": {
        "dense": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.LayerNorm",
        "bias": "cls.predictions",
    },
    "roberta": {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "bias": "lm_head"},
}
_KINDS = {"kernel": "weight", "scale": "weight", "bias": "bias"}


class MaskedLM(nnx.Module):
    """A BERT or RoBERTa that says which token stands in a place.

    Args:
        config: Shape and settings.
        rngs: Randomness of fresh weights, from the stream `params`; those of the head are drawn
            as the encoder's are.
        dtype: In which matrix products are computed; the weights are held in float32.

    Example:
        >>> import numpy as np
        >>> from flax import nnx
        >>> from jaxgeom.models import EncoderConfig, pack
        >>> config = EncoderConfig(
        ...     model_type="bert", vocab_size=100, hidden_size=8, num_hidden_layers=2,
        ...     num_attention_heads=2, intermediate_size=16, hidden_act="gelu",
        ...     hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
        ...     max_position_embeddings=16, type_vocab_size=2, initializer_range=0.02,
        ...     layer_norm_eps=1e-12, pad_token_id=0)
        >>> rows = pack([3], 4).fill([np.array([2, 4, 3])])
        >>> MaskedLM(config, rngs=nnx.Rngs(0))(*rows, np.array([1])).shape
        (1, 100)
    """

    def __init__(
        self, config: EncoderConfig, *, rngs: nnx.Rngs, dtype: DTypeLike = jnp.float32
    ) -> None:
        self.encoder = Encoder(config, rngs=rngs, dtype=dtype)
        self.head = MaskedLMHead(config, rngs, dtype)

    def __call__(
        self,
        input_ids: Int[Array | np.ndarray, "b s"],
        segment_ids: Int[Array | np.ndarray, "b s"],
        position_ids: Int[Array | np.ndarray, "b s"],
        places: Int[Array | np.ndarray, " k"],
    ) -> Float[Array, "k vocabulary"]:
        """Return the logits of the token in each of some places of packed rows.

        Args:
            input_ids: [b s] Tokens.
            segment_ids: [b s] 0 for padding, 1, 2, … for the sentences within the row.
            position_ids: [b s] Position within the sentence, from `config.first_position` on.
            places: [k] Which places, counted through the flattened rows.

        Returns:
            [k, vocabulary] float32. Only these are computed: with a large vocabulary the logits of
            every place would cost as much as the encoder.
        """
        hidden = self.encoder(input_ids, segment_ids, position_ids)[-1]
        chosen = hidden.reshape(-1, hidden.shape[-1])[jnp.asarray(places)]
        return self.head(chosen, self.encoder.embeddings.word_embeddings.embedding[...])


class MaskedLMHead(nnx.Module):
    """From hidden states to logits over the vocabulary."""

    def __init__(self, config: EncoderConfig, rngs: nnx.Rngs, dtype: DTypeLike) -> None:
        self.dense = nnx.Linear(
            config.hidden_size,
            config.hidden_size,
            kernel_init=nnx.initializers.normal(config.initializer_range),
            precision=jax.lax.Precision.HIGHEST,
            dtype=dtype,
            rngs=rngs,
        )
        self.norm = layer_norm(config, rngs, jnp.float32)
        self.bias = nnx.Param(jnp.zeros(config.vocab_size))

    def __call__(
        self, hidden: Float[Array, "k h"], embeddings: Float[Array, "v h"]
    ) -> Float[Array, "k v"]:
        """Return the logits; the activation is the exact GELU."""
        features = self.norm(jax.nn.gelu(self.dense(hidden), approximate=False))
        dtype = self.dense.dtype
        logits = jnp.einsum(
            "kh,vh->kv",
            features.astype(dtype),
            embeddings.astype(dtype),
            precision=jax.lax.Precision.HIGHEST,
            preferred_element_type=jnp.float32,
        )
        return logits + self.bias[...][None, :]


def save_masked_lm(model: MaskedLM, folder: str | Path, *, dtype: str = "float32") -> None:
    """Write a model as `config.json` and `model.safetensors`, the way Hugging Face's classes do.

    Args:
        model: The encoder and its head.
        folder: Where to; made if need be.
        dtype: What the weights are stored in, "float32" or "bfloat16" (half the size, rounded to 8
            bits); the config asks for float32 either way, so that is what they are computed in.

    Raises:
        ValueError: If `dtype` is neither.
    """
    _checks.option("dtype", dtype, STORED)
    config = model.encoder.config
    prefix = config.model_type
    tensors = {f"{prefix}.{name}": value for name, value in to_tensors(model.encoder).items()}
    for name, path, param in _head_parameters(model):
        value = np.asarray(param[...], dtype=np.float32)
        tensors[name] = np.ascontiguousarray(value.T if path[-1] == "kernel" else value)
    stored = {name: value.astype(jnp.dtype(dtype)) for name, value in tensors.items()}
    architecture = {"architectures": [_ARCHITECTURES[config.model_type]]}
    write_model(Path(folder), config.to_dict() | architecture, stored)


def load_masked_lm(folder: str | Path, *, dtype: DTypeLike = jnp.float32) -> MaskedLM:
    """Read an encoder and its masked-language-model head from a model folder.

    Args:
        folder: As `load_encoder` reads it, with the head's weights.
        dtype: In which matrix products are computed; the weights are held in float32.

    Returns:
        The model.

    Raises:
        ModelError: If a file is missing or broken, if the weights are not those that the config
            describes, or if there is no head.
    """
    folder = Path(folder)
    encoder = load_encoder(folder, dtype=dtype)
    model = nnx.eval_shape(lambda: MaskedLM(encoder.config, rngs=nnx.Rngs(0), dtype=dtype))
    model.encoder = encoder
    tensors = read_tensors(folder, encoder.config.model_type)
    filled = [
        (path, param.replace(_gather(folder, tensors, name, path, param.shape)))
        for name, path, param in _head_parameters(model)
    ]
    nnx.update(model.head, nnx.from_flat_state(filled))
    return model


def _head_parameters(model: MaskedLM) -> Iterator[tuple[str, tuple[Any, ...], nnx.Param]]:
    """Yield the stored name, the path and the parameter itself of everything in the head."""
    parts = _PARTS[model.encoder.config.model_type]
    for path, param in nnx.to_flat_state(nnx.state(model.head, nnx.Param)):
        yield f"{parts[str(path[0])]}.{_KINDS[str(path[-1])]}", path, param


def _gather(
    folder: Path,
    tensors: Mapping[str, np.ndarray],
    name: str,
    path: tuple[Any, ...],
    shape: tuple[int, ...],
) -> jax.Array:
    """Return a parameter of the head out of its tensor; a matrix is stored [out, in]."""
    if name not in tensors:
        raise ModelError(f"{folder} must hold a masked-language-model head: there is no {name}")
    value = tensors[name].astype(np.float32)
    value = value.T if path[-1] == "kernel" else value
    if value.shape != shape:
        raise ModelError(f"{folder}: {name} must be {shape[::-1]}, got {tensors[name].shape}")
    return jnp.asarray(value)

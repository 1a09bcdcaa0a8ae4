"""Weights: read from safetensors, drawn afresh, and written as Hugging Face's classes read them.

Reading is strict both ways: every parameter has to be in the file, and everything in the file has
to be a parameter or in `IGNORED`. A checkpoint that half fits would run and give plausible numbers.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from jaxgeom.models.config import EncoderConfig, ModelError, read_config, read_json
from jaxgeom.models.encoder import Encoder

# Beginnings of the names that a checkpoint may hold beyond the encoder.
IGNORED = (
    "pooler.",  # of the next-sentence task; `save_encoder` carries it unchanged
    "cls.",  # BERT's pre-training heads
    "lm_head.",  # RoBERTa's
    "embeddings.position_ids",  # 0, 1, 2, …: older versions stored it
)
_POOLER = IGNORED[0]

# Parts of ours -> Hugging Face's names for them; several names are one matrix side by side.
_EMBEDDINGS: dict[str, tuple[str, ...]] = {
    "word_embeddings": ("word_embeddings",),
    "position_embeddings": ("position_embeddings",),
    "token_type_embeddings": ("token_type_embeddings",),
    "norm": ("LayerNorm",),
}
_LAYER: dict[str, tuple[str, ...]] = {
    "query_key_value": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention_output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "intermediate": ("intermediate.dense",),
    "output": ("output.dense",),
    "output_norm": ("output.LayerNorm",),
}
_KINDS = {"kernel": "weight", "embedding": "weight", "scale": "weight", "bias": "bias"}

_Tensors = dict[str, np.ndarray]
_Path = tuple[Any, ...]  # to a parameter of ours: names, and the numbers of layers


def load_encoder(folder: str | Path, *, dtype: DTypeLike = jnp.float32) -> Encoder:
    """Read an encoder from a model folder.

    Args:
        folder: Holds `config.json` and either `model.safetensors` or its shards and their
            `model.safetensors.index.json`; names may carry the prefix `bert.` or `roberta.`.
        dtype: In which matrix products are computed; the weights are held in float32.

    Returns:
        The encoder.

    Raises:
        ModelError: If a file is missing or broken, or if the weights are not exactly those that
            the config describes; the message names every key concerned.
    """
    folder = Path(folder)
    config = read_config(folder)
    tensors = read_tensors(folder, config.model_type)
    encoder = nnx.eval_shape(lambda: Encoder(config, rngs=nnx.Rngs(0), dtype=dtype))
    parameters = list(nnx.to_flat_state(nnx.state(encoder, nnx.Param)))
    _check_tensors(folder, tensors, _shapes(parameters))
    filled = [(path, param.replace(_gather(path, tensors))) for path, param in parameters]
    nnx.update(encoder, nnx.from_flat_state(filled))
    return encoder


def random_encoder(
    config: EncoderConfig, *, key: jax.Array, dtype: DTypeLike = jnp.float32
) -> Encoder:
    """Draw an encoder with fresh weights, as Hugging Face's classes initialise theirs.

    Args:
        config: Shape and settings.
        key: Randomness; the same key gives the same weights, whatever `dtype` is.
        dtype: In which matrix products are computed; the weights are held in float32.

    Returns:
        The encoder: normal weights with standard deviation `config.initializer_range`, biases 0,
        layer normalisation 1 and 0, the embedding of the padding token 0.

    Example:
        >>> import jax
        >>> from jaxgeom.models import EncoderConfig, random_encoder
        >>> config = EncoderConfig(
        ...     model_type="bert", vocab_size=100, hidden_size=8, num_hidden_layers=2,
        ...     num_attention_heads=2, intermediate_size=16, hidden_act="gelu",
        ...     hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
        ...     max_position_embeddings=16, type_vocab_size=2, initializer_range=0.02,
        ...     layer_norm_eps=1e-12, pad_token_id=0)
        >>> random_encoder(config, key=jax.random.key(0)).embeddings.word_embeddings.embedding.shape
        (100, 8)
    """
    return Encoder(config, rngs=nnx.Rngs(params=key), dtype=dtype)


def save_encoder(encoder: Encoder, folder: str | Path, *, source: str | Path | None = None) -> None:
    """Write an encoder as `config.json` and `model.safetensors`, the way Hugging Face's classes do.

    Args:
        encoder: The encoder.
        folder: Where to; made if need be. Each file appears under its name when it is complete,
            the weights last.
        source: The model folder that the encoder comes from: further entries of its config, and
            its pooler, are carried over. Without it the config holds the encoder's own fields.

    Raises:
        ModelError: If `source` is not a folder of a model with the encoder's config.
    """
    config: dict[str, Any] = encoder.config.to_dict()
    tensors = to_tensors(encoder)
    if source is not None:
        config = _source_config(Path(source), encoder.config) | {
            "architectures": config["architectures"]
        }
        tensors |= _read_pooler(Path(source), encoder.config.model_type)
    write_model(Path(folder), config, tensors)


def write_model(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> None:
    """Write a model's `config.json` and `model.safetensors`, each whole or not there.

    The config asks for float32, in whatever precision the tensors are stored.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**config, "dtype": "float32"}, indent=2, sort_keys=True) + "\n"
    _write(folder / "config.json", lambda path: path.write_text(text, encoding="utf-8"))

    def save(path: Path) -> None:
        save_file(dict(tensors), path, {"format": "pt"})  # Hugging Face's reader insists on it
        shutil.copymode(folder / "config.json", path)  # safetensors lets the owner alone read it

    _write(folder / "model.safetensors", save)


def _names(path: _Path) -> list[str]:
    """Return Hugging Face's names for the parameter of ours at `path`."""
    *parent, part, kind = path
    if parent[0] == "embeddings":
        prefix, parts = "embeddings", _EMBEDDINGS
    else:
        prefix, parts = f"encoder.layer.{parent[1]}", _LAYER
    return [f"{prefix}.{name}.{_KINDS[str(kind)]}" for name in parts[str(part)]]


def _shapes(parameters: Iterable[tuple[_Path, Any]]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor that a checkpoint has to hold, [out, in] for matrices."""
    shapes: dict[str, tuple[int, ...]] = {}
    for path, param in parameters:
        # a table of embeddings lies as stored; a matrix lies [in, out], and is stored [out, in]
        *n_in, n_out = param.shape[::-1] if path[-1] == "embedding" else param.shape
        names = _names(path)
        shapes |= {name: (n_out // len(names), *n_in) for name in names}
    return shapes


def _gather(path: _Path, tensors: Mapping[str, np.ndarray]) -> jax.Array:
    """Put the parameter at `path` together."""
    tensor = np.concatenate([tensors[name] for name in _names(path)]).astype(np.float32)
    return jnp.asarray(tensor.T if path[-1] == "kernel" else tensor)


def to_tensors(encoder: Encoder) -> _Tensors:
    """Return an encoder's weights under their bare names, as a checkpoint holds them, float32."""
    tensors: _Tensors = {}
    for path, param in nnx.to_flat_state(nnx.state(encoder, nnx.Param)):
        value = np.asarray(param[...], dtype=np.float32)
        names = _names(path)
        pieces = np.split(value.T if path[-1] == "kernel" else value, len(names))
        # save_file writes the memory behind an array, in whatever order that lies
        tensors |= {n: np.ascontiguousarray(p) for n, p in zip(names, pieces, strict=True)}
    return tensors


def _check_tensors(
    folder: Path, tensors: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise one error with all that is missing, unexpected, or of another shape or kind."""
    kept = {name for name in tensors if not name.startswith(IGNORED)}
    problems = [f"missing: {name}" for name in shapes if name not in tensors]
    problems += [f"unexpected: {name}" for name in tensors if name in kept - shapes.keys()]
    for name in sorted(kept & shapes.keys()):
        tensor = tensors[name]
        if tensor.shape != shapes[name]:
            problems.append(f"mis-shaped: {name} must be {shapes[name]}, got {tensor.shape}")
        elif not jnp.issubdtype(tensor.dtype, jnp.floating):
            problems.append(f"mistyped: {name} must be floating, got {tensor.dtype}")
    if problems:
        described = f"the weights in {folder} must be those that its config.json describes"
        raise ModelError("\n  ".join([f"{described}, but:", *problems]))


def read_tensors(folder: Path, model_type: str, only: str = "") -> _Tensors:
    """Read the tensors of a folder whose bare name starts with `only`, under their bare names."""
    tensors: _Tensors = {}
    for path in _weight_files(folder):
        try:
            with safe_open(path, framework="np") as file:
                for stored in file.keys():  # noqa: SIM118 (it is no mapping)
                    name = _bare(stored, model_type)
                    if name in tensors:
                        raise ModelError(f"{path} holds {name} a second time, as {stored}")
                    if name.startswith(only):
                        tensors[name] = file.get_tensor(stored)
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{path} must be a safetensors file: {error}") from None
    return tensors


def _bare(name: str, model_type: str) -> str:
    """Return a stored name without the model's prefix, and in today's spelling."""
    name = name.removeprefix(f"{model_type}.")
    for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        if name.endswith(old):  # TensorFlow's names, in the oldest conversions
            return name.removesuffix(old) + new
    return name


def _weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a model folder."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if index.is_file():
        return _shards(index)
    if (folder / "pytorch_model.bin").is_file():
        raise ModelError(
            f"{folder} must hold model.safetensors, got only pytorch_model.bin, a pickle, which is "
            "not read here: convert it where torch is installed, with "
            f"transformers.AutoModel.from_pretrained({str(folder)!r}).save_pretrained(...)"
        )
    raise ModelError(f"{folder} must hold model.safetensors or {index.name}, got neither")


def _shards(index: Path) -> list[Path]:
    """Return the files that an index names; they have to lie beside it."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(f"{index} must have a weight_map from names to files")
    names = sorted({str(name) for name in weight_map.values()})
    strangers = [name for name in names if Path(name).name != name]
    if strangers:
        raise ModelError(f"{index} must name files beside it, got {', '.join(strangers)}")
    lost = [name for name in names if not (index.parent / name).is_file()]
    if lost:
        raise ModelError(f"{index} names files that are not there: {', '.join(lost)}")
    return [index.parent / name for name in names]


def _source_config(source: Path, config: EncoderConfig) -> dict[str, Any]:
    """Return a source's config as it stands, if it is the encoder's."""
    path = source / "config.json"
    fields = read_json(path)
    if EncoderConfig.from_dict(fields, path) != config:
        raise ModelError(f"source must be the folder that the encoder comes from; {path} differs")
    fields.pop("torch_dtype", None)  # the old name of dtype, which may say float16
    return fields


def _read_pooler(source: Path, model_type: str) -> _Tensors:
    """Return a source's pooler, if it has one."""
    return read_tensors(source, model_type, only=_POOLER)


def _write(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file under a temporary name, and give it its own when it is complete."""
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)

"""What a BERT or RoBERTa is made of, under Hugging Face's field names, read from `config.json`.

A wrong epsilon, activation or head count still runs, and gives other numbers. So every field has to
stand in the file; the few that may be absent are those whose absence means one fixed thing, and
`_ABSENT` says which and why.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MODEL_TYPES = ("bert", "roberta")
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu")

# Google's original BERT files have neither field, for their code fixes both: layer normalisation
# adds 1e-12, and [PAD] is the vocabulary's first entry. RoBERTa never existed without them.
_ABSENT: dict[str, dict[str, Any]] = {
    "bert": {"layer_norm_eps": 1e-12, "pad_token_id": 0},
    "roberta": {},
}
# Variants of the architecture which the encoder does not compute; where the field is absent, the
# variant is off: the files are older than the field, or younger than its end.
_FIXED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


class ModelError(ValueError):
    """A model that cannot be found, read or written; the message says what to do about it."""


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """Shape and settings of an encoder; Hugging Face's names, no defaults.

    Example:
        >>> config = EncoderConfig(
        ...     model_type="roberta", vocab_size=100, hidden_size=32, num_hidden_layers=3,
        ...     num_attention_heads=4, intermediate_size=64, hidden_act="gelu",
        ...     hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
        ...     max_position_embeddings=130, type_vocab_size=1, initializer_range=0.02,
        ...     layer_norm_eps=1e-5, pad_token_id=1)
        >>> config.first_position, config.max_length
        (2, 128)
    """

    model_type: str  # "bert" or "roberta"
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    hidden_act: str  # one of ACTIVATIONS; "gelu" is the exact one
    hidden_dropout_prob: float
    attention_probs_dropout_prob: float
    max_position_embeddings: int
    type_vocab_size: int
    initializer_range: float  # standard deviation of fresh weights
    layer_norm_eps: float
    pad_token_id: int

    def __post_init__(self) -> None:
        _check_options(self)
        _check_numbers(self)
        _check_relations(self)

    @property
    def first_position(self) -> int:
        """Position of a sentence's first token: RoBERTa counts from behind its padding id."""
        return self.pad_token_id + 1 if self.model_type == "roberta" else 0

    @property
    def max_length(self) -> int:
        """Tokens of the longest sentence there are positions for."""
        return self.max_position_embeddings - self.first_position

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], source: str | Path = "config") -> "EncoderConfig":
        """Take an encoder's settings out of the contents of a `config.json`.

        Args:
            fields: The parsed file; what the encoder does not need is passed over.
            source: Where they come from; it opens every error message.

        Returns:
            The config.

        Raises:
            ModelError: If a field is missing, of the wrong type or out of range, or if the model
                is of another architecture.
        """
        model_type = fields.get("model_type")
        if model_type not in MODEL_TYPES:
            wanted = " or ".join(map(repr, MODEL_TYPES))
            raise ModelError(f"{source}: model_type must be {wanted}, got {model_type!r}")
        for name, value in _FIXED.items():
            if fields.get(name, value) != value:
                raise ModelError(f"{source}: {name} must be {value!r}, got {fields[name]!r}")
        given = _ABSENT[model_type] | dict(fields)
        missing = [f.name for f in dataclasses.fields(cls) if f.name not in given]
        if missing:
            raise ModelError(f"{source}: missing {', '.join(missing)}")
        try:
            return cls(**{f.name: _typed(f, given[f.name]) for f in dataclasses.fields(cls)})
        except ValueError as error:
            raise ModelError(f"{source}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of a `config.json` that Hugging Face's classes read as this model."""
        architecture = {"bert": "BertModel", "roberta": "RobertaModel"}[self.model_type]
        return {"architectures": [architecture], **dataclasses.asdict(self)}


def read_config(folder: str | Path) -> EncoderConfig:
    """Read the `config.json` of a model folder.

    Args:
        folder: A folder as Hugging Face's `save_pretrained` writes it.

    Returns:
        The config.

    Raises:
        ModelError: If the file is missing, is not JSON, or does not describe a model that the
            encoder computes.
    """
    path = Path(folder) / "config.json"
    return EncoderConfig.from_dict(read_json(path), path)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a model folder, or say what is wrong with the file."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        came = f"no {path.name} in it" if path.parent.is_dir() else "no such folder"
        raise ModelError(f"{path.parent} must be a model folder: there is {came}") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} must be a JSON file: {error}") from None
    if not isinstance(fields, dict):
        raise ModelError(f"{path} must hold a JSON object, got a {type(fields).__name__}")
    return fields


def _typed(field: dataclasses.Field, value: Any) -> Any:
    """Return a JSON value as the field's type: no number from a string, no int from a float."""
    wanted: Any = field.type
    accepted = (int, float) if wanted is float else wanted
    if isinstance(value, bool) or not isinstance(value, accepted):
        raise ValueError(f"{field.name} must be of type {wanted.__name__}, got {value!r}")
    return wanted(value)


def _check_options(config: EncoderConfig) -> None:
    """Raise unless the words of a config are among those known."""
    for name, options in (("model_type", MODEL_TYPES), ("hidden_act", ACTIVATIONS)):
        if getattr(config, name) not in options:
            listed = ", ".join(map(repr, options))
            raise ValueError(f"{name} must be one of {listed}, got {getattr(config, name)!r}")


def _check_numbers(config: EncoderConfig) -> None:
    """Raise unless every number of a config is in its range."""
    for name, low in (
        ("vocab_size", 1),
        ("hidden_size", 1),
        ("num_hidden_layers", 1),
        ("num_attention_heads", 1),
        ("intermediate_size", 1),
        ("max_position_embeddings", 1),
        ("type_vocab_size", 1),
        ("pad_token_id", 0),
    ):
        if getattr(config, name) < low:
            raise ValueError(f"{name} must be at least {low}, got {getattr(config, name)}")
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        if not 0 <= getattr(config, name) < 1:
            raise ValueError(f"{name} must be in [0, 1), got {getattr(config, name)}")
    for name in ("initializer_range", "layer_norm_eps"):
        if not 0 < getattr(config, name) < 1:
            raise ValueError(f"{name} must be in (0, 1), got {getattr(config, name)}")


def _check_relations(config: EncoderConfig) -> None:
    """Raise unless the numbers of a config fit together."""
    if config.hidden_size % config.num_attention_heads:
        raise ValueError(
            "hidden_size must be a multiple of num_attention_heads, "
            f"got {config.hidden_size} and {config.num_attention_heads}"
        )
    if config.pad_token_id >= config.vocab_size:
        low = f"below vocab_size = {config.vocab_size}"
        raise ValueError(f"pad_token_id must be {low}, got {config.pad_token_id}")
    if config.max_length < 1:
        raise ValueError(
            f"max_position_embeddings must be above pad_token_id + 1 = {config.first_position}, "
            f"got {config.max_position_embeddings}"
        )

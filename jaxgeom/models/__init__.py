"""BERT and RoBERTa encoders in Flax NNX, and what stands between them and text."""

from jaxgeom.models.config import EncoderConfig, ModelError, read_config
from jaxgeom.models.encoder import Encoder
from jaxgeom.models.encoding import TokenEmbeddings, encode
from jaxgeom.models.hub import NamedModel, parse_model, resolve_model
from jaxgeom.models.masked_lm import MaskedLM, load_masked_lm, save_masked_lm
from jaxgeom.models.packing import Packing, Rows, pack
from jaxgeom.models.pooling import pool
from jaxgeom.models.tokens import Tokenized, Tokenizer, load_tokenizer
from jaxgeom.models.weights import load_encoder, random_encoder, save_encoder

__all__ = [
    "Encoder",
    "EncoderConfig",
    "MaskedLM",
    "ModelError",
    "NamedModel",
    "Packing",
    "Rows",
    "TokenEmbeddings",
    "Tokenized",
    "Tokenizer",
    "encode",
    "load_encoder",
    "load_masked_lm",
    "load_tokenizer",
    "pack",
    "parse_model",
    "pool",
    "random_encoder",
    "read_config",
    "resolve_model",
    "save_encoder",
    "save_masked_lm",
]

"""Sentences, a tokenizer and a model folder out of nothing, where there is no data."""

import csv
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from jaxgeom.models import EncoderConfig, random_encoder, save_encoder
from jaxgeom.tasks import StsPairs
from jaxgeom.tasks.sts import MAX_SCORE

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


class Shape(NamedTuple):
    """How large an encoder is."""

    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    intermediate_size: int


BERT_BASE = Shape(30_522, 768, 12, 12, 3072)
TINY = Shape(500, 32, 1, 2, 64)


def config(shape: Shape) -> EncoderConfig:
    """Return the config of a BERT of that shape."""
    return EncoderConfig(
        model_type="bert",
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.intermediate_size,
        hidden_act="gelu",
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        max_position_embeddings=512,
        type_vocab_size=2,
        initializer_range=0.02,
        layer_norm_eps=1e-12,
        pad_token_id=0,
    )


def pairs(n: int, vocab_size: int, seed: int) -> StsPairs:
    """Return pairs of which the second sentence keeps as many words of the first as the score says.

    Lengths are those of STS-B, about: 5 to 25 words.
    """
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 26, n) / 5
    firsts, seconds = [], []
    for score in scores:
        first = rng.integers(len(_SPECIAL), vocab_size, rng.integers(5, 26))
        other = rng.integers(len(_SPECIAL), vocab_size, first.size)
        changed = rng.random(first.size) * MAX_SCORE > score
        firsts.append(_text(first))
        seconds.append(_text(np.where(changed, other, first)))
    return StsPairs(firsts, seconds, scores, f"made up with seed {seed}")


def write_model(folder: Path, shape: Shape) -> Path:
    """Write an encoder with random weights and its tokenizer, as `--models` takes them."""
    save_encoder(random_encoder(config(shape), key=jax.random.key(0)), folder)
    vocabulary = dict(zip(_SPECIAL, range(len(_SPECIAL)), strict=True))
    vocabulary |= {f"w{i}": i for i in range(len(_SPECIAL), shape.vocab_size)}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(_SPECIAL))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def write_sts(folder: Path, n_train: int, n_dev: int, vocab_size: int) -> Path:
    """Write `train.csv` and `dev.csv` as STS-B is laid out."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (split, n) in enumerate({"train": n_train, "dev": n_dev}.items()):
        made = pairs(n, vocab_size, seed)
        with (folder / f"{split}.csv").open("w", newline="", encoding="utf-8") as text:
            columns = (made.sentences1, made.sentences2, made.scores)
            csv.writer(text).writerows(zip(*columns, strict=True))
    return folder


def _text(words: np.ndarray) -> str:
    return " ".join(f"w{i}" for i in words)

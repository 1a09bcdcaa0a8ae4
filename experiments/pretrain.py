"""Masked-language-model pre-training of a small BERT or RoBERTa, from a folder of text.

    python -m experiments.pretrain --arch bert --corpus FOLDER --output out/mini-bert

Trains a tokenizer on the folder's *.txt (one sentence a line), then the encoder and its head, and
leaves OUTPUT/model: a folder that transformers opens, with a model card. --init goes on from such a
model, the learning rate rising and falling once more. OUTPUT/metrics.jsonl has
loss and accuracy on held-out text every so many steps. A run that was interrupted goes on from its
last checkpoint and ends in the same weights.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from experiments.command.start import main
from experiments.layout.card import CARD, model_card
from jaxgeom._files import write_text
from jaxgeom.training.checkpoints import read_record
from jaxgeom.training.corpus import read_corpus
from jaxgeom.training.mlm import MLMConfig
from jaxgeom.training.pretraining import pretrain
from jaxgeom.training.sentence_model import RECORD


@dataclass(frozen=True)
class Config:
    """Masked-language-model pre-training of a small encoder."""

    corpus: Path
    """Folder of *.txt, one sentence a line."""
    output: Path
    """Folder of the run; OUTPUT/model is the finished model."""
    arch: Literal["bert", "roberta"] = "bert"
    """bert: WordPiece, lower case; roberta: byte-level BPE."""
    steps: int = MLMConfig.n_steps
    """Optimiser steps of the whole run."""
    seed: int = 0
    """Drives the held-out share, fresh weights, order and masks."""
    vocab_size: int = MLMConfig.vocab_size
    """Entries of the tokenizer's vocabulary, at most."""
    hidden_size: int = MLMConfig.hidden_size
    """Width of the encoder."""
    layers: int = MLMConfig.num_hidden_layers
    """Layers of the encoder."""
    heads: int = MLMConfig.num_attention_heads
    """Attention heads of each layer."""
    intermediate_size: int = MLMConfig.intermediate_size
    """Width of the feed-forward networks."""
    row_length: int = MLMConfig.row_length
    """Tokens of a packed row, and of the longest sentence; the rest is cut off and counted."""
    batch_size: int = MLMConfig.batch_size
    """Rows of a step."""
    lr: float = MLMConfig.learning_rate
    """Highest learning rate of AdamW, after the warm-up."""
    weight_decay: float = MLMConfig.weight_decay
    """Of everything but biases and layer normalisation."""
    warmup: float = MLMConfig.warmup
    """Share of the steps over which the learning rate rises; then it falls to 0."""
    masked_share: float = MLMConfig.masked_share
    """Share of the tokens that are hidden in training; 0.15 when measuring on held-out text."""
    held_out: float = MLMConfig.held_out_share
    """Share of the sentences that are never trained on."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """What matrix products are computed in."""
    stored: Literal["float32", "bfloat16"] = "float32"
    """What the finished weights are stored in."""
    every: int = 200
    """Steps between one look at held-out text, with its checkpoint, and the next."""
    init: Path | None = None
    """Model of an earlier run, OUTPUT/model there, to start from instead of fresh weights; its
    tokenizer is kept."""
    licences: tuple[str, ...] = ()
    """FILE=LICENCE of the corpus's files, for the model card."""


def run(config: Config) -> Path:
    """Pre-train, or go on, or find it done; return the finished model's folder.

    Args:
        config: The options.

    Returns:
        OUTPUT/model.

    Raises:
        ValueError, OSError: An option or a file that cannot be used, or a loss that is no number
            any more.
    """
    corpus = read_corpus(config.corpus)
    licences = _licences(config, [file.name for file in corpus.files])
    folder = pretrain(
        corpus.sentences,
        seed=config.seed,
        folder=config.output,
        config=recipe_of(config),
        stored=config.stored,
        every=config.every,
        init=config.init,
    )
    record = read_record(folder, RECORD)
    card = model_card(config, corpus, record, licences, name=config.output.resolve().name)
    write_text(folder / CARD, card)
    print(
        f"{folder}: held-out accuracy {record['held_out_accuracy']:.3f} "
        f"(most frequent token: {record['unigram_accuracy']:.3f}), "
        f"loss {record['held_out_loss']:.3f} (by frequency alone: {record['unigram_loss']:.3f})"
    )
    return folder


def recipe_of(config: Config) -> MLMConfig:
    """Return the options as the library's settings."""
    return MLMConfig(
        arch=config.arch,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        intermediate_size=config.intermediate_size,
        row_length=config.row_length,
        batch_size=config.batch_size,
        n_steps=config.steps,
        learning_rate=config.lr,
        weight_decay=config.weight_decay,
        warmup=config.warmup,
        masked_share=config.masked_share,
        held_out_share=config.held_out,
        dtype=config.dtype,
    )


def _licences(config: Config, names: list[str]) -> dict[str, str]:
    """Return the licence of each file of the corpus that has one stated."""
    licences = {}
    for text in config.licences:
        name, equals, licence = text.partition("=")
        if not equals or not licence or name not in names:
            raise ValueError(
                f"--licences must be FILE=LICENCE with a file of {', '.join(names)}, got {text!r}"
            )
        licences[name] = licence
    return licences


if __name__ == "__main__":
    sys.exit(main(Config, run, name="pretrain"))

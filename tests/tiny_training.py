"""A model and pairs so small that an epoch takes a moment; for the tests of training."""

from pathlib import Path

import jax
import numpy as np

from jaxgeom.models import (
    Encoder,
    EncoderConfig,
    Tokenizer,
    load_tokenizer,
    random_encoder,
    save_encoder,
)
from jaxgeom.tasks import StsPairs
from jaxgeom.training import SiameseConfig

GOLDEN = Path(__file__).parent / "golden"
SENTENCE = "rain a small red boat drifts slowly across the quiet lake two engineers measured"
# 21 pairs and batches of 8: three steps an epoch, the third one short. All tests train with this
# recipe and so many pairs, in batches of one shape: the step is compiled once.
RECIPE = SiameseConfig(batch_size=8, learning_rate=1e-2, epochs=4, max_length=64)
N_TRAIN, N_DEV = 21, 12
N_STEPS = RECIPE.n_steps(N_TRAIN)


def tiny_config(model_type: str = "bert", *, dropout: float = 0.1) -> EncoderConfig:
    roberta = model_type == "roberta"
    return EncoderConfig(
        model_type=model_type,
        vocab_size=360 if roberta else 250,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        hidden_act="gelu",
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        max_position_embeddings=66,
        type_vocab_size=1 if roberta else 2,
        initializer_range=0.3,
        layer_norm_eps=1e-5,
        pad_token_id=1 if roberta else 0,
    )


def tiny_encoder(model_type: str = "bert", *, dropout: float = 0.1) -> Encoder:
    return random_encoder(tiny_config(model_type, dropout=dropout), key=jax.random.key(1))


def tiny_tokenizer(model_type: str = "bert") -> Tokenizer:
    return load_tokenizer(GOLDEN / model_type)


def tiny_model(folder: Path, model_type: str = "bert") -> Path:
    """Write the model as a folder that `--models` takes."""
    save_encoder(tiny_encoder(model_type), folder)
    tiny_tokenizer(model_type).save(folder)
    return folder


def tiny_pairs(n_pairs: int, seed: int) -> StsPairs:
    """Pairs of which the second sentence keeps as many words of the first as the score says."""
    rng, words = np.random.default_rng(seed), SENTENCE.split()
    scores = rng.integers(0, 51, n_pairs) / 10
    firsts, seconds = [], []
    for score in scores:
        first = rng.choice(words, rng.integers(2, 6))
        changed = rng.random(first.size) * 5 > score
        firsts.append(" ".join(first))
        seconds.append(" ".join(np.where(changed, rng.choice(words, first.size), first)))
    firsts[0] = f"{SENTENCE} {SENTENCE}"  # makes rows of 64, of which no batch needs more than four
    return StsPairs(firsts, seconds, scores, f"made up with seed {seed}")

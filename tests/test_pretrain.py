"""Pre-training end to end: text in, a model folder out, also where it is killed on the way."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from interrupted_runs import count_steps, sha256, train_until_killed
from tiny_corpus import EVERY, RECIPE, sentences, write_corpus

from experiments import pretrain as command
from experiments.command.start import main
from jaxgeom.models import Rows, encode, load_encoder, load_tokenizer, resolve_model
from jaxgeom.models.masked_lm import load_masked_lm
from jaxgeom.tasks import DataError
from jaxgeom.training import CheckpointError, DivergenceError, mlm_loop
from jaxgeom.training.corpus import read_corpus, split_corpus
from jaxgeom.training.mlm import find_masked
from jaxgeom.training.mlm_loop import epoch_rows, held_out_batches, masks_of_held_out_text
from jaxgeom.training.pretraining import packed_text, pretrain, unigram_baseline
from jaxgeom.training.vocabulary import SPECIAL, train_tokenizer

# what a process trains that is killed; it knows its `folder`
TRAINING = """
from interrupted_runs import count_steps, sha256, train_until_killed
from tiny_corpus import *
from jaxgeom.training.pretraining import pretrain

pretrain(sentences(), seed=0, folder=folder, config=RECIPE, every=EVERY)
"""


def train(folder: Path, **changes: Any) -> Path:
    options: dict[str, Any] = {"seed": 0, "config": RECIPE, "every": EVERY} | changes
    return pretrain(options.pop("sentences", sentences()), folder=folder, **options)


def log_of(folder: Path) -> list[dict[str, Any]]:
    """The log but for the one thing in it that is a matter of the clock."""
    records = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in r.items() if k != "steps_per_second"} for r in records]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing has interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    train(folder)
    return folder


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the steps that are taken, from 0 on."""
    return count_steps(mlm_loop, monkeypatch)


def test_what_a_run_leaves(whole: Path) -> None:
    model = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert files(whole) == {
        "metrics.jsonl",
        *(f"model/{name}" for name in {*model, "training.json"}),
        "tokenizer/tokenizer.json",
        "tokenizer/tokenizer_config.json",
    }
    log = log_of(whole)
    assert [record["step"] for record in log] == [3, 6, 7]
    record = json.loads((whole / "model" / "training.json").read_text())
    assert record["n_steps"] == 7
    assert [r["held_out_loss"] for r in record["curve"]] == [r["held_out_loss"] for r in log]
    assert record["held_out_loss"] == pytest.approx(log[-1]["held_out_loss"], rel=1e-6)
    assert log[-1]["mean_loss"] < log[0]["mean_loss"]
    assert load_encoder(whole / "model").config == RECIPE.encoder_config(
        load_tokenizer(whole / "model").vocab_size
    )


@pytest.mark.parametrize(
    ("function", "call", "first_step"),
    [
        ("jaxgeom.training.mlm_loop.train_step", 5, 3),  # between two checkpoints
        ("jaxgeom.training.checkpoints.save_file", 2, 3),  # half of the second one is written
        ("jaxgeom.training.pretraining.write_json", 1, 7),  # the model lacks its record
    ],
)
def test_killed_and_started_again(
    whole: Path,
    tmp_path: Path,
    steps: list[int],
    function: str,
    call: int,
    first_step: int,
) -> None:
    train_until_killed(TRAINING, tmp_path, function, call)
    model = train(tmp_path)
    assert steps == list(range(first_step, RECIPE.n_steps))
    assert log_of(tmp_path) == log_of(whole)
    assert sha256(model) == sha256(whole / "model")
    assert files(tmp_path) == files(whole)  # no temporary one is left


def test_finished_run_trains_nothing(whole: Path, steps: list[int]) -> None:
    before = sha256(whole / "model")
    assert train(whole) == whole / "model"
    assert steps == []
    assert sha256(whole / "model") == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "seed is 0 there and 1 here"),
        (
            {"config": dataclasses.replace(RECIPE, learning_rate=1e-4)},
            r"learning_rate is 0\.01 there and 0\.0001 here",
        ),
        ({"sentences": sentences()[:150]}, "text is '[0-9a-f]{64}' there and"),
        ({"stored": "bfloat16"}, "stored is 'float32' there and 'bfloat16' here"),
    ],
)
def test_model_of_another_run_is_refused(whole: Path, changes: dict, message: str) -> None:
    with pytest.raises(CheckpointError, match=rf"model belongs to another run \(.*{message}"):
        train(whole, **changes)


def test_learning_rate_too_high_says_the_step(tmp_path: Path) -> None:
    recipe = dataclasses.replace(RECIPE, learning_rate=1e30)
    with pytest.raises(DivergenceError, match=r"got nan at step 3 of 7 \(learning_rate 1e\+30\)"):
        train(tmp_path, config=recipe)
    assert not (tmp_path / "model").exists()


def test_weights_that_the_last_step_breaks_leave_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = {"held_out_loss": np.nan, "held_out_accuracy": 0.0}
    monkeypatch.setattr(mlm_loop, "evaluate_held_out", lambda *_: scores)
    with pytest.raises(DivergenceError, match="held-out loss must be finite, got nan at step 3"):
        train(tmp_path)
    assert not (tmp_path / "checkpoints").exists() or not list((tmp_path / "checkpoints").iterdir())


def test_padding_counts_for_nothing_and_masks_are_always_the_same(whole: Path) -> None:
    """The saved model, asked outside of the run, says what the run's record says."""
    record = json.loads((whole / "model" / "training.json").read_text())
    tokenizer, model = load_tokenizer(whole / "model"), load_masked_lm(whole / "model")
    parts = split_corpus(sentences(), share=RECIPE.held_out_share, seed=0)
    text = packed_text(parts.held_out, tokenizer, RECIPE, seed=0)
    assert len(text.rows.input_ids) == record["held_out"]["n_rows"]
    assert len(text.rows.input_ids) % RECIPE.batch_size == 0
    key, vocabulary = masks_of_held_out_text(0), RECIPE.vocabulary(tokenizer.vocab_size)
    found = [
        find_masked(model, rows, vocabulary, share=0.15, key=jax.random.fold_in(key, i))
        for i, rows in enumerate(held_out_batches(text.rows, RECIPE.batch_size))
    ]
    loss, n_correct, n = np.sum(np.asarray(found, np.float64), axis=0)
    assert loss / n == pytest.approx(record["held_out_loss"], rel=1e-5)
    assert n_correct / n == pytest.approx(record["held_out_accuracy"])


def test_every_row_has_its_turn_once_an_epoch() -> None:
    first, second = epoch_rows(0, 0, 50), epoch_rows(0, 1, 50)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first.tolist() != second.tolist()
    assert epoch_rows(1, 0, 50).tolist() != first.tolist()


def rows_of(ids: list[list[int]]) -> Rows:
    array = np.array(ids, np.int32)
    return Rows(array, np.ones_like(array), np.zeros_like(array))


def test_unigram_baseline_by_hand() -> None:
    """Counts 3, 1, 0 of the ids 5, 6, 7, each one more: shares 4/7, 2/7, 1/7."""
    baseline = unigram_baseline(rows_of([[2, 5, 5, 5, 6, 3]]), rows_of([[2, 5, 7, 3]]), 5)
    assert baseline["unigram_accuracy"] == 0.5
    assert baseline["unigram_loss"] == pytest.approx((np.log(7 / 4) + np.log(7)) / 2)


@pytest.mark.parametrize("arch", ["bert", "roberta"])
def test_tokenizer(arch: str, tmp_path: Path) -> None:
    made = [*sentences(2000), "boats😀 and 😀"]  # beyond the basic plane
    for name in ("one", "two"):  # training is deterministic
        train_tokenizer(made, tmp_path / name, arch=arch, vocab_size=300, max_length=16)
    content = [(tmp_path / name / "tokenizer.json").read_bytes() for name in ("one", "two")]
    assert content[0] == content[1]
    tokenizer = load_tokenizer(tmp_path / "one")
    special = SPECIAL[arch]
    (tokens,) = tokenizer.encode(["A red boat crosses the lake"])
    assert tokens.ids[[0, -1]].tolist() == [special.ids[special.begin], special.ids[special.end]]
    assert tokens.special.sum() == 2
    assert len(tokens.ids) == 8 if arch == "bert" else len(tokens.ids) >= 8
    lower = tokenizer.encode(["a red boat crosses the lake"])[0]
    assert (lower.ids.tolist() == tokens.ids.tolist()) == (arch == "bert")


@pytest.mark.parametrize("arch", ["bert", "roberta"])
def test_tokenizer_opens_in_transformers(arch: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    train_tokenizer(sentences(500), tmp_path, arch=arch, vocab_size=300, max_length=16)
    ours, theirs = load_tokenizer(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in ("The old dog watches a boat.", "three quiet lakes, rain"):
        assert theirs(text)["input_ids"] == ours.encode([text])[0].ids.tolist()
    special = SPECIAL[arch]
    assert (theirs.mask_token_id, theirs.pad_token_id) == (special.mask_id, special.pad_id)
    assert theirs.model_max_length == 16
    masked = theirs(f"the {special.mask} dog")["input_ids"]
    assert masked.count(special.mask_id) == 1


def test_corpus(tmp_path: Path) -> None:
    corpus = read_corpus(write_corpus(tmp_path))
    assert corpus.sentences == sentences()
    counts = {file.name: file.n_sentences for file in corpus.files}
    assert counts == {"a.txt": 100, "b.txt": 101}
    content = (tmp_path / "a.txt").read_bytes()
    assert corpus.files[0].sha256 == hashlib.sha256(content).hexdigest()
    parts = split_corpus(corpus.sentences, share=0.2, seed=3)
    assert sorted(parts.train + parts.held_out) == sorted(corpus.sentences)
    fewer = split_corpus(corpus.sentences[:50], share=0.2, seed=3)
    assert set(fewer.held_out) == set(parts.held_out) & set(corpus.sentences[:50])
    assert parts.held_out != split_corpus(corpus.sentences, share=0.2, seed=4).held_out


def test_corpus_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must be a folder of text files: there is no such folder"):
        read_corpus(tmp_path / "none")
    with pytest.raises(DataError, match=r"there is no \*\.txt in it"):
        read_corpus(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"\n\n")
    with pytest.raises(DataError, match="must hold one sentence or more, got empty files"):
        read_corpus(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"fine\n\xff\n")
    with pytest.raises(DataError, match=r"a\.txt:2: not UTF-8"):
        read_corpus(tmp_path)
    with pytest.raises(ValueError, match=r"share must leave sentences on both sides, got 0\.5 for"):
        split_corpus(["alone"], share=0.5, seed=0)


def run(folder: Path, **changes: Any) -> int:
    flags = {
        "corpus": write_corpus(folder / "corpus"),
        "output": folder / "tiny-bert",
        "steps": RECIPE.n_steps,
        "vocab_size": RECIPE.vocab_size,
        "hidden_size": RECIPE.hidden_size,
        "layers": RECIPE.num_hidden_layers,
        "heads": RECIPE.num_attention_heads,
        "intermediate_size": RECIPE.intermediate_size,
        "row_length": RECIPE.row_length,
        "batch_size": RECIPE.batch_size,
        "lr": RECIPE.learning_rate,
        "held_out": RECIPE.held_out_share,
        "every": EVERY,
    } | changes
    args = [str(part) for k, v in flags.items() for part in (f"--{k.replace('_', '-')}", v)]
    return main(command.Config, command.run, name="pretrain", args=args)


def test_command_and_card(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, licences="a.txt=public domain") == 0
    assert "held-out accuracy" in capsys.readouterr().out
    model = tmp_path / "tiny-bert" / "model"
    assert sha256(model) == sha256(whole / "model")  # what the library trains
    card = (model / "README.md").read_text(encoding="utf-8")
    assert card.startswith("# tiny-bert\n\nA small BERT, ")
    assert "| a.txt | 100 | 0.00 | public domain |" in card
    assert "| b.txt | 101 | 0.00 | not stated |" in card
    assert "--corpus corpus --output tiny-bert --steps 7" in card
    assert str(tmp_path) not in card
    curve = [line for line in card.splitlines() if line.startswith(("| 3 |", "| 6 |", "| 7 |"))]
    assert len(curve) == 3
    assert resolve_model(model) == model
    embeddings = encode(load_encoder(model), load_tokenizer(model), ["a red boat"], max_length=16)
    assert np.isfinite(embeddings.hidden).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"licences": "c.txt=mine"}, "--licences must be FILE=LICENCE with a file of a.txt, b.txt"),
        ({"corpus": "nowhere"}, "nowhere must be a folder of text files: there is no such folder"),
        ({"steps": 0}, "n_steps must be at least 1, got 0"),
        ({"vocab_size": 100}, "vocab_size must be at least 261, got 100"),
    ],
)
def test_what_cannot_be_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict, message: str
) -> None:
    assert run(tmp_path, **changes) == 2
    assert message in capsys.readouterr().err
    assert jax.config.jax_numpy_rank_promotion == "raise"

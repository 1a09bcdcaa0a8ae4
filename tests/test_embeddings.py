"""Embeddings are encoded once: keyed by the contents of what shapes them, whole or absent."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tokenizers
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import BertProcessing

from experiments import table1
from experiments.command.options import Common
from experiments.command.stages import Stages
from experiments.command.start import main
from experiments.spaces.checkpoints import Source, checkpoint, digest, sources
from experiments.spaces.embeddings import FORMAT, embeddings
from experiments.spaces.space import spaces
from jaxgeom import study
from jaxgeom.models.config import EncoderConfig
from jaxgeom.models.encoding import TokenEmbeddings
from jaxgeom.models.weights import random_encoder, save_encoder

SENTENCES = ["A man plays.", "Two cats."]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files that only their contents matter of: nothing here is built."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_text(f"contents of {name}")
    return folder


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Stand in for the encoder; the list receives the options of every call."""
    calls: list[dict[str, Any]] = []

    def encode(encoder: Any, tokenizer: Any, sentences: list[str], **options: Any) -> Any:
        calls.append(options)
        n = 3 * len(sentences)
        return TokenEmbeddings(
            hidden=np.arange(2 * n, dtype=np.float32).reshape(n, 2),
            sentence_ids=np.repeat(np.arange(len(sentences), dtype=np.int32), 3),
            token_ids=np.arange(n, dtype=np.int32),
            special=np.tile([True, False, True], len(sentences)),
            n_truncated=1,
        )

    monkeypatch.setattr("experiments.spaces.embeddings.encode", encode)
    monkeypatch.setattr("experiments.spaces.embeddings.load_tokenizer", lambda folder: None)
    return calls


def read(folder: Path, cache: Path, sentences: list[str] = SENTENCES, **options: Any) -> Any:
    point = checkpoint(Source("m", folder), "pretrained", 0, Common())
    point = point._replace(build=lambda dtype: None)
    return embeddings(point, sentences, cache, **options)


def test_a_second_run_reads_what_the_first_encoded(
    folder: Path, tmp_path: Path, encoded: list[Any]
) -> None:
    first, second = (read(folder, tmp_path / "cache") for _ in range(2))
    assert len(encoded) == 1
    assert isinstance(second.hidden, np.memmap)
    assert second.n_truncated == 1
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
    (entry,) = (tmp_path / "cache").iterdir()
    assert {path.name for path in entry.iterdir()} == {"hidden.npy", "tokens.npz", "key.json"}
    assert json.loads((entry / "key.json").read_text())["max_length"] == 128


def test_a_moved_folder_hits(folder: Path, tmp_path: Path, encoded: list[Any]) -> None:
    read(folder, tmp_path / "cache")
    read(folder.rename(tmp_path / "elsewhere"), tmp_path / "cache")
    assert len(encoded) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "model.safetensors").write_text("other"),
        lambda folder: (folder / "config.json").write_text("other"),
        lambda folder: (folder / "tokenizer.json").write_text("other"),
        lambda folder: (folder / "vocab.txt").write_text("new"),
    ],
    ids=["weights", "config", "tokenizer", "vocabulary"],
)
def test_other_contents_miss(
    change: Callable[[Path], Any], folder: Path, tmp_path: Path, encoded: list[Any]
) -> None:
    read(folder, tmp_path / "cache")
    change(folder)
    read(folder, tmp_path / "cache")
    assert len(encoded) == 2


@pytest.mark.parametrize(
    "options", [{"max_length": 64}, {"dtype": "bfloat16"}, {"sentences": SENTENCES[::-1]}]
)
def test_other_options_miss(
    options: dict[str, Any], folder: Path, tmp_path: Path, encoded: list[Any]
) -> None:
    read(folder, tmp_path / "cache")
    read(folder, tmp_path / "cache", **options)
    assert len(encoded) == 2


def test_another_format_misses(
    folder: Path, tmp_path: Path, encoded: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read(folder, tmp_path / "cache")
    monkeypatch.setattr("experiments.spaces.embeddings.FORMAT", FORMAT + 1)
    read(folder, tmp_path / "cache")
    assert len(encoded) == 2


def test_interrupted_encoding_leaves_nothing(
    folder: Path, tmp_path: Path, encoded: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("experiments.spaces.embeddings.np.savez", interrupt)
    with pytest.raises(KeyboardInterrupt):
        read(folder, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_damaged_entry_is_named(folder: Path, tmp_path: Path, encoded: list[Any]) -> None:
    read(folder, tmp_path / "cache")
    (entry,) = (tmp_path / "cache").iterdir()
    (entry / "hidden.npy").write_bytes(b"half")
    with pytest.raises(ValueError, match=rf"{entry.name}: cannot be read .* delete it"):
        read(folder, tmp_path / "cache")


def test_two_models_need_two_names(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--models must have different names .* got a, a"):
        sources((f"a={tmp_path}", f"a={tmp_path / 'other'}"))


def test_digest_is_of_names_and_contents(folder: Path) -> None:
    before = digest(folder, ("*.json",))
    (folder / "config.json").rename(folder / "other.json")
    assert digest(folder, ("*.json",)) != before


WORDS = ("a", "man", "woman", "plays", "cuts", "the", "guitar", "red", "cat", "dog", "runs")


@pytest.fixture
def small_bert(tmp_path: Path) -> Path:
    """A whole model folder: a thin BERT, and a tokenizer of a dozen words."""
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = tokenizers.Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    config = EncoderConfig(
        model_type="bert",
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        hidden_act="gelu",
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        max_position_embeddings=16,
        type_vocab_size=2,
        initializer_range=0.2,
        layer_norm_eps=1e-12,
        pad_token_id=0,
    )
    save_encoder(random_encoder(config, key=jax.random.key(7)), tmp_path / "small")
    tokenizer.save(str(tmp_path / "small" / "tokenizer.json"))
    return tmp_path / "small"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Thirty pairs of five words; the score counts the words that they share."""
    rng = np.random.default_rng(0)
    pairs = [(rng.choice(WORDS, 5), rng.choice(WORDS, 5)) for _ in range(30)]
    lines = [f"{' '.join(a)},{' '.join(b)},{min(5, len({*a} & {*b}))}\n" for a, b in pairs]
    (tmp_path / "dev.csv").write_text("".join(lines))
    return tmp_path


SMALL = ("--n-clusters", "3", "--n-directions", "2", "--max-length", "16")


def table(model: Path, data: Path, *args: Any) -> list[dict[str, Any]]:
    output = data / "out"
    given = ("--models", f"small={model}", "--data", data, "--states", "random", "pretrained")
    flags = (*given, *SMALL, "--output", output, *args)
    assert main(table1.Config, table1.run, name="table1", args=[str(f) for f in flags]) == 0
    return json.loads((output / "table1.json").read_text())["rows"]


def test_a_model_goes_through_the_table_and_is_encoded_once(
    small_bert: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = table(small_bert, data, "--seeds", "0", "1")
    runs = [(row["state"], row["seed"]) for row in rows if row["setting"] == "cls"]
    assert runs == [("random", 0), ("random", 1), ("pretrained", 0), ("pretrained", 1)]
    assert {row["n_tokens"] for row in rows if row["setting"] != "cls"} == {2 * 30 * 5}
    assert {row["n_tokens"] for row in rows if row["setting"] == "cls"} == {2 * 30}
    assert len(list((data / "out" / "embeddings").iterdir())) == 3  # the frozen weights once
    monkeypatch.setattr("experiments.spaces.embeddings.encode", None)
    again = table(small_bert, data, "--seeds", "0", "1", "--labels", data / "out" / "labels")
    assert again == rows


def test_only_random_weights_depend_on_the_seed(small_bert: Path) -> None:
    (source,) = sources((str(small_bert),))
    for state, same in (("pretrained", True), ("random", False)):
        points = [checkpoint(source, state, seed, Common()) for seed in (0, 1)]
        assert (points[0].weights == points[1].weights) is same


def test_the_cls_row_is_of_the_first_tokens(small_bert: Path, data: Path) -> None:
    """Pooling by CLS studies the space of these vectors: its baseline is the CLS row."""
    mean = table(small_bert, data, "--states", "pretrained")
    cls = table(small_bert, data, "--states", "pretrained", "--pooling", "cls")
    numbers = ("spearman", "isotropy", "isotropy_low", "isotropy_high", "n_tokens")
    assert [cls[0][k] for k in numbers] == [cls[-1][k] for k in numbers]
    assert [cls[0][k] for k in numbers] == [mean[-1][k] for k in numbers]
    assert mean[0]["spearman"] != mean[-1]["spearman"]
    (entry,) = (data / "out" / "embeddings").iterdir()
    hidden, token_ids = np.load(entry / "hidden.npy"), np.load(entry / "tokens.npz")["token_ids"]
    vectors = hidden[token_ids == 2]  # [CLS]
    scores = [float(line.rsplit(",", 1)[1]) for line in (data / "dev.csv").read_text().splitlines()]
    assert mean[-1]["spearman"] == pytest.approx(study.spearman(vectors, np.array(scores)))


def test_truncated_sentences_are_counted(
    small_bert: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sentences of five words and two special tokens, cut to five tokens."""
    rows = table(small_bert, data, "--states", "pretrained", "--max-length", "5")
    assert rows[0]["n_tokens"] == 60 * 3
    assert "small: 60 sentences were cut off at --max-length 5" in capsys.readouterr().err
    record = json.loads((data / "out" / "run.json").read_text())["experiments"]["table1"]
    assert record["inputs"][0]["n_truncated"] == 60


def test_the_authors_protocol_reads_quotes_by_default(
    small_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def read_sts(source: str, **options: Any) -> None:
        asked.append(options)
        raise ValueError("enough")

    monkeypatch.setattr("experiments.spaces.space.read_sts", read_sts)
    for protocol in ("ours", "authors"):
        config = Common(models=(str(small_bert),), data="somewhere", protocol=(protocol,))
        with pytest.raises(ValueError, match="enough"):
            next(spaces(config, None, Stages()))
    assert asked == [
        {"split": "dev", "quoting": "plain"},
        {"split": "dev", "quoting": "default"},
    ]


def test_without_a_preset_models_and_data_must_be_named(small_bert: Path) -> None:
    for models, message in (((str(small_bert),), "--data must name STS-B"), ((), "give either")):
        with pytest.raises(ValueError, match=message):
            next(spaces(Common(models=models), None, Stages()))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("--models", "nowhere/at/all", "--data", "good.csv"),
            "nowhere/at/all must be a model folder",
        ),
        (("--models", "small", "--data", "."), r". must hold one of the files dev\.csv"),
        (("--models", "small", "--data", "bad.csv"), r"bad\.csv:2.* 3 columns"),
        (("--models", "small", "--data", "scale.csv"), r"scale\.csv:1"),
        (("--models", "small", "--data", "good.csv", "--max-length", "99"), "max_length .* got 99"),
    ],
)
def test_a_users_mistake_is_one_line(
    args: tuple[str, ...],
    message: str,
    small_bert: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(small_bert.parent)
    Path("bad.csv").write_text("a cat,a dog,1\na cat,a dog\n")
    Path("scale.csv").write_text("a cat,a dog,7\n")
    Path("good.csv").write_text("a cat,a dog,1\na cat,a cat,5\n")
    assert main(table1.Config, table1.run, name="table1", args=[*args, "--output", "out"]) == 2
    error = capsys.readouterr().err
    assert re.search(f"^error: .*{message}", error)
    assert "Traceback" not in error
    assert [path for path in Path("out").rglob("*") if path.is_file()] == []


def test_weights_that_are_missing_stop_before_anything_is_written(
    small_bert: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (small_bert / "model.safetensors").rename(small_bert / "pytorch_model.bin")
    flags = ["--models", str(small_bert), "--data", str(data), "--states", "pretrained"]
    args = [*flags, "--output", str(data / "out")]
    assert main(table1.Config, table1.run, name="table1", args=args) == 2
    assert "safetensors" in capsys.readouterr().err
    assert [path for path in (data / "out").rglob("*") if path.is_file()] == []

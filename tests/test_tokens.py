"""Tokens against Hugging Face's tokenizers, and the sentences and folders that are refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tokenizers

from jaxgeom.models import ModelError, load_tokenizer
from jaxgeom.models import tokens as module

GOLDEN = Path(__file__).parent / "golden"
LONG = "A small red boat drifts slowly across the quiet lake, and then it drifts back again."


@pytest.fixture
def bert(tmp_path) -> Path:
    return Path(shutil.copytree(GOLDEN / "bert", tmp_path / "bert"))


@pytest.mark.parametrize("name", ["minilm", "bert", "roberta"])
def test_parity(name, request):
    """Ids, special tokens and truncation at 128 as `transformers` has them."""
    folder = request.getfixturevalue("minilm_dir") if name == "minilm" else GOLDEN / name
    with np.load(GOLDEN / f"{name}.npz") as file:
        stored = dict(file)
    sentences = stored["sentences"].tolist()
    tokenized = load_tokenizer(folder).encode(sentences, max_length=int(stored["max_length"]))
    assert [tokens.ids.size for tokens in tokenized] == stored["lengths"].tolist()
    np.testing.assert_array_equal(np.concatenate([t.ids for t in tokenized]), stored["ids"])
    for tokens in tokenized:
        assert tokens.special.tolist() == [True] + [False] * (tokens.ids.size - 2) + [True]
    at_limit = stored["lengths"] == stored["max_length"]  # no sentence has just that many
    assert [tokens.truncated for tokens in tokenized] == at_limit.tolist()


def test_baked_in_padding_and_truncation_are_off():
    baked = json.loads((GOLDEN / "bert/tokenizer.json").read_text())
    assert baked["padding"]["strategy"] == {"Fixed": 24}
    assert baked["truncation"]["max_length"] == 12
    word, long = load_tokenizer(GOLDEN / "bert").encode(["Rain", LONG])
    assert word.ids.size < 12
    assert long.ids.size > 24


def test_truncation_keeps_the_last_special_token():
    tokenizer = load_tokenizer(GOLDEN / "bert")
    (whole,), (cut,) = tokenizer.encode([LONG]), tokenizer.encode([LONG], max_length=10)
    assert cut.ids.tolist() == [*whole.ids[:9], whole.ids[-1]]
    assert cut.special.tolist() == [True] + [False] * 8 + [True]
    assert (whole.truncated, cut.truncated) == (False, True)
    (exact,) = tokenizer.encode([LONG], max_length=whole.ids.size)
    assert not exact.truncated
    (again,) = tokenizer.encode([LONG])  # a limit holds for one call
    np.testing.assert_array_equal(again.ids, whole.ids)


def test_dtypes():
    (tokens,) = load_tokenizer(GOLDEN / "bert").encode(["Rain"])
    assert tokens.ids.dtype == np.int32
    assert tokens.special.dtype == np.bool_
    assert type(tokens.truncated) is bool


def test_a_special_token_in_the_text_is_text():
    (tokens,) = load_tokenizer(GOLDEN / "bert").encode(["a [SEP] a"])
    assert tokens.special.tolist() == [True, False, False, False, True]
    assert tokens.ids[2] == tokens.ids[-1]


@pytest.mark.parametrize("empty", ["", " \t\n", "\u200b"])
def test_an_empty_sentence(empty):
    tokenizer = load_tokenizer(GOLDEN / "bert")
    with pytest.raises(ValueError, match=r"sentences\[2\] must (not be empty|have tokens), got '"):
        tokenizer.encode(["Rain", "again", empty])


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        (["Rain", None], r"sentences\[1\] must be a string, got NoneType"),
        ([b"Rain"], r"sentences\[0\] must be a string, got bytes"),
    ],
)
def test_something_else_than_a_sentence(sentences, message):
    # past the annotation, which stops this in tests only
    with pytest.raises(TypeError, match=message):
        module._check_sentences.__wrapped__(sentences)


def test_a_single_string_is_no_list_of_sentences():
    with pytest.raises(TypeError, match="a sequence of strings, got a single string"):
        load_tokenizer(GOLDEN / "bert").encode("Rain")


@pytest.mark.parametrize("max_length", [2, 0, -1])
def test_no_room_for_a_token(max_length):
    with pytest.raises(ValueError, match=f"max_length must be at least 3, got {max_length}"):
        load_tokenizer(GOLDEN / "bert").encode(["Rain"], max_length=max_length)


def test_save_copies_the_files(minilm_dir, tmp_path):
    tokenizer = load_tokenizer(minilm_dir)
    tokenizer.save(tmp_path / "a/b")
    saved = {path.name: path.read_bytes() for path in (tmp_path / "a/b").iterdir()}
    assert set(saved) == {
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "vocab.txt",
    }
    assert all(data == (minilm_dir / name).read_bytes() for name, data in saved.items())
    (one,), (other,) = tokenizer.encode([LONG]), load_tokenizer(tmp_path / "a/b").encode([LONG])
    np.testing.assert_array_equal(one.ids, other.ids)


def test_save_into_its_own_folder(bert):
    before = (bert / "tokenizer.json").read_bytes()
    load_tokenizer(bert).save(bert)
    assert (bert / "tokenizer.json").read_bytes() == before


def only_vocabulary(name: str, folder: Path) -> None:
    """Turn a folder's tokenizer.json into the files that came before it."""
    path = folder / "tokenizer.json"
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.model.save(str(folder))
    path.unlink()
    (folder / "tokenizer_config.json").unlink()
    if name == "bert":  # the model's class saves it as vocab.txt
        assert (folder / "vocab.txt").is_file()


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_without_tokenizer_json(name, tmp_path):
    pytest.importorskip("transformers")
    folder = Path(shutil.copytree(GOLDEN / name, tmp_path / name))
    (expected,) = load_tokenizer(folder).encode([LONG])
    only_vocabulary(name, folder)
    (tokens,) = load_tokenizer(folder).encode([LONG])
    np.testing.assert_array_equal(tokens.ids, expected.ids)
    np.testing.assert_array_equal(tokens.special, expected.special)


def test_without_tokenizer_json_and_without_transformers(bert, monkeypatch):
    only_vocabulary("bert", bert)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"vocab\.txt needs transformers: .*jaxgeom\[hf\]"):
        load_tokenizer(bert)


def test_no_tokenizer(bert):
    (bert / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"must hold tokenizer\.json, vocab\.txt, or .*, got none"):
        load_tokenizer(bert)


def test_a_broken_tokenizer(bert):
    (bert / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(ModelError, match=r"tokenizer\.json must be a tokenizer's file"):
        load_tokenizer(bert)

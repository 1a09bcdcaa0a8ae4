"""All layers' embeddings: written to the disk as they are encoded, announced, and found again."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.command.options import Common
from experiments.spaces.checkpoints import Checkpoint, checkpoint, sources
from experiments.spaces.embeddings import all_layers_shape, embeddings
from experiments.spaces.space import LayeredSpace
from jaxgeom.models import encode, load_encoder, load_tokenizer

FOLDER = Path(__file__).parent / "golden" / "roberta"
SENTENCES = ["A man plays the guitar.", "Two cats.", "rain", "A small red boat drifts slowly."]
LAYERS = 4  # the embedding output and three


@pytest.fixture
def point() -> Checkpoint:
    (source,) = sources((f"small={FOLDER}",))
    return checkpoint(source, "pretrained", 0, Common())


def whole(point: Checkpoint, cache: Path) -> Any:
    return embeddings(point, SENTENCES, cache, max_length=32, layers="all")


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, encoding is an error."""
    monkeypatch.setattr("experiments.spaces.embeddings.encode", None)


def test_they_are_the_encoders_hidden_states(point: Checkpoint, tmp_path: Path) -> None:
    found = whole(point, tmp_path)
    expected = encode(
        load_encoder(FOLDER), load_tokenizer(FOLDER), SENTENCES, max_length=32, layers="all"
    )
    assert isinstance(found.hidden, np.memmap)
    assert found.hidden.shape == (LAYERS, len(expected.token_ids), 32)
    assert found.hidden.shape == all_layers_shape(point, SENTENCES, max_length=32)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    (entry,) = tmp_path.iterdir()
    assert {path.name for path in entry.iterdir()} == {"hidden.npy", "tokens.npz", "key.json"}


def test_a_second_run_reads_them(
    point: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = whole(point, tmp_path)
    forbid(monkeypatch)
    np.testing.assert_array_equal(whole(point, tmp_path).hidden, first.hidden)


def test_the_last_layer_is_a_view_of_them(
    point: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = embeddings(point, SENTENCES, tmp_path / "alone", max_length=32)
    all_layers = whole(point, tmp_path / "all")
    forbid(monkeypatch)
    view = embeddings(point, SENTENCES, tmp_path / "all", max_length=32)
    assert isinstance(view.hidden, np.memmap)
    np.testing.assert_array_equal(view.hidden, all_layers.hidden[-1])
    # one program returns all states and one the last: the same sums, in another fusion
    np.testing.assert_allclose(view.hidden, alone.hidden, atol=1e-5)
    assert len(list((tmp_path / "all").iterdir())) == 1


def test_a_last_layer_is_no_substitute(
    point: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embeddings(point, SENTENCES, tmp_path, max_length=32)
    forbid(monkeypatch)
    with pytest.raises(TypeError, match="not callable"):
        whole(point, tmp_path)


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_the_need_is_said_before_anything_is_encoded(
    point: Checkpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("experiments.spaces.embeddings.encode", interrupt)
    with pytest.raises(KeyboardInterrupt):
        whole(point, tmp_path)
    said = re.fullmatch(
        r"(.*) takes (\S+) GB for all 4 layers of small pretrained seed 0: (\d+) tokens, 32 wide\n",
        capsys.readouterr().err,
    )
    assert said is not None
    n_tokens = int(said[3])
    assert n_tokens == sum(t.ids.size for t in load_tokenizer(FOLDER).encode(SENTENCES))
    assert float(said[2]) == pytest.approx(4 * LAYERS * n_tokens * 32 / 1e9, rel=1e-2)
    assert said[1] == str(tmp_path)
    assert list(tmp_path.iterdir()) == []  # the room that was made is given back


def test_a_disk_that_is_too_full(
    point: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr("experiments.spaces.embeddings.shutil.disk_usage", lambda folder: usage)
    forbid(monkeypatch)
    message = rf"{tmp_path} must have \S+ GB for all 4 layers .*; 1e-06 GB are free"
    with pytest.raises(OSError, match=message):
        whole(point, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def space() -> LayeredSpace:
    """Two layers of two sentences: CLS, a word or two, SEP."""
    special = np.array([True, False, False, True, True, False, True])
    hidden = np.arange(2 * 7 * 3, dtype=np.float32).reshape(2, 7, 3)
    return LayeredSpace("m", "s", 0, "ours", hidden, np.array([0, 0, 0, 0, 1, 1, 1]), special, 0)


@pytest.mark.parametrize(("kind", "rows"), [("tokens", [1, 2, 5]), ("cls", [0, 4])])
def test_which_vectors_a_layer_gives(space: LayeredSpace, kind: str, rows: list[int]) -> None:
    for layer in range(2):
        np.testing.assert_array_equal(space.vectors(kind, layer), space.hidden[layer][rows])


@pytest.mark.parametrize(("kind", "row"), [("tokens", 5), ("cls", 4)])
def test_a_nan_stops_the_layer_that_holds_it(space: LayeredSpace, kind: str, row: int) -> None:
    space.hidden[1, row] = np.nan
    space.vectors(kind, 0)
    with pytest.raises(ValueError, match=r"tokens must be finite, got 1 of .* \(sentence 1\)"):
        space.vectors(kind, 1)

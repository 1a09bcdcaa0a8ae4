"""Pre-training that starts from the model of an earlier run."""

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from interrupted_runs import count_steps, sha256, train_until_killed
from test_pretrain import log_of, run, train
from tiny_corpus import RECIPE

from jaxgeom.models import ModelError, Rows
from jaxgeom.training import CheckpointError, mlm_loop
from jaxgeom.training.pretraining import runs_of

TRAINING = """
from interrupted_runs import count_steps, sha256, train_until_killed
from tiny_corpus import *
from jaxgeom.training.pretraining import pretrain

pretrain(sentences(), seed=0, folder=folder, config=RECIPE, every=EVERY, init=f"{folder}/first")
"""


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of a first run."""
    return train(tmp_path_factory.mktemp("first"))


def record_of(model: Path) -> dict[str, Any]:
    return json.loads((model / "training.json").read_text())


def test_it_starts_from_the_weights_and_the_tokenizer(first: Path, tmp_path: Path) -> None:
    """At a learning rate of 0 nothing changes."""
    still = dataclasses.replace(RECIPE, learning_rate=0.0)
    model = train(tmp_path, config=still, init=first)
    assert sha256(model) == sha256(first)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (model / name).read_bytes() == (first / name).read_bytes()


def test_rows_and_masks_go_on_where_the_first_run_ended(
    first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps are counted through both runs where rows and masks are drawn; the log begins anew."""
    drawn: list[int] = []
    batch_of = mlm_loop._batch

    def record_step(run: mlm_loop.MLMRun, step: int) -> Rows:
        drawn.append(step)
        return batch_of(run, step)

    monkeypatch.setattr(mlm_loop, "_batch", record_step)
    masked = count_steps(mlm_loop, monkeypatch)
    model = train(tmp_path, init=first)
    assert drawn == masked == list(range(RECIPE.n_steps, 2 * RECIPE.n_steps))
    assert [point["step"] for point in log_of(tmp_path)] == [3, 6, 7]
    record, before = record_of(model), record_of(first)
    assert log_of(tmp_path)[-1]["epoch"] == pytest.approx(2 * before["n_epochs"], abs=2e-3)
    assert record["held_out_loss"] < before["held_out_loss"]
    assert record["n_steps"] == before["n_steps"] == RECIPE.n_steps
    assert runs_of(record) == [before, record]


def test_killed_and_started_again(first: Path, tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", init=first)
    folder = tmp_path / "killed"
    shutil.copytree(first, folder / "first")
    train_until_killed(TRAINING, folder, "jaxgeom.training.mlm_loop.train_step", 5)
    assert sha256(train(folder, init=folder / "first")) == sha256(whole)


def test_a_run_from_other_weights_is_another_run(first: Path, tmp_path: Path) -> None:
    train(tmp_path)
    with pytest.raises(CheckpointError, match=r"init is None there and '[0-9a-f]{64}' here"):
        train(tmp_path, init=first)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"config": dataclasses.replace(RECIPE, hidden_size=32)},
            "init must have the shape of this run: hidden_size is 16 in .* and 32 here",
        ),
        ({"seed": 1}, "init must have the held-out text of this run: seed is 0 in .* and 1 here"),
    ],
)
def test_a_model_that_cannot_go_on_is_refused(
    first: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        train(tmp_path / "run", init=first, **changes)


def test_a_model_without_a_record_is_refused(first: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(first, tmp_path / "copy")
    (copy / "training.json").unlink()
    with pytest.raises(ModelError, match=r"that pre-training left: there is no training\.json"):
        train(tmp_path / "run", init=copy)


def test_the_card_tells_of_both_runs(tmp_path: Path) -> None:
    assert run(tmp_path) == 0
    first = (tmp_path / "tiny-bert" / "model").rename(tmp_path / "first")
    shutil.rmtree(tmp_path / "tiny-bert")
    assert run(tmp_path, init=first) == 0
    card = (tmp_path / "tiny-bert" / "model" / "README.md").read_text(encoding="utf-8")
    assert "Trained for 14 steps (0.7 passes over the text), 7 and then 7, the learning" in card
    steps = [line.split(" | ")[0] for line in card.splitlines() if re.match(r"\| \d", line)]
    assert steps == ["| 3", "| 6", "| 7", "| 10", "| 13", "| 14"]
    again = card.partition("## To make it again")[2]
    assert again.count("python -m experiments.pretrain") == 2
    assert "Then, from the model that this leaves, as `first`:" in again
    assert again.index("--init first") > again.index("Then, from")


def test_an_absent_model_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, init=tmp_path / "none") == 2
    assert str(tmp_path / "none") in capsys.readouterr().err

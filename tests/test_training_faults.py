"""Training that is killed, interrupted, given broken files, or given data it cannot learn from."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interrupted_runs import count_steps, sha256, train_until_killed
from tiny_training import (
    N_DEV,
    N_STEPS,
    N_TRAIN,
    RECIPE,
    tiny_encoder,
    tiny_pairs,
    tiny_tokenizer,
)

from jaxgeom.training import CheckpointError, DivergenceError, SiameseConfig, finetune, loop

STEPS_OF_AN_EPOCH = 3

# what a process trains that is killed; it knows its `folder`
TRAINING = """
from tiny_training import *
from jaxgeom.training import finetune

train, dev = tiny_pairs(N_TRAIN, 0), tiny_pairs(N_DEV, 1)
finetune(tiny_encoder(), tiny_tokenizer(), train, dev, seed=0, folder=folder, config=RECIPE)
"""


def train(folder: Path, **changes: Any) -> Path:
    options: dict[str, Any] = {"seed": 0, "folder": folder, "config": RECIPE} | changes
    pairs = options.pop("pairs", tiny_pairs(N_TRAIN, 0))
    encoder = options.pop("encoder", None) or tiny_encoder()
    dev = options.pop("dev", tiny_pairs(N_DEV, 1))
    return finetune(encoder, tiny_tokenizer(), pairs, dev, **options)


def log_of(folder: Path) -> list[dict[str, Any]]:
    """The log but for the one thing in it that is a matter of the clock."""
    records = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in r.items() if k != "pairs_per_second"} for r in records]


def files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing has interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    train(folder)
    return folder


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the steps that are taken, from 0 on."""
    return count_steps(loop, monkeypatch)


@pytest.mark.parametrize(
    ("function", "call", "first_step"),
    [
        ("jaxgeom.training.loop.train_step", 2, 0),  # in epoch 1: there is no checkpoint yet
        ("jaxgeom.training.loop.train_step", 5, 3),  # in epoch 2
        ("jaxgeom.training.checkpoints.save_file", 2, 3),  # half of epoch 2's checkpoint is written
        ("jaxgeom.training.sentence_model.write_json", 2, N_STEPS),  # half of the model is
        ("jaxgeom.training.finetuning.remove_checkpoints", 1, None),  # all but tidied up
    ],
)
def test_killed_and_started_again(
    whole: Path,
    tmp_path: Path,
    steps: list[int],
    function: str,
    call: int,
    first_step: int | None,
) -> None:
    train_until_killed(TRAINING, tmp_path, function, call)
    model = train(tmp_path)
    assert steps == ([] if first_step is None else list(range(first_step, N_STEPS)))
    assert log_of(tmp_path) == log_of(whole)
    assert sha256(model) == sha256(whole / "model")
    assert set(files(tmp_path)) == set(files(whole))  # no temporary one is left


def test_ctrl_c_and_started_again(
    whole: Path, tmp_path: Path, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", raising(loop.train_step, KeyboardInterrupt, at=5))
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["epoch-0001"]
    assert log_of(tmp_path) == log_of(whole)[: STEPS_OF_AN_EPOCH + 1]
    steps.clear()
    model = train(tmp_path)
    assert steps == list(range(STEPS_OF_AN_EPOCH, N_STEPS))
    assert log_of(tmp_path) == log_of(whole)
    assert sha256(model) == sha256(whole / "model")


def raising(function: Callable, error: type[BaseException], at: int) -> Callable:
    """Return the function, whose call number `at` (a step counted from 0) raises an error."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if args[4] == at:
            raise error
        return function(*args, **kwargs)

    return wrapped


def test_finished_run_trains_nothing(whole: Path, steps: list[int]) -> None:
    before = files(whole), (whole / "model" / "model.safetensors").stat().st_mtime_ns
    assert train(whole) == whole / "model"
    assert steps == []
    assert before == (files(whole), (whole / "model" / "model.safetensors").stat().st_mtime_ns)


def test_other_seed_gives_other_weights(whole: Path, tmp_path: Path) -> None:
    model = train(tmp_path, seed=1)
    assert sha256(model) != sha256(whole / "model")
    assert [r["epoch"] for r in log_of(tmp_path)] == [r["epoch"] for r in log_of(whole)]


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that was interrupted in epoch 2."""
    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", raising(loop.train_step, KeyboardInterrupt, at=4))
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path)
    return tmp_path


OTHER = {
    "learning_rate": (
        {"config": dataclasses.replace(RECIPE, learning_rate=1e-4)},
        r"learning_rate is 0\.01 there and 0\.0001 here",
    ),
    "seed": ({"seed": 1}, "seed is 0 there and 1 here"),
    "pairs": ({"pairs": tiny_pairs(N_TRAIN, 5)}, "training_data is '[0-9a-f]{64}' there and"),
    "encoder": ({"encoder": tiny_encoder(dropout=0.2)}, "encoder is '[0-9a-f]{64}' there and"),
}


@pytest.mark.parametrize("name", OTHER)
def test_checkpoint_of_another_run_is_refused(interrupted: Path, name: str) -> None:
    changes, message = OTHER[name]
    before = files(interrupted)
    with pytest.raises(CheckpointError, match=rf"epoch-0001 belongs to another run \({message}"):
        train(interrupted, **changes)
    assert files(interrupted) == before


@pytest.mark.parametrize("name", OTHER)
def test_model_of_another_run_is_refused(whole: Path, name: str) -> None:
    changes, message = OTHER[name]
    before = files(whole)
    with pytest.raises(CheckpointError, match=rf"model belongs to another run \({message}"):
        train(whole, **changes)
    assert files(whole) == before


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("damage", [truncated, Path.unlink])
@pytest.mark.parametrize("name", ["state.safetensors", "state.json"])
def test_broken_checkpoint_is_refused(interrupted: Path, name: str, damage: Callable) -> None:
    damage(interrupted / "checkpoints" / "epoch-0001" / name)
    before = files(interrupted)
    with pytest.raises(CheckpointError, match=r"epoch-0001 is incomplete or broken .*: delete it"):
        train(interrupted)
    assert files(interrupted) == before


def test_checkpoint_of_other_shapes_is_refused(interrupted: Path) -> None:
    from safetensors.numpy import load_file, save_file

    path = interrupted / "checkpoints" / "epoch-0001" / "state.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith("0.embeddings.norm.bias"))
    save_file(tensors | {name: np.zeros(3, np.float32)}, path)
    with pytest.raises(CheckpointError, match=r"must be float32 \[16\], got float32 \[3\]"):
        train(interrupted)
    save_file({k: v for k, v in tensors.items() if k != name}, path)
    with pytest.raises(CheckpointError, match=f"missing or unexpected: {name}"):
        train(interrupted)


def test_broken_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(CheckpointError, match=r"model is incomplete or broken .*training\.json"):
        train(tmp_path)


def test_weights_that_are_nan_stop_the_first_step(tmp_path: Path) -> None:
    encoder = tiny_encoder()
    bias = encoder.embeddings.norm.bias
    bias[...] = bias[...].at[0].set(np.nan)
    with pytest.raises(
        DivergenceError, match=f"loss must be finite, got nan at step 1 of {N_STEPS}"
    ):
        train(tmp_path, encoder=encoder)
    assert not (tmp_path / "model").exists()


def test_learning_rate_too_high_says_the_step(tmp_path: Path) -> None:
    """The first step has rate 0, the second one blows the weights up, the third one sees it."""
    recipe = dataclasses.replace(RECIPE, learning_rate=1e30)
    encoder = tiny_encoder(dropout=0.0)  # compiles in half the time
    with pytest.raises(DivergenceError, match=r"got nan at step 3 of 12 \(learning_rate 1e\+30\)"):
        train(tmp_path, config=recipe, encoder=encoder)
    assert list(files(tmp_path)) == ["metrics.jsonl"]


def test_last_good_checkpoint_stays(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = loop.train_step

    def poisoned(*args: Any, **kwargs: Any) -> Any:
        done = original(*args, **kwargs)
        return done._replace(grad_norm=done.grad_norm * np.nan) if args[4] == 4 else done

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", poisoned)
        with pytest.raises(
            DivergenceError, match="gradient norm must be finite, got nan at step 5"
        ):
            train(tmp_path)
    assert sha256(train(tmp_path)) == sha256(whole / "model")


def test_scores_that_are_nan_leave_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch's last step may break the weights after its loss was still a number."""
    scores = {"pearson_cosine": np.nan, "spearman_cosine": np.nan}
    monkeypatch.setattr("jaxgeom.training.finetuning.evaluate", lambda *_, **__: scores)
    with pytest.raises(DivergenceError, match="scores on dev must be finite, got nan at step 3"):
        train(tmp_path)
    assert list(files(tmp_path)) == ["metrics.jsonl"]


PAIRS = tiny_pairs(N_TRAIN, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"pairs": PAIRS._replace(scores=np.full(N_TRAIN, 5.0))},
            "train: made up with seed 0 must have two different scores or more, "
            r"got \[5.0\] for all of its 21 pairs",
        ),
        (
            {"pairs": PAIRS._replace(scores=np.full(N_TRAIN, -1.0))},
            "train: made up with seed 0 must have scores in 0..5, got -1.0",
        ),
        (
            {"dev": PAIRS._replace(scores=np.full(N_TRAIN, np.nan))},
            "dev: made up with seed 0 must have scores in 0..5, got nan",
        ),
        (
            {"config": SiameseConfig(batch_size=22, max_length=64)},
            "batch_size must be at most the number of training pairs = 21 "
            r"\(made up with seed 0\), got 22",
        ),
        (
            {"config": SiameseConfig(batch_size=8, max_length=67)},
            "max_length must be in 1..the encoder's positions = 1..66, got 67",
        ),
        ({"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_what_cannot_be_trained_on(tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        train(tmp_path, **changes)
    assert files(tmp_path) == {}

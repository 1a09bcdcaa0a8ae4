"""`python -m experiments.finetune`: what it writes, what it finds again, how it fails."""

import csv
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_training import N_DEV, N_TRAIN, RECIPE, tiny_model, tiny_pairs

from experiments import finetune
from experiments.command.start import main
from experiments.spaces.checkpoints import Source, checkpoint
from experiments.spaces.finetuned import finetuned, recipe_of
from jaxgeom.models import load_encoder, load_tokenizer
from jaxgeom.tasks import StsPairs
from jaxgeom.training import evaluate, loop

FLAGS = {
    "--lr": RECIPE.learning_rate,
    "--epochs": RECIPE.epochs,
    "--batch-size": RECIPE.batch_size,
    "--max-length": RECIPE.max_length,
}


def write_pairs(path: Path, pairs: StsPairs) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(zip(*pairs[:3], strict=True))


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and with pairs."""
    folder = tmp_path_factory.mktemp("given")
    tiny_model(folder / "model")
    (folder / "data").mkdir()
    for split, n_pairs, seed in (("train", N_TRAIN, 0), ("dev", N_DEV, 1), ("test", N_DEV, 2)):
        write_pairs(folder / "data" / f"{split}.csv", tiny_pairs(n_pairs, seed))
    return folder


def run(given: Path, output: Path, **changes: Any) -> int:
    flags = {"--models": f"tiny={given / 'model'}", "--data": given / "data", "--output": output}
    flags |= FLAGS | {"--" + name.replace("_", "-"): value for name, value in changes.items()}
    args = [str(part) for flag in flags.items() for part in flag]
    return main(finetune.Config, finetune.run, name="finetune", args=args)


@pytest.fixture(scope="module")
def done(given: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a run."""
    output = tmp_path_factory.mktemp("done") / "out"
    config = finetune.Config(
        models=(f"tiny={given / 'model'}",),
        data=str(given / "data"),
        split="test",
        lr=RECIPE.learning_rate,
        epochs=RECIPE.epochs,
        batch_size=RECIPE.batch_size,
        max_length=RECIPE.max_length,
        output=output,
    )
    assert recipe_of(config) == RECIPE
    finetune.run(config)
    return output


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with every step that is taken."""
    steps: list[int] = []
    original = loop.train_step

    def counted(*args: Any, **static: Any) -> Any:
        steps.append(args[4])
        return original(*args, **static)

    monkeypatch.setattr(loop, "train_step", counted)
    return steps


def row_of(output: Path) -> dict[str, Any]:
    document = json.loads((output / "finetune.json").read_text())
    assert document["schema"] == 1
    (row,) = document["rows"]
    return row


def test_row_is_what_the_folder_holds(given: Path, done: Path) -> None:
    row = row_of(done)
    model = done / row["folder"]
    pairs = tiny_pairs(N_DEV, 2)
    options = {"max_length": RECIPE.max_length}
    scores = evaluate(load_encoder(model), load_tokenizer(model), pairs, **options)
    assert row["spearman"] == pytest.approx(100 * scores["spearman_cosine"], abs=1e-4)
    assert row["pearson"] == pytest.approx(100 * scores["pearson_cosine"], abs=1e-4)
    log = [json.loads(x) for x in (model.parent / "metrics.jsonl").read_text().splitlines()]
    epochs = [record["spearman_cosine"] for record in log if "mean_loss" in record]
    assert [row[f"dev_spearman_{e}"] for e in (1, 2, 3, 4)] == [100 * x for x in epochs]
    expected = {"model": "tiny", "state": "finetuned", "seed": 0, "split": "test"}
    assert row | expected == row
    names = {path.name for path in done.iterdir()} - {".run.json.lock"}
    assert names == {
        "finetuned",
        "run.json",
        *(f"finetune.{e}" for e in ("csv", "json", "md", "tex")),
    }
    assert f"{row['dev_spearman_1']:.2f}" in (done / "finetune.md").read_text()


def test_found_again_where_the_output_was_moved_to(
    given: Path, done: Path, tmp_path: Path, trained: list[int]
) -> None:
    shutil.copytree(done, tmp_path / "moved")
    weights = tmp_path / "moved" / row_of(done)["folder"] / "model.safetensors"
    before = weights.stat().st_mtime_ns
    assert run(given, tmp_path / "moved", split="test") == 0
    assert trained == []
    assert weights.stat().st_mtime_ns == before
    assert row_of(tmp_path / "moved") == row_of(done)


def test_found_again_where_the_model_was_moved_to(
    given: Path, done: Path, tmp_path: Path, trained: list[int]
) -> None:
    shutil.copytree(done, tmp_path / "out")
    shutil.copytree(given, tmp_path / "elsewhere")
    assert run(tmp_path / "elsewhere", tmp_path / "out", models=tmp_path / "elsewhere/model") == 0
    assert trained == []
    assert row_of(tmp_path / "out")["folder"] == row_of(done)["folder"]


def keys_of(given: Path, output: Path, **changes: Any) -> str:
    """The name of the folder that a run with these options trains in."""
    started: list[str] = []

    def noted(*_: Any, folder: Path, **__: Any) -> None:
        started.append(folder.name)
        raise ValueError("noted")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("experiments.spaces.finetuned.finetune", noted)
        assert run(given, output, **changes) == 2
    return started[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"lr": 1e-4},
        {"epochs": 2},
        {"batch_size": 7},
        {"weight_decay": 0.1},
        {"warmup": 0.2},
        {"pooling": "cls"},
        {"max_length": 32},
        {"dtype": "bfloat16"},
        {"seeds": 1},
        {"states": "random"},
    ],
    ids=str,
)
def test_an_option_that_shapes_the_weights_trains_anew(
    given: Path, tmp_path: Path, changes: dict
) -> None:
    assert keys_of(given, tmp_path, **changes) != keys_of(given, tmp_path)


def other_weights(folder: Path) -> None:
    path = folder / "model" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")  # the header lies at the other end


def other_config(folder: Path) -> None:
    path = folder / "model" / "config.json"
    path.write_text(
        path.read_text().replace('"hidden_dropout_prob": 0.1', '"hidden_dropout_prob": 0')
    )


def other_pairs(folder: Path) -> None:
    write_pairs(folder / "data" / "train.csv", tiny_pairs(N_TRAIN, 5))


@pytest.mark.parametrize("change", [other_weights, other_config, other_pairs])
def test_a_content_that_shapes_the_weights_trains_anew(
    given: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    shutil.copytree(given, tmp_path / "given")
    before = keys_of(tmp_path / "given", tmp_path)
    assert before == keys_of(given, tmp_path)
    change(tmp_path / "given")
    assert before != keys_of(tmp_path / "given", tmp_path)


def test_options_of_the_analysis_change_nothing(given: Path, tmp_path: Path) -> None:
    changes = {"n_clusters": 3, "n_directions": 1, "backend": "numpy", "split": "test"}
    assert keys_of(given, tmp_path, **changes) == keys_of(given, tmp_path)


def test_interrupted_run_goes_on(
    given: Path,
    done: Path,
    tmp_path: Path,
    trained: list[int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    counted = loop.train_step

    def interrupting(*args: Any, **static: Any) -> Any:
        if args[4] == 4:
            raise KeyboardInterrupt
        return counted(*args, **static)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "train_step", interrupting)
        assert run(given, tmp_path, split="test") == 130
    assert "interrupted" in capsys.readouterr().err
    assert run(given, tmp_path, split="test") == 0
    assert trained == [*range(4), *range(3, 12)]
    weights = [out / row_of(done)["folder"] / "model.safetensors" for out in (done, tmp_path)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_finetuned_model_is_a_model(given: Path, done: Path) -> None:
    """What the tables call: a checkpoint of the pre-trained state in, one of the tuned out."""
    model = done / row_of(done)["folder"]
    config = finetune.Config(
        models=(f"again={model}",),
        data=str(given / "data"),
        lr=RECIPE.learning_rate,
        epochs=RECIPE.epochs,
        batch_size=RECIPE.batch_size,
        max_length=RECIPE.max_length,
        output=done,
    )
    source = Source("tiny", given / "model")
    tuned = finetuned(checkpoint(source, "pretrained", 0, config), config)
    assert (tuned.model, tuned.state, tuned.seed, tuned.folder) == ("tiny", "finetuned", 0, model)
    assert len(tuned.weights["sha256"]) == 64
    again = checkpoint(Source("again", tuned.folder), "pretrained", 0, config)
    assert again.weights == tuned.weights
    assert again.build().config == tuned.build().config


def one_class(data: Path) -> None:
    write_pairs(data / "train.csv", tiny_pairs(N_TRAIN, 0)._replace(scores=[2.5] * N_TRAIN))


def unlabelled(data: Path) -> None:
    write_pairs(data / "train.csv", tiny_pairs(N_TRAIN, 0)._replace(scores=[-1] * N_TRAIN))


def absent(data: Path) -> None:
    (data / "train.csv").unlink()


@pytest.mark.parametrize(
    ("damage", "changes", "message"),
    [
        (one_class, {}, "train.csv must have two different scores or more, got [2.5] for all"),
        (unlabelled, {}, "train.csv:1: the score is -1, this split is unlabelled"),
        (absent, {}, "data must hold one of the files train.csv, train.tsv, sts-train.csv"),
        (None, {"batch_size": 22}, "batch_size must be at most the number of training pairs = 21"),
        (None, {"epochs": 0}, "epochs must be at least 1, got 0"),
        (None, {"lr": -1}, "learning_rate must be at least 0, got -1.0"),
        (None, {"max_length": 67}, "max_length must be in 1..the encoder's positions = 1..66"),
        (
            None,
            {"data": "dev.csv"},
            "--train must name the training pairs where --data is a single",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_mistakes_are_one_line_and_leave_no_model(
    given: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Any,
    changes: dict,
    message: str,
) -> None:
    shutil.copytree(given, tmp_path / "given")
    if damage:
        damage(tmp_path / "given" / "data")
    if "data" in changes:
        changes = {"data": tmp_path / "given" / "data" / changes["data"]}
    assert run(tmp_path / "given", tmp_path / "out", **changes) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list((tmp_path / "out").rglob("model.safetensors"))


def test_broken_checkpoint_is_named(
    given: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = keys_of(given, tmp_path)
    checkpoint = tmp_path / "finetuned" / key / "checkpoints" / "epoch-0001"
    checkpoint.mkdir(parents=True)
    capsys.readouterr()
    assert run(given, tmp_path) == 2
    error = capsys.readouterr().err
    assert str(checkpoint) in error
    assert "incomplete or broken" in error
    assert os.listdir(checkpoint) == []

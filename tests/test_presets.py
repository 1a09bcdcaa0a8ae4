"""What `--preset` stands for, which flags win over it, and what it leaves alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from experiments import finetune, table1
from experiments.command.options import MINIS, Common, of_preset
from experiments.command.start import main
from jaxgeom.models import resolve_model
from jaxgeom.models.hub import BUILTIN


@dataclass(frozen=True)
class Config(Common):
    """An experiment that does nothing."""


def parsed(*flags: str, of: Any = Config) -> Any:
    """The options that flags stand for."""
    seen: list[Any] = []
    assert main(of, seen.append, name="nothing", args=flags) == 0
    return seen[0]


def test_without_flags_it_is_the_minis_which_need_no_file() -> None:
    config = parsed()
    assert (config.preset, config.models, config.data) == ("mini", MINIS, "mini-sts")
    for name in MINIS:
        assert resolve_model(name).is_relative_to(BUILTIN)
    assert config.states == ("random", "pretrained", "finetuned")
    assert config == of_preset(Config, "mini")


def test_the_study() -> None:
    config = parsed("--preset", "paper", "--data", "mine")
    assert config.models == ("bert-base-uncased", "roberta-base")
    assert (config.data, config.seeds) == ("mine", (0, 1, 2, 3, 4))


def test_flags_win_even_where_they_say_the_default() -> None:
    config = parsed("--seeds", "0", "--preset=paper", "--epochs", "3", "--models", "mine")
    assert (config.seeds, config.models) == ((0,), ("mine",))
    assert config.data == "sentence-transformers/stsb"


def test_embeddings_stand_in_for_models_and_data() -> None:
    config = parsed("--embeddings", "mine.npz", of=table1.Config)
    assert (config.models, config.data) == ((), None)
    assert config.embeddings.name == "mine.npz"


def test_models_of_ones_own_are_trained_as_the_study_trains() -> None:
    study = of_preset(Config, "paper")
    ours, theirs = parsed(), parsed("--models", "mine")
    assert (theirs.lr, theirs.epochs) == (study.lr, study.epochs) == (7e-5, 3)
    assert (ours.lr, ours.epochs) != (theirs.lr, theirs.epochs)
    assert theirs.data == "mini-sts"
    again = parsed("--preset", "mini", "--models", "mine")
    assert (again.lr, again.epochs) == (ours.lr, ours.epochs)


def test_own_default_of_an_experiment_stays() -> None:
    assert of_preset(finetune.Config, "mini").states == ("pretrained",)


@pytest.mark.parametrize("flags", [("--preset", "other"), ("--preset",)])
def test_no_such_preset(flags: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parsed(*flags)
    assert stopped.value.code == 2
    assert "--preset" in capsys.readouterr().err


def test_the_minis_end_with_the_command_of_the_study(capsys: pytest.CaptureFixture[str]) -> None:
    last = "The study itself: python -m experiments.nothing --preset paper --output paper"
    parsed()
    assert capsys.readouterr().out.splitlines()[-1] == last
    parsed("--models", "mine")
    assert last not in capsys.readouterr().out

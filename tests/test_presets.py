"""What `--preset` stands for, and what it leaves alone."""

from experiments import finetune, table1
from experiments._common import with_preset


def test_minis_need_no_file() -> None:
    filled = with_preset(table1.Config(preset="mini"))
    assert filled.models == ("mini-bert", "mini-roberta")
    assert filled.data == "mini-sts"
    assert filled.states == ("random", "pretrained", "finetuned")


def test_other_flags_win() -> None:
    filled = with_preset(table1.Config(preset="mini", states=("finetuned",), data="mine"))
    assert (filled.states, filled.data) == (("finetuned",), "mine")


def test_own_default_of_an_experiment_stays() -> None:
    assert with_preset(finetune.Config(preset="mini")).states == ("pretrained",)

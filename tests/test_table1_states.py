"""Table 1 of a tiny RoBERTa in all its states: trained, measured, and found again."""

from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tiny_study import PAIRS, read_csv, run, tables_in, write_pairs

from experiments import table1
from jaxgeom import study

STATES = ("random", "pretrained", "finetuned", "random_finetuned")
SEEDS = (0, 1)
# five words are at least seven tokens, so no two sentences share a row of 12: the batches of every
# seed have one shape, and the step is compiled once
TRAINING = ("--epochs", 1, "--batch-size", 10, "--max-length", 12)
FLAGS = ("--states", *STATES, "--seeds", *SEEDS, *TRAINING)


class Done(NamedTuple):
    """A finished run."""

    data: Path  # its data, and its output in "out"
    rows: list[dict[str, Any]]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """A run of all states and two seeds."""
    folder = tmp_path_factory.mktemp("states")
    write_pairs(folder)
    write_pairs(folder, split="train", seed=1)
    return Done(folder, run(table1, folder, *FLAGS)["rows"])


def weights(done: Done) -> dict[Path, int]:
    """When each fine-tuned model's weights were written."""
    found = (done.data / "out" / "finetuned").glob("*/model/model.safetensors")
    return {path: path.stat().st_mtime_ns for path in found}


def test_rows_are_states_seeds_and_settings(done: Done) -> None:
    keys = [(row["state"], row["seed"], row["setting"]) for row in done.rows]
    assert keys == list(product(STATES, SEEDS, (*study.SETTINGS, "cls")))


def test_every_state_has_its_own_numbers(done: Done) -> None:
    baseline = {  # to six digits: the scatter of all tokens is summed over the seed's clusters
        (row["state"], row["seed"]): f"{row['isotropy']:.5e}"
        for row in done.rows
        if row["setting"] == "baseline"
    }
    # the weights that are read know no seed; every other state is another model with each
    assert baseline["pretrained", 0] == baseline["pretrained", 1]
    assert len(set(baseline.values())) == len(STATES) * len(SEEDS) - 1
    assert len(weights(done)) == 4


def test_cls_vectors_are_one_a_sentence(done: Done) -> None:
    counts = {row["setting"]: row["n_tokens"] for row in done.rows}
    assert counts["cls"] == 2 * PAIRS
    assert counts["baseline"] > 2 * PAIRS


def test_the_table_has_a_mean_and_a_deviation(done: Done) -> None:
    text = (done.data / "out" / "table1.md").read_text()
    titles = [line for line in text.splitlines() if line.startswith("### ")]
    assert len(titles) == len(STATES)
    assert all("seeds 0, 1" in title for title in titles)
    for table in tables_in(text):
        assert len(table[0]) == 1 + len(study.SETTINGS) + 1  # what is printed, then with CLS
        assert all("±" in cell for cell in table[2][1:])  # Perf., below the rule
    assert len(read_csv(done.data / "out" / "table1.csv")) == len(done.rows)


def test_a_second_run_trains_and_encodes_nothing(
    done: Done, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = weights(done)
    monkeypatch.setattr("experiments.spaces.finetuned.finetune", None)
    monkeypatch.setattr("experiments.spaces.embeddings.encode", None)
    assert run(table1, done.data, *FLAGS)["rows"] == done.rows
    assert weights(done) == before

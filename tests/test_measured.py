"""Measurements are reused as long as nothing that shapes them has changed."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import table1, table2
from experiments.rows.measured import _code, measured
from experiments.spaces.checkpoints import digest
from experiments.spaces.space import Space

TOKENS = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
SPACE = Space("m", "given", 0, "ours", TOKENS, np.arange(12), np.arange(6.0), None, 0)
ROWS = [{"spearman": float("nan"), "isotropy": 0.1 + 0.2, "n": 3, "low": None, "mark": "equal"}]


class Counted:
    """Measures, and counts how often; writes the labels where it is told to."""

    def __init__(self, labels: Path | None = None) -> None:
        self.n, self.labels = 0, labels

    def __call__(self) -> list[dict[str, Any]]:
        self.n += 1
        if self.labels:
            self.labels.parent.mkdir(exist_ok=True)
            self.labels.write_bytes(b"labels")
        return ROWS


def test_the_numbers_come_back_as_they_were(tmp_path: Path) -> None:
    count, config = Counted(), table1.Config(output=tmp_path)
    first = measured("table1", SPACE, config, count)
    again = measured("table1", SPACE, config, count)
    assert count.n == 1
    assert json.dumps(again) == json.dumps(first) == json.dumps(ROWS)  # NaN is NaN, not null
    moved = dataclasses.replace(config, models=("elsewhere",), seeds=(0, 1), preset="paper")
    measured("table1", SPACE, moved, count)
    assert count.n == 1


CHANGES: list[dict[str, Any]] = [
    {"name": "table2"},
    {"space": SPACE._replace(tokens=TOKENS + np.float32(1e-6))},
    {"space": SPACE._replace(scores=np.arange(6.0)[::-1])},
    {"space": SPACE._replace(seed=1)},
    {"space": SPACE._replace(protocol="authors")},
    {"space": SPACE._replace(tokens=TOKENS.astype(np.float64))},
    {"n_clusters": 2},
    {"n_directions": 2},
    {"backend": "numpy"},
]


@pytest.mark.parametrize("change", CHANGES, ids="-".join)
def test_whatever_shapes_the_numbers_is_in_the_key(change: dict, tmp_path: Path) -> None:
    count, config = Counted(), table1.Config(output=tmp_path)
    measured("table1", SPACE, config, count)
    options = {k: v for k, v in change.items() if k not in ("name", "space")}
    given = ("table1", SPACE)
    name, space = (change.get(k, v) for k, v in zip(("name", "space"), given, strict=True))
    measured(name, space, dataclasses.replace(config, **options), count)
    assert count.n == 2


def test_an_option_of_one_experiment_is_in_its_key(tmp_path: Path) -> None:
    count = Counted()
    for least in ((1,), (2,), (1,)):
        measured("table2", SPACE, table2.Config(output=tmp_path, least=least), count)
    assert count.n == 2


def test_a_changed_line_of_code_measures_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text("x = 1")
    digests = [digest(tmp_path, ("**/*.py",))]
    (tmp_path / "a.py").write_text("x = 2")
    digests.append(digest(tmp_path, ("**/*.py",)))
    assert digests[0] != digests[1]
    assert len(_code()["sources"]) == 2
    count, config = Counted(), table1.Config(output=tmp_path)
    for code in (*digests, digests[0]):
        monkeypatch.setattr("experiments.rows.measured._code", lambda code=code: {"sources": code})
        measured("table1", SPACE, config, count)
    assert count.n == 2


def test_labels_must_still_be_there_and_the_same(tmp_path: Path) -> None:
    """Another run may have overwritten them; who reads them next would read those."""
    labels = tmp_path / "labels" / "m-given-0.npy"
    count, config = Counted(labels), table1.Config(output=tmp_path)
    for n in (1, 1):
        measured("table1", SPACE, config, count, clustered=True)
        assert count.n == n
    labels.write_bytes(b"of another number of clusters")
    for n in (2, 2):
        measured("table1", SPACE, config, count, clustered=True)
        assert count.n == n
    labels.unlink()
    measured("table1", SPACE, config, count, clustered=True)
    assert count.n == 3


def test_labels_that_are_read_are_in_the_key(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    count = Counted(tmp_path / "labels" / "m-given-0.npy")
    config = table1.Config(output=tmp_path, labels=given)
    for content, n in ((b"one", 1), (b"one", 1), (b"two", 2)):
        (given / "m-given-0.npy").write_bytes(content)
        measured("table1", SPACE, config, count, clustered=True)
        assert count.n == n


def test_a_broken_entry_is_named(tmp_path: Path) -> None:
    config = table1.Config(output=tmp_path)
    measured("table1", SPACE, config, Counted())
    (entry,) = (tmp_path / "measured").iterdir()
    entry.write_text("{")
    with pytest.raises(ValueError, match=rf"{entry.name}: cannot be read .* delete it"):
        measured("table1", SPACE, config, Counted())

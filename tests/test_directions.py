"""Dominant directions: counts by hand, their files, and what is refused."""

import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from sklearn.decomposition import PCA
from tiny_study import D, as_csv, files_in, read_csv, run, tables_in, write_pairs

import jaxgeom
from experiments import directions
from experiments.command.start import main
from experiments.layout.directions import tables_of
from jaxgeom import reference, study

RATIO = np.array([0.6, 0.3, 0.1])


@pytest.mark.parametrize(
    ("share", "n"), [(0.5, 1), (0.6, 1), (0.61, 2), (0.9, 2), (0.99, 3), (1.0, 3)]
)
def test_directions_for_a_share_of_the_variance(share: float, n: int) -> None:
    assert study.n_directions_for_variance(RATIO, share) == n


def test_no_variance_is_no_number() -> None:
    fit = study.centred_isotropy(reference, np.ones((4, 3), np.float32))
    ratio = study.explained_variance_ratio(fit)
    assert np.isnan(ratio).all()
    assert study.n_directions_for_variance(ratio, 0.5) is None


def test_directions_for_an_isotropy_are_the_first_that_reach_it() -> None:
    curve = np.array(
        [0.3, 0.2, 0.4, 0.4]
    )  # without a null direction the first removal may lower it
    targets = (0.1, 0.3, 0.31, 0.4, 0.5)
    assert [study.n_directions_for_isotropy(curve, t) for t in targets] == [0, 0, 2, 2, None]


@pytest.mark.parametrize("ops", [reference, jaxgeom], ids=["numpy", "jax"])
def test_the_spectrum_is_that_of_principal_component_analysis(ops: ModuleType) -> None:
    rng = np.random.default_rng(0)
    x = (5 + rng.normal(size=(90, 7)) * np.geomspace(3, 0.3, 7)[None, :]).astype(np.float32)
    got = study.explained_variance_ratio(study.centred_isotropy(ops, x))
    expected = PCA().fit(x.astype(np.float64)).explained_variance_ratio_
    np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of pairs."""
    return write_pairs(tmp_path)


def test_every_face_has_the_json_cells(data: Path) -> None:
    document = run(
        directions,
        data,
        *("--states", "random", "pretrained", "--backend", "numpy", "--isotropy", "0.5", "1"),
    )
    rows, spectra = document["rows"], document["spectra"]
    out = data / "out"
    assert read_csv(out / "directions.csv") == as_csv(rows)
    names = [f"directions.{e}" for e in ("csv", "json", "md", "tex")]
    assert files_in(out) == [*names, "directions_tiny.png", "directions_tiny.svg", "run.json"]
    states = ("random", "pretrained")
    assert [spectrum["state"] for spectrum in spectra] == list(states)
    for state, spectrum in zip(states, spectra, strict=True):
        ratio = np.array(spectrum["explained_variance_ratio"])
        assert ratio.shape == (D,)
        assert ratio.sum() == pytest.approx(1)
        assert (np.diff(ratio) <= 0).all()
        variance = [r for r in rows if (r["state"], r["quantity"]) == (state, "variance")]
        for row in variance:
            n = row["n_directions"]
            assert ratio[: n - 1].sum() < row["target"] <= ratio[:n].sum() + 1e-12
    (table,) = tables_in((out / "directions.md").read_text())
    assert table[0] == ["", *states]
    for i, line in enumerate(table[2:]):
        of_line = rows[i :: len(table) - 2]
        assert line[1:] == [cell(row) for row in of_line]
    reached, never = ([r for r in rows if r["target"] == t][-1] for t in (0.5, 1))
    assert reached["n_directions_fewest"] <= reached["n_directions"] <= reached["n_directions_most"]
    assert never["n_directions"] is None  # the last direction left still has some extent


def cell(row: dict) -> str:
    """Return the cell of one row."""
    values = [
        "—" if row[field] is None else str(row[field])
        for field in ("n_directions", "n_directions_fewest", "n_directions_most")
    ]
    return values[0] if row["quantity"] == "variance" else "{} [{}, {}]".format(*values)


def test_seeds_are_a_mean_and_a_deviation() -> None:
    def row(seed: int, *counts: int | None) -> dict:
        fields = ("n_directions", "n_directions_fewest", "n_directions_most")
        names = {"model": "m", "state": "random", "seed": seed, "protocol": "ours", "n_features": 9}
        what = {"quantity": "isotropy", "target": 0.5}
        return names | what | dict(zip(fields, counts, strict=True))

    (table,) = tables_of([row(0, 3, 2, 4), row(1, 4, 3, 4)])
    assert table.lines == [["must go before I reaches 0.5", "3.5 ± 0.7 [2, 4]"]]
    (table,) = tables_of([row(0, 3, 2, 4), row(1, None, 3, None)])
    assert table.lines == [["must go before I reaches 0.5", "— [2, —]"]]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--variance", "0"), "--variance must be above 0 and at most 1, got 0.0"),
        (("--isotropy", "1.5"), "--isotropy must be above 0 and at most 1, got 1.5"),
        (("--protocol", "ours", "ours"), "--protocol must be one or more different values"),
    ],
)
def test_a_users_mistake_is_one_line(
    flags: tuple[str, ...], message: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["--models", "m", *flags, "--output", str(data / "out")]
    assert main(directions.Config, directions.run, name="directions", args=args) == 2
    assert re.search(f"^error: {message}", capsys.readouterr().err)

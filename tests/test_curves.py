"""Removal curves: every point by hand, the points of Tables 1 and 2, the files and the figure."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from tiny_study import D, as_csv, files_in, read_csv, run, tables_in, write_pairs

import jaxgeom
from experiments import curves, table1, table2
from experiments.layout.curves import _panels, shown, tables_of
from experiments.layout.figures import style, subplots
from experiments.layout.tables import correlation, isotropy
from jaxgeom import reference, study

BACKENDS = pytest.mark.parametrize("ops", [reference, jaxgeom], ids=["numpy", "jax"])
N, WIDTH, PAIRS = 240, 6, 20
WHICH = pytest.mark.parametrize("which", ["top", "least"])


@pytest.fixture(scope="module")
def tokens() -> np.ndarray:
    rng = np.random.default_rng(0)
    return (2 + rng.normal(size=(N, WIDTH)) * np.geomspace(2, 0.2, WIDTH)[None, :]).astype(
        np.float32
    )


IDS = np.sort(np.random.default_rng(1).permutation(N) % (2 * PAIRS)).astype(np.int32)
SCORES = np.random.default_rng(2).uniform(0, 5, PAIRS)


def points_by_hand(tokens: np.ndarray, which: str) -> list[tuple[float, float]]:
    """Return Spearman and the heavier-side isotropy after each number of removals."""
    x = tokens.astype(np.float64)
    x -= x.mean(axis=0)
    directions = np.linalg.svd(x)[2]
    points = []
    for k in range(WIDTH):
        kept = directions[k:] if which == "top" else directions[: WIDTH - k]
        left = x @ kept.T @ kept
        vectors = np.stack([left[s == IDS].mean(axis=0) for s in range(2 * PAIRS)])
        log_f = logsumexp(np.stack([left @ directions.T, -left @ directions.T]), axis=1)
        heavier = log_f.max(axis=0)
        points.append((study.spearman(vectors, SCORES), np.exp(heavier.min() - heavier.max())))
    return points


@BACKENDS
@WHICH
def test_every_point_is_what_it_is_by_hand(ops: ModuleType, tokens: np.ndarray, which: str) -> None:
    fit = study.centred_isotropy(ops, tokens)
    curve = study.removal_curve(ops, fit, tokens, IDS, SCORES, which=which)
    expected = points_by_hand(tokens, which)
    # along the one last direction float64 leaves the hand's cosines a rounding away from a sign
    np.testing.assert_allclose(curve.spearman[:-1], [s for s, _ in expected[:-1]], atol=0.01)
    np.testing.assert_allclose(curve.isotropy, [i for _, i in expected], rtol=2e-3)
    assert (curve.low <= curve.isotropy).all()
    assert (curve.isotropy <= curve.high).all()
    assert {field.dtype for field in curve} == {np.dtype(np.float64)}


@BACKENDS
@WHICH
def test_points_are_those_of_the_settings(ops: ModuleType, tokens: np.ndarray, which: str) -> None:
    """Global of Table 1 at the k leading directions, Global of Table 2 at the m least ones."""
    fit = study.centred_isotropy(ops, tokens)
    curve = study.removal_curve(ops, fit, tokens, IDS, SCORES, which=which)
    one = np.zeros(N, np.int32)
    common = (ops, tokens, IDS, 2 * PAIRS, one)
    for k in (1, 3):
        if which == "top":
            result = study.settings(*common, n_clusters=1, n_directions=k)["global"]
        else:
            result = study.least_settings(*common, n_clusters=1, n_least=(k,))["global", k]
        assert curve.spearman[k] == pytest.approx(study.spearman(result.vectors, SCORES), abs=0.01)
        got = (curve.isotropy[k], curve.low[k], curve.high[k])
        assert got == pytest.approx(tuple(result.isotropy), rel=1e-3)


@BACKENDS
def test_along_one_direction_cosines_are_signs(ops: ModuleType) -> None:
    """Pairs of points on a line: Spearman is of whether they lie on one side."""
    x = np.array([3.0, 1.0, -2.0, 4.0, 2.0, -5.0, 1.0, -4.0], np.float32)
    rows = np.stack([x, 0.01 * np.array([1, -1, 1, -1, -1, 1, -1, 1], np.float32)], axis=1)
    ids, gold = np.arange(8, dtype=np.int32), np.array([4.0, 1.0, 0.0, 2.0])
    fit = study.centred_isotropy(ops, rows)
    curve = study.removal_curve(ops, fit, rows, ids, gold, which="least")
    signs = np.sign(x[:4] * x[4:])
    paired = np.stack([np.ones(4), signs])  # unit vectors on the line
    vectors = np.concatenate([paired[0], paired[1]])[:, None]
    assert curve.spearman[1] == pytest.approx(study.spearman(vectors, gold))


@BACKENDS
def test_a_sentence_with_nothing_left_is_a_gap(ops: ModuleType) -> None:
    """The first sentence lies on the heaviest direction alone."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(8, 3)).astype(np.float32) * np.array([1, 0.5, 0.25], np.float32)
    rows = np.concatenate([rows, -rows, [[50, 0, 0], [-50, 0, 0]]]).astype(np.float32)
    ids = np.concatenate([np.arange(1, 9), np.arange(1, 9), [0, 9]]).astype(np.int32)
    ids[8:16] = np.roll(ids[8:16], 1)  # no sentence is its own opposite
    rows[:, 1:] -= rows[:, 1:].mean(axis=0)[None, :]
    fit = study.centred_isotropy(ops, rows)
    gold = np.arange(5.0)
    top = study.removal_curve(ops, fit, rows, ids, gold, which="top")
    least = study.removal_curve(ops, fit, rows, ids, gold, which="least")
    assert np.isfinite(top.spearman[0])
    assert np.isnan(top.spearman[1])
    assert np.isfinite(least.spearman).all()


@BACKENDS
def test_a_sentence_without_tokens_has_cosine_0_as_in_the_settings(
    ops: ModuleType, tokens: np.ndarray
) -> None:
    ids = np.where(IDS == 3, 4, IDS).astype(np.int32)
    fit = study.centred_isotropy(ops, tokens)
    curve = study.removal_curve(ops, fit, tokens, ids, SCORES, which="top")
    one = np.zeros(N, np.int32)
    result = study.settings(ops, tokens, ids, 2 * PAIRS, one, n_clusters=1, n_directions=2)
    assert result["global"].n_zero_sentences == 1
    expected = study.spearman(result["global"].vectors, SCORES)
    assert curve.spearman[2] == pytest.approx(expected, abs=0.01)


def test_sentences_out_of_range_are_named(tokens: np.ndarray) -> None:
    fit = study.centred_isotropy(reference, tokens)
    with pytest.raises(ValueError, match=r"sentence_ids must be in 0..19, got 20"):
        study.removal_curve(reference, fit, tokens, IDS, SCORES[:10], which="top")
    with pytest.raises(ValueError, match="which must be one of 'top', 'least', got 'best'"):
        study.removal_curve(reference, fit, tokens, IDS, SCORES, which="best")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of pairs."""
    return write_pairs(tmp_path)


def test_the_run_has_the_points_of_both_tables(data: Path) -> None:
    """The curves from the kernels, the tables from the reference."""
    rows = run(curves, data, "--states", "pretrained")["rows"]
    points = {(row["which"], row["n_removed"]): row for row in rows}
    tables = [
        *run(table1, data, "--states", "pretrained", "--backend", "numpy")["rows"],
        *run(table2, data, "--states", "pretrained", "--backend", "numpy")["rows"],
    ]
    found = 0
    for row in tables:
        if row["setting"] == "global":
            key = ("least", row["n_least"]) if "n_least" in row else ("top", 2)
        elif row["setting"] == "zero_mean":
            key = ("top", 0)
        else:
            continue
        found += 1
        assert points[key]["spearman"] == pytest.approx(row["spearman"], abs=0.01)
        for field in ("isotropy", "isotropy_low", "isotropy_high"):
            assert points[key][field] == pytest.approx(row[field], rel=1e-3)
    assert found == 5


def test_every_face_has_the_json_cells(data: Path) -> None:
    rows = run(curves, data, "--states", "random", "pretrained", "--backend", "numpy")["rows"]
    out = data / "out"
    assert read_csv(out / "curves.csv") == as_csv(rows)
    assert [len(rows), rows[0]["n_removed"], rows[-1]["n_removed"]] == [2 * 2 * D, 0, D - 1]
    names = [f"curves.{e}" for e in ("csv", "json", "md", "tex")]
    assert files_in(out) == [*names, "curves_tiny.png", "curves_tiny.svg", "run.json"]
    assert (out / "curves_tiny.png").read_bytes().startswith(b"\x89PNG")
    found = {(row["which"], row["n_removed"], row["state"]): row for row in rows}
    tables = tables_in((out / "curves.md").read_text())
    for which, marked, table in zip(("top", "least"), ((2,), (4, 29)), tables, strict=True):
        assert [line[0] for line in table[2:]] == list(map(str, shown(D, marked)))
        for removed, *cells in table[2:]:
            expected = []
            for state in ("random", "pretrained"):
                row = found[which, int(removed), state]
                low, high = isotropy(row["isotropy_low"]), isotropy(row["isotropy_high"])
                expected += [correlation(row["spearman"]), isotropy(row["isotropy"])]
                expected += [f"[{low}, {high}]"]
            assert cells == expected


def points(state: str, spearmans: list[float]) -> list[dict[str, Any]]:
    """Return the rows of one state and seed in a space of two directions."""
    names = {"model": "m", "state": state, "seed": 0, "protocol": "ours", "n_tokens": 9}
    numbers = {"isotropy": 0.5, "isotropy_low": 0.1, "isotropy_high": 0.9}
    return [
        names | {"which": which, "n_removed": k, "spearman": value} | numbers
        for which in ("top", "least")
        for k, value in enumerate(spearmans)
    ]


def test_a_gap_is_a_dash_and_a_hole_in_the_line() -> None:
    rows = [*points("random", [1.0, np.nan]), *points("finetuned", [3.0, 4.0])]
    top, _ = tables_of(rows, n_directions=2)
    assert top.header[1:4] == ["random Perf.", "random Isotropy", "random [low, high]"]
    assert top.lines == [
        ["0", "1.00", "0.50", "[0.10, 0.90]", "3.00", "0.50", "[0.10, 0.90]"],
        ["1", "—", "0.50", "[0.10, 0.90]", "4.00", "0.50", "[0.10, 0.90]"],
    ]
    with style():
        _, axes = subplots(2, 1)
        chosen = [row for row in rows if row["which"] == "top"]
        _panels(axes[:, 0], chosen, "top", [])
    lines = {line.get_label(): line.get_ydata() for line in axes[0, 0].lines}
    np.testing.assert_array_equal(lines["random weights"], [1.0, np.nan])
    np.testing.assert_array_equal(lines["fine-tuned"], [3.0, 4.0])


def test_a_gap_in_one_seed_is_a_gap_of_the_mean() -> None:
    seeds = [points("random", values) for values in ([1.0, 2.0], [3.0, np.nan])]
    rows = [row | {"seed": seed} for seed, of_seed in enumerate(seeds) for row in of_seed]
    top, _ = tables_of(rows, n_directions=1)
    assert [line[1] for line in top.lines] == ["2.00 ± 1.41", "—"]


def test_tables_show_round_numbers_and_the_marked_ones() -> None:
    assert shown(384, (12,)) == [0, 1, 2, 5, 10, 12, 20, 50, 100, 200, 383]
    assert shown(2, (1,)) == [0, 1]


def test_the_authors_curve_is_one_choice_of_signs(data: Path) -> None:
    """Beside ours: the same correlations, an isotropy inside our range, no range of its own."""
    document = run(curves, data, "--states", "pretrained", "--protocol", "ours", "authors")
    ours, theirs = (
        [row for row in document["rows"] if row["protocol"] == protocol]
        for protocol in ("ours", "authors")
    )
    for row, other in zip(ours, theirs, strict=True):
        assert (row["which"], row["n_removed"]) == (other["which"], other["n_removed"])
        assert other["spearman"] == pytest.approx(row["spearman"], abs=0.01, nan_ok=True)
        assert (other["isotropy_low"], other["isotropy_high"]) == (None, None)
        slack = 2e-3  # log I with each side's own directions
        assert row["isotropy_low"] * (1 - slack) <= other["isotropy"]
        assert other["isotropy"] <= row["isotropy_high"] * (1 + slack)
    first = run(table1, data, "--states", "pretrained", "--protocol", "authors")["rows"][1]
    assert first["setting"] == "zero_mean"
    # Table 1 takes the mean off as a removal, the curve as zero_mean: two float32 roundings
    assert first["isotropy"] == pytest.approx(theirs[0]["isotropy"], rel=1e-5)
    titles = [
        line for line in (data / "out" / "curves.md").read_text().splitlines() if "###" in line
    ]
    assert [title.rpartition(" ")[2] for title in titles] == ["ours", "ours", "authors", "authors"]
    assert (data / "out" / "curves_tiny_authors.png").exists()

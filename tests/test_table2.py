"""Table 2: what one choice of signs allows, by hand; then its run on a tiny model."""

import itertools
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_study import D, as_csv, files_in, read_csv, run, tables_in, write_pairs

import jaxgeom
from experiments import table2
from experiments.command.start import main
from experiments.layout.orderings import ordering_tables
from experiments.layout.settings import over_seeds, sign_range, tables_of
from experiments.layout.tables import correlation, isotropy
from experiments.rows import paper
from experiments.rows.orderings import ordering_rows
from experiments.rows.paper import least_of, study_least
from experiments.spaces.space import Space
from jaxgeom import reference, study
from jaxgeom.study import orderings

LOG_4 = math.log(4)


def log_f(*sides: tuple[float, float]) -> np.ndarray:
    """Return ln F [2 d] of the two sides of each direction."""
    return np.log(np.array(sides).T)


NULL = log_f((9, 8), (5, 6), (4, 4))  # n = 4; the heaviest direction is the first on either side
FULL = log_f((9, 8), (5, 6), (4.5, 5))  # no null direction
TURNS = log_f((9, 5), (8, 4.5), (4, 4))  # either of two directions may be the heavier one
LAST = log_f((5, 5), (4, 4), (9, 8))  # F need not follow the variance: the last is the heaviest


def test_a_null_direction_has_f_of_n_on_both_sides() -> None:
    assert orderings.has_null_direction(NULL, 4)
    assert not orderings.has_null_direction(FULL, 4)
    assert not orderings.has_null_direction(log_f((9, 8), (4, 4.1)), 4)
    assert orderings.has_null_direction(log_f((9, 8), (4, 4.004)), 4)  # no printed digit sees it


def test_the_heaviest_direction_is_kept_removed_or_either() -> None:
    kept = [orderings.heaviest_is_kept(x, 4, m) for x in (NULL, TURNS, LAST) for m in (0, 1, 2)]
    assert kept == [True, True, True, True, True, None, True, False, False]


@pytest.mark.parametrize(
    ("x", "first", "second", "low", "high", "relation"),
    [
        (NULL, 0, 1, 0, 0, "="),
        (NULL, 0, 2, 0, 0, "="),
        (NULL, 1, 2, 0, 0, "="),
        # zero-mean divides the lightest F, 4.5 or 5, by the same largest one that n is divided by
        (FULL, 0, 1, math.log(4 / 5), math.log(4 / 4.5), "≥"),
        (FULL, 1, 2, 0, 0, "="),
        # the heaviest is first 9 or 5, which stays, or 8, which goes and leaves 5
        (TURNS, 0, 2, 0, math.log(8 / 5), "≤"),
        (LAST, 0, 1, math.log(8 / 5), math.log(9 / 5), "≤"),
        (LAST, 1, 2, 0, 0, "="),
        # both at once: n gives way to a lighter F, and the heaviest direction goes
        (log_f((5, 5), (9, 4.5)), 0, 1, math.log(4 / 5), math.log(4 / 4.5 * 9 / 5), "any"),
    ],
)
def test_bounds_are_what_they_are_by_hand(
    x: np.ndarray, first: int, second: int, low: float, high: float, relation: str
) -> None:
    got = orderings.bounds(x, 4, first, second)
    assert got == pytest.approx((low, high))
    assert orderings.relation(got) == relation


@pytest.mark.parametrize("seed", range(6))
def test_no_choice_of_signs_leaves_the_bounds(seed: int) -> None:
    """All 2^5 of them; where the data has a null direction, both ends are reached."""
    rng = np.random.default_rng(seed)
    x = np.log(4) + np.abs(rng.normal(size=(2, 5)))
    if seed % 2:
        x[:, rng.integers(5)] = LOG_4

    def log_isotropy(signs: tuple[int, ...], m: int) -> float:
        f = x[np.array(signs), np.arange(5)]
        return f.min() - f.max() if m == 0 else LOG_4 - f[: 5 - m].max()

    for first, second in itertools.combinations(range(5), 2):
        low, high = orderings.bounds(x, 4, first, second)
        changes = [
            log_isotropy(signs, second) - log_isotropy(signs, first)
            for signs in itertools.product((0, 1), repeat=5)
        ]
        assert low - 1e-12 <= min(changes)
        assert max(changes) <= high + 1e-12
        if seed % 2 or first > 0:
            assert (min(changes), max(changes)) == pytest.approx((low, high))


EQUAL, RISING = orderings.Bounds(0.0, 0.0), orderings.Bounds(0.0, 0.5)


def test_the_studys_falls_are_impossible_and_its_equal_pair_is_equal() -> None:
    """BERT: 6.6E-3, then 2.2E-3 twice; RoBERTa: 6.1E-3, 3.2E-4, 1.4E-2."""

    def mark(model: str, first: int, second: int, allowed: orderings.Bounds) -> str:
        values = [
            (
                paper.TABLE2[model, "global", m]
                if m
                else paper.TABLE1[model, "finetuned", "zero_mean"]
            )
            for m in (first, second)
        ]
        return orderings.mark(values[0].isotropy, values[1].isotropy, allowed, printed=True)

    for model in ("BERT", "RoBERTa"):
        for allowed in (EQUAL, RISING):
            assert mark(model, 0, 100, allowed) == "impossible"
    assert mark("BERT", 0, 700, EQUAL) == "impossible"
    assert mark("BERT", 100, 700, EQUAL) == "equal"
    assert mark("BERT", 100, 700, RISING) == "allowed"
    assert mark("RoBERTa", 0, 700, EQUAL) == "impossible"
    assert mark("RoBERTa", 0, 700, orderings.Bounds(0.0, 1.0)) == "allowed"  # it rises by 0.83
    assert mark("RoBERTa", 100, 700, EQUAL) == "impossible"  # it rises


def test_printed_values_stand_for_their_roundings() -> None:
    falls = {"first": 2.2e-3, "second": 2.1e-3, "allowed": EQUAL}
    assert orderings.mark(**falls, printed=True) == "equal"  # both may be 2.15E-3
    assert orderings.mark(**falls, printed=False) == "impossible"
    assert orderings.mark(2.2e-3, 2.0e-3, EQUAL, printed=True) == "impossible"
    assert orderings.mark(0.0, 0.0, EQUAL, printed=False) == "equal"  # both underflowed
    assert orderings.inside(2.2e-3, 2.24e-3, 1.0)
    assert not orderings.inside(2.2e-3, 2.26e-3, 1.0)
    assert orderings.inside(0.16, 0.0, 0.156)
    assert not orderings.inside(0.16, 0.0, 0.154)


@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 1), (0, 3), (-1, 1)])
def test_numbers_out_of_range_are_named(first: int, second: int) -> None:
    with pytest.raises(ValueError, match=r"(second must be at least|n_least must be in 0..)"):
        orderings.bounds(NULL, 4, first, second)


@pytest.mark.parametrize("ops", [reference, jaxgeom], ids=["numpy", "jax"])
def test_the_order_holds_of_measured_data(ops: Any) -> None:
    """Rows that add up to nothing, as LayerNorm's do before its weight, have a null direction."""
    rng = np.random.default_rng(0)
    tokens = (rng.normal(size=(400, 8)) * np.geomspace(2, 0.3, 8)[None, :]).astype(np.float32)
    for rows, relation in ((tokens, "≥"), (tokens - tokens.mean(axis=1)[:, None], "=")):
        fit = study.centred_isotropy(ops, rows)
        ids = np.arange(400, dtype=np.int32)
        got = study.least_settings(ops, rows, ids, 400, 0 * ids, n_clusters=1, n_least=(1, 6))
        x, count = np.asarray(fit.log_partition), int(fit.count)
        for m in (1, 6):
            allowed = orderings.bounds(x, count, 0, m)
            assert orderings.relation(allowed) == relation
            pair = [got[key].isotropy.isotropy for key in (("zero_mean", 0), ("global", m))]
            assert orderings.mark(*pair, allowed, printed=False) != "impossible"
            assert (pair[0] == pytest.approx(pair[1], rel=2e-3)) is (relation == "=")


def test_other_widths_have_the_same_shares() -> None:
    assert [least_of(d) for d in (768, 384, 32, 6, 2)] == [
        (100, 700),
        (50, 350),
        (4, 29),
        (1, 5),
        (1,),
    ]
    assert [study_least(m, 384) for m in (0, 50, 350, 51)] == [0, 100, 700, None]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of pairs."""
    return write_pairs(tmp_path)


def test_every_face_has_the_json_cells(data: Path) -> None:
    document = run(
        table2,
        data,
        *("--states", "random", "pretrained", "--seeds", "0", "1", "--backend", "numpy"),
    )
    rows, pairs = document["rows"], document["orderings"]
    out = data / "out"
    assert read_csv(out / "table2.csv") == as_csv(rows)
    assert read_csv(out / "table2_orderings.csv") == as_csv(pairs)
    names = ["run.json", *(f"table2.{ending}" for ending in ("csv", "json", "md", "tex"))]
    assert files_in(out) == [*names, "table2_orderings.csv"]
    settings = [(row["setting"], row["n_least"], row["paper_n_least"]) for row in rows[:6]]
    assert settings == [
        ("baseline", 0, 0),
        ("zero_mean", 0, 0),
        ("global", 4, 100),
        ("global", 29, 700),
        ("cluster_based", 4, 100),
        ("cluster_based", 29, 700),
    ]
    (random, pretrained, random_pairs, _) = tables_in((out / "table2.md").read_text())
    for table, state in ((random, "random"), (pretrained, "pretrained")):
        of_state = [row for row in rows if row["state"] == state]
        columns = [of_state[i::6] for i in range(6)]
        cells = {label: cells for label, *cells in table}
        assert cells["Perf."] == [over_seeds(c, "spearman", correlation) for c in columns]
        assert cells["Isotropy"] == [over_seeds(c, "isotropy", isotropy) for c in columns]
        assert cells["[low, high]"] == list(map(sign_range, columns))
    assert random[0][3:5] == ["Global, 4 least", "Global, 29 least"]
    of_random = [row for row in pairs if row["state"] == "random"]
    fields = ("isotropy_first", "relation", "isotropy_second", "mark")
    assert [line[1:5] for line in random_pairs[2:]] == [
        [isotropy(row[f]) if f.startswith("isotropy") else row[f] for f in fields]
        for row in of_random
    ]
    assert random_pairs[2][0] == "I(zero-mean), I(4 least), seed 0"


def test_a_layer_norm_output_has_its_null_direction_and_its_order(data: Path) -> None:
    document = run(table2, data, "--states", "pretrained")
    assert len(document["orderings"]) == 3
    values = {(r["setting"], r["n_least"]): r["isotropy"] for r in document["rows"]}
    for pair in document["orderings"]:
        assert pair["has_null_direction"]
        assert pair["relation"] in ("=", "≤")
        assert pair["mark"] in ("equal", "allowed")
        keys = [("global" if m else "zero_mean", m) for m in (pair["first"], pair["second"])]
        assert [pair["isotropy_first"], pair["isotropy_second"]] == [values[k] for k in keys]
        assert pair["inside"] is None
    notes = (data / "out" / "table2.md").read_text()
    assert "Seed 0: the centred data has a null direction" in notes


def test_chosen_numbers_and_the_authors_protocol(data: Path) -> None:
    document = run(table2, data, "--states", "random", "--least", "7", "3", "--protocol", "authors")
    rows = document["rows"]
    assert [row["n_least"] for row in rows] == [0, 0, 3, 7, 3, 7]
    assert [row["paper_n_least"] for row in rows] == [0, 0, None, None, None, None]
    assert {row["protocol"] for row in rows} == {"authors"}
    assert {row["isotropy_low"] for row in rows} == {None}
    ours = run(table2, data, "--states", "random", "--least", "3", "7")["rows"]
    titles = [table.title for table in tables_of([*ours, *rows])]
    assert [re.search(r"protocol \w+", title)[0] for title in titles] == [
        "protocol ours",
        "protocol authors",
    ]
    for row, other in zip(ours, rows, strict=True):
        if row["setting"] != "cluster_based":  # the clusters are others
            assert row["spearman"] == other["spearman"]
            slack = 2e-3 * row["isotropy_high"]
            assert other["isotropy"] <= row["isotropy_high"] + slack
            assert other["isotropy"] >= row["isotropy_low"] * (1 - 2e-3)


def printed_marks(model: str) -> list[dict[str, Any]]:
    """Return the printed pairs beside a fine-tuned model of 32 features."""
    rng = np.random.default_rng(0)
    tokens = rng.normal(size=(300, D)) * np.geomspace(2, 0.1, D)[None, :]
    tokens[:, -1] = 0  # a null direction
    ids = np.arange(300, dtype=np.int32)
    space = Space(model, "finetuned", 0, "ours", tokens, ids, np.zeros(150), None, 0)
    fit = study.centred_isotropy(reference, tokens)
    results = study.least_settings(
        reference, tokens, ids, 300, 0 * ids, n_clusters=1, n_least=least_of(D)
    )
    ranges = study.isotropy_curve(reference, fit, "least")
    return ordering_rows(space, fit, ranges, results)


def test_a_fine_tuned_model_of_the_study_meets_its_printed_pairs() -> None:
    rows = printed_marks("bert-base-uncased")
    assert [row["source"] for row in rows] == ["this run", "BERT"] * 3
    theirs = [row for row in rows if row["source"] == "BERT"]
    values = [(row["isotropy_first"], row["isotropy_second"]) for row in theirs]
    assert values == [(6.6e-3, 2.2e-3), (6.6e-3, 2.2e-3), (2.2e-3, 2.2e-3)]
    assert [row["mark"] for row in theirs][:2] == ["impossible", "impossible"]
    assert theirs[2]["mark"] == ("equal" if theirs[2]["relation"] == "=" else "allowed")
    assert {row["inside"] for row in theirs} == {"neither"}  # this data is more isotropic
    (table,) = ordering_tables(rows)
    assert table.lines[1] == ["  study, BERT", "6.6E-3", "=", "2.2E-3", "impossible", "neither"]


def test_another_model_stands_beside_both_and_says_so() -> None:
    rows = printed_marks("minilm")
    assert [row["source"] for row in rows] == ["this run", "BERT", "RoBERTa"] * 3
    (table,) = ordering_tables(rows)
    assert table.notes[-1] == "They are of other models than minilm."


def test_printed_cells_stand_below_the_shares_they_are_of() -> None:
    def row(setting: str, m: int, theirs: int | None) -> dict[str, Any]:
        counts = dict.fromkeys(("n_zero_rows", "n_zero_sentences", "n_empty_clusters"), 0)
        names = {"model": "roberta-base", "state": "finetuned", "seed": 0, "protocol": "ours"}
        what = {"setting": setting, "n_least": m, "paper_n_least": theirs, "n_tokens": 9}
        numbers = {"spearman": 1.0, "isotropy": 0.5, "isotropy_low": 0.1, "isotropy_high": 0.9}
        return names | what | counts | numbers

    given = [("baseline", 0, 0), ("zero_mean", 0, 0), ("global", 100, 100), ("global", 7, None)]
    (table,) = tables_of([row(*what) for what in given])
    assert table.lines[1] == ["  study, RoBERTa", "81.08", "81.34", "81.66", "—"]
    assert table.lines[4] == ["  study, RoBERTa", "3.3E-4", "6.1E-3", "3.2E-4", "—"]
    assert table.notes == ["The study's lines: RoBERTa: Table 2, RoBERTa, Table 1, Fine-tuned‡."]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--least", "32"), r"--least must be in 1..d - 1 = 1..31, got 32"),
        (("--least", "0"), r"--least must be in 1..d - 1 = 1..31, got 0"),
        (("--least", "3", "3"), r"--least must be different numbers, got \[3, 3\]"),
    ],
)
def test_a_users_mistake_is_one_line(
    flags: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "own.npz",
        tokens=rng.normal(size=(40, D)),
        sentence_ids=np.arange(40),
        scores=np.arange(20.0),
    )
    args = ["--embeddings", tmp_path / "own.npz", *flags, "--output", tmp_path / "out"]
    assert main(table2.Config, table2.run, name="table2", args=[*map(str, args)]) == 2
    error = capsys.readouterr().err
    assert re.search(f"^error: {message}", error)
    assert error.count("\n") == 1

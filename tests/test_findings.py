"""Findings: the rule of noise by hand, claims that come out each way, and what is missing."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tiny_study import as_csv, files_in, read_csv, tables_in

from experiments import findings
from experiments.command.start import main
from experiments.layout.findings import answer_of, tables_of
from experiments.rows.claims import BOTH, claims
from experiments.rows.noise import answer, mean_of, same_sign

SEEDS = (0, 1, 2)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_interval_is_that_of_a_t_test(n: int) -> None:
    values = np.random.default_rng(n).normal(0.7, 1, n)
    mean = mean_of(values.tolist())
    interval = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert mean.half_width is not None
    ends = (mean.value - mean.half_width, mean.value + mean.half_width)
    assert ends == pytest.approx(tuple(interval))
    decided = stats.ttest_1samp(values, 0).pvalue < 0.05
    assert (answer(values.tolist()) != "within noise") is bool(decided)


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ([], "not applicable"),
        ([3.0], "one seed"),
        ([1.0, 1.1], "yes"),  # 21 standard errors
        ([1.0, 1.2], "within noise"),  # 11 of them, which two seeds do not tell from 0
        ([-1.0, -1.1, -1.05], "no"),
        ([2.0, 2.0], "yes"),  # no seed moves it
        ([0.0, 0.0], "within noise"),
    ],
)
def test_answers(differences: list[float], expected: str) -> None:
    assert answer(differences) == expected


def test_a_sign_is_kept_or_not() -> None:
    cases: list[list[float]] = [[], [1], [1, 2], [-1, -9], [1, -0.1], [0, 1]]
    assert [same_sign(c) for c in cases] == [
        "not applicable",
        "one seed",
        "yes",
        "yes",
        "no",
        "no",
    ]


def table1(model: str, cells: dict[tuple[str, str], Sequence[tuple[float, float]]]) -> list[dict]:
    """Return rows of Table 1: (state, setting) -> Spearman and isotropy of each seed."""
    return [
        {"model": model, "state": state, "setting": setting, "seed": seed, "protocol": "ours"}
        | {"spearman": spearman, "isotropy": isotropy}
        for (state, setting), values in cells.items()
        for seed, (spearman, isotropy) in zip(SEEDS, values, strict=False)
    ]


def figure1(model: str, state: str, vectors: str, logs: Sequence[float]) -> list[dict]:
    names = {"model": model, "state": state, "vectors": vectors, "seed": 0, "protocol": "ours"}
    return [names | {"layer": i, "log_isotropy": log} for i, log in enumerate(logs)]


def found(results: dict[str, list[dict]], model: str = "minilm") -> dict[str, dict[str, Any]]:
    rows = findings.findings(results)
    return {row["claim"]: row for row in rows if row["model"] == model}


PRETRAINED = [(50.0, 1e-5), (50.2, 1e-5), (49.8, 1e-5)]
FINETUNED = [(84.0, 1e-3), (84.5, 2e-3), (83.5, 4e-3)]


def test_a_claim_is_answered_from_the_rows() -> None:
    rows = found(
        {
            "table1": table1(
                "minilm",
                {
                    ("pretrained", "baseline"): PRETRAINED,
                    ("finetuned", "baseline"): FINETUNED,
                    ("pretrained", "global"): [(60.0, 0.5), (60.1, 0.5), (60.3, 0.5)],
                    ("finetuned", "global"): [(84.1, 0.2), (84.9, 0.2), (83.0, 0.2)],
                    ("finetuned", "cluster_based"): [(70.0, 0.6), (71.0, 0.6), (70.0, 0.6)],
                    ("random", "baseline"): [(40.0, 0.1)] * 3,
                    ("random", "global"): [(41.0, 0.1), (41.5, 0.1), (41.2, 0.1)],
                },
            )
        }
    )
    raised = rows["tuning_raises"]
    logs = [
        math.log(after / before)
        for (_, before), (_, after) in zip(PRETRAINED, FINETUNED, strict=True)
    ]
    assert raised["answer"] == "yes"
    assert raised["difference"] == pytest.approx(np.mean(logs))
    assert (raised["first"], raised["second"]) == pytest.approx((1e-5, 7e-3 / 3))
    assert raised["seeds"] == "0 1 2"
    answers = {claim: row["answer"] for claim, row in rows.items()}
    assert answers["low_last_layer"] == "yes"
    assert answers["global_spearman_pretrained"] == "yes"
    assert answers["global_spearman_finetuned"] == "within noise"
    assert answers["cluster_based_spearman_finetuned"] == "yes"
    assert answers["global_spearman_random"] == "control"
    assert answer_of(rows["global_spearman_random"]) == "control: rises"
    assert answer_of(rows["global_isotropy_random"]) == "control: within noise"
    assert answers["less_isotropic_at_equal_k_global"] == "yes"
    assert answers["gap_keeps_its_sign_pre-trained"] == "yes"
    for claim in ("cls_below_mean_when_frozen", "least_cost_less_global", "frequency_fades_plane"):
        assert answers[claim] == "not applicable"
        assert rows[claim]["difference"] is None


def test_a_claim_can_fail() -> None:
    rows = found(
        {
            "table1": table1(
                "minilm",
                {
                    ("pretrained", "baseline"): PRETRAINED,
                    ("finetuned", "baseline"): [(84.0, 0.5), (84.5, 0.6), (83.5, 0.5)],
                    ("pretrained", "global"): [(40.0, 1e-7)] * 3,
                },
            )
        }
    )
    for claim in ("low_last_layer", "global_spearman_pretrained", "global_isotropy_pretrained"):
        assert rows[claim]["answer"] == "no"


def test_seeds_are_paired_and_one_says_only_which_way() -> None:
    rows = found(
        {
            "table1": table1(
                "minilm",
                {("pretrained", "baseline"): PRETRAINED, ("finetuned", "baseline"): FINETUNED[:1]},
            )
        }
    )
    assert rows["tuning_raises"]["seeds"] == "0"
    assert answer_of(rows["tuning_raises"]) == "one seed: as claimed"
    assert answer_of(rows["gap_keeps_its_sign_pre-trained"]) == "one seed"


def test_layers_are_counted() -> None:
    logs = [*figure1("minilm", "pretrained", "tokens", [-1, -2, -3, -4, -5])]
    logs += figure1("minilm", "finetuned", "tokens", [-1, -2, -3, -2, -2])
    logs += figure1("minilm", "finetuned", "cls", [-9, -1, -9, -9, -9])
    rows = found({"figure1": logs})
    upper = rows["rises_in_upper_layers"]
    assert (upper["first"], upper["second"]) == (0.0, 2.5)
    count = rows["cls_below_in_most_layers"]
    assert (count["first"], count["second"], count["answer"]) == (2.5, 4, "one seed")
    assert rows["low_every_layer"]["second"] == pytest.approx(math.exp(-1))
    assert answer_of(rows["low_every_layer"]) == "one seed: contrary"


def test_more_directions_and_a_number_that_none_reaches() -> None:
    def row(state: str, n: int | None) -> dict[str, Any]:
        names = {"model": "minilm", "state": state, "seed": 0, "protocol": "ours", "n_features": 8}
        return names | {"quantity": "isotropy", "target": 0.5, "n_directions": n}

    rows = found({"directions": [row("pretrained", 3), row("finetuned", None)]})
    more = rows["more_directions_isotropy_0.5"]
    assert (more["first"], more["second"], more["difference"]) == (3, 8, 5)


def test_frequency_and_least_directions() -> None:
    def panel(state: str, rho: float) -> dict[str, Any]:
        names = {"model": "minilm", "state": state, "seed": 0, "protocol": "ours"}
        return names | {"frequency_rho_plane": rho, "frequency_rho_neighbours": -rho}

    least = table1("minilm", {("finetuned", "global"): [(80.0, 1.0)] * 3})
    rows = found(
        {
            "figure2": [panel("pretrained", 0.8), panel("finetuned", 0.1)],
            "table1": table1("minilm", {("finetuned", "global"): [(70.0, 1.0)] * 3}),
            "table2": [row | {"paper_n_least": 700} for row in least],
        }
    )
    assert answer_of(rows["frequency_fades_plane"]) == "one seed: as claimed"
    assert answer_of(rows["frequency_fades_neighbours"]) == "one seed: contrary"
    assert rows["least_cost_less_global"]["answer"] == "yes"


def test_roberta_stands_against_bert_and_the_studys_numbers_beside_both() -> None:
    cells = {("pretrained", "baseline"): PRETRAINED, ("finetuned", "baseline"): FINETUNED}
    bert = table1("bert-base-uncased", cells)
    lower = {key: [(s, i / 9) for s, i in values] for key, values in cells.items()}
    both = found({"table1": bert + table1("roberta-base", lower)}, BOTH)
    assert {row["answer"] for row in both.values()} == {"yes"}
    rows = findings.findings({"table1": bert})
    assert {row["answer"] for row in rows if row["model"] == BOTH} == {"not applicable"}
    one, two = tables_of(rows)
    line = next(line for line in one.lines if "Spearman, pre-trained: Baseline → Global" in line[2])
    assert line[5] == "54.14 → 69.20"
    assert two.lines[0][5] == "1.1E-5 → 2.5E-6"
    other = tables_of(findings.findings({"table1": table1("minilm", cells)}))[0]
    line = next(
        line for line in other.lines if "Spearman, pre-trained: Baseline → Global" in line[2]
    )
    assert line[5] == "BERT 54.14 → 69.20; RoBERTa 33.99 → 65.99"


def test_claims_have_their_own_names_and_addresses() -> None:
    names = [claim.name for claim in claims((0.9,), (0.5,))]
    assert len(names) == len({*names})
    assert {claim.address[0] for claim in claims((0.9,), (0.5,))} == {"§"}


def test_every_face_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = {("pretrained", "baseline"): PRETRAINED, ("finetuned", "baseline"): FINETUNED}
    rows = table1("minilm", cells)
    (tmp_path / "table1.json").write_text(json.dumps({"schema": 1, "rows": rows}))
    args = ["--output", str(tmp_path)]
    assert main(findings.Config, findings.run, name="findings", args=args) == 0
    assert main(findings.Config, findings.run, name="findings", args=[*args[:1], "no"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: no must hold results, one or more of table1.json")
    stored = json.loads((tmp_path / "findings.json").read_text())["rows"]
    assert read_csv(tmp_path / "findings.csv") == as_csv(stored)
    names = [f"findings.{ending}" for ending in ("csv", "json", "md", "tex")]
    assert files_in(tmp_path) == [*names, "run.json", "table1.json"]
    of_model, _ = tables_in((tmp_path / "findings.md").read_text())
    assert [line[-1] for line in of_model[2:]] == [
        answer_of(row) for row in stored if row["model"] == "minilm"
    ]


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "table1.json").write_text("{}")
    with pytest.raises(ValueError, match=r"table1.json: must hold the rows of table1 .*'rows'"):
        findings.read_results(tmp_path)

"""The numbers the study prints, each with its address.

"How Does Fine-tuning Affect the Geometry of Embedding Space: A Case Study on Isotropy" (Rajaee and
Pilehvar, 2021). Spearman is times 100 on the STS-B dev set; isotropy is I(W), for one unstated
choice of signs, so it can be compared with our interval over all signs only.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Printed(NamedTuple):
    """One pair of cells of the study's tables."""

    spearman: float
    isotropy: float
    address: str


# last part of a Hub id, which is what an encoder goes by -> the study's name
MODELS = {"bert-base-uncased": "BERT", "roberta-base": "RoBERTa"}

_TABLE1_SETTINGS = ("baseline", "zero_mean", "cluster_zero_mean", "global", "cluster_based")
_TABLE1 = {
    ("BERT", "pretrained"): (
        (54.14, 1.1e-5),
        (59.70, 1.1e-4),
        (67.73, 0.31),
        (69.20, 0.59),
        (74.01, 0.83),
    ),
    ("BERT", "finetuned"): (
        (84.41, 4.1e-3),
        (84.94, 6.6e-3),
        (80.10, 0.11),
        (82.14, 0.22),
        (64.43, 0.60),
    ),
    ("RoBERTa", "pretrained"): (
        (33.99, 2.5e-6),
        (37.66, 8.3e-2),
        (60.32, 0.69),
        (65.99, 0.86),
        (73.86, 0.95),
    ),
    ("RoBERTa", "finetuned"): (
        (81.08, 3.3e-4),
        (81.34, 6.1e-3),
        (76.03, 0.05),
        (79.71, 0.18),
        (60.96, 0.28),
    ),
}
_TABLE1_ROWS = {
    "pretrained": {"BERT": "Pre-trained†", "RoBERTa": "Pre-trained‡"},
    "finetuned": {"BERT": "Fine-tuned†", "RoBERTa": "Fine-tuned‡"},
}

# (model, state, setting) -> what the study prints there
TABLE1 = {
    (model, state, setting): Printed(*cell, f"Table 1, {_TABLE1_ROWS[state][model]}")
    for (model, state), cells in _TABLE1.items()
    for setting, cell in zip(_TABLE1_SETTINGS, cells, strict=True)
}

_TABLE2_SETTINGS = (
    ("baseline", 0),
    ("global", 100),
    ("global", 700),
    ("cluster_based", 100),
    ("cluster_based", 700),
)
_TABLE2 = {
    "BERT": ((84.41, 4.1e-3), (84.93, 2.2e-3), (82.93, 2.2e-3), (77.87, 0.10), (75.10, 0.16)),
    "RoBERTa": ((81.08, 3.3e-4), (81.66, 3.2e-4), (78.59, 1.4e-2), (73.19, 0.13), (71.39, 0.13)),
}

WIDTH = 768  # features of the study's models
LEAST = (100, 700)  # least dominant directions that it removes

# (model, setting, least dominant directions removed) -> what the study prints; fine-tuned models
TABLE2 = {
    (model, setting, n_removed): Printed(*cell, f"Table 2, {model}")
    for model, cells in _TABLE2.items()
    for (setting, n_removed), cell in zip(_TABLE2_SETTINGS, cells, strict=True)
}


def study_models(model: str) -> list[str]:
    """Return whose numbers of the study stand beside a model's: its own, or else all."""
    own = MODELS.get(model)
    return [own] if own else list(MODELS.values())


def printed_beside(model: str, row: Mapping[str, Any]) -> Printed | None:
    """Return what the study prints of its `model` where a row of table1.json or table2.json stands.

    Args:
        model: the study's name for it.
        row: of Table 2 where it has the field `paper_n_least`.
    """
    if "paper_n_least" in row:
        return printed_of_table2(model, row["state"], row["setting"], row["paper_n_least"])
    return TABLE1.get((model, row["state"], row["setting"]))


def printed_of_table2(model: str, state: str, setting: str, theirs: int | None) -> Printed | None:
    """Return what Table 2 prints of its `model`, in the state `finetuned` alone.

    Args:
        model: the study's name for it.
        state: of our row.
        setting: "baseline", "zero_mean" (which stands in Table 1), "global" or "cluster_based".
        theirs: least directions removed in the study; 0 for the first two.
    """
    if state != "finetuned" or theirs is None:
        return None
    if setting == "zero_mean":
        return TABLE1.get((model, state, setting))
    return TABLE2.get((model, setting, theirs))


def least_of(d: int) -> tuple[int, ...]:
    """Return the study's numbers of least directions at d features: the same shares, in 1..d - 1.

    Example:
        >>> least_of(768), least_of(384), least_of(2)
        ((100, 700), (50, 350), (1,))
    """
    return tuple(sorted({_share(m, d) for m in LEAST}))


def study_least(m: int, d: int) -> int | None:
    """Return the study's number of least directions that m of d features stand for, if any."""
    if m == 0:
        return 0
    return next((theirs for theirs in LEAST if _share(theirs, d) == m), None)


def _share(m: int, d: int) -> int:
    """Return the share of d features that m are of the study's."""
    return min(max(round(m * d / WIDTH), 1), d - 1)

"""What a claim compares, read from the rows of the other experiments; nothing is computed twice."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.rows import paper
from experiments.rows.row import Row

BySeed = dict[int, float]


class Results(NamedTuple):
    """The rows of each experiment, of one model under one protocol."""

    rows: Mapping[str, Sequence[Row]]

    def of(self, **where: Any) -> "Results":
        """Return the rows whose fields have these values."""
        return Results(
            {
                name: [row for row in rows if all(row[k] == v for k, v in where.items())]
                for name, rows in self.rows.items()
            }
        )

    def values(self, experiment: str, field: str, **where: Any) -> BySeed:
        """Return a field by seed, where it is a number; later rows of a seed win."""
        found = self.of_experiment(experiment, **where)
        return {row["seed"]: row[field] for row in found if row[field] is not None}

    def of_experiment(self, experiment: str, **where: Any) -> list[Row]:
        """Return the rows of one experiment whose fields have these values."""
        rows = self.rows.get(experiment, ())
        return [row for row in rows if all(row.get(k) == v for k, v in where.items())]

    def log_isotropy(self, state: str, vectors: str) -> dict[int, list[float]]:
        """Return ln I of each layer by seed."""
        layers: dict[int, list[float]] = {}
        for row in self.of_experiment("figure1", state=state, vectors=vectors):
            layers.setdefault(row["seed"], []).append(row["log_isotropy"])
        return layers


class Quantity(NamedTuple):
    """A number for each seed, and what the study prints of it for one of its models."""

    of: Callable[[Results], BySeed]
    printed: Callable[[str], float | None] = lambda _: None
    is_bound: bool = False  # a number of ours, which the study need not print


def constant(value: float) -> Quantity:
    """Return a number that no seed changes."""
    return Quantity(
        lambda results: {row["seed"]: value for rows in results.rows.values() for row in rows},
        is_bound=True,
    )


def table1(state: str, setting: str, field: str) -> Quantity:
    """Return a cell of Table 1."""
    return Quantity(
        lambda results: results.values("table1", field, state=state, setting=setting),
        lambda model: getattr(paper.TABLE1.get((model, state, setting)), field, None),
    )


def table2(setting: str, n_least: int, field: str) -> Quantity:
    """Return a cell of Table 2, of fine-tuned models; `n_least` as the study counts them."""
    where = {"state": "finetuned", "setting": setting, "paper_n_least": n_least}
    return Quantity(
        lambda results: results.values("table2", field, **where),
        lambda model: getattr(paper.TABLE2.get((model, setting, n_least)), field, None),
    )


def most_isotropic_layer(state: str) -> Quantity:
    """Return the largest isotropy that all tokens have in any layer."""
    return Quantity(
        lambda results: {
            seed: math.exp(max(logs))
            for seed, logs in results.log_isotropy(state, "tokens").items()
        }
    )


def half_of_the_layers() -> Quantity:
    """Return half the number of layers, the embedding output included."""
    return Quantity(
        lambda results: {
            seed: len(logs) / 2
            for seed, logs in results.log_isotropy("finetuned", "tokens").items()
        }
    )


def layers_with_cls_below() -> Quantity:
    """Return in how many layers of the fine-tuned model CLS is less isotropic than all tokens."""

    def count(results: Results) -> BySeed:
        tokens = results.log_isotropy("finetuned", "tokens")
        cls = results.log_isotropy("finetuned", "cls")
        return {
            seed: sum(below < above for below, above in zip(cls[seed], tokens[seed], strict=True))
            for seed in tokens.keys() & cls.keys()
        }

    return Quantity(count)


def change_over_layers(*, upper: bool) -> Quantity:
    """Return the mean change of ln I by fine-tuning over the upper or the lower half of layers.

    A layer in the middle is in neither half.
    """

    def mean(results: Results) -> BySeed:
        before = results.log_isotropy("pretrained", "tokens")
        after = results.log_isotropy("finetuned", "tokens")
        means = {}
        for seed in before.keys() & after.keys():
            change = [b - a for a, b in zip(before[seed], after[seed], strict=True)]
            half = len(change) // 2
            chosen = change[-half:] if upper else change[:half]
            means[seed] = math.fsum(chosen) / half
        return means

    return Quantity(mean)


def directions(state: str, quantity: str, target: float) -> Quantity:
    """Return a number of leading directions; d, more than can go, where no number reaches it."""

    def count(results: Results) -> BySeed:
        where = {"state": state, "quantity": quantity, "target": target}
        return {
            row["seed"]: row["n_features"] if row["n_directions"] is None else row["n_directions"]
            for row in results.of_experiment("directions", **where)
        }

    return Quantity(count)


def frequency(state: str, field: str) -> Quantity:
    """Return a rank correlation between token frequency and place, of Figure 2."""
    return Quantity(lambda results: results.values("figure2", field, state=state))

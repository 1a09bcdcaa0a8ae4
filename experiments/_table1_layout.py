"""Rows of Table 1 laid out as the study does: a table for each state, the five settings across."""

from collections.abc import Sequence

from experiments import paper
from experiments._outputs import Row
from experiments._setting_tables import by_space, setting_table
from experiments._tables import Table

TITLES = {
    "baseline": "Baseline",
    "zero_mean": "Zero-mean",
    "cluster_zero_mean": "Clustering+ZM",
    "global": "Global",
    "cluster_based": "Cluster-based",
    "cls": "CLS",
}


def tables_of(rows: Sequence[Row]) -> list[Table]:
    """Return one table for each model, state and protocol, in the order of the rows."""
    return [_table(group) for group in by_space(rows)]


def _table(rows: Sequence[Row]) -> Table:
    """Return the table of one model in one state over its seeds."""
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    columns = [[row for row in rows if row["setting"] == setting] for setting in settings]
    return setting_table(columns, [TITLES[setting] for setting in settings], _printed)


def _printed(model: str, row: Row) -> paper.Printed | None:
    """Return what the study prints of its `model` where `row` stands."""
    return paper.TABLE1.get((model, row["state"], row["setting"]))

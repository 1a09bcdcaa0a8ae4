"""A row of results: one line of a table, of NAME.json and of NAME.csv."""

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]  # field -> value


def grouped(rows: Sequence[Row], *fields: str) -> list[list[Row]]:
    """Return the rows of each combination of the fields' values, in the order of first appearance.

    Example:
        >>> rows = [{"model": "a", "k": 0}, {"model": "b", "k": 1}, {"model": "a", "k": 2}]
        >>> [[row["k"] for row in group] for group in grouped(rows, "model")]
        [[0, 2], [1]]
    """
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[field] for field in fields), []).append(row)
    return list(groups.values())

"""Tables 1 and 2 laid out as the study has them: settings side by side, the study's lines below."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.command.options import MINIS
from experiments.layout.tables import NOTHING, Table, correlation, isotropy
from experiments.rows import paper
from experiments.rows.row import Row, grouped

OUR_LEGEND = (
    "Perf.: Spearman × 100. Isotropy: I(W), every eigenvector turned to its heavier side; "
    "[low, high]: its range over all choices of signs, which is all that a printed figure can be "
    "compared with. Seeds: mean ± standard deviation (ddof 1); the range from the smallest low to "
    "the largest high."
)
AUTHORS_LEGEND = (
    "Perf.: Spearman × 100. Isotropy: I(W) with the sign that NumPy's eigh returned for each "
    "eigenvector, one choice of many, hence without a range. Clusters: SciPy's kmeans2, random "
    "rows, 10 iterations. Seeds: mean ± standard deviation (ddof 1)."
)
LEGENDS = {"ours": OUR_LEGEND, "authors": AUTHORS_LEGEND}
COUNTS = {
    "n_zero_rows": "tokens that became zero",
    "n_zero_sentences": "sentences that became zero",
    "n_empty_clusters": "empty clusters",
}

TITLES = {
    "baseline": "Baseline",
    "zero_mean": "Zero-mean",
    "cluster_zero_mean": "Clustering+ZM",
    "global": "Global",
    "cluster_based": "Cluster-based",
    "cls": "CLS",
}


def tables_of(rows: Sequence[Row]) -> list[Table]:
    """Return one table for each model, state and protocol, in the order of the rows.

    Args:
        rows: of table1.json, or of table2.json, whose settings differ in `n_least` as well.
    """
    return [_table(group) for group in by_space(rows)]


def legend_of(rows: Sequence[Row]) -> str:
    """Return what the tables' words and numbers mean under the protocols of the rows."""
    return legend_for(rows, LEGENDS)


def legend_for(rows: Sequence[Row], legends: Mapping[str, str]) -> str:
    """Return the legend of each protocol of the rows, named where there are several."""
    protocols = dict.fromkeys(row["protocol"] for row in rows)
    if len(protocols) == 1:
        return legends[next(iter(protocols))]
    return " ".join(f"Protocol {protocol}: {legends[protocol]}" for protocol in protocols)


def by_space(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each model, state and protocol, all seeds together."""
    return grouped(rows, "model", "state", "protocol")


def _table(rows: Sequence[Row]) -> Table:
    """Return the table of one model in one state: a column for each setting, over its seeds."""
    columns: dict[str, list[Row]] = {}
    for row in rows:
        columns.setdefault(_title(row), []).append(row)
    first = [column[0] for column in columns.values()]
    lines = [
        ["Perf.", *(over_seeds(column, "spearman", correlation) for column in columns.values())],
        *_printed(first, "spearman", correlation),
        ["Isotropy", *(over_seeds(column, "isotropy", isotropy) for column in columns.values())],
        ["  [low, high]", *map(sign_range, columns.values())],
        *_printed(first, "isotropy", isotropy),
    ]
    notes = [*_addresses(first), *_counts(columns)]
    return Table(_space_title(next(iter(columns.values()))), ["", *columns], lines, notes)


def _title(row: Row) -> str:
    """Return the title of a row's column."""
    title = TITLES[row["setting"]]
    return f"{title}, {row['n_least']} least" if row.get("n_least") else title


def _space_title(rows: Sequence[Row]) -> str:
    """Return the title of a table over the seeds of `rows`."""
    row = rows[0]
    tokens = f"{row['n_tokens']:,} tokens"
    protocol = f"protocol {row['protocol']}"
    return " · ".join([titled(row), row["state"], _seeds(rows), tokens, protocol])


def titled(row: Row) -> str:
    """Return a model's name in a title, which says when it is one of the small ones."""
    return f"{row['model']} (mini models)" if row["model"] in MINIS else row["model"]


def seeds_and_protocol(rows: Sequence[Row]) -> str:
    """Return the end of a table's title."""
    return f"{_seeds(rows)} · protocol {rows[0]['protocol']}"


def over_seeds(column: Sequence[Row], field: str, face: Callable[[Any], str]) -> str:
    """Return one value, or mean ± standard deviation of several."""
    values = [row[field] for row in column]
    if len(values) == 1:
        return face(values[0])
    if any(value is None or math.isnan(value) for value in values):
        return NOTHING
    return f"{face(statistics.fmean(values))} ± {face(statistics.stdev(values))}"


def sign_range(column: Sequence[Row]) -> str:
    """Return the isotropy's range over signs and seeds."""
    lows, highs = ([row[f"isotropy_{end}"] for row in column] for end in ("low", "high"))
    if None in lows:
        return NOTHING
    return f"[{isotropy(min(lows))}, {isotropy(max(highs))}]"


def of_others(model: str) -> str:
    """Return the remark on the study's lines beside a model that the study has not."""
    return f"They are of other models than {model}."


def _seeds(rows: Sequence[Row]) -> str:
    """Name the seeds of the rows."""
    seeds = dict.fromkeys(str(row["seed"]) for row in rows)
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(seeds)}"


def _printed(first: Sequence[Row], field: str, face: Callable[[Any], str]) -> list[list[str]]:
    """Return the study's lines: of this model, or of both of its own where it is another."""
    lines = []
    for name in paper.study_models(first[0]["model"]):
        cells = [paper.printed_beside(name, row) for row in first]
        if any(cells):
            faces = (face(getattr(cell, field)) if cell else NOTHING for cell in cells)
            lines.append([f"  study, {name}", *faces])
    return lines or [["  study", *[NOTHING] * len(first)]]


def _addresses(first: Sequence[Row]) -> list[str]:
    """Return where the study's lines stand; nothing where it prints none."""
    model = first[0]["model"]
    addresses = {
        name: dict.fromkeys(
            cell.address for row in first if (cell := paper.printed_beside(name, row))
        )
        for name in paper.study_models(model)
    }
    parts = [f"{name}: {', '.join(found)}" for name, found in addresses.items() if found]
    if not parts:
        return []
    note = f"The study's lines: {'; '.join(parts)}."
    return [note] if model in paper.MODELS else [note, of_others(model)]


def _counts(columns: Mapping[str, Sequence[Row]]) -> list[str]:
    """Return what became zero or stayed empty."""
    notes = []
    for field, meaning in COUNTS.items():
        counts = [
            f"{title} {row[field]} (seed {row['seed']})"
            for title, column in columns.items()
            for row in column
            if row[field]
        ]
        if counts:
            notes.append(f"{meaning.capitalize()}: {', '.join(counts)}.")
    return notes

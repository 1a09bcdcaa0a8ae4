"""Rows of settings, and their table as the study has it: settings side by side, ours above."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from experiments import paper
from experiments._common import MINIS
from experiments._outputs import Row
from experiments._spaces import Space
from experiments._tables import NOTHING, Table, correlation, isotropy
from jaxgeom import study

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

Printed = Callable[[str, Row], paper.Printed | None]  # (the study's model, our row) -> its cell


def setting_row(
    space: Space,
    setting: dict[str, Any],
    result: study.SettingResult,
    printed: paper.Printed | None,
) -> dict[str, Any]:
    """Return the row of one setting: what it is, what it gave, what the study prints there."""
    return {
        "model": space.model,
        "state": space.state,
        **setting,
        "seed": space.seed,
        "protocol": space.protocol,
        "n_tokens": result.n_tokens,
        "spearman": study.spearman(result.vectors, space.scores),
        "isotropy": result.isotropy.isotropy,
        "isotropy_low": result.isotropy.low,
        "isotropy_high": result.isotropy.high,
        "n_zero_rows": result.n_zero_rows,
        "n_zero_sentences": result.n_zero_sentences,
        "n_empty_clusters": result.n_empty_clusters,
        "paper_spearman": printed and printed.spearman,
        "paper_isotropy": printed and printed.isotropy,
    }


def legend_of(rows: Sequence[Row]) -> str:
    """Return what the tables' words and numbers mean under the protocols of the rows."""
    return legend_for(rows, LEGENDS)


def legend_for(rows: Sequence[Row], legends: Mapping[str, str]) -> str:
    """Return the legend of each protocol of the rows, named where there are several."""
    protocols = dict.fromkeys(row["protocol"] for row in rows)
    if len(protocols) == 1:
        return legends[next(iter(protocols))]
    return " ".join(f"Protocol {protocol}: {legends[protocol]}" for protocol in protocols)


def by_space(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield the rows of each model, state and protocol, all seeds together."""
    for _, group in groupby(rows, lambda row: (row["model"], row["state"], row["protocol"])):
        yield list(group)


def setting_table(
    columns: Sequence[Sequence[Row]], titles: Sequence[str], printed: Printed
) -> Table:
    """Return the table of one model in one state.

    Args:
        columns: the rows of each setting, one for each seed.
        titles: of the columns.
        printed: finds what the study prints where a row stands.

    Returns:
        Spearman, isotropy and its range over signs, the study's lines below each.
    """
    first = [column[0] for column in columns]
    lines = [
        ["Perf.", *(over_seeds(column, "spearman", correlation) for column in columns)],
        *_printed(first, printed, "spearman", correlation),
        ["Isotropy", *(over_seeds(column, "isotropy", isotropy) for column in columns)],
        ["  [low, high]", *map(sign_range, columns)],
        *_printed(first, printed, "isotropy", isotropy),
    ]
    notes = [*_addresses(first, printed), *_counts(columns, titles)]
    return Table(space_title(columns[0]), ["", *titles], lines, notes)


def space_title(rows: Sequence[Row]) -> str:
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


def study_models(model: str) -> list[str]:
    """Return whose numbers of the study stand beside a model's: its own, or else all."""
    own = paper.MODELS.get(model)
    return [own] if own else list(paper.MODELS.values())


def of_others(model: str) -> str:
    """Return the remark on the study's lines beside a model that the study has not."""
    return f"They are of other models than {model}."


def _seeds(rows: Sequence[Row]) -> str:
    """Name the seeds of the rows."""
    seeds = dict.fromkeys(str(row["seed"]) for row in rows)
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(seeds)}"


def _printed(
    first: Sequence[Row], printed: Printed, field: str, face: Callable[[Any], str]
) -> list[list[str]]:
    """Return the study's lines: of this model, or of both of its own where it is another."""
    lines = []
    for name in study_models(first[0]["model"]):
        cells = [printed(name, row) for row in first]
        if any(cells):
            faces = (face(getattr(cell, field)) if cell else NOTHING for cell in cells)
            lines.append([f"  study, {name}", *faces])
    return lines or [["  study", *[NOTHING] * len(first)]]


def _addresses(first: Sequence[Row], printed: Printed) -> list[str]:
    """Return where the study's lines stand; nothing where it prints none."""
    model = first[0]["model"]
    addresses = {
        name: dict.fromkeys(cell.address for row in first if (cell := printed(name, row)))
        for name in study_models(model)
    }
    parts = [f"{name}: {', '.join(found)}" for name, found in addresses.items() if found]
    if not parts:
        return []
    note = f"The study's lines: {'; '.join(parts)}."
    return [note] if model in paper.MODELS else [note, of_others(model)]


def _counts(columns: Sequence[Sequence[Row]], titles: Sequence[str]) -> list[str]:
    """Return what became zero or stayed empty."""
    notes = []
    for field, meaning in COUNTS.items():
        counts = [
            f"{title} {row[field]} (seed {row['seed']})"
            for column, title in zip(columns, titles, strict=True)
            for row in column
            if row[field]
        ]
        if counts:
            notes.append(f"{meaning.capitalize()}: {', '.join(counts)}.")
    return notes

"""Removal curves laid out: a figure a model, every state in it, and tables of chosen numbers."""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.layout.figures import (
    COLOURS,
    LABELS,
    LINE,
    THIN,
    Drawn,
    figure_name,
    save_figure,
    style,
    subplots,
)
from experiments.layout.settings import (
    legend_for,
    over_seeds,
    seeds_and_protocol,
    sign_range,
    titled,
)
from experiments.layout.tables import Table, correlation, isotropy
from experiments.rows.paper import least_of
from experiments.rows.row import Row, grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DIRECTIONS = (
    "Principal directions of the centred tokens are removed, the heaviest first (top) or the "
    "lightest first (least)"
)
OUR_LEGEND = (
    "Perf.: Spearman × 100, — where a sentence has nothing left. Isotropy: I(W), every eigenvector "
    "turned to its heavier side; [low, high]: its range over all choices of signs. "
    f"{DIRECTIONS}; 0 removed is Zero-mean. Seeds: mean ± standard deviation (ddof 1); the range "
    "from the smallest low to the largest high."
)
AUTHORS_LEGEND = (
    "Perf.: Spearman × 100. Isotropy: I(W) with the sign that NumPy's eigh returned for each "
    "eigenvector of the centred tokens, one choice of many, hence without a range, and kept along "
    "the curve; where Table 1 or 2 solves anew, its signs may be others. "
    f"{DIRECTIONS}."
)
LEGENDS = {"ours": OUR_LEGEND, "authors": AUTHORS_LEGEND}
SIGNS = {"ours": "band: all signs", "authors": "one choice of signs"}
STEPS = (0, 1, 2, 5)  # times powers of ten: what tables show and axes mark
TITLES = {"top": "heaviest first", "least": "lightest first (log scale of those kept)"}


def tables_of(rows: Sequence[Row], n_directions: int) -> list[Table]:
    """Return one table for each model, protocol and order of removal.

    Args:
        rows: of curves.json.
        n_directions: what Table 1's Global removes; its line is among those shown.
    """
    tables = []
    for of_model in grouped(rows, "model", "protocol"):
        for which, marked in _marked(of_model, n_directions).items():
            tables.append(_table([row for row in of_model if row["which"] == which], marked))
    return tables


def draw(rows: Sequence[Row], n_directions: int, output: Path) -> list[Path]:
    """Draw one figure a model and protocol: Spearman above, isotropy below; top left, least right.

    Args:
        rows: of curves.json.
        n_directions: what Table 1's Global removes; marked, as are the numbers of Table 2.
        output: folder of the figures.

    Returns:
        The files' paths.
    """
    paths = []
    with style():
        for of_model in grouped(rows, "model", "protocol"):
            figure, axes = subplots(2, 2, sharex="col", sharey="row")
            for column, (which, marked) in enumerate(_marked(of_model, n_directions).items()):
                chosen = [row for row in of_model if row["which"] == which]
                _panels(axes[:, column], chosen, which, marked)
            axes[0, 0].set_ylabel("Spearman × 100")
            axes[1, 0].set_ylabel(f"isotropy I(W)  ({SIGNS[of_model[0]['protocol']]})")
            handles, labels = axes[0, 0].get_legend_handles_labels()
            figure.legend(
                handles,
                labels,
                loc="outside upper center",
                ncols=len(labels),
                title=_what(of_model[0]),
            )
            paths += save_figure(figure, output, figure_name("curves", of_model[0]))
    return paths


def figures_of(rows: Sequence[Row]) -> list[Drawn]:
    """Return what `draw` draws."""
    figures = []
    for of_model in grouped(rows, "model", "protocol"):
        states = ", ".join(LABELS.get(s, s) for s in dict.fromkeys(r["state"] for r in of_model))
        text = (
            f"{_what(of_model[0])}: Spearman × 100 above and isotropy I(W) below, against the "
            "number of removed directions, the heaviest first on the left, the lightest first on "
            f"the right: {states}."
        )
        figures.append(Drawn(figure_name("curves", of_model[0]), text))
    return figures


def legend_of(rows: Sequence[Row]) -> str:
    """Return what the figures and tables show under the protocols of the rows."""
    return legend_for(rows, LEGENDS)


def _what(row: Row) -> str:
    """Return what a figure is of."""
    return row["model"] if row["protocol"] == "ours" else f"{row['model']}, protocol authors"


def shown(d: int, marked: Sequence[int]) -> list[int]:
    """Return the numbers of removed directions that a table shows: 0, 1, 2, 5, 10 ... and d - 1.

    Example:
        >>> shown(16, (12,))
        [0, 1, 2, 5, 10, 12, 15]
    """
    steps = {step * 10**power for power in range(math.ceil(math.log10(d)) + 1) for step in STEPS}
    return sorted({k for k in steps | {*marked} if k < d - 1} | {d - 1})


def _marked(rows: Sequence[Row], n_directions: int) -> dict[str, Sequence[int]]:
    """Return the numbers of removed directions that tables 1 and 2 speak of, by order."""
    d = _width(rows)
    return {"top": [k for k in (n_directions,) if k < d], "least": least_of(d)}


def _width(rows: Sequence[Row]) -> int:
    """Return the number of features d."""
    return 1 + max(row["n_removed"] for row in rows)


def _table(rows: Sequence[Row], marked: Sequence[int]) -> Table:
    """Return the table of one model and order: a line for each number, the states side by side."""
    states = list(dict.fromkeys(row["state"] for row in rows))
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row["state"], row["n_removed"]), []).append(row)
    d = _width(rows)
    lines = [
        [str(k), *(cell for state in states for cell in _cells(found[state, k]))]
        for k in shown(d, marked)
    ]
    header = [
        f"{state} {what}" for state in states for what in ("Perf.", "Isotropy", "[low, high]")
    ]
    first = rows[0]
    title = f"{titled(first)} · {first['which']} removed of {d} · {seeds_and_protocol(rows)}"
    return Table(title, ["removed", *header], lines)


def _cells(column: Sequence[Row]) -> list[str]:
    """Return the cells of one state and number over its seeds."""
    perf = over_seeds(column, "spearman", correlation)
    return [perf, over_seeds(column, "isotropy", isotropy), sign_range(column)]


def _panels(axes: Iterable["Axes"], rows: Sequence[Row], which: str, marked: Sequence[int]) -> None:
    """Draw Spearman and isotropy of one order of removal, each state in its colour."""
    d = _width(rows)
    spearman, isotropies = axes
    for state, of_state in groupby(rows, lambda row: row["state"]):
        _draw_state([spearman, isotropies], state, list(of_state), d)
    isotropies.set_yscale("log")
    for axis in (spearman, isotropies):
        for k in marked:
            label = "numbers of Tables 1 and 2" if k == marked[0] else None
            axis.axvline(k, color="black", linewidth=THIN, linestyle=":", label=label)
    _scale(isotropies, d, which)
    spearman.set_title(TITLES[which])
    isotropies.set_xlabel(f"{which} directions removed of {d}")


def _draw_state(axes: Iterable["Axes"], state: str, rows: Sequence[Row], d: int) -> None:
    """Draw one state: the mean over seeds, and the range over seeds and signs as a band."""
    colour = COLOURS.get(state, COLOURS["given"])
    fields = (("spearman", "spearman", "spearman"), ("isotropy", "isotropy_low", "isotropy_high"))
    for axis, (middle, low, high) in zip(axes, fields, strict=True):
        values, lows, highs = (_by_seed(rows, field, d) for field in (middle, low, high))
        k = np.arange(d)
        width = THIN if state == "random" else LINE
        axis.plot(k, values.mean(0), color=colour, linewidth=width, label=LABELS.get(state, state))
        if np.isnan(lows).all():
            continue  # one choice of signs has no range
        band: dict[str, Any] = {
            "facecolor": (colour, 0.15),
            "edgecolor": colour,
            "linewidth": THIN / 2,
        }
        axis.fill_between(k, lows.min(0), highs.max(0), **band)


def _by_seed(rows: Sequence[Row], field: str, d: int) -> np.ndarray:
    """Return a field as [seeds d]; NaN, which matplotlib leaves out, where it is a gap."""
    return np.array([row[field] for row in rows], np.float64).reshape(-1, d)


def _scale(axis: "Axes", d: int, which: str) -> None:
    """Make the axis logarithmic in the directions that went, or for "least" that stay."""

    def forward(k: np.ndarray) -> np.ndarray:
        return np.log1p(np.maximum(k, 0)) if which == "top" else -np.log(np.maximum(d - k, 0.5))

    def backward(x: np.ndarray) -> np.ndarray:
        return np.expm1(x) if which == "top" else d - np.exp(-x)

    axis.set_xscale("function", functions=(forward, backward))
    ticks = [k for k in shown(d, ()) if k < d - 1]
    places = ticks if which == "top" else sorted({d - max(k, 1) for k in ticks} | {0})
    axis.set_xticks(places, [str(k) for k in places])
    axis.minorticks_off()
    axis.set_xlim(0, d - 1)

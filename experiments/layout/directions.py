"""Dominant directions laid out: a table and a figure a model, the states side by side."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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
from experiments.layout.settings import over_seeds, seeds_and_protocol, titled
from experiments.layout.tables import NOTHING, Table
from experiments.rows.row import Row, grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEGEND = (
    "Variance: the least number of leading principal directions of the centred tokens that hold so "
    "much of it. Isotropy: how many of them must be removed, heaviest first, before I(W) reaches "
    "the value, every eigenvector turned to its heavier side; [fewest, most]: the range over all "
    "choices of signs; — where no number does. Protocol authors: the one sign that NumPy's eigh "
    "returned for each, without a range. Seeds: mean ± standard deviation (ddof 1); the "
    "range from the smallest fewest to the largest most."
)


def tables_of(rows: Sequence[Row]) -> list[Table]:
    """Return one table a model and protocol."""
    return [_table(group) for group in grouped(rows, "model", "protocol")]


def figures_of(spectra: Sequence[Mapping]) -> list[Drawn]:
    """Return what `draw` draws."""
    figures = []
    for of_model in grouped(_drawn(spectra), "model"):
        states = ", ".join(LABELS.get(s, s) for s in dict.fromkeys(r["state"] for r in of_model))
        text = (
            f"{of_model[0]['model']}: share of the variance along each principal direction on the "
            f"left, of the leading directions together on the right: {states}."
        )
        figures.append(Drawn(figure_name("directions", of_model[0]), text))
    return figures


def draw(spectra: Sequence[Mapping], shares: Sequence[float], output: Path) -> list[Path]:
    """Draw one figure a model: each direction's share of the variance, and how the shares add up.

    A spectrum knows no signs and no clusters: that of the first protocol is drawn.

    Args:
        spectra: `model`, `state`, `seed`, `protocol` and `explained_variance_ratio` [d] of each
            space.
        shares: of the variance, to mark with a line.
        output: folder of the figures.

    Returns:
        The files' paths.
    """
    paths = []
    with style():
        for of_model in grouped(_drawn(spectra), "model"):
            first = of_model[0]
            figure, axes = subplots(1, 2)
            for of_state in grouped(of_model, "state"):
                ratios = [spectrum["explained_variance_ratio"] for spectrum in of_state]
                _draw_state(axes[0], of_state[0]["state"], np.array(ratios, np.float64))
            _label(list(axes[0]), shares)
            handles, labels = axes[0, 0].get_legend_handles_labels()
            figure.legend(
                handles, labels, loc="outside upper center", ncols=len(labels), title=first["model"]
            )
            paths += save_figure(figure, output, figure_name("directions", first))
    return paths


def _drawn(spectra: Sequence[Mapping]) -> list[Mapping]:
    """Return the spectra of the first protocol."""
    return grouped(spectra, "protocol")[0]


def _draw_state(axes: Iterable["Axes"], state: str, ratios: np.ndarray) -> None:
    """Draw the mean over seeds [seeds d] and, as a band, their range."""
    colour = COLOURS.get(state, COLOURS["given"])
    number = np.arange(1, ratios.shape[1] + 1)
    for axis, values in zip(axes, (ratios, np.cumsum(ratios, axis=1)), strict=True):
        axis.plot(
            number,
            100 * values.mean(0),
            color=colour,
            linewidth=THIN if state == "random" else LINE,
            label=LABELS.get(state, state),
        )
        low, high = 100 * values.min(0), 100 * values.max(0)
        axis.fill_between(number, low, high, color=colour, alpha=0.2, linewidth=0)


def _label(axes: Sequence["Axes"], shares: Sequence[float]) -> None:
    """Name the axes and mark the shares of the variance that the table speaks of."""
    spectrum, cumulative = axes
    spectrum.set(
        xscale="log",
        yscale="log",
        xlabel="principal direction, heaviest first",
        ylabel="variance (% of all)",
        ylim=(1e-4, 100),  # below it there is rounding
    )
    cumulative.set(
        xscale="log",
        xlabel="leading directions together",
        ylabel="variance (% of all)",
        ylim=(0, 101),
    )
    for axis in axes:
        axis.xaxis.set_major_formatter("{x:g}")
    for share in shares:
        cumulative.axhline(100 * share, color="black", linewidth=THIN, linestyle=":")


def _table(rows: Sequence[Row]) -> Table:
    """Return the table of one model: a line for each quantity, the states side by side."""
    states = list(dict.fromkeys(row["state"] for row in rows))
    found: dict[tuple[str, str, float], list[Row]] = {}
    for row in rows:
        found.setdefault((row["state"], row["quantity"], row["target"]), []).append(row)
    quantities = dict.fromkeys((row["quantity"], row["target"]) for row in rows)
    lines = [
        [_name(*quantity), *(_cell(found[state, *quantity]) for state in states)]
        for quantity in quantities
    ]
    first = rows[0]
    what = f"directions of {first['n_features']}"
    title = f"{titled(first)} · {what} · {seeds_and_protocol(rows)}"
    return Table(title, ["", *states], lines)


def _name(quantity: str, target: float) -> str:
    """Say what a line counts."""
    if quantity == "variance":
        return f"hold {100 * target:g} % of the variance"
    return f"must go before I reaches {target:g}"


def _cell(column: Sequence[Row]) -> str:
    """Return a number of directions over the seeds, with its range over signs where it has one."""
    value = over_seeds(column, "n_directions", lambda n: _count(n, len(column)))
    if column[0]["quantity"] == "variance" or column[0]["protocol"] != "ours":
        return value
    fewest, most = ([row[f"n_directions_{end}"] for row in column] for end in ("fewest", "most"))
    low = NOTHING if None in fewest else str(min(fewest))
    high = NOTHING if None in most else str(max(most))
    return f"{value} [{low}, {high}]"


def _count(n: float | None, n_seeds: int) -> str:
    """Return a number of directions; means and deviations have one decimal."""
    if n is None:
        return NOTHING
    return str(n) if n_seeds == 1 else f"{n:.1f}"

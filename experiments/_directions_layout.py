"""Dominant directions laid out: a table and a figure a model, the states side by side."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments._figures import COLOURS, LABELS, LINE, THIN, save_figure, style, subplots
from experiments._outputs import Row
from experiments._setting_tables import over_seeds
from experiments._tables import NOTHING, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEGEND = (
    "Variance: the least number of leading principal directions of the centred tokens that hold so "
    "much of it. Isotropy: how many of them must be removed, heaviest first, before I(W) reaches "
    "the value, every eigenvector turned to its heavier side; [fewest, most]: the range over all "
    "choices of signs; — where no number does. Seeds: mean ± standard deviation (ddof 1); the "
    "range from the smallest fewest to the largest most."
)


def tables_of(rows: Sequence[Row]) -> list[Table]:
    """Return one table a model."""
    return [_table(list(group)) for _, group in groupby(rows, lambda row: row["model"])]


def draw(spectra: Sequence[Mapping], shares: Sequence[float], output: Path) -> list[Path]:
    """Draw one figure a model: each direction's share of the variance, and how the shares add up.

    Args:
        spectra: `model`, `state`, `seed` and `explained_variance_ratio` [d] of each space.
        shares: of the variance, to mark with a line.
        output: folder of the figures.

    Returns:
        The files' paths.
    """
    paths = []
    with style():
        for model, of_model in groupby(spectra, lambda spectrum: spectrum["model"]):
            figure, axes = subplots(1, 2)
            for state, of_state in groupby(of_model, lambda spectrum: spectrum["state"]):
                ratios = [spectrum["explained_variance_ratio"] for spectrum in of_state]
                _draw_state(axes[0], state, np.array(ratios, np.float64))
            _label(list(axes[0]), shares)
            handles, labels = axes[0, 0].get_legend_handles_labels()
            figure.legend(
                handles, labels, loc="outside upper center", ncols=len(labels), title=model
            )
            paths += save_figure(figure, output, f"directions_{model}")
    return paths


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
    seeds = ", ".join(map(str, dict.fromkeys(row["seed"] for row in rows)))
    title = f"{first['model']} · directions of {first['n_features']} · seed {seeds}"
    return Table(title, ["", *states], lines)


def _name(quantity: str, target: float) -> str:
    """Say what a line counts."""
    if quantity == "variance":
        return f"hold {100 * target:g} % of the variance"
    return f"must go before I reaches {target:g}"


def _cell(column: Sequence[Row]) -> str:
    """Return a number of directions over the seeds, with its range over signs where it has one."""
    value = over_seeds(column, "n_directions", lambda n: _count(n, len(column)))
    if column[0]["quantity"] == "variance":
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

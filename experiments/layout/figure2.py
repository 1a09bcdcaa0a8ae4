"""Figure 2 laid out: a panel for each model and state, and the table of its correlations."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.layout.figures import LABELS, Drawn, save_figure, style, subplots
from experiments.layout.tables import Table
from experiments.rows.panels import Panel, place_of
from experiments.rows.row import Row, grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEGEND = (
    "|ρ|: Spearman between the log of a token's frequency in the whole corpus and its position, "
    "over token occurrences: along the first and the second principal component, and along the "
    "direction of their plane where it is largest (steps of one degree; at the angle from PC 1). "
    "Neighbours: ρ between a token's log frequency and the mean of its ten nearest occurrences of "
    "other tokens in the plane. The study draws its Figure 2 without printing a number."
)


def draw(panels: Sequence[Panel], rows: Sequence[Row], output: Path) -> list[Path]:
    """Draw one figure a protocol: a row of panels a model, the states side by side; gaps stay."""
    paths = []
    with style():
        for group in grouped(rows, "protocol"):
            found = {
                (panel.model, panel.state): (panel, row)
                for panel, row in zip(panels, rows, strict=True)
                if row["protocol"] == group[0]["protocol"]
            }
            models = list(dict.fromkeys(model for model, _ in found))
            states = sorted({state for _, state in found}, key=place_of)
            figure, axes = subplots(len(models), len(states), panel=(3.3, 3.0))
            for axis, place in zip(axes.flat, product(models, states), strict=True):
                if place in found:
                    points = _draw_panel(axis, *found[place])
                else:
                    axis.set_axis_off()
            label = "occurrences in the corpus (log scale)"
            figure.colorbar(points, ax=axes, label=label, aspect=30)
            paths += save_figure(figure, output, _name(group[0]))
    return paths


def tables_of(rows: Sequence[Row]) -> list[Table]:
    """Return one table a protocol: a line for each model and state."""
    return [_table(group) for group in grouped(rows, "protocol")]


def figures_of(rows: Sequence[Row]) -> list[Drawn]:
    """Return what `draw` draws."""
    figures = []
    for group in grouped(rows, "protocol"):
        panels = ", ".join(f"{r['model']} {LABELS.get(r['state'], r['state'])}" for r in group)
        what = (
            "Token occurrences in the plane of their first two principal components, darker the "
            f"more frequent the token is in the corpus: {panels}."
        )
        figures.append(Drawn(_name(group[0]), what))
    return figures


def _name(row: Row) -> str:
    """Return the name of the figure that a row is of."""
    return "figure2" if row["protocol"] == "ours" else f"figure2_{row['protocol']}"


def _table(rows: Sequence[Row]) -> Table:
    """Return the table of one protocol."""
    correlations = ("|ρ| PC 1", "|ρ| PC 2", "|ρ| plane", "angle", "neighbours")
    header = ["", "tokens", "PC 1", "PC 2", *correlations]
    lines = [
        [
            f"{row['model']}, {LABELS.get(row['state'], row['state'])}",
            f"{row['n_tokens']:,}",
            f"{100 * row['explained_variance_pc1']:.1f} %",
            f"{100 * row['explained_variance_pc2']:.1f} %",
            *(f"{row[f'frequency_rho_{along}']:.2f}" for along in ("pc1", "pc2", "plane")),
            f"{row['angle']}°",
            f"{row['frequency_rho_neighbours']:.2f}",
        ]
        for row in rows
    ]
    seed, protocol = rows[0]["seed"], rows[0]["protocol"]
    title = f"Token frequency in the leading plane · seed {seed} · protocol {protocol}"
    return Table(title, header, lines)


def _draw_panel(axis: "Axes", panel: Panel, row: Row) -> Any:
    """Draw the tokens of one panel in random order, so that none covers the others by rule."""
    from matplotlib.colors import LogNorm  # noqa: PLC0415  (an extra)

    order = np.random.default_rng(panel.seed).permutation(len(panel.token_ids))
    points = axis.scatter(
        panel.positions[order, 0],
        panel.positions[order, 1],
        c=panel.corpus.counts[panel.token_ids[order]],
        cmap="cividis_r",
        norm=LogNorm(1, panel.corpus.counts.max()),
        s=3,
        linewidths=0,
        rasterized=True,  # tens of thousands of marks in an SVG open slowly
    )
    state = LABELS.get(panel.state, panel.state)
    along, near = row["frequency_rho_plane"], row["frequency_rho_neighbours"]
    axis.set_title(f"{panel.model}, {state}\n|ρ| = {along:.2f}, neighbours: {near:.2f}")
    first, second = (f"{100 * share:.1f} % of variance" for share in panel.explained)
    axis.set(xlabel=f"PC 1 ({first})", ylabel=f"PC 2 ({second})")
    axis.grid(visible=False)
    return points

"""Figure 1 laid out: a panel for each model, a table of its layers; what both show in words."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.layout.figures import (
    COLOURS,
    LABELS,
    LINE,
    THIN,
    Drawn,
    save_figure,
    style,
    subplots,
)
from experiments.layout.settings import legend_for, titled
from experiments.layout.tables import NOTHING, Table
from experiments.rows.row import Row, grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VECTORS = {"tokens": "all tokens", "cls": "CLS"}
LEGENDS = {
    "ours": "−ln I(W) in nats, higher is less isotropic: every eigenvector turned to its heavier "
    "side, and in brackets the range over all choices of signs. Layer 0 is the embedding output. "
    "The study draws its Figure 1 without printing a number.",
    "authors": "−ln I(W) in nats, higher is less isotropic, with the sign that NumPy's eigh "
    "returned for each eigenvector, one choice of many. Layer 0 is the embedding output. The study "
    "draws its Figure 1 without printing a number.",
}


def draw(rows: Sequence[Row], output: Path) -> list[Path]:
    """Draw a panel for each model, a row of them for each protocol."""
    models, protocols = grouped(rows, "model"), grouped(rows, "protocol")
    with style():
        size = (len(protocols), len(models))
        figure, axes = subplots(*size, panel=(4.2, 3.6), sharex="col", sharey=True)
        for axis, panel in zip(axes.T.flat, grouped(rows, "model", "protocol"), strict=True):
            _panel(axis, panel)
            if len(protocols) > 1:
                axis.set_title(f"{panel[0]['model']}, protocol {panel[0]['protocol']}")
        for axis in axes[-1]:
            axis.set_xlabel("layer (0: embedding output)")
        for axis in axes[:, 0]:
            axis.set_ylabel("−ln I(W)  (nats; higher: less isotropic)")
        axes[0, 0].set_ylim(bottom=0)  # when all panels are drawn: it stops the shared autoscale
        n_columns = min(3, 2 * len(models))  # as wide as the panels are
        figure.legend(handles=axes[0, 0].lines, loc="outside lower center", ncols=n_columns)
        return save_figure(figure, output, "figure1")


def tables_of(rows: Sequence[Row]) -> list[Table]:
    """Return one table a model and protocol: a line for each layer, a column for each curve."""
    return [_table(group) for group in grouped(rows, "model", "protocol")]


def figures_of(rows: Sequence[Row]) -> list[Drawn]:
    """Return what `draw` draws."""
    models = ", ".join(dict.fromkeys(row["model"] for row in rows))
    curves = ", ".join(dict.fromkeys(_label(row["state"], row["vectors"]) for row in rows))
    what = f"−ln I(W) against the layer for {models}, higher is less isotropic: {curves}."
    return [Drawn("figure1", what)]


def legend_of(rows: Sequence[Row]) -> str:
    """Return what the figure and the tables show under the protocols of the rows."""
    return legend_for(rows, LEGENDS)


def _curves(rows: Sequence[Row]) -> Iterator[tuple[str, str, list[Row]]]:
    """Yield each state and kind of vectors with its rows, by layer."""
    for (state, kind), curve in groupby(rows, lambda row: (row["state"], row["vectors"])):
        yield state, kind, list(curve)


def _label(state: str, kind: str) -> str:
    """Return the name of a curve."""
    return f"{VECTORS[kind]}, {LABELS.get(state, state)}"


def _panel(axis: "Axes", rows: Sequence[Row]) -> None:
    """Draw the curves of one model: colour is the state, a hollow mark the CLS vectors."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415  (an extra)

    for state, kind, curve in _curves(rows):
        if state == "random" and kind == "cls":
            continue  # the control is one thin line; the table has this one too
        axis.plot(
            [row["layer"] for row in curve],
            [-row["log_isotropy"] for row in curve],
            label=_label(state, kind),
            color=COLOURS.get(state, COLOURS["given"]),
            linewidth=THIN if state == "random" else LINE,
            linestyle="--" if (state, kind) == ("pretrained", "cls") else "-",
            marker="s" if kind == "cls" else "o",
            markerfacecolor="white" if kind == "cls" else None,
            markersize=0 if state == "random" else None,
        )
    axis.set_title(rows[0]["model"])
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _table(rows: Sequence[Row]) -> Table:
    """Return the table of one model under one protocol."""
    curves = list(_curves(rows))
    header = ["layer", *(f"{VECTORS[kind]}, {state}" for state, kind, _ in curves)]
    layers = zip(*(curve for _, _, curve in curves), strict=True)
    lines = [[str(line[0]["layer"]), *map(_cell, line)] for line in layers]
    counts = {VECTORS[kind]: curve[0]["n_vectors"] for _, kind, curve in curves}
    vectors = "; ".join(f"{kind}: {count:,} vectors" for kind, count in counts.items())
    first = rows[0]
    title = f"{titled(first)} · −ln I · seed {first['seed']} · protocol {first['protocol']}"
    return Table(title, header, lines, [f"{vectors}.", *_cls_notes(curves)])


def _cell(row: Row) -> str:
    """Return −ln I with its range over signs."""
    low, value, high = (
        NOTHING if row[field] is None else f"{-row[field]:.2f}"
        for field in ("log_isotropy_high", "log_isotropy", "log_isotropy_low")
    )
    return value if low == NOTHING else f"{value} [{low}, {high}]"


def _cls_notes(curves: Sequence[tuple[str, str, list[Row]]]) -> Iterator[str]:
    """Yield for each state in how many layers the CLS vectors are the less isotropic ones."""
    by_name = {(state, kind): curve for state, kind, curve in curves}
    for state in dict.fromkeys(state for state, _, _ in curves):
        pairs = list(zip(by_name[state, "tokens"], by_name[state, "cls"], strict=True))
        n_less = sum(cls["log_isotropy"] < tokens["log_isotropy"] for tokens, cls in pairs)
        yield f"{state}: CLS less isotropic than all tokens in {n_less} of {len(pairs)} layers."

"""How figures look, and how they reach the disk: PNG and SVG, whole or absent.

Matplotlib is imported inside, so that an experiment can be imported without it. Figures are made
without pyplot: no global state, no window system, nothing to close, the Agg renderer for PNG.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from experiments.rows.row import Row
from jaxgeom._files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
DPI = 200

# Okabe and Ito (2008): told apart by colour-blind readers, and of different lightness in grey print
COLOURS = {"random": "#999999", "pretrained": "#0072B2", "finetuned": "#D55E00", "given": "#222222"}
LABELS = {"random": "random weights", "pretrained": "pre-trained", "finetuned": "fine-tuned"}
THIN, LINE = 0.9, 1.8  # points: of a control, and of what a figure is about

_RC = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so the same everywhere
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": LINE,
    "lines.markersize": 4,
    "savefig.dpi": DPI,
    "svg.hashsalt": "jaxgeom",  # the same figure is the same file
}


class Drawn(NamedTuple):
    """A figure on the disk: NAME.png and NAME.svg, and what they show, in words."""

    name: str
    text: str


def figure_name(what: str, row: Row) -> str:
    """Return the name of the figure of a row's model; ours goes without its protocol's name."""
    protocol = "" if row["protocol"] == "ours" else f"_{row['protocol']}"
    return f"{what}_{row['model']}{protocol}"


@contextmanager
def style() -> Iterator[None]:
    """Draw, and save, what is inside the block in the style of the project.

    Raises:
        ImportError: no matplotlib; the message names the extra.
    """
    with _matplotlib().rc_context(_RC):
        yield


def subplots(
    n_rows: int = 1, n_columns: int = 1, *, panel: tuple[float, float] = (3.6, 2.8), **options: Any
) -> tuple["Figure", np.ndarray]:
    """Return a figure of panels; call it inside `style()`.

    Args:
        n_rows: rows of panels.
        n_columns: panels in a row.
        panel: width and height of one panel in inches.
        **options: what `Figure.subplots` takes, as `sharey=True`.

    Returns:
        The figure, laid out so that nothing overlaps, and its axes [n_rows n_columns].
    """
    _matplotlib()
    from matplotlib.figure import Figure  # noqa: PLC0415

    width, height = panel
    figure = Figure(figsize=(n_columns * width, n_rows * height), layout="constrained")
    return figure, figure.subplots(n_rows, n_columns, squeeze=False, **options)


def save_figure(figure: "Figure", folder: Path, name: str) -> list[Path]:
    """Write FOLDER/NAME.png and FOLDER/NAME.svg; call it inside `style()`.

    Args:
        figure: what to draw.
        folder: made if need be.
        name: of the files, without an ending.

    Returns:
        The two paths.
    """
    paths = [folder / f"{name}.{ending}" for ending in FORMATS]
    for path, ending in zip(paths, FORMATS, strict=True):
        metadata = {"Date": None} if ending == "svg" else None  # no time of day in the file
        with replacing(path) as temporary:
            figure.savefig(temporary, format=ending, metadata=metadata)
    return paths


def _matplotlib() -> Any:
    """Return matplotlib, or say which extra brings it."""
    try:
        import matplotlib  # noqa: PLC0415  (an extra, and slow to import)
    except ImportError as error:
        raise ImportError("figures need pip install 'jaxgeom[experiments]'") from error
    return matplotlib

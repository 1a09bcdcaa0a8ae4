"""Figure 2: where frequent and rare tokens lie, before and after fine-tuning.

    python -m experiments.figure2 --models NAME=FOLDER --corpus FILE.csv --output out

Token occurrences of sampled sentences (special tokens dropped) in the plane of their first two
principal components, a panel for each model and state; darker tokens are more frequent in the whole
corpus. A number says what the eye sees: the rank correlation between a token's log frequency and
its position along a direction. The first of `--seeds` is drawn, fine-tuned
under the first of `--protocol`. OUTPUT receives figure2.png and
.svg, figure2.json, .csv, .md and .tex, run.json and the cached embeddings.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import jaxgeom
from experiments._checkpoints import Source, sources
from experiments._common import Common, Stages, main, require_valid
from experiments._embeddings import embeddings
from experiments._figures import LABELS, Drawn, save_figure, style, subplots
from experiments._finetuned import in_state
from experiments._frequency import Corpus, count_tokens, read_sentences, sample
from experiments._outputs import Row, run_record
from experiments._plane import ANGLES, along_directions, with_neighbours
from experiments._publish import publish
from experiments._spaces import read_pairs, sentences_of
from experiments._tables import Table
from jaxgeom import reference
from jaxgeom.models.tokens import load_tokenizer
from jaxgeom.study import require_finite

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OPS = {"jax": jaxgeom, "numpy": reference}
ORDER = ("pretrained", "finetuned", "random")  # of panels: before, after, control; others last
LEGEND = (
    "|ρ|: Spearman between the log of a token's frequency in the whole corpus and its position, "
    "over token occurrences: along the first and the second principal component, and along the "
    "direction of their plane where it is largest (steps of one degree; at the angle from PC 1). "
    "Neighbours: ρ between a token's log frequency and the mean of its ten nearest occurrences of "
    "other tokens in the plane. The study draws its Figure 2 without printing a number."
)


@dataclass(frozen=True)
class Config(Common):
    """Figure 2: token frequency in the plane of the first two principal components."""

    corpus: Path | None = None
    """Sentences: a .csv file with a column Sentence, or a .txt file with one sentence a line;
    without it, those of the pairs."""
    max_tokens: int = 20_000
    """Token occurrences drawn, at most; sentences are sampled whole."""


class Panel(NamedTuple):
    """The tokens of one model in one state, in the plane of their first two components."""

    model: str
    state: str
    seed: int
    protocol: str  # of fine-tuning; nothing else here depends on it
    positions: np.ndarray  # [n 2]
    explained: np.ndarray  # [2]: share of the variance
    token_ids: np.ndarray  # [n]
    corpus: Corpus
    n_sentences: int
    n_truncated: int


class Result(NamedTuple):
    """What a run gives back and writes."""

    rows: list[dict[str, Any]]  # one for each model and state
    record: dict[str, Any]  # run.json


def run(config: Config) -> Result:
    """Place the tokens of every model and state; write the figure and the table.

    Args:
        config: the options.

    Returns:
        The rows as in figure2.json, and the record of the run.

    Raises:
        ValueError, OSError, ImportError: an option, a model or a file that cannot be used.
    """
    require_valid(config)
    stages = Stages()
    panels = list(_panels(config, stages))
    with stages("correlate"):
        rows = [row_of(panel) for panel in panels]
    with stages("figure"):
        draw(panels, rows, config.output)
    record = run_record(config, stages.seconds, [_input(panel) for panel in panels])
    publish(config.output, "figure2", rows, [table_of(rows)], LEGEND, record)
    return Result(rows, record)


def row_of(panel: Panel) -> dict[str, Any]:
    """Return one row of figure2.json."""
    counts = panel.corpus.counts[panel.token_ids]
    plane = along_directions(panel.positions, counts)
    best = int(np.argmax(plane))
    return {
        "model": panel.model,
        "state": panel.state,
        "seed": panel.seed,
        "protocol": panel.protocol,
        "n_tokens": len(panel.token_ids),
        "n_sentences": panel.n_sentences,
        "explained_variance_pc1": float(panel.explained[0]),
        "explained_variance_pc2": float(panel.explained[1]),
        "frequency_rho_pc1": float(plane[0]),
        "frequency_rho_pc2": float(plane[90]),
        "frequency_rho_plane": float(plane[best]),
        "angle": int(ANGLES[best]),
        "frequency_rho_neighbours": with_neighbours(panel.positions, panel.token_ids, counts),
    }


def draw(panels: Sequence[Panel], rows: Sequence[Row], output: Path) -> list[Path]:
    """Draw a row of panels for each model, the states side by side; one missing is a gap."""
    models = list(dict.fromkeys(panel.model for panel in panels))
    states = sorted({panel.state for panel in panels}, key=_place)
    found = {(p.model, p.state): (p, row) for p, row in zip(panels, rows, strict=True)}
    with style():
        figure, axes = subplots(len(models), len(states), panel=(3.3, 3.0))
        for axis, place in zip(axes.flat, product(models, states), strict=True):
            if place in found:
                points = _draw_panel(axis, *found[place])
            else:
                axis.set_axis_off()
        label = "occurrences in the corpus (log scale)"
        figure.colorbar(points, ax=axes, label=label, aspect=30)
        return save_figure(figure, output, "figure2")


def table_of(rows: Sequence[Row]) -> Table:
    """Return the table: a line for each model and state."""
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


def figures_of(rows: Sequence[Row]) -> list[Drawn]:
    """Return what `draw` draws."""
    panels = ", ".join(f"{row['model']} {LABELS.get(row['state'], row['state'])}" for row in rows)
    what = (
        "Token occurrences in the plane of their first two principal components, darker the more "
        f"frequent the token is in the corpus: {panels}."
    )
    return [Drawn("figure2", what)]


def _panels(config: Config, stages: Stages) -> Iterator[Panel]:
    """Yield each model in each state, encoded or from the cache."""
    if not config.models:
        raise ValueError("--models must name an encoder, got none")
    if config.max_tokens < 3:
        raise ValueError(f"--max-tokens must be at least 3, got {config.max_tokens}")
    with stages("read"):
        sentences = (
            sentences_of(read_pairs(config, config.protocol[0]))
            if config.corpus is None
            else read_sentences(config.corpus)
        )
        models = sources(config.models)
    for model in models:
        with stages("count", model.name):
            corpus = count_tokens(load_tokenizer(model.folder), sentences)
        for state in sorted(config.states, key=_place):
            with stages("encode", f"{model.name} {state}"):
                panel = _panel(model, state, corpus, config)
            yield panel


def _panel(model: Source, state: str, corpus: Corpus, config: Config) -> Panel:
    """Return the sampled tokens of one model in one state."""
    seed, protocol = config.seeds[0], config.protocol[0]
    drawn = sample(corpus, config.max_tokens, config.max_length, seed)
    encoded = embeddings(
        in_state(model, state, seed, config, protocol=protocol),
        drawn,
        config.output / "embeddings",
        max_length=config.max_length,
        dtype=config.dtype,
    )
    kept = ~encoded.special
    tokens = encoded.hidden[kept]
    require_finite(tokens, encoded.sentence_ids[kept])
    fit = OPS[config.backend].pca(tokens, 2)
    positions = (tokens - np.asarray(fit.mean)[None, :]) @ np.asarray(fit.components).T
    return Panel(
        model=model.name,
        state=state,
        seed=seed,
        protocol=protocol,
        positions=positions,
        explained=np.asarray(fit.explained_variance_ratio),
        token_ids=encoded.token_ids[kept],
        corpus=corpus,
        n_sentences=len(drawn),
        n_truncated=encoded.n_truncated,
    )


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


def _place(state: str) -> int:
    """Return where a state's panel stands in its row."""
    return ORDER.index(state) if state in ORDER else len(ORDER)


def _input(panel: Panel) -> dict[str, Any]:
    """Return what run.json says of a panel."""
    return {
        "model": panel.model,
        "state": panel.state,
        "seed": panel.seed,
        "protocol": panel.protocol,
        "n_corpus_sentences": len(panel.corpus.sentences),
        "n_corpus_tokens": int(panel.corpus.counts.sum()),
        "n_corpus_types": int(np.count_nonzero(panel.corpus.counts)),
        "n_sentences": panel.n_sentences,
        "n_tokens": len(panel.token_ids),
        "n_truncated": panel.n_truncated,
    }


if __name__ == "__main__":
    sys.exit(main(Config, run, name="figure2"))

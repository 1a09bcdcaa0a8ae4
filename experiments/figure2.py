"""Figure 2: where frequent and rare tokens lie, before and after fine-tuning.

    python -m experiments.figure2 --models NAME=FOLDER --corpus FILE.csv --output out

Token occurrences of sampled sentences (special tokens dropped) in the plane of their first two
principal components, a panel for each model and state; darker tokens are more frequent in the whole
corpus. A number says what the eye sees: the rank correlation between a token's log frequency and
its position along a direction. The first of `--seeds` is drawn, one figure for each of
`--protocol`. OUTPUT receives figure2.png and .svg (figure2_authors of the authors' protocol),
figure2.json, .csv, .md and .tex, run.json and the cached embeddings.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.command.options import Common, require_valid
from experiments.command.record import run_record
from experiments.command.stages import Stages
from experiments.command.start import main
from experiments.layout.figure2 import LEGEND, draw, tables_of
from experiments.layout.publish import publish
from experiments.rows.panels import Panel, place_of, row_of
from experiments.spaces.checkpoints import Source, sources
from experiments.spaces.corpus import Corpus, count_tokens, read_sentences, sample
from experiments.spaces.embeddings import embeddings
from experiments.spaces.finetuned import in_state
from experiments.spaces.space import OPS, named, read_pairs, sentences_of
from jaxgeom.models.tokens import load_tokenizer
from jaxgeom.study import require_finite


@dataclass(frozen=True)
class Config(Common):
    """Figure 2: token frequency in the plane of the first two principal components."""

    corpus: Path | None = None
    """Sentences: a .csv file with a column Sentence, or a .txt file with one sentence a line;
    without it, those of the pairs."""
    max_tokens: int = 20_000
    """Token occurrences drawn, at most; sentences are sampled whole."""


class Result(NamedTuple):
    """What a run gives back and writes."""

    rows: list[dict[str, Any]]  # one for each protocol, model and state
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
    panels = [p for protocol in config.protocol for p in _panels(config, protocol, stages)]
    with stages("correlate"):
        rows = [row_of(panel) for panel in panels]
    with stages("figure"):
        draw(panels, rows, config.output)
    record = run_record(config, stages.seconds, [_input(panel) for panel in panels])
    publish(config.output, "figure2", rows, tables_of(rows), LEGEND, record)
    return Result(rows, record)


def _panels(config: Config, protocol: str, stages: Stages) -> Iterator[Panel]:
    """Yield each model in each state under one protocol, encoded or from the cache."""
    if not config.models:
        raise ValueError("--models must name an encoder, got none")
    if config.max_tokens < 3:
        raise ValueError(f"--max-tokens must be at least 3, got {config.max_tokens}")
    with stages("read"):
        sentences = (
            sentences_of(read_pairs(config, protocol))
            if config.corpus is None
            else read_sentences(config.corpus)
        )
        models = sources(config.models)
    for model in models:
        with stages("count", model.name):
            corpus = count_tokens(load_tokenizer(model.folder), sentences)
        for state in sorted(config.states, key=place_of):
            with stages("encode", f"{model.name} {state}"):
                panel = _panel(model, state, corpus, config, protocol)
            yield panel


def _panel(model: Source, state: str, corpus: Corpus, config: Config, protocol: str) -> Panel:
    """Return the sampled tokens of one model in one state."""
    seed = config.seeds[0]
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


def _input(panel: Panel) -> dict[str, Any]:
    """Return what run.json says of a panel."""
    return {
        **named(panel),
        "n_corpus_sentences": len(panel.corpus.sentences),
        "n_corpus_tokens": int(panel.corpus.counts.sum()),
        "n_corpus_types": int(np.count_nonzero(panel.corpus.counts)),
        "n_sentences": panel.n_sentences,
        "n_tokens": len(panel.token_ids),
        "n_truncated": panel.n_truncated,
    }


if __name__ == "__main__":
    sys.exit(main(Config, run, name="figure2"))

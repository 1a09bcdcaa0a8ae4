"""Fine-tuning alone: the study's Siamese recipe on each model and seed, and how well it does.

    python -m experiments.finetune --models NAME=FOLDER --data FOLDER --seeds 0 --output out

OUTPUT/finetuned/KEY/model is the finished model: `--models` of every experiment takes it, and
transformers and sentence-transformers open it. A run that was interrupted goes on from its last
epoch; one that is finished is found again, by the content of everything that shaped it. OUTPUT
receives finetune.json, .csv, .md and .tex and run.json. The flags are those of Table 1; the ones
about clusters, directions and geometry change nothing here.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any, Literal, NamedTuple

from experiments.command.options import Common, require_valid
from experiments.command.record import run_record
from experiments.command.stages import Stages
from experiments.command.start import main
from experiments.layout.publish import publish
from experiments.layout.tables import Table, correlation
from experiments.rows.row import Row
from experiments.spaces.checkpoints import DTYPES, Checkpoint, checkpoint, sources
from experiments.spaces.finetuned import finetuned
from experiments.spaces.space import read_pairs
from jaxgeom.models.tokens import load_tokenizer
from jaxgeom.tasks.sts import StsPairs
from jaxgeom.training.checkpoints import read_record
from jaxgeom.training.evaluation import evaluate
from jaxgeom.training.sentence_model import RECORD

LEGEND = (
    "Spearman × 100 of the cosines of sentence vectors, every token pooled: on the development "
    "pairs after each epoch, and of the finished model on the chosen split."
)


@dataclass(frozen=True)
class Config(Common):
    """Fine-tuning of encoders on sentence pairs."""

    states: tuple[Literal["random", "pretrained"], ...] = ("pretrained",)
    """What to start from: pretrained: the weights as they are; random: fresh ones."""


class Result(NamedTuple):
    """What a run gives back and writes."""

    rows: list[dict[str, Any]]  # one for each model, state and seed
    record: dict[str, Any]  # run.json


def run(config: Config) -> Result:
    """Fine-tune every model from every state with every seed; write and print the scores.

    Args:
        config: The options.

    Returns:
        The rows as in finetune.json, and the record of the run.

    Raises:
        ValueError, OSError, ImportError: An option, a model or a file that cannot be used, or a
            loss that is no number any more.
    """
    require_valid(config)
    if not config.models:
        raise ValueError("--models must name one or more encoders, got none")
    stages = Stages()
    with stages("read"):
        pairs = {protocol: read_pairs(config, protocol) for protocol in config.protocol}
        models = sources(config.models)
    rows = []
    points = product(models, config.states, config.protocol, config.seeds)
    for model, state, protocol, seed in points:
        name = f"{model.name} {state} seed {seed}"
        with stages("train", name):
            start = checkpoint(model, state, seed, config)
            tuned = finetuned(start, config, protocol=protocol)
        with stages("evaluate", name):
            rows.append(_row(tuned, pairs[protocol], protocol, config))
    record = run_record(config, stages.seconds, [])
    tables = [_table(list(group)) for _, group in groupby(rows, lambda row: row["model"])]
    publish(config.output, "finetune", rows, tables, LEGEND, record)
    return Result(rows, record)


def _row(tuned: Checkpoint, pairs: StsPairs, protocol: str, config: Config) -> dict[str, Any]:
    """Return one row of finetune.json."""
    scores = evaluate(
        tuned.build(dtype=DTYPES[config.dtype]),
        load_tokenizer(tuned.folder),
        pairs,
        pooling=config.pooling,
        max_length=config.max_length,
    )
    training = read_record(tuned.folder, RECORD)
    return {
        "model": tuned.model,
        "state": tuned.state,
        "seed": tuned.seed,
        "protocol": protocol,
        "folder": tuned.folder.relative_to(config.output).as_posix(),
        "split": config.split,
        "n_pairs": len(pairs.scores),
        "spearman": 100 * scores["spearman_cosine"],
        "pearson": 100 * scores["pearson_cosine"],
        "n_truncated": training["train"]["n_truncated"],
        **{
            f"dev_spearman_{epoch['epoch']}": 100 * epoch["spearman_cosine"]
            for epoch in training["epochs"]
        },
    }


def _table(rows: Sequence[Row]) -> Table:
    """Return the table of one model, a line for each state and seed."""
    epochs = [field for field in rows[0] if field.startswith("dev_spearman_")]
    header = ["", *(f"dev, epoch {field.rpartition('_')[2]}" for field in epochs), rows[0]["split"]]
    lines = [
        [
            _label(row),
            *(correlation(row[field]) for field in [*epochs, "spearman"]),
        ]
        for row in rows
    ]
    notes = [f"{_label(row)}: {row['folder']}" for row in rows]
    if rows[0]["n_truncated"]:
        notes.append(f"{rows[0]['n_truncated']} training sentences were cut off at --max-length")
    return Table(rows[0]["model"], header, lines, notes)


def _label(row: Row) -> str:
    """Return what a line is of."""
    return f"{row['state']}, seed {row['seed']}, protocol {row['protocol']}"


if __name__ == "__main__":
    sys.exit(main(Config, run, name="finetune"))

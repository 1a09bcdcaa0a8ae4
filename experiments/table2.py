"""Table 2: Spearman and isotropy without the least directions, and which printed pairs can be.

    python -m experiments.table2 --models NAME=FOLDER --data FOLDER --output out

Each model and state is encoded once, clustered once a seed, and measured as it is, centred, and
without the m least principal directions of all tokens (Global) or of each cluster (Cluster-based).
The study prints such numbers of fine-tuned models. OUTPUT receives table2.json, .csv, .md and .tex,
table2_orderings.csv, run.json, the labels and the cached embeddings.
"""

import sys
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from tqdm import tqdm

from experiments.command.options import require_valid
from experiments.command.record import run_record
from experiments.command.stages import Stages
from experiments.command.start import main
from experiments.layout.orderings import LEGEND, ordering_tables
from experiments.layout.publish import publish, write_csv
from experiments.layout.settings import legend_of, tables_of
from experiments.rows.measured import measured
from experiments.rows.orderings import ordering_rows
from experiments.rows.paper import least_of, study_least
from experiments.rows.settings import setting_row
from experiments.spaces.clusters import labels_of
from experiments.spaces.space import Space, SpaceOptions, geometry, space_record, spaces
from jaxgeom import study


@dataclass(frozen=True)
class Config(SpaceOptions):
    """Table 2: Spearman and isotropy without the least dominant directions."""

    least: tuple[int, ...] = ()
    """Least directions removed, each in 1..d - 1; by default 100 and 700 of 768, the same shares of
    other widths."""


class Result(NamedTuple):
    """What a run of Table 2 gives back and writes."""

    rows: list[dict[str, Any]]  # one for each model, state, seed and setting
    orderings: list[dict[str, Any]]  # one for each pair of isotropies, of the run and printed
    record: dict[str, Any]  # run.json


def run(config: Config) -> Result:
    """Measure every model, state and seed; write and print the tables.

    Args:
        config: the options.

    Returns:
        The rows and the orderings as in table2.json, and the record of the run.

    Raises:
        ValueError, OSError, ImportError: an option, a model or a file that cannot be used.
    """
    require_valid(config)
    if len(set(config.least)) < len(config.least):
        raise ValueError(f"--least must be different numbers, got {list(config.least)}")
    config.output.mkdir(parents=True, exist_ok=True)
    stages = Stages()
    rows, orderings, inputs = [], [], []
    for space in spaces(config, config.embeddings, stages):
        of_space, pairs = measured(
            "table2", space, config, partial(measure, space, config, stages), clustered=True
        )
        rows += of_space
        orderings += pairs
        inputs.append(space_record(space))
    record = run_record(config, stages.seconds, inputs)
    write(rows, orderings, record, config)
    return Result(rows, orderings, record)


def measure(
    space: Space, config: Config, stages: Stages
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of one space, and the pairs of isotropies that one choice of signs orders."""
    ops, tokens = geometry(space, config)
    name = f"{space.model} {space.state} seed {space.seed}"
    n_least = least_numbers(config.least, tokens.shape[1])
    with stages("cluster", name):
        labels = labels_of(ops, tokens, space, config)
    with stages("settings", name):
        results = study.least_settings(
            ops,
            tokens,
            space.sentence_ids,
            2 * len(space.scores),
            labels,
            n_clusters=config.n_clusters,
            n_least=n_least,
            protocol=space.protocol,
            progress=partial(tqdm, desc=name, leave=False, disable=None),
        )
        rows = [_row(space, *key, result) for key, result in results.items()]
    with stages("orderings", name):
        fit = study.centred_isotropy(ops, tokens)
        ranges = study.isotropy_curve(ops, fit, "least")
        return rows, ordering_rows(space, fit, ranges, results)


def least_numbers(chosen: tuple[int, ...], d: int) -> tuple[int, ...]:
    """Return the numbers of least directions to remove from d features, ascending."""
    if d < 2:
        raise ValueError(f"tokens must have 2 features or more to remove one, got {d}")
    for m in chosen:
        if not 1 <= m < d:
            raise ValueError(f"--least must be in 1..d - 1 = 1..{d - 1}, got {m}")
    return tuple(sorted(chosen)) or least_of(d)


def write(
    rows: list[dict[str, Any]],
    orderings: list[dict[str, Any]],
    record: dict[str, Any],
    config: Config,
) -> None:
    """Write the files of a run, then print its tables."""
    tables = [*tables_of(rows), *ordering_tables(orderings)]
    legend = f"{legend_of(rows)} {LEGEND}"
    write_csv(config.output / "table2_orderings.csv", orderings)
    publish(config.output, "table2", rows, tables, legend, record, orderings=orderings)


def _row(space: Space, setting: str, n_least: int, result: study.SettingResult) -> dict[str, Any]:
    """Return one row of table2.json; `paper_n_least` is what the study removes there."""
    theirs = study_least(n_least, space.tokens.shape[1])
    what = {"setting": setting, "n_least": n_least, "paper_n_least": theirs}
    return setting_row(space, what, result)


if __name__ == "__main__":
    sys.exit(main(Config, run, name="table2"))

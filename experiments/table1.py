"""Table 1: Spearman and isotropy of five settings, ours with the interval over signs, the study's.

    python -m experiments.table1 --models NAME=FOLDER --data FOLDER --output out

Each model and state is encoded once, clustered once a seed and protocol, and measured as it is,
after the four changes of the study, and at its CLS vectors. OUTPUT receives table1.json, .csv, .md
and .tex, run.json, the labels and the cached embeddings.
"""

import sys
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from experiments.command.options import require_valid
from experiments.command.record import run_record
from experiments.command.stages import Stages
from experiments.command.start import main
from experiments.layout.publish import publish
from experiments.layout.settings import legend_of, tables_of
from experiments.rows.measured import measured
from experiments.rows.settings import setting_row
from experiments.spaces.clusters import labels_of
from experiments.spaces.space import Space, SpaceOptions, geometry, space_record, spaces
from jaxgeom import study


@dataclass(frozen=True)
class Config(SpaceOptions):
    """Table 1: Spearman and isotropy of the study's five settings."""


class Result(NamedTuple):
    """What a run of Table 1 gives back and writes."""

    rows: list[dict[str, Any]]  # one for each model, state, seed and setting
    record: dict[str, Any]  # run.json


def run(config: Config) -> Result:
    """Measure every model, state and seed; write and print the table.

    Args:
        config: the options.

    Returns:
        The rows as in table1.json, and the record of the run.

    Raises:
        ValueError, OSError, ImportError: an option, a model or a file that cannot be used.
    """
    require_valid(config)
    config.output.mkdir(parents=True, exist_ok=True)
    stages = Stages()
    rows: list[dict[str, Any]] = []
    inputs = []
    for space in spaces(config, config.embeddings, stages):
        rows += measured(
            "table1", space, config, partial(measure, space, config, stages), clustered=True
        )
        inputs.append(space_record(space))
    record = run_record(config, stages.seconds, inputs)
    publish(config.output, "table1", rows, tables_of(rows), legend_of(rows), record)
    return Result(rows, record)


def measure(space: Space, config: Config, stages: Stages) -> list[dict[str, Any]]:
    """Return the rows of one space: the five settings, then the CLS vectors where there are any."""
    ops, tokens = geometry(space, config)
    name = f"{space.model} {space.state} seed {space.seed}"
    with stages("cluster", name):
        labels = labels_of(ops, tokens, space, config)
    with stages("settings", name):
        results = study.settings(
            ops,
            tokens,
            space.sentence_ids,
            2 * len(space.scores),
            labels,
            n_clusters=config.n_clusters,
            n_directions=config.n_directions,
            protocol=space.protocol,
            progress=partial(tqdm, desc=name, leave=False, disable=None),
        )
        if space.cls is not None:
            ids = np.arange(len(space.cls), dtype=np.int32)
            results["cls"] = study.measure(ops, space.cls, ids, len(ids), protocol=space.protocol)
        return [_row(space, setting, result) for setting, result in results.items()]


def _row(space: Space, setting: str, result: study.SettingResult) -> dict[str, Any]:
    """Return one row of table1.json."""
    return setting_row(space, {"setting": setting}, result)


if __name__ == "__main__":
    sys.exit(main(Config, run, name="table1"))

"""Removal curves: Spearman and isotropy against the number of directions removed, 0 to d - 1.

    python -m experiments.curves --models NAME=FOLDER --data FOLDER --output out

Principal directions of the centred tokens, the heaviest first or the lightest first; the study has
single points of these curves: Global of Table 1 and of Table 2. Every point comes from one pass
over the tokens. OUTPUT receives curves_MODEL.png and .svg, curves.json, .csv, .md and .tex,
run.json and the cached embeddings.
"""

import sys
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from experiments.command.options import require_valid
from experiments.command.record import run_record
from experiments.command.stages import Stages
from experiments.command.start import main
from experiments.layout.curves import draw, legend_of, tables_of
from experiments.layout.publish import publish
from experiments.rows.measured import measured
from experiments.spaces.space import Space, SpaceOptions, geometry, space_record, spaces
from jaxgeom import study

ORDERS = ("top", "least")


@dataclass(frozen=True)
class Config(SpaceOptions):
    """Removal curves; nothing is clustered: the flags about clusters and labels change nothing."""


class Result(NamedTuple):
    """What a run gives back and writes."""

    rows: list[dict[str, Any]]  # one for each model, state, seed, order and number removed
    record: dict[str, Any]  # run.json


def run(config: Config) -> Result:
    """Measure every model, state and seed; write the figures, write and print the tables.

    Args:
        config: the options.

    Returns:
        The rows as in curves.json, and the record of the run.

    Raises:
        ValueError, OSError, ImportError: an option, a model or a file that cannot be used.
    """
    require_valid(config)
    stages = Stages()
    rows: list[dict[str, Any]] = []
    inputs = []
    for space in spaces(config, config.embeddings, stages):
        with stages("curves", f"{space.model} {space.state} seed {space.seed}"):
            rows += measured("curves", space, config, partial(measure, space, config))
        inputs.append(space_record(space))
    with stages("figure"):
        draw(rows, config.n_directions, config.output)
    record = run_record(config, stages.seconds, inputs)
    tables = tables_of(rows, config.n_directions)
    publish(config.output, "curves", rows, tables, legend_of(rows), record)
    return Result(rows, record)


def measure(space: Space, config: Config) -> list[dict[str, Any]]:
    """Return the rows of one space: a point for each order and number of directions removed."""
    ops, tokens = geometry(space, config)
    fit = study.centred_isotropy(ops, tokens, protocol=space.protocol)
    rows = []
    for which in ORDERS:
        curve = study.removal_curve(ops, fit, tokens, space.sentence_ids, space.scores, which=which)
        rows += [
            _row(space, which, k, dict(zip(curve._fields, map(float, point), strict=True)))
            for k, point in enumerate(zip(*curve, strict=True))
        ]
    return rows


def _row(space: Space, which: str, n_removed: int, point: dict[str, float]) -> dict[str, Any]:
    """Return one row of curves.json; one choice of signs has no range."""
    signs_are_free = space.protocol == "ours"
    return {
        "model": space.model,
        "state": space.state,
        "which": which,
        "n_removed": n_removed,
        "seed": space.seed,
        "protocol": space.protocol,
        "n_tokens": len(space.tokens),
        "spearman": point["spearman"],
        "isotropy": point["isotropy"],
        "isotropy_low": point["low"] if signs_are_free else None,
        "isotropy_high": point["high"] if signs_are_free else None,
    }


if __name__ == "__main__":
    sys.exit(main(Config, run, name="curves"))

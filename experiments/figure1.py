"""Figure 1: isotropy in every layer, of all tokens and of the CLS vectors, before and after tuning.

    python -m experiments.figure1 --models NAME=FOLDER --data FOLDER --output out

Vectors are as the encoder gives them, not centred; layer 0 is the embedding output. The first of
`--seeds` is drawn. OUTPUT receives figure1.png and .svg, figure1.json, .csv, .md and .tex,
run.json, and the embeddings of all layers, whose size is printed before they are computed.
"""

import sys
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np
from tqdm import tqdm

import jaxgeom
from experiments.command.options import Common, require_valid
from experiments.command.record import run_record
from experiments.command.stages import Stages
from experiments.command.start import main
from experiments.layout.figure1 import VECTORS, draw, legend_of, tables_of
from experiments.layout.publish import publish
from experiments.rows.measured import measured
from experiments.spaces.space import OPS, LayeredSpace, layered_spaces, named
from jaxgeom import reference, study


@dataclass(frozen=True)
class Config(Common):
    """Figure 1: isotropy of every layer; the flags about clusters and directions change nothing."""


class Result(NamedTuple):
    """What a run gives back and writes."""

    rows: list[dict[str, Any]]  # one for each model, state, kind of vectors and layer
    record: dict[str, Any]  # run.json


def run(config: Config) -> Result:
    """Measure every layer of every model and state; write the figure and the table.

    Args:
        config: the options.

    Returns:
        The rows as in figure1.json, and the record of the run.

    Raises:
        ValueError, OSError, ImportError: an option, a model or a file that cannot be used.
    """
    require_valid(config)
    stages = Stages()
    rows: list[dict[str, Any]] = []
    inputs = []
    for space in layered_spaces(config, stages):
        with stages("isotropy", f"{space.model} {space.state}"):
            rows += measured("figure1", space, config, partial(measure, space, config))
        inputs.append(_input(space))
    with stages("figure"):
        draw(rows, config.output)
    record = run_record(config, stages.seconds, inputs)
    publish(config.output, "figure1", rows, tables_of(rows), legend_of(rows), record)
    return Result(rows, record)


def measure(space: LayeredSpace, config: Config) -> list[dict[str, Any]]:
    """Return the rows of one model in one state: its layers' tokens, then their CLS vectors."""
    ops = OPS[config.backend]
    layers = range(len(space.hidden))
    rows = []
    for kind, title in VECTORS.items():
        name = f"{space.model} {space.state} {title}"
        for layer in tqdm(layers, desc=name, unit="layer", leave=False, disable=None):
            vectors = space.vectors(kind, layer)
            logs = log_isotropy(ops, vectors, space.protocol)
            rows.append(_row(space, kind, layer, logs, len(vectors)))
    return rows


def log_isotropy(
    ops: ModuleType, vectors: np.ndarray, protocol: str
) -> tuple[float, float | None, float | None]:
    """Return ln I(W) of `vectors` [n d] and, where the signs are free, its range over them.

    Logarithms throughout: I itself is 0 in float64 below ln I = -745.
    """
    if protocol == "authors":
        side = study.PROTOCOLS[protocol].fit(ops, vectors).log_partition
        return float(reference.log_isotropy(side).heavier), None, None
    rows = jax.device_put(vectors) if ops is jaxgeom else vectors
    logs = ops.log_isotropy(ops.isotropy(rows).log_partition)
    return float(logs.heavier), float(logs.low), float(logs.high)


def _row(
    space: LayeredSpace,
    kind: str,
    layer: int,
    logs: tuple[float, float | None, float | None],
    n_vectors: int,
) -> dict[str, Any]:
    """Return one row of figure1.json."""
    return {
        "model": space.model,
        "state": space.state,
        "vectors": kind,
        "layer": layer,
        "seed": space.seed,
        "protocol": space.protocol,
        "n_vectors": n_vectors,
        **dict(zip(("log_isotropy", "log_isotropy_low", "log_isotropy_high"), logs, strict=True)),
    }


def _input(space: LayeredSpace) -> dict[str, Any]:
    """Return what run.json says of a space."""
    return {
        **named(space),
        "n_layers": len(space.hidden),
        "n_tokens": int((~space.special).sum()),
        "n_sentences": int(space.sentence_ids[-1]) + 1,
        "n_features": space.hidden.shape[2],
        "n_truncated": space.n_truncated,
    }


if __name__ == "__main__":
    sys.exit(main(Config, run, name="figure1"))

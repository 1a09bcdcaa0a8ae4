"""Dominant directions: the variance they hold, and how many must go for a given isotropy.

    python -m experiments.directions --models NAME=FOLDER --data FOLDER --output out

The study finds more elongated directions after fine-tuning without counting them; here they are
counted. OUTPUT receives directions_MODEL.png and .svg, directions.json (with every spectrum), .csv,
.md and .tex, run.json and the cached embeddings.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from experiments.command.options import require_valid
from experiments.command.record import run_record
from experiments.command.stages import Stages
from experiments.command.start import main
from experiments.layout.directions import LEGEND, draw, tables_of
from experiments.layout.publish import publish
from experiments.rows.measured import measured
from experiments.spaces.space import Space, SpaceOptions, geometry, named, space_record, spaces
from jaxgeom import study
from jaxgeom.results import Isotropy


@dataclass(frozen=True)
class Config(SpaceOptions):
    """Dominant directions; nothing is clustered: the flags about clusters change nothing."""

    variance: tuple[float, ...] = (0.5, 0.9, 0.99)
    """Shares of the variance."""
    isotropy: tuple[float, ...] = (0.1, 0.5, 0.9)
    """Values of I(W) to reach by removing leading directions."""


class Result(NamedTuple):
    """What a run gives back and writes."""

    rows: list[dict[str, Any]]  # one for each model, state, seed and quantity
    spectra: list[dict[str, Any]]  # one for each model, state and seed
    record: dict[str, Any]  # run.json


def run(config: Config) -> Result:
    """Measure every model, state and seed; write the figures, write and print the tables.

    Args:
        config: the options.

    Returns:
        The rows and the spectra as in directions.json, and the record of the run.

    Raises:
        ValueError, OSError, ImportError: an option, a model or a file that cannot be used.
    """
    require_valid(config)
    require_shares(config)
    stages = Stages()
    rows, spectra, inputs = [], [], []
    for space in spaces(config, config.embeddings, stages):
        with stages("directions", f"{space.model} {space.state} seed {space.seed}"):
            counted, spectrum = measured(
                "directions", space, config, partial(measure, space, config)
            )
        rows += counted
        spectra.append(spectrum)
        inputs.append(space_record(space))
    with stages("figure"):
        draw(spectra, config.variance, config.output)
    record = run_record(config, stages.seconds, inputs)
    publish(config.output, "directions", rows, tables_of(rows), LEGEND, record, spectra=spectra)
    return Result(rows, spectra, record)


def measure(space: Space, config: Config) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the rows of one space and its spectrum."""
    ops, tokens = geometry(space, config)
    fit = study.centred_isotropy(ops, tokens, protocol=space.protocol)
    ratio = study.explained_variance_ratio(fit)
    name = named(space)
    size = {"n_tokens": len(space.tokens), "n_features": len(ratio)}
    counts = [*_variance_counts(ratio, config), *_isotropy_counts(ops, fit, space.protocol, config)]
    rows = [name | size | count for count in counts]
    return rows, name | {"explained_variance_ratio": ratio.tolist()}


def require_shares(config: Config) -> None:
    """Raise `ValueError` unless the targets are shares."""
    for name in ("variance", "isotropy"):
        for value in getattr(config, name):
            if not 0 < value <= 1:
                raise ValueError(f"--{name} must be above 0 and at most 1, got {value}")


def _variance_counts(ratio: np.ndarray, config: Config) -> Iterator[dict[str, Any]]:
    """Yield how many leading directions hold each share of the variance."""
    for share in config.variance:
        n = study.n_directions_for_variance(ratio, share)
        yield _count("variance", share, n, None, None)


def _isotropy_counts(
    ops: ModuleType, fit: Isotropy, protocol: str, config: Config
) -> Iterator[dict[str, Any]]:
    """Yield how many leading directions must go for each isotropy, and the range over signs."""
    curve = study.isotropy_curve(ops, fit, "top")
    for target in config.isotropy:
        n, fewest, most = (
            study.n_directions_for_isotropy(reading, target)
            for reading in (curve.heavier, curve.high, curve.low)
        )
        ends = (fewest, most) if protocol == "ours" else (None, None)  # of one choice: no range
        yield _count("isotropy", target, n, *ends)


def _count(
    quantity: str, target: float, n: int | None, fewest: int | None, most: int | None
) -> dict[str, Any]:
    """Return the part of a row that counts."""
    return {
        "quantity": quantity,
        "target": target,
        "n_directions": n,
        "n_directions_fewest": fewest,
        "n_directions_most": most,
    }


if __name__ == "__main__":
    sys.exit(main(Config, run, name="directions"))

"""A model in a state: where its files lie, what identifies its weights, how to build it.

A new state is one function in `STATES`.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.command.options import Common
from jaxgeom.models.config import read_config
from jaxgeom.models.encoder import Encoder
from jaxgeom.models.hub import parse_model, resolve_model
from jaxgeom.models.weights import load_encoder, random_encoder

WEIGHTS = ("*.safetensors", "*.safetensors.index.json")


class Checkpoint(NamedTuple):
    """An encoder that is built only when its embeddings are not on disk yet."""

    model: str  # the name in tables and file names
    state: str
    seed: int
    folder: Path  # holds config and tokenizer
    weights: dict[str, Any]  # whatever decides every weight, as JSON
    build: Callable[..., Encoder]  # takes the keyword dtype


class Source(NamedTuple):
    """A model as the command line names it."""

    name: str
    folder: Path


def sources(models: tuple[str, ...]) -> list[Source]:
    """Resolve `--models` to folders under different names."""
    named = [parse_model(model) for model in models]
    if len({name for name, _ in named}) < len(named):
        raise ValueError(
            "--models must have different names (NAME=FOLDER gives one), "
            f"got {', '.join(name for name, _ in named)}"
        )
    return [Source(name, resolve_model(source)) for name, source in named]


def checkpoint(source: Source, state: str, seed: int, config: Common) -> Checkpoint:
    """Return the model of `source` in a state; its weights are not read or drawn yet."""
    return STATES[state](source, seed, config)


def digest(folder: Path, patterns: Sequence[str]) -> str:
    """Return the sha256 of the names and contents of the files that match in `folder`."""
    total = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in folder.glob(pattern)}):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{path.name} {content}\n".encode())
    return total.hexdigest()


def _pretrained(source: Source, seed: int, _: Common) -> Checkpoint:
    """Return the weights as they are; the seed plays no part."""
    weights = {"sha256": digest(source.folder, WEIGHTS)}
    build = partial(load_encoder, source.folder)
    return Checkpoint(source.name, "pretrained", seed, source.folder, weights, build)


def _random(source: Source, seed: int, _: Common) -> Checkpoint:
    """Return fresh weights; another version of jax may draw others from the same seed."""
    weights = {"random": seed, "jax": jax.__version__}
    build = partial(random_encoder, read_config(source.folder), key=jax.random.key(seed))
    return Checkpoint(source.name, "random", seed, source.folder, weights, build)


STATES: dict[str, Callable[[Source, int, Common], Checkpoint]] = {
    "random": _random,
    "pretrained": _pretrained,
}

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}

"""The spaces that experiments measure: token embeddings with their sentences and gold scores."""

import dataclasses
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxgeom
from experiments.command.options import Common
from experiments.command.stages import Stages
from experiments.spaces.checkpoints import Checkpoint, sources
from experiments.spaces.embeddings import embeddings
from experiments.spaces.finetuned import NAMES, QUOTING, in_state
from jaxgeom import reference
from jaxgeom._checks import FLOATS
from jaxgeom.models.encoding import TokenEmbeddings
from jaxgeom.results import Array
from jaxgeom.study import require_finite
from jaxgeom.tasks.sts import StsPairs, read_sts

FILE_KEYS = ("tokens", "sentence_ids", "scores")
OPS = {"jax": jaxgeom, "numpy": reference}


@dataclass(frozen=True)
class SpaceOptions(Common):
    """The common options and that of a space of one's own."""

    embeddings: Path | None = None
    """Instead of models: an .npz of tokens [n d], sentence_ids [n] and scores [p]; the ids are
    0..p-1 for the pairs' first sentences and p..2p-1 for the second ones."""


class LayeredSpace(NamedTuple):
    """The embeddings of every layer of one model in one state; layer 0 is the embedding output."""

    model: str
    state: str
    seed: int
    protocol: str
    hidden: np.ndarray  # [layers + 1, n, d], on disk, special tokens included
    sentence_ids: np.ndarray  # [n]
    special: np.ndarray  # [n] bool
    n_truncated: int  # sentences cut off at --max-length

    def vectors(self, kind: str, layer: int) -> np.ndarray:
        """Return a layer's "tokens" (all but special ones) or "cls" (each sentence's first one)."""
        chosen = (
            _first_tokens(self.sentence_ids) if kind == "cls" else np.flatnonzero(~self.special)
        )
        vectors = self.hidden[layer][chosen]
        require_finite(vectors, self.sentence_ids[chosen])
        return vectors


class Encoding(NamedTuple):
    """The embeddings of the pairs, as a protocol reads them, by one model in one state."""

    point: Checkpoint
    protocol: str
    embeddings: TokenEmbeddings
    pairs: StsPairs


class Space(NamedTuple):
    """Token embeddings of p pairs of sentences, from one model in one state."""

    model: str
    state: str
    seed: int
    protocol: str  # how the pairs were read, and how they are clustered and measured
    tokens: np.ndarray  # [n d]
    sentence_ids: np.ndarray  # [n]: 0..p-1 the first sentences, p..2p-1 the second ones
    scores: np.ndarray  # [p]
    cls: np.ndarray | None  # [2p d]: the CLS vectors, where they are known
    n_truncated: int  # sentences cut off at --max-length


def spaces(config: Common, file: Path | None, stages: Stages) -> Iterator[Space]:
    """Yield the space of each model, state, protocol and seed; or that of an `.npz` file."""
    if (file is None) == (not config.models):
        raise ValueError(
            "give either --models or --embeddings, "
            f"got --models {list(config.models)} and --embeddings {file}"
        )
    if file is None:
        yield from _encoded(config, stages)
        return
    with stages("read"):
        given = read_space(file)
        require_finite(given.tokens, given.sentence_ids)
    for protocol, seed in product(config.protocol, config.seeds):
        yield given._replace(seed=seed, protocol=protocol)


def geometry(space: Space, config: Common) -> tuple[ModuleType, Array]:
    """Return the operations that `--backend` names and the space's tokens where they compute."""
    ops = OPS[config.backend]
    return ops, jax.device_put(space.tokens) if ops is jaxgeom else space.tokens


def named(space: Any) -> dict[str, Any]:
    """Return what tells a space, or a panel of its tokens, from others of the run."""
    return {field: getattr(space, field) for field in ("model", "state", "seed", "protocol")}


def space_record(space: Space) -> dict[str, Any]:
    """Return what run.json says of a space."""
    return {
        **named(space),
        "n_pairs": len(space.scores),
        "n_tokens": len(space.tokens),
        "n_features": space.tokens.shape[1],
        "n_truncated": space.n_truncated,
    }


def read_space(file: Path) -> Space:
    """Read a space from an `.npz` file.

    Args:
        file: holds `tokens` [n d] (floating), `sentence_ids` [n] (integers: 0..p-1 the first
            sentences of the pairs, p..2p-1 the second ones) and `scores` [p] (real numbers).

    Returns:
        The space; its model is named after the file, its state is "given", it has no CLS vectors.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not such a file; the message names it and the key.
    """
    try:
        with np.load(file) as stored:
            tokens, ids, scores = (stored[key] for key in FILE_KEYS)
    except (KeyError, ValueError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        needs = ", ".join(FILE_KEYS)
        raise ValueError(f"{file}: must be an .npz file that holds {needs} ({error})") from error
    for problem in _problems(tokens, ids, scores):
        raise ValueError(f"{file}: {problem}")
    ids, scores = ids.astype(np.int32), scores.astype(np.float64)
    return Space(file.stem, "given", 0, "ours", tokens, ids, scores, None, 0)


def _problems(tokens: np.ndarray, ids: np.ndarray, scores: np.ndarray) -> Iterator[str]:
    """Yield what is wrong with the arrays of a file; the first one matters."""
    if tokens.ndim != 2 or 0 in tokens.shape or tokens.dtype.name not in FLOATS:
        yield f"tokens must be floating [n d], not empty, got {_kind(tokens)}"
    if scores.ndim != 1 or scores.size < 2 or scores.dtype.kind not in "fiu":
        yield f"scores must be real numbers [p], two or more, got {_kind(scores)}"
    if not np.isfinite(scores).all():
        yield f"scores must be finite, got {scores[~np.isfinite(scores)][0]}"
    if ids.shape != tokens.shape[:1] or ids.dtype.kind not in "iu":
        yield f"sentence_ids must be integers [n] = {tokens.shape[:1]}, got {_kind(ids)}"
    if ids.min() < 0 or ids.max() >= 2 * scores.size:
        yield (
            f"sentence_ids must be in 0..2p - 1 = 0..{2 * scores.size - 1}, "
            f"got {ids.min()}..{ids.max()}"
        )


def _kind(array: np.ndarray) -> str:
    """Say an array's dtype and shape."""
    return f"{array.dtype} {list(array.shape)}"


def layered_spaces(config: Common, stages: Stages) -> Iterator[LayeredSpace]:
    """Yield all layers of each model, state and protocol, for the first of `--seeds` alone.

    They are the last layer's size times the number of layers: more seeds would fill the disk.
    """
    if not config.models:
        raise ValueError("--models must name an encoder, got none")
    first = dataclasses.replace(config, seeds=config.seeds[:1])
    for point, protocol, encoded, _ in _encodings(first, stages, "all"):
        yield LayeredSpace(
            model=point.model,
            state=point.state,
            seed=point.seed,
            protocol=protocol,
            hidden=encoded.hidden,
            sentence_ids=encoded.sentence_ids,
            special=encoded.special,
            n_truncated=encoded.n_truncated,
        )


def _encoded(config: Common, stages: Stages) -> Iterator[Space]:
    """Yield the space of each model, state, protocol and seed, encoded or from the cache."""
    for encoding in _encodings(config, stages, "last"):
        with stages("encode"):
            space = _space(encoding, config.pooling)
            require_finite(space.tokens, space.sentence_ids)
        yield space


def _encodings(config: Common, stages: Stages, layers: str) -> Iterator[Encoding]:
    """Yield the embeddings of each model, state, protocol and seed, encoded or from the cache."""
    with stages("read"):
        pairs = {protocol: read_pairs(config, protocol) for protocol in config.protocol}
        models = sources(config.models)
    points = product(models, config.states, config.protocol, config.seeds)
    for model, state, protocol, seed in points:
        name = f"{model.name} {state} seed {seed}"
        with stages("train" if state in NAMES.values() else "read", name):
            point = in_state(model, state, seed, config, protocol=protocol)
        with stages("encode", name):
            encoded = embeddings(
                point,
                sentences_of(pairs[protocol]),
                config.output / "embeddings",
                max_length=config.max_length,
                dtype=config.dtype,
                layers=layers,
            )
        if encoded.n_truncated:
            cut = f"{encoded.n_truncated} sentences were cut off"
            print(f"{model.name}: {cut} at --max-length {config.max_length}", file=sys.stderr)
        yield Encoding(point, protocol, encoded, pairs[protocol])


def read_pairs(config: Common, protocol: str) -> StsPairs:
    """Read `--data` under a protocol's reading of quotes."""
    if config.data is None:
        raise ValueError("--data must name STS-B: a folder, a file or a Hub data set id")
    return read_sts(config.data, split=config.split, quoting=QUOTING[protocol])


def sentences_of(pairs: StsPairs) -> list[str]:
    """Return the sentences in the order of a space's ids: all first ones, then all second ones."""
    return [*pairs.sentences1, *pairs.sentences2]


def _space(encoding: Encoding, pooling: str) -> Space:
    """Return the space of the kept tokens, or for `cls` pooling that of the CLS vectors."""
    point, protocol, encoded, pairs = encoding
    cls = encoded.hidden[_first_tokens(encoded.sentence_ids)]
    tokens, sentence_ids = cls, np.arange(len(cls), dtype=np.int32)
    if pooling == "mean":
        kept = ~encoded.special
        tokens, sentence_ids = encoded.hidden[kept], encoded.sentence_ids[kept]
    name = (point.model, point.state, point.seed, protocol)
    return Space(*name, tokens, sentence_ids, pairs.scores, cls, encoded.n_truncated)


def _first_tokens(sentence_ids: np.ndarray) -> np.ndarray:
    """Return where in the tokens [n] each sentence begins."""
    return np.flatnonzero(np.diff(sentence_ids, prepend=-1))

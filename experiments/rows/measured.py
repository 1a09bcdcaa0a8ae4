"""Measurements on disk, keyed by content: a run that was finished once is only laid out again.

An entry is OUTPUT/measured/KEY.json. KEY is the sha256 of everything that shapes the numbers: the
embeddings themselves, the options, the labels that are read, the source of both packages, the
versions and the device. Whoever changes a line of code measures anew.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

import jaxgeom
from experiments.command.options import Common
from experiments.command.record import RECORDED
from experiments.spaces.checkpoints import digest
from experiments.spaces.clusters import file_of
from experiments.spaces.finetuned import content_hash
from experiments.spaces.space import LayeredSpace, Space
from jaxgeom._files import write_text
from jaxgeom._versions import versions

FORMAT = 1  # raise it whenever the same key would stand for other numbers
# options that say which spaces there are and where results go; the embeddings are in the key
WHICH = frozenset(
    {field.name for field in dataclasses.fields(Common)} - {"n_clusters", "n_directions", "backend"}
) | {"embeddings"}

T = TypeVar("T")


def measured(
    name: str,
    space: Space | LayeredSpace,
    config: Common,
    measure: Callable[[], T],
    *,
    clustered: bool = False,
) -> T:
    """Return what `measure` returns: from OUTPUT/measured where it is there, else measured now.

    Args:
        name: of the experiment.
        space: what is measured.
        config: the experiment's options.
        measure: returns rows, or several lists of them, as JSON has them (NaN included).
        clustered: whether it writes the space's labels; they must still be there, and the same.

    Returns:
        The rows; tuples come back as lists.

    Raises:
        ValueError: an entry that cannot be read; the message names it.
    """
    labels = config.output / "labels" / file_of(space) if clustered else None
    key = content_hash(_parts(name, space, config, clustered))
    path = config.output / "measured" / f"{key}.json"
    if path.exists():
        entry = _read(path)
        if entry["labels"] == _digest(labels):
            return entry["result"]
    result = measure()
    write_text(path, json.dumps({"labels": _digest(labels), "result": result}))
    return result


def _read(path: Path) -> dict[str, Any]:
    """Read an entry."""
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        return {"labels": entry["labels"], "result": entry["result"]}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: cannot be read ({error!r}); delete it to measure anew"
        ) from error


def _parts(
    name: str, space: Space | LayeredSpace, config: Common, clustered: bool
) -> dict[str, Any]:
    """Return everything that shapes the numbers."""
    fields = [f.name for f in dataclasses.fields(config) if f.name not in WHICH]
    return {
        "format": FORMAT,
        "experiment": name,
        "space": {field: _identity(value) for field, value in space._asdict().items()},
        "options": {field: getattr(config, field) for field in fields},
        "labels": _digest(config.labels / file_of(space)) if clustered and config.labels else None,
        **_code(),
    }


def _identity(value: Any) -> Any:
    """Return an array's content as a hash, anything else as it is."""
    if not isinstance(value, np.ndarray):
        return value
    content = hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()
    return f"{value.dtype} {value.shape} {content}"


def _digest(path: Path | None) -> str | None:
    """Return the sha256 of a file; None where there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path and path.exists() else None


@functools.cache
def _code() -> dict[str, Any]:
    """Return what computes: sources, versions, device."""
    folders = (Path(jaxgeom.__file__).parent, Path(__file__).parents[1])
    return {
        "sources": [digest(folder, ("**/*.py",)) for folder in folders],
        "versions": versions(RECORDED),
        "device": jax.devices()[0].device_kind,
    }

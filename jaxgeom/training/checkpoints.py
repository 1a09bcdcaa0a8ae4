"""A run's state on disk: one folder a checkpoint, which is whole or not there.

RUN/checkpoints/epoch-0002 (or step-0400, where steps are counted) holds

* `state.safetensors`: weights and optimiser, flat, under their paths in the tree;
* `state.json`: epoch, step, the log so far, and the identity of the run: everything that shapes its
  weights.

It is written under a temporary name and renamed, so a killed process leaves the one before. That of
another run is never used and never overwritten: reading it is an error that says what differs.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from jaxgeom._files import write_text

FORMAT = 1  # raise it whenever the same run would write other files
CHECKPOINTS = "checkpoints"  # their folder within the run's; also for what is not finished yet
STATE, TENSORS = "state.json", "state.safetensors"
_NAME = re.compile(r"(?:epoch|step)-(\d{4,})")

Record = dict[str, Any]  # one line of a log


class CheckpointError(ValueError):
    """A checkpoint or a finished model that cannot be continued; the message names its folder."""


class Checkpoint(NamedTuple):
    """A run between two epochs, or between two steps."""

    params: Any  # a tree of arrays
    opt_state: Any  # optax's
    epoch: int  # whole epochs that are behind it
    step: int  # optimiser steps that are behind it
    log: list[Record]


def save_checkpoint(
    run: Path, checkpoint: Checkpoint, identity: Mapping[str, Any], *, by: str = "epoch"
) -> Path:
    """Write a checkpoint, then remove the earlier ones.

    Args:
        run: The run's folder.
        checkpoint: What to write.
        identity: Everything that shapes the run's weights, as JSON.
        by: What the run's checkpoints are numbered by, "epoch" or "step".

    Returns:
        The checkpoint's folder.
    """
    number = {"epoch": checkpoint.epoch, "step": checkpoint.step}[by]
    target = run / CHECKPOINTS / f"{by}-{number:04d}"
    header = {
        "format": FORMAT,
        "identity": dict(identity),
        "epoch": checkpoint.epoch,
        "step": checkpoint.step,
        "log": checkpoint.log,
    }
    with whole_folder(target, scratch=target.parent) as folder:
        tensors = _flatten((checkpoint.params, checkpoint.opt_state))
        save_file({name: np.asarray(tensor) for name, tensor in tensors.items()}, folder / TENSORS)
        write_json(folder / STATE, header)
    for _, earlier in _checkpoints(run)[:-1]:
        shutil.rmtree(earlier, ignore_errors=True)
    return target


def load_checkpoint(
    run: Path, template: tuple[Any, Any], identity: Mapping[str, Any]
) -> Checkpoint | None:
    """Read the newest checkpoint of a run.

    Args:
        run: The run's folder.
        template: Parameters and optimiser state of the run; shapes and dtypes are all that counts.
        identity: Everything that shapes the run's weights, as JSON.

    Returns:
        The checkpoint; None if there is none yet.

    Raises:
        CheckpointError: If it is incomplete or broken, or belongs to another run.
    """
    found = _checkpoints(run)
    if not found:
        return None
    _, folder = found[-1]
    header = read_record(folder, STATE)
    require_same_run(folder, header, identity)
    try:
        tensors = load_file(folder / TENSORS)
        epoch, step, log = (header[name] for name in ("epoch", "step", "log"))
    except (OSError, SafetensorError, KeyError) as error:
        raise _broken(folder, str(error)) from error
    params, opt_state = _unflatten(folder, tensors, template)
    return Checkpoint(params, opt_state, epoch, step, log)


def require_same_run(folder: Path, header: Record, identity: Mapping[str, Any]) -> None:
    """Raise `CheckpointError` unless what lies in `folder` belongs to the run of this identity."""
    there = header.get("identity")
    if header.get("format") != FORMAT or not isinstance(there, dict):
        raise _broken(folder, f"its format must be {FORMAT}, got {header.get('format')!r}")
    here = json.loads(json.dumps(dict(identity)))  # as it comes back from a file
    differing = [
        f"{name} is {there.get(name)!r} there and {here.get(name)!r} here"
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name)
    ]
    if differing:
        raise CheckpointError(
            f"{folder} belongs to another run ({'; '.join(differing)}): "
            "give another folder, or delete that one"
        )


def read_record(folder: Path, name: str) -> Record:
    """Read the JSON object that a finished folder must hold under `name`."""
    try:
        record = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _broken(folder, str(error)) from error
    if not isinstance(record, dict):
        raise _broken(folder, f"{name} must hold a JSON object")
    return record


def remove_checkpoints(run: Path) -> None:
    """Delete the checkpoints of a run whose model is finished, and what a killed process left."""
    shutil.rmtree(run / CHECKPOINTS, ignore_errors=True)


@contextmanager
def whole_folder(path: Path, *, scratch: Path) -> Iterator[Path]:
    """Yield a new folder within `scratch` that becomes `path` on success and is deleted otherwise.

    One that has appeared there meanwhile, from a process with the same run, is kept.
    """
    temporary = scratch / f"{path.name}.{os.getpid()}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if not path.exists():
            temporary.replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON; a NaN or an infinity is an error."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def to_jsonl(records: Sequence[Record]) -> str:
    """Return records as JSON, one a line."""
    return "".join(json.dumps(record, allow_nan=False) + "\n" for record in records)


def _checkpoints(run: Path) -> list[tuple[int, Path]]:
    """Return the number and the folder of every checkpoint of a run, in order."""
    named = ((_NAME.fullmatch(path.name), path) for path in (run / CHECKPOINTS).glob("*-*"))
    return sorted((int(match[1]), path) for match, path in named if match)


def _flatten(tree: Any) -> dict[str, Any]:
    """Return the leaves of a tree under their paths."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def _unflatten(folder: Path, tensors: Mapping[str, np.ndarray], template: Any) -> Any:
    """Return tensors as a tree of the template's structure, if they are exactly its leaves."""
    expected = _flatten(template)
    if tensors.keys() != expected.keys():
        odd = sorted(tensors.keys() ^ expected.keys())
        raise _broken(folder, f"missing or unexpected: {', '.join(odd)}")
    for name, leaf in expected.items():
        wanted, came = (f"{x.dtype} {list(x.shape)}" for x in (leaf, tensors[name]))
        if wanted != came:
            raise _broken(folder, f"{name} must be {wanted}, got {came}")
    leaves = [jax.numpy.asarray(tensors[name]) for name in expected]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def _broken(folder: Path, why: str) -> CheckpointError:
    """Return the error of a folder that cannot be read."""
    return CheckpointError(f"{folder} is incomplete or broken ({why}): delete it to train anew")

"""The record of each experiment of a folder, in run.json: what ran, on what, and how long."""

import dataclasses
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from filelock import FileLock

from jaxgeom import distributed
from jaxgeom._files import write_json
from jaxgeom._versions import versions

RECORDED = ("jaxgeom", "jax", "jaxlib", "flax", "numpy", "scipy", "tokenizers", "safetensors")


def write_record(path: Path, name: str, record: Mapping[str, Any]) -> None:
    """Write the record of one experiment into a file that holds those of others.

    Of processes that write at the same time each waits for its turn, at a lock beside the file:
    none loses what another one has written between its reading and its writing.
    """
    if not distributed.is_writer():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        write_json(path, {"schema": 1, "experiments": read_records(path) | {name: record}})


def read_records(path: Path) -> dict[str, Any]:
    """Return the record of each experiment in the file; none where there is no file.

    Raises:
        ValueError: not such a file; the message names it.
    """
    if not path.exists():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))["experiments"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: must hold the records of experiments ({error!r})") from error


def run_record(
    options: Any, seconds: Mapping[str, float], inputs: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what a run was: options (a dataclass), versions, device, time by stage, inputs."""
    device = jax.devices()[0]
    return {
        "options": dataclasses.asdict(options),
        "versions": {"python": platform.python_version()} | versions(RECORDED),
        "device": {
            "platform": device.platform,
            "kind": device.device_kind,
            "count": jax.device_count(),
            "cpus": os.cpu_count(),
            "machine": platform.machine(),
        },
        "seconds": {stage: round(value, 3) for stage, value in seconds.items()},
        "inputs": list(inputs),
    }

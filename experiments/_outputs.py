"""What a run leaves: arrays, rows, and the record of each experiment; whole or absent."""

import csv
import dataclasses
import io
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxgeom._files import jsonable, replacing, write_json, write_text
from jaxgeom._versions import versions

Row = Mapping[str, Any]  # one line of a table: field -> value

RECORDED = ("jaxgeom", "jax", "jaxlib", "flax", "numpy", "scipy", "tokenizers", "safetensors")


def write_array(path: Path, array: np.ndarray) -> None:
    """Write an array as `.npy`."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, array)


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write rows under a header of their fields; null is an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(jsonable(rows))
    write_text(path, text.getvalue())


def write_record(path: Path, name: str, record: Row) -> None:
    """Write the record of one experiment into a file that holds those of others."""
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


def run_record(options: Any, seconds: Row, inputs: Sequence[Row]) -> dict[str, Any]:
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

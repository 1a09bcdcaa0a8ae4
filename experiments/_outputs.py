"""Files that are whole or absent: written under a temporary name, then renamed."""

import csv
import dataclasses
import io
import json
import math
import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np

Row = Mapping[str, Any]  # one line of a table: field -> value

RECORDED = ("jaxgeom", "jax", "jaxlib", "flax", "numpy", "scipy", "tokenizers", "safetensors")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it on success, delete it on anything else.

    The caller creates a file or a folder there. A folder that has appeared at `path` meanwhile,
    from another run with the same key, is kept.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        if not (temporary.is_dir() and path.is_dir()):
            temporary.replace(path)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_array(path: Path, array: np.ndarray) -> None:
    """Write an array as `.npy`."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, array)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as strict JSON: NaN and infinities become null."""
    text = json.dumps(_jsonable(value), indent=2, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write rows under a header of their fields; null is an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(_jsonable(rows))
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
        "versions": {"python": platform.python_version()} | versions(),
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


def versions() -> dict[str, str | None]:
    """Return the installed versions of the packages that shape numbers."""
    return {package: _version(package) for package in RECORDED}


def _version(package: str) -> str | None:
    """Return the installed version of a package; None in a checkout that is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _jsonable(value: Any) -> Any:
    """Return `value` in JSON's types, with null for what JSON cannot say."""
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, np.generic):
        return _jsonable(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value

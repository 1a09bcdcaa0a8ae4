"""Files that are whole or absent: written under a temporary name, then renamed.

Of several processes only number 0 leaves a file; what the others write is thrown away.
"""

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from jaxgeom import distributed


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it on success, delete it on anything else.

    The caller creates a file or a folder there. A folder that has appeared at `path` meanwhile,
    from another run with the same key, is kept. A device such as /dev/null is an `OSError`.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(f"{path} cannot be replaced: it is neither a file nor a folder")
    is_writer = distributed.is_writer()
    path.parent.mkdir(parents=True, exist_ok=True)
    owner = f"{os.getpid()}" if is_writer else f"{distributed.process_index()}-{os.getpid()}"
    temporary = path.with_name(f".{path.name}.{owner}.tmp")
    try:
        yield temporary
        if is_writer and not (temporary.is_dir() and path.is_dir()):
            temporary.replace(path)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


def write_array(path: Path, array: np.ndarray) -> None:
    """Write an array as `.npy`."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, array)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as strict JSON: NaN and infinities become null."""
    text = json.dumps(jsonable(value), indent=2, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def jsonable(value: Any) -> Any:
    """Return `value` in JSON's types, with null for what JSON cannot say."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value

"""Labels of a space: clustered, or read from the folder of an earlier run; always written."""

from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
from tqdm import tqdm

from experiments.command.options import Common
from experiments.spaces.space import LayeredSpace, Space
from jaxgeom import study
from jaxgeom._files import write_array
from jaxgeom.results import Array


def labels_of(ops: ModuleType, tokens: Array, space: Space, config: Common) -> np.ndarray:
    """Return the cluster [n] of each of the space's tokens, and write it to OUTPUT/labels."""
    name = file_of(space)
    if config.labels is None:
        labels = study.cluster(
            ops,
            tokens,
            n_clusters=config.n_clusters,
            seed=space.seed,
            protocol=space.protocol,
            progress=partial(tqdm, desc="k-means", leave=False, disable=None),
        )
    else:
        labels = read_labels(config.labels / name, len(space.tokens), config.n_clusters)
    write_array(config.output / "labels" / name, labels)
    return labels


def file_of(space: Space | LayeredSpace) -> Path:
    """Return where in a folder of labels those of a space lie."""
    folder = Path("" if space.protocol == "ours" else space.protocol)
    return folder / f"{space.model}-{space.state}-{space.seed}.npy"


def read_labels(path: Path, n_tokens: int, n_clusters: int) -> np.ndarray:
    """Read labels that an earlier run wrote.

    Args:
        path: an `.npy` file.
        n_tokens: number of labels it must hold.
        n_clusters: what they must lie below.

    Returns:
        [n] int32 labels.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not such labels; the message names the file.
    """
    try:
        labels = np.load(path)
    except (EOFError, ValueError) as error:
        raise ValueError(f"{path}: must be an .npy file of labels ({error})") from error
    if labels.shape != (n_tokens,) or labels.dtype.kind not in "iu":
        raise ValueError(
            f"{path}: labels must be integers [n] = [{n_tokens}], "
            f"got {labels.dtype} {list(labels.shape)}"
        )
    if labels.min() < 0 or labels.max() >= n_clusters:
        raise ValueError(
            f"{path}: labels must be in 0..n_clusters - 1 = 0..{n_clusters - 1}, "
            f"got {labels.min()}..{labels.max()}"
        )
    return labels.astype(np.int32)

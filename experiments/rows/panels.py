"""The panels of Figure 2, and the row of each: what its frequencies say about its places."""

from typing import Any, NamedTuple

import numpy as np

from experiments.rows.plane import ANGLES, along_directions, with_neighbours
from experiments.spaces.corpus import Corpus

ORDER = ("pretrained", "finetuned", "random")  # of panels: before, after, control; others last


class Panel(NamedTuple):
    """The tokens of one model in one state, in the plane of their first two components."""

    model: str
    state: str
    seed: int
    protocol: str  # how the pairs were read, for training and where they are the corpus
    positions: np.ndarray  # [n 2]
    explained: np.ndarray  # [2]: share of the variance
    token_ids: np.ndarray  # [n]
    corpus: Corpus
    n_sentences: int
    n_truncated: int


def row_of(panel: Panel) -> dict[str, Any]:
    """Return one row of figure2.json."""
    counts = panel.corpus.counts[panel.token_ids]
    plane = along_directions(panel.positions, counts)
    best = int(np.argmax(plane))
    return {
        "model": panel.model,
        "state": panel.state,
        "seed": panel.seed,
        "protocol": panel.protocol,
        "n_tokens": len(panel.token_ids),
        "n_sentences": panel.n_sentences,
        "explained_variance_pc1": float(panel.explained[0]),
        "explained_variance_pc2": float(panel.explained[1]),
        "frequency_rho_pc1": float(plane[0]),
        "frequency_rho_pc2": float(plane[90]),
        "frequency_rho_plane": float(plane[best]),
        "angle": int(ANGLES[best]),
        "frequency_rho_neighbours": with_neighbours(panel.positions, panel.token_ids, counts),
    }


def place_of(state: str) -> int:
    """Return where a state's panel stands in its row."""
    return ORDER.index(state) if state in ORDER else len(ORDER)

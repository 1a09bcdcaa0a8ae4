"""How much a token's frequency says about its place in a plane, as rank correlations."""

import numpy as np
from scipy.spatial import KDTree
from scipy.stats import rankdata

ANGLES = np.arange(180)  # degrees: the directions of a plane, up to sign
N_NEIGHBOURS = 10
_N_CANDIDATES = 100  # of which the nearest with other tokens are taken


def along_directions(positions: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return |Spearman| between frequency and position along each direction of the plane.

    Args:
        positions: [n 2] tokens in the plane of two components.
        counts: [n] how often each one's token occurs; its logarithm has the same ranks.

    Returns:
        [180] the correlation along the direction at each angle of `ANGLES`, 0 being the first
        component and 90 the second; 0 where one side is constant.
    """
    radians = np.deg2rad(ANGLES)
    directions = np.stack([np.cos(radians), np.sin(radians)])
    directions[:, 90] = [0, 1]  # the second component itself, not a rounding error beside it
    frequency = _standard_ranks(counts)
    along = (positions @ direction for direction in directions.T)
    return np.array([abs(_standard_ranks(place) @ frequency) for place in along])


def with_neighbours(positions: np.ndarray, token_ids: np.ndarray, counts: np.ndarray) -> float:
    """Return Spearman between a token's log frequency and the mean of its neighbours'.

    It finds areas of alike frequency wherever they lie, where no single direction orders them.

    Args:
        positions: [n 2] tokens in the plane of two components.
        token_ids: [n]; occurrences of the same token lie close by anyhow and are no neighbours.
        counts: [n] how often each one's token occurs.

    Returns:
        The correlation with the `N_NEIGHBOURS` nearest occurrences of other tokens among the 100
        nearest of all; one that has none of them does not count. 0 where one side is constant, and
        where no token has any.
    """
    n_nearest = min(_N_CANDIDATES + 1, len(positions))
    nearest = KDTree(positions).query(positions, n_nearest)[1]  # itself included, as the same token
    other = token_ids[nearest] != token_ids[:, None]
    taken = other & (np.cumsum(other, axis=1) <= N_NEIGHBOURS)
    logs = np.log(counts)
    has = taken.any(axis=1)
    if not has.any():
        return 0.0
    means = (logs[nearest] * taken).sum(axis=1)[has] / taken.sum(axis=1)[has]
    return float(_standard_ranks(logs[has]) @ _standard_ranks(means))


def _standard_ranks(values: np.ndarray) -> np.ndarray:
    """Return the ranks of `values` centred and of length 1: dot products are Spearman's rho."""
    ranks = rankdata(values)
    ranks -= ranks.mean()
    length = np.linalg.norm(ranks)
    return ranks / length if length else ranks

"""What is well defined of k-means, for the tests and the benchmarks.

A row that lies between two centroids falls to either side by rounding. Its cluster's mean moves,
and with it every later iteration: two correct runs from one start drift apart, so that their
results cannot be compared. What holds on every processor is judged here, in float64: one iteration
from a run's *own* centroids, labels that are nearest up to rounding, and the inertia of the
centroids that are returned. Where no row comes near a tie, two runs may be compared as they are;
`clear_of_ties` says whether that is so.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from jaxgeom.results import KMeans

_ROUNDINGS = 32.0  # of |row|^2 + |centroid|^2, in a squared distance that is a difference of them
_SLICE = 4096  # rows whose float64 copy is small
_TRIES = 3


class Distances(NamedTuple):
    """Squared distances of rows to centroids, and which of them rounding may take for least."""

    squared: np.ndarray  # [n c]
    rounding: np.ndarray  # [n]: what a squared distance is computed to

    @property
    def possible(self) -> np.ndarray:
        """[n c] bool: the centroids that are a row's nearest up to rounding."""
        return self.squared <= (self.squared.min(1) + self.rounding)[:, None]

    def excess(self, labels: Any) -> np.ndarray:
        """Return [n] by how much more than rounding the centroid of a label is too far away."""
        own = np.take_along_axis(self.squared, np.asarray(labels, int)[:, None], 1)[:, 0]
        beyond = own - self.squared.min(1) - self.rounding
        return np.where(beyond <= 0, 0.0, beyond)  # a NaN stays


class Step(NamedTuple):
    """The centroids after one iteration, and how far rows between two centroids may take each."""

    centroids: np.ndarray  # [c d]
    slack: np.ndarray  # [c d]

    def excess(self, centroids: Any) -> np.ndarray:
        """Return [c d] the difference that no row between two centroids explains."""
        difference = np.asarray(centroids, np.float64) - self.centroids
        return difference - np.clip(difference, -self.slack, self.slack)


def distances(x: Any, centroids: Any, dtype: Any = np.float32) -> Distances:
    """Return squared distances in float64, and the rounding of such that are computed in `dtype`.

    Args:
        x: [n d] the rows.
        centroids: [c d].
        dtype: what the implementation under test computes in, about the mean of the rows.

    Returns:
        `Distances(squared [n c], rounding [n])`.
    """
    origin = np.asarray(np.mean(x, axis=0, dtype=np.float64))
    near = np.asarray(centroids, np.float64) - origin[None, :]
    square_of_centroids = np.square(near).sum(1)
    squared, square = np.empty((len(x), len(near))), np.empty(len(x))
    for rows in _slices(len(x)):
        part = x[rows].astype(np.float64) - origin[None, :]
        square[rows] = np.square(part).sum(1)
        squared[rows] = square[rows, None] - 2 * part @ near.T + square_of_centroids[None, :]
    eps = float(np.finfo(dtype).eps)
    return Distances(squared, _ROUNDINGS * eps * (square + square_of_centroids.max()))


def step(x: Any, centroids: Any, dtype: Any = np.float32) -> Step:
    """Return one Lloyd iteration: an empty cluster keeps its centroid.

    A row that has one possible centroid belongs to it. The others may belong to each of theirs:
    m rows more move the mean of s by at most the sum of their distances to it over s + 1.

    Args:
        x: [n d] the rows.
        centroids: [c d] before the iteration.
        dtype: what the implementation under test computes in.

    Returns:
        `Step(centroids [c d], slack [c d])`.
    """
    possible = distances(x, centroids, dtype).possible
    sure = possible.sum(1) == 1
    member = np.where(sure[:, None], possible, False).astype(np.float64)
    total = sum(member[rows].T @ x[rows].astype(np.float64) for rows in _slices(len(x)))
    counts = member.sum(0)[:, None]
    means = np.where(counts > 0, total / np.maximum(counts, 1), centroids)
    slack = np.zeros_like(means)
    for row, cluster in np.argwhere(possible & ~sure[:, None]):
        slack[cluster] += np.abs(x[row] - means[cluster]) / (counts[cluster] + 1)
    return Step(means, slack)


def judged(
    run: Callable[[int], KMeans], fit: KMeans, x: Any, start: Any, max_iter: int, near: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a run gave and what is right, by the names of their tolerances.

    Its first and last iteration are compared with float64 ones from the same centroids; for those
    before the last, the run is made again, shorter by one. Where threads add in any order, that may
    have gone another way, so it is tried again. No number of tries makes a wrong step right.

    Args:
        run: returns the clustering after at most so many iterations from `start`.
        fit: that after `max_iter`.
        x: [n d] the rows.
        start: [c d].
        max_iter: at least 2.
        near: the difference of a centroid's entries that is rounding.

    Returns:
        What was got and what is expected, for `compare`.
    """
    first = step(x, start).excess(run(1).centroids)
    for _ in range(_TRIES):
        before = run(max_iter - 1)
        last = step(x, before.centroids).excess(fit.centroids)
        if np.abs(last).max() <= near:
            break
    after = distances(x, fit.centroids)
    stands = np.abs(step(x, fit.centroids).excess(fit.centroids)).max() <= near
    got = {
        "first_step": first,
        "last_step": last,
        "nearest": after.excess(fit.labels),
        "count": fit.counts,
        "lloyd_inertia": fit.inertia,
        "n_iter": fit.n_iter,
    }
    expected = {
        "first_step": np.zeros_like(first),
        "last_step": np.zeros_like(last),
        "nearest": np.zeros(len(x)),
        "count": np.bincount(fit.labels, minlength=len(start)),
        "lloyd_inertia": after.squared.min(1).sum(),
        "n_iter": fit.n_iter if stands else max_iter,  # it may end early where nothing moves
    }
    return got, expected


def clear_of_ties(
    x: Any, start: Any, max_iter: int = 300, dtype: Any = np.float32, factor: float = 4.0
) -> bool:
    """Whether no row comes near a tie on the way from `start`: runs may be compared as they are.

    Args:
        x: [n d] the rows.
        start: [c d].
        max_iter: iterations at the most; it ends where nothing moves.
        dtype: what the runs are computed in.
        factor: how many times the rounding of a distance a row must be clear of.

    Returns:
        Whether every row has one possible centroid, in every iteration and after the last.
    """
    x, centroids = np.asarray(x, np.float64), np.asarray(start, np.float64)
    for _ in range(max_iter + 1):
        found = distances(x, centroids, dtype)
        if (found._replace(rounding=factor * found.rounding).possible.sum(1) != 1).any():
            return False
        before, centroids = centroids, step(x, centroids, dtype).centroids
        if np.array_equal(before, centroids):
            break
    return True


def _slices(n: int) -> Iterator[slice]:
    """Yield slices of `n` rows."""
    return (slice(first, first + _SLICE) for first in range(0, n, _SLICE))

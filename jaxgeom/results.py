"""What the kernels and the reference return: named tuples whose fields are read by name.

The reference fills them with `numpy.ndarray`, the kernels with `jax.Array`; shapes stand beside the
fields. A result that went through `vmap` has the mapped axis in front of every one of them.
"""

from typing import Any, NamedTuple

Array = Any  # numpy.ndarray (reference) or jax.Array (kernels): neither is imported here


class Moments(NamedTuple):
    """Count, mean and scatter of rows; a leading cluster axis `c` where rows were labelled."""

    count: Array  # [] or [c]: number of rows
    mean: Array  # [d] or [c d]
    scatter: Array  # [d d] or [c d d]: sum of (x - mean)(x - mean)^T, not divided by anything


class PCA(NamedTuple):
    """Principal components, heaviest first; each one's largest |entry| is positive."""

    mean: Array  # [d]: zeros where the data was not centred
    components: Array  # [k d]: orthonormal rows
    explained_variance: Array  # [k]: divided by n - 1
    explained_variance_ratio: Array  # [k]: share of the total variance


class LogIsotropy(NamedTuple):
    """ln I(W) under four readings of an eigenvector's free sign; all are at most 0."""

    heavier: Array  # []: every direction turned to its heavier side
    low: Array  # []: the smallest over all 2^d choices of signs
    high: Array  # []: the largest over all 2^d choices of signs
    symmetric: Array  # []: both signs of every direction together


class Isotropy(NamedTuple):
    """I(W) of Mu and Viswanath (2018) under four readings of the signs, and what it came from."""

    heavier: Array  # []: the headline; see `LogIsotropy` for the four readings
    low: Array  # []
    high: Array  # []
    symmetric: Array  # []
    count: Array  # []: number of rows n
    log_partition: Array  # [2 d]: ln F(+u), ln F(-u)
    eigenvalues: Array  # [d]: of WᵀW, descending
    components: Array  # [d d]: the eigenvectors u as rows, in the same order


class IsotropyCurve(NamedTuple):
    """ln I(W) after k = 0...d-1 principal directions were removed, with its range over signs."""

    heavier: Array  # [d]
    low: Array  # [d]
    high: Array  # [d]


class KMeans(NamedTuple):
    """A k-means clustering; the best of `n_init` restarts by inertia."""

    centroids: Array  # [c d]
    labels: Array  # [n] int32: each row's nearest of the returned centroids
    counts: Array  # [c] int32: rows of each label; 0 for an empty cluster
    inertia: Array  # []: sum of squared distances of the rows to the centroids of their labels
    n_iter: Array  # [] int32: Lloyd iterations of the best restart
    converged: Array  # [] bool: whether it stopped by `tol`, not by `max_iter`


class Removal(NamedTuple):
    """What to take away from embeddings: of each cluster its mean, then its directions."""

    means: Array  # [c d]
    components: Array  # [c k d]: orthonormal rows
    counts: Array  # [c]: rows each cluster was fitted on
    vanishes: Array  # [c] bool: so few rows that the directions take all of them; they become zero

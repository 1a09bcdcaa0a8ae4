"""The geometry of Tables 1 and 2 as vectorised NumPy, SciPy and scikit-learn compute it.

Each setting changes the tokens, then has one isotropy (`syrk`, `evd`, chunked exponentials) and one
Spearman correlation; the settings that both tables print are computed once.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.stats import spearmanr
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from benchmarks.peers import numpy_careful as ops

Row = tuple[float, float]  # ln I on the heavier sides, Spearman x 100


def labels_of(x: Any, n_clusters: int, seed: int, n_init: int) -> Any:
    """Return scikit-learn's best of `n_init` k-means clusterings, run until nothing moves."""
    fit = KMeans(n_clusters, n_init=n_init, tol=0, random_state=seed, algorithm="lloyd")
    return fit.fit(x).labels_


def tables(
    x: Any, sentence_ids: Any, scores: Any, labels: Any, n_directions: int, n_least: Sequence[int]
) -> dict[str, Row]:
    """Return every distinct setting of the two tables."""
    return {
        name: (_log_isotropy(y), _spearman(y, sentence_ids, scores))
        for name, y in _settings(x, labels, n_directions, n_least)
    }


def _settings(
    x: Any, labels: Any, n_directions: int, n_least: Sequence[int]
) -> Iterator[tuple[str, Any]]:
    """Yield the changed tokens of one setting after the other."""
    n_clusters = labels.max() + 1
    centred = x - x.mean(axis=0)
    within = np.empty_like(x)
    top = np.empty_like(x)
    least = {m: np.empty_like(x) for m in n_least}
    for c in range(n_clusters):
        rows = labels == c
        part = x[rows]
        within[rows] = part - part.mean(axis=0)
        components = _components(part, n_directions)
        top[rows] = ops.remove_directions(within[rows], components)
        basis = _ascending(within[rows])
        for m in n_least:
            least[m][rows] = ops.remove_directions(within[rows], basis[:m])
    yield "baseline", x
    yield "zero_mean", centred
    yield "cluster_zero_mean", within
    yield "global", ops.remove_directions(centred, _components(x, n_directions))
    yield "cluster_based", top
    basis = _ascending(centred)
    for m in n_least:
        yield f"global least {m}", ops.remove_directions(centred, basis[:m])
        yield f"cluster_based least {m}", least[m]


def _components(x: Any, k: int) -> Any:
    """Return the leading principal directions as rows."""
    k = min(k, len(x))
    return PCA(k, svd_solver="covariance_eigh").fit(x).components_


def _ascending(centred: Any) -> Any:
    """Return all principal directions as rows, lightest first."""
    scatter = ops.gram(centred)
    return eigh(scatter, driver="evd", check_finite=False, overwrite_a=True)[1].T


def _log_isotropy(x: Any) -> float:
    """Return ln I with every eigenvector on its heavier side."""
    heavy = ops.isotropy(x).log_partition.max(axis=0)
    return float(heavy.min() - heavy.max())


def _spearman(x: Any, sentence_ids: Any, scores: Any) -> float:
    """Return Spearman x 100 between the cosines of sentence vectors and the scores."""
    means = ops.segment_mean(x, sentence_ids, num_segments=2 * len(scores)).astype(np.float64)
    first, second = means[: len(scores)], means[len(scores) :]
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return 100 * float(spearmanr((first * second).sum(axis=1) / norms, scores).statistic)

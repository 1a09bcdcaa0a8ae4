"""The study's five settings on one set of token embeddings: no files, no printing.

Every setting but the baseline is one `Removal` (`fit_removal`, then `apply_removal`), with or
without clusters, with or without directions. `ops` is the set of operations to compute with: the
module `jaxgeom` or, in NumPy float64, `jaxgeom.reference`; both have the same names.
"""

import warnings
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import NamedTuple

import jax
import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.special import logsumexp

from jaxgeom import _checks, reference
from jaxgeom.results import Array
from jaxgeom.tasks.scores import cosine_scores, sts_scores

SETTINGS = ("baseline", "zero_mean", "cluster_zero_mean", "global", "cluster_based")
CLUSTERED = ("cluster_zero_mean", "cluster_based")
DIRECTED = ("global", "cluster_based")
N_RESTARTS = 10  # of k-means


class IsotropyRange(NamedTuple):
    """I(W) and, where the reading of the signs has one, its range over all choices of signs."""

    isotropy: float
    low: float | None
    high: float | None


class SettingResult(NamedTuple):
    """What one setting does to the embeddings: the sentence vectors, the isotropy, the counts."""

    vectors: np.ndarray  # [s d]: the mean over each sentence's changed tokens
    isotropy: IsotropyRange
    n_tokens: int
    n_zero_rows: int  # tokens that became zero: of clusters too small for what is removed
    n_zero_sentences: int  # sentences whose vector is zero: their cosine is 0
    n_empty_clusters: int


class Change(NamedTuple):
    """Token embeddings as a setting leaves them."""

    rows: Array  # [n d]
    is_zero: Array  # [n] bool, in NumPy
    n_empty_clusters: int


def settings(
    ops: ModuleType,
    tokens: Array,
    sentence_ids: Array,
    n_sentences: int,
    labels: Array,
    *,
    n_clusters: int,
    n_directions: int,
    protocol: str = "ours",
    progress: Callable[[Iterable[str]], Iterable[str]] = iter,
) -> dict[str, SettingResult]:
    """Measure token embeddings as they are and after each of the study's four changes.

    Args:
        ops: `jaxgeom` or `jaxgeom.reference`.
        tokens: [n d] token embeddings, neither centred nor scaled.
        sentence_ids: [n] integers: the sentence in 0..n_sentences - 1 that each token belongs to.
        n_sentences: number of sentences s.
        labels: [n] integers: the cluster of each token, from `cluster`.
        n_clusters: number of clusters that `labels` speaks of.
        n_directions: leading directions removed in "global" and, of each cluster, "cluster_based".
        protocol: "ours" or "authors": how the sign of an eigenvector is read, see `PROTOCOLS`.
        progress: wraps the names of the settings, as `tqdm` does.

    Returns:
        A `SettingResult` for each name in `SETTINGS`. The baseline's isotropy is of the raw,
        uncentred tokens.

    Raises:
        TypeError: an array of the wrong dtype.
        ValueError: a shape, a label, a sentence or a number out of range.
    """
    n, d = _check(tokens, sentence_ids, n_sentences, protocol)
    _checks.integer("n_clusters", n_clusters, 1, n, "number of tokens")
    _checks.integer("n_directions", n_directions, 0, d - 1, "d - 1")
    _checks.labels("labels", labels, n, n_clusters)
    results = {}
    for setting in progress(SETTINGS):
        n_removed = n_directions if setting in DIRECTED else 0
        if setting == "baseline":
            change = _unchanged(tokens)
        elif setting in CLUSTERED:
            change = _removed(ops, tokens, labels, n_clusters, n_removed)
        else:
            change = _removed(ops, tokens, None, 1, n_removed)
        results[setting] = _measured(ops, change, sentence_ids, n_sentences, protocol)
    return results


def measure(
    ops: ModuleType,
    tokens: Array,
    sentence_ids: Array,
    n_sentences: int,
    *,
    protocol: str = "ours",
) -> SettingResult:
    """Measure embeddings as they are; see `settings`, whose "baseline" this is."""
    _check(tokens, sentence_ids, n_sentences, protocol)
    return _measured(ops, _unchanged(tokens), sentence_ids, n_sentences, protocol)


def cluster(
    ops: ModuleType,
    tokens: Array,
    *,
    n_clusters: int,
    seed: int,
    protocol: str = "ours",
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> np.ndarray:
    """Cluster token embeddings as the protocol does.

    Args:
        ops: `jaxgeom` or `jaxgeom.reference`.
        tokens: [n d] token embeddings, raw.
        n_clusters: number of clusters, at most n.
        seed: drives the initial centroids.
        protocol: "ours" (k-means++ to convergence, the best of 10 restarts) or "authors" (SciPy's
            `kmeans2`: random rows, 10 iterations, one start, always in NumPy).
        progress: wraps the numbers of the restarts, as `tqdm` does.

    Returns:
        [n] int32 labels in 0..n_clusters - 1; a cluster may be empty.

    Raises:
        ValueError: more clusters than tokens, or an unknown protocol.
    """
    n, _ = _checks.matrix("tokens", tokens)
    _checks.integer("n_clusters", n_clusters, 1, n, "number of tokens")
    _checks.option("protocol", protocol, tuple(PROTOCOLS))
    return np.asarray(PROTOCOLS[protocol].labels(ops, tokens, n_clusters, seed, progress), np.int32)


def require_finite(tokens: np.ndarray, sentence_ids: np.ndarray) -> None:
    """Raise `ValueError` that names the first row of `tokens` [n d] holding a NaN or infinity."""
    bad = np.flatnonzero(~np.isfinite(tokens).all(axis=1))
    if bad.size:
        row = int(bad[0])
        raise ValueError(
            f"tokens must be finite, got {bad.size} of {len(tokens)} rows with NaN or infinity, "
            f"the first is row {row} (sentence {int(sentence_ids[row])})"
        )


def spearman(vectors: np.ndarray, scores: np.ndarray) -> float:
    """Return Spearman x 100 between the cosines of sentence pairs and their gold scores.

    Args:
        vectors: [2p d] sentence vectors: all first sentences, then all second ones.
        scores: [p] gold scores.

    Returns:
        The correlation times 100, as the study prints it; NaN where one side is constant.
    """
    cosines = cosine_scores(vectors[: len(scores)], vectors[len(scores) :])
    return 100 * float(sts_scores(cosines, scores)["spearman_cosine"])


def _check(tokens: Array, sentence_ids: Array, n_sentences: int, protocol: str) -> tuple[int, int]:
    """Return the shape of the tokens, or raise unless the arguments fit together."""
    n, d = _checks.matrix("tokens", tokens)
    _checks.integer("n_sentences", n_sentences, 1)
    _checks.labels("sentence_ids", sentence_ids, n, n_sentences)
    _checks.option("protocol", protocol, tuple(PROTOCOLS))
    return n, d


def _unchanged(tokens: Array) -> Change:
    """Return the tokens as they are."""
    return Change(tokens, ~np.asarray(tokens).any(axis=1), 0)


def _removed(
    ops: ModuleType, tokens: Array, labels: Array | None, n_clusters: int, n_directions: int
) -> Change:
    """Return the tokens less their clusters' means and directions."""
    removal = ops.fit_removal(tokens, labels, n_clusters=n_clusters, n_directions=n_directions)
    counts = np.asarray(removal.counts)
    cluster_of = np.zeros(len(tokens), np.int32) if labels is None else np.asarray(labels)
    # a mean and k directions take all of k + 1 rows; float32 may leave its rounding error there
    is_zero = counts[cluster_of] <= n_directions + 1
    rows = ops.apply_removal(tokens, removal, labels)
    return Change(rows, is_zero, int((counts == 0).sum()))


def _measured(
    ops: ModuleType, change: Change, sentence_ids: Array, n_sentences: int, protocol: str
) -> SettingResult:
    """Return the sentence vectors, the isotropy and the counts of changed tokens."""
    vectors = np.array(ops.segment_mean(change.rows, sentence_ids, num_segments=n_sentences))
    n_kept = np.bincount(np.asarray(sentence_ids)[~change.is_zero], minlength=n_sentences)
    vectors[n_kept == 0] = 0
    return SettingResult(
        vectors=vectors,
        isotropy=PROTOCOLS[protocol].isotropy(ops, change.rows),
        n_tokens=len(change.rows),
        n_zero_rows=int(change.is_zero.sum()),
        n_zero_sentences=int((n_kept == 0).sum()),
        n_empty_clusters=change.n_empty_clusters,
    )


def _our_labels(
    ops: ModuleType, tokens: Array, n_clusters: int, seed: int, progress: Callable
) -> Array:
    """Return the labels of least inertia; one call a restart, so that each can be interrupted."""
    if ops is reference:  # free of jax
        keys = np.random.default_rng(seed).spawn(N_RESTARTS)
    else:
        keys = list(jax.random.split(jax.random.key(seed), N_RESTARTS))
    fits = (
        ops.kmeans(tokens, n_clusters, key=keys[restart], n_init=1)
        for restart in progress(range(N_RESTARTS))
    )
    return min(fits, key=lambda fit: float(fit.inertia)).labels


def _our_isotropy(ops: ModuleType, tokens: Array) -> IsotropyRange:
    """Return the heavier-side isotropy and the range over signs; a float32 exp would underflow."""
    logs = ops.log_isotropy(ops.isotropy(tokens).log_partition)
    heavier, low, high = (
        float(np.exp(np.float64(value))) for value in (logs.heavier, logs.low, logs.high)
    )
    return IsotropyRange(heavier, low, high)


def _author_labels(
    _: ModuleType, tokens: Array, n_clusters: int, seed: int, __: Callable
) -> np.ndarray:
    """Return the labels of SciPy's `kmeans2` from random rows after 10 iterations."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "One of the clusters is empty")  # counted by `settings`
        return kmeans2(np.asarray(tokens), n_clusters, iter=10, minit="points", seed=seed)[1]


def _author_isotropy(_: ModuleType, tokens: Array) -> IsotropyRange:
    """Return isotropy with whichever sign NumPy's solver gave each eigenvector: one of many."""
    x = np.asarray(tokens, np.float64)
    directions = np.linalg.eigh(x.T @ x).eigenvectors
    blocks = np.array_split(directions, -(-x.shape[1] // 64), axis=1)  # bounds the n x d products
    log_partition = np.concatenate([logsumexp(x @ block, axis=0) for block in blocks])
    return IsotropyRange(float(np.exp(log_partition.min() - log_partition.max())), None, None)


class Protocol(NamedTuple):
    """How the tokens are clustered and how the free sign of an eigenvector is read."""

    labels: Callable[[ModuleType, Array, int, int, Callable], Array]
    isotropy: Callable[[ModuleType, Array], IsotropyRange]


PROTOCOLS = {
    "ours": Protocol(_our_labels, _our_isotropy),
    "authors": Protocol(_author_labels, _author_isotropy),
}

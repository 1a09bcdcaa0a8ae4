"""How a protocol clusters tokens and reads the free sign of an eigenvector: ours, the authors'."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.special import logsumexp

from jaxgeom import _checks, reference
from jaxgeom.kernels._seeding import plus_plus_of_each
from jaxgeom.results import Array, Isotropy

N_RESTARTS = 10  # of k-means


class IsotropyRange(NamedTuple):
    """I(W) and, where the reading of the signs has one, its range over all choices of signs."""

    isotropy: float
    low: float | None
    high: float | None


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


def _our_labels(
    ops: ModuleType, tokens: Array, n_clusters: int, seed: int, progress: Callable
) -> Array:
    """Return the labels of least inertia; one call a restart, so that each can be interrupted."""
    keys: Sequence[Any]
    if ops is reference:  # free of jax
        keys = np.random.default_rng(seed).spawn(N_RESTARTS)
        options = [{"key": key, "n_init": 1} for key in keys]
    else:
        tokens = jnp.asarray(tokens)  # moved to the device once, not by every restart
        drawn = jax.random.split(jax.random.key(seed), N_RESTARTS)
        options = [{"init": s} for s in plus_plus_of_each(tokens, drawn, n_clusters=n_clusters)]
    fits = (
        ops.kmeans(tokens, n_clusters, **options[restart])
        for restart in progress(range(N_RESTARTS))
    )
    return min(fits, key=lambda fit: float(fit.inertia)).labels


def _our_fit(ops: ModuleType, tokens: Array) -> Isotropy:
    """Return the isotropy with both sides of every eigenvector."""
    return ops.isotropy(tokens)


def _our_isotropy(ops: ModuleType, tokens: Array, scatter: Array | None) -> IsotropyRange:
    """Return the heavier-side isotropy and the range over signs; a float32 exp would underflow."""
    logs = ops.log_isotropy(ops.isotropy(tokens, scatter=scatter).log_partition)
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


def _author_fit(_: ModuleType, tokens: Array) -> Isotropy:
    """Return isotropy with whichever sign NumPy's solver gave each eigenvector: one of many.

    That side stands in the place of both, so that every reading of the signs is this one.
    """
    x = np.asarray(tokens, np.float64)
    ascending = np.linalg.eigh(x.T @ x)
    directions = ascending.eigenvectors[:, ::-1]
    blocks = np.array_split(directions, -(-x.shape[1] // 64), axis=1)  # bounds the n x d products
    side = np.concatenate([logsumexp(x @ block, axis=0) for block in blocks])
    isotropy = np.exp(side.min() - side.max())
    return Isotropy(
        heavier=isotropy,
        low=isotropy,
        high=isotropy,
        symmetric=isotropy,
        count=np.int64(len(x)),
        log_partition=np.stack([side, side]),
        eigenvalues=ascending.eigenvalues[::-1],
        components=directions.T,
    )


def _author_isotropy(ops: ModuleType, tokens: Array, _: Array | None) -> IsotropyRange:
    """Return the isotropy of that one choice; it has no range."""
    return IsotropyRange(float(_author_fit(ops, tokens).heavier), None, None)


class Protocol(NamedTuple):
    """How the tokens are clustered and how the free sign of an eigenvector is read."""

    labels: Callable[[ModuleType, Array, int, int, Callable], Array]
    isotropy: Callable[[ModuleType, Array, Array | None], IsotropyRange]  # rows, and their scatter
    fit: Callable[[ModuleType, Array], Isotropy]


PROTOCOLS = {
    "ours": Protocol(_our_labels, _our_isotropy, _our_fit),
    "authors": Protocol(_author_labels, _author_isotropy, _author_fit),
}

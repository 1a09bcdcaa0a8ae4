"""What each number of removed directions does to isotropy and to Spearman, in one pass.

The pass is `isotropy` of the centred tokens: its eigenvectors are the principal directions, and
everything after it is algebra on its results and on the sentence vectors.
"""

from types import ModuleType
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from jaxgeom import _checks
from jaxgeom.results import Array, Isotropy, IsotropyCurve
from jaxgeom.study._protocols import PROTOCOLS


class Curve(NamedTuple):
    """After k = 0...d-1 directions were removed; NumPy float64 [d], index k."""

    spearman: np.ndarray  # times 100; NaN where a sentence has nothing left but rounding
    isotropy: np.ndarray  # every eigenvector turned to its heavier side
    low: np.ndarray  # the smallest and the largest over all choices of signs
    high: np.ndarray


def centred_isotropy(ops: ModuleType, tokens: Array, *, protocol: str = "ours") -> Isotropy:
    """Return the isotropy of tokens [n d] less their mean: what the curves are made from.

    Args:
        ops: `jaxgeom` or `jaxgeom.reference`.
        tokens: [n d] token embeddings.
        protocol: "ours", or "authors": of each eigenvector the one side that NumPy's solver gave,
            in the place of both, so that low, high and heavier are one number.

    Returns:
        An `Isotropy`; its components are the principal directions.

    Raises:
        ValueError: an unknown protocol.
    """
    _checks.option("protocol", protocol, tuple(PROTOCOLS))
    return PROTOCOLS[protocol].fit(ops, ops.zero_mean(tokens))


def isotropy_curve(ops: ModuleType, fit: Isotropy, which: str) -> IsotropyCurve:
    """Return I(W), not its logarithm, after each number of removals.

    Args:
        ops: `jaxgeom` or `jaxgeom.reference`.
        fit: from `centred_isotropy`.
        which: "top", the heaviest directions go first, or "least", the lightest.

    Returns:
        heavier, low, high: NumPy float64 [d]; a float32 exp would underflow.

    Raises:
        ValueError: `which` is unknown.
    """
    logs = ops.isotropy_curve(fit, which)
    return IsotropyCurve(*(np.exp(np.asarray(field, np.float64)) for field in logs))


def removal_curve(
    ops: ModuleType,
    fit: Isotropy,
    tokens: Array,
    sentence_ids: Array,
    scores: np.ndarray,
    *,
    which: str,
) -> Curve:
    """Return Spearman and isotropy after each number of principal directions was removed.

    Args:
        ops: `jaxgeom` or `jaxgeom.reference`.
        fit: from `centred_isotropy` of the same tokens.
        tokens: [n d] token embeddings, neither centred nor scaled.
        sentence_ids: [n] integers: 0..p-1 the pairs' first sentences, p..2p-1 the second ones.
        scores: [p] gold scores.
        which: "top", the heaviest directions go first, or "least", the lightest.

    Returns:
        A `Curve`. Index 0 is "zero_mean" of `settings`; index k of "top" is its "global" with k
        directions, and index m of "least" is ("global", m) of `least_settings`.

    Raises:
        TypeError: an array of the wrong dtype.
        ValueError: a shape, a sentence or an option out of range.

    Numerics:
        A pair of which a sentence has no tokens has cosine 0, as in `settings`. Where a sentence
        keeps no more than 1e-6 of its energy, Spearman is NaN.
    """
    n, _ = _checks.matrix("tokens", tokens)
    n_sentences = 2 * len(scores)
    _checks.labels("sentence_ids", sentence_ids, n, n_sentences)
    vectors = ops.segment_mean(ops.zero_mean(tokens), sentence_ids, num_segments=n_sentences)
    first, second = vectors[: len(scores)], vectors[len(scores) :]
    cosines = np.array(ops.similarity_curve(first, second, fit.components, which), np.float64)
    cosines[-1] = np.sign(cosines[-1])  # along one direction; rounding would be ranked
    n_tokens = np.bincount(np.asarray(sentence_ids), minlength=n_sentences)
    cosines[:, n_tokens.reshape(2, -1).min(axis=0) == 0] = 0
    return Curve(_spearman(cosines, scores), *isotropy_curve(ops, fit, which))


def explained_variance_ratio(fit: Isotropy) -> np.ndarray:
    """Return each principal direction's share [d] of the variance, heaviest first.

    Args:
        fit: from `centred_isotropy`.

    Returns:
        Shares that add up to 1; NaN where there is no variance. Rounding below 0 counts as 0.
    """
    eigenvalues = np.maximum(np.asarray(fit.eigenvalues, np.float64), 0)
    with np.errstate(invalid="ignore"):
        return eigenvalues / eigenvalues.sum()


def n_directions_for_variance(ratio: np.ndarray, share: float) -> int | None:
    """Return the least number of leading directions that hold `share` of the variance.

    Args:
        ratio: [d], from `explained_variance_ratio`.
        share: in 0..1.

    Returns:
        A number in 0..d; None where there is no variance.

    Example:
        >>> n_directions_for_variance(np.array([0.7, 0.2, 0.1]), 0.75)
        2
    """
    if np.isnan(ratio).any():
        return None
    held = np.concatenate([[0.0], np.cumsum(ratio)])
    return int(np.argmax(held >= min(share, held[-1]) - 1e-12))  # sums of shares round


def n_directions_for_isotropy(isotropy: np.ndarray, target: float) -> int | None:
    """Return how many directions must go before I(W) reaches `target`.

    Args:
        isotropy: [d], index k after k removals, such as `isotropy_curve(...).heavier`.
        target: in 0..1.

    Returns:
        The least such number, in 0..d - 1; None where no number reaches it.

    Example:
        >>> n_directions_for_isotropy(np.array([0.01, 0.2, 0.6]), 0.5)
        2
    """
    reached = np.flatnonzero(isotropy >= target)
    return int(reached[0]) if reached.size else None


def _spearman(cosines: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return Spearman x 100 [k] of each row of cosines [k p]; NaN for a NaN or a constant row."""
    ranks, gold = rankdata(cosines, axis=1), rankdata(scores)  # a NaN makes its row NaN
    ranks, gold = ranks - ranks.mean(axis=1)[:, None], gold - gold.mean()
    norms = np.linalg.norm(ranks, axis=1) * np.linalg.norm(gold)
    with np.errstate(invalid="ignore"):
        return 100 * (ranks @ gold) / norms

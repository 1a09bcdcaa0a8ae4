"""The study's settings as changes of one set of token embeddings, each measured in the same way.

Every setting but the baseline is one `Removal` (`fit_removal`, then `apply_removal`), with or
without clusters, with or without directions, the leading or the least ones.
"""

from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import NamedTuple

import numpy as np

from jaxgeom import _checks
from jaxgeom.results import Array, Removal
from jaxgeom.study._centred import Centred, centred, without
from jaxgeom.study._protocols import PROTOCOLS, IsotropyRange
from jaxgeom.tasks.scores import cosine_scores, sts_scores

SETTINGS = ("baseline", "zero_mean", "cluster_zero_mean", "global", "cluster_based")
CLUSTERED = ("cluster_zero_mean", "cluster_based")
DIRECTED = ("global", "cluster_based")
OF_ALL = ("zero_mean", "global")


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
    given = _centred_for(protocol, ops, tokens, sentence_ids, n_sentences)
    results = {}
    for setting in progress(SETTINGS):
        n_removed = n_directions if setting in DIRECTED else 0
        if given is not None and setting in OF_ALL:
            results[setting] = _without(ops, given, sentence_ids, "top", n_removed)
            continue
        if setting == "baseline":
            change = _unchanged(tokens)
        elif setting in CLUSTERED:
            change = _removed(ops, tokens, labels, n_clusters, n_removed)
        else:
            change = _removed(ops, tokens, None, 1, n_removed)
        results[setting] = _measured(ops, change, sentence_ids, n_sentences, protocol)
    return results


def least_settings(
    ops: ModuleType,
    tokens: Array,
    sentence_ids: Array,
    n_sentences: int,
    labels: Array,
    *,
    n_clusters: int,
    n_least: Sequence[int],
    protocol: str = "ours",
    progress: Callable[[Iterable[tuple[str, int]]], Iterable[tuple[str, int]]] = iter,
) -> dict[tuple[str, int], SettingResult]:
    """Measure token embeddings without the least directions of all of them, or of each cluster.

    Args:
        ops: `jaxgeom` or `jaxgeom.reference`.
        tokens: [n d] token embeddings, neither centred nor scaled.
        sentence_ids: [n] integers: the sentence in 0..n_sentences - 1 that each token belongs to.
        n_sentences: number of sentences s.
        labels: [n] integers: the cluster of each token, from `cluster`.
        n_clusters: number of clusters that `labels` speaks of.
        n_least: numbers m of least directions, each in 1..d - 1; the top d - m stay.
        protocol: "ours" or "authors": how the sign of an eigenvector is read, see `PROTOCOLS`.
        progress: wraps the settings' names, as `tqdm` does.

    Returns:
        A `SettingResult` for ("baseline", 0), ("zero_mean", 0), and each m of ("global", m) and of
        ("cluster_based", m). A least direction may be null: null directions count among the d.

    Raises:
        TypeError: an array of the wrong dtype.
        ValueError: a shape, a label, a sentence or a number out of range.

    Numerics:
        The directions of each cluster are found once, for the largest m.
    """
    n, d = _check(tokens, sentence_ids, n_sentences, protocol)
    _checks.integer("n_clusters", n_clusters, 1, n, "number of tokens")
    _checks.labels("labels", labels, n, n_clusters)
    for m in n_least:
        _checks.integer("n_least", m, 1, d - 1, "d - 1")
    most = max(n_least, default=0)
    given = _centred_for(protocol, ops, tokens, sentence_ids, n_sentences)
    fits: dict[bool, Removal] = {}
    results = {}
    for setting, m in progress(least_names(n_least)):
        if given is not None and setting in OF_ALL:
            results[setting, m] = _without(ops, given, sentence_ids, "least", m)
            continue
        scope, c = (labels, n_clusters) if setting in CLUSTERED else (None, 1)
        if setting == "baseline":
            change = _unchanged(tokens)
        else:
            if (c > 1) not in fits:
                fits[c > 1] = ops.fit_removal(
                    tokens, scope, n_clusters=c, n_directions=most, which="least"
                )
            change = _changed(ops, tokens, _least(fits[c > 1], m), scope, 1)
        results[setting, m] = _measured(ops, change, sentence_ids, n_sentences, protocol)
    return results


def least_names(n_least: Sequence[int]) -> list[tuple[str, int]]:
    """Return the settings of `least_settings` with the number of directions that each removes."""
    changed = [(setting, m) for setting in DIRECTED for m in n_least]
    return [("baseline", 0), ("zero_mean", 0), *changed]


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
    """Return the tokens less their clusters' means and leading directions."""
    removal = ops.fit_removal(tokens, labels, n_clusters=n_clusters, n_directions=n_directions)
    # a mean and k directions take all of k + 1 rows; float32 may leave its rounding error there
    return _changed(ops, tokens, removal, labels, n_directions + 1)


def _changed(
    ops: ModuleType, tokens: Array, removal: Removal, labels: Array | None, n_spanned: int
) -> Change:
    """Return the tokens after a removal that takes all of a cluster of `n_spanned` rows."""
    counts = np.asarray(removal.counts)
    cluster_of = np.zeros(len(tokens), np.int32) if labels is None else np.asarray(labels)
    rows = ops.apply_removal(tokens, removal, labels)
    return Change(rows, counts[cluster_of] <= n_spanned, int((counts == 0).sum()))


def _least(removal: Removal, m: int) -> Removal:
    """Return the removal of the m lightest of its directions."""
    most = removal.components.shape[1]
    return removal._replace(components=removal.components[:, most - m :])


def _centred_for(
    protocol: str, ops: ModuleType, tokens: Array, sentence_ids: Array, n_sentences: int
) -> Centred | None:
    """Return what "zero_mean" and "global" have in common; None where signs are a solver's."""
    return centred(ops, tokens, sentence_ids, n_sentences) if protocol == "ours" else None


def _without(
    ops: ModuleType, given: Centred, sentence_ids: Array, which: str, m: int
) -> SettingResult:
    """Return the setting that removes m directions of all tokens."""
    vectors, isotropy = without(ops, given, which, m)
    n_spanned = m + 1 if which == "top" else 1  # rows that a mean and m directions take wholly
    is_zero = given.n_tokens <= n_spanned
    if is_zero:
        vectors = np.zeros_like(vectors)
    n_rows = np.bincount(np.asarray(sentence_ids), minlength=len(vectors))
    n_zero_sentences = len(vectors) if is_zero else int((n_rows == 0).sum())
    return SettingResult(
        vectors, isotropy, given.n_tokens, given.n_tokens * is_zero, n_zero_sentences, 0
    )


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

"""The study's settings as changes of one set of token embeddings, each measured in the same way.

Every setting but the baseline is one `Removal` (`fit_removal`, then `apply_removal`), with or
without clusters, with or without directions, the leading or the least ones. What several settings
are read from is computed once.
"""

from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from jaxgeom import _checks
from jaxgeom.results import Array
from jaxgeom.study._protocols import PROTOCOLS, IsotropyRange
from jaxgeom.study._statistics import Centred, Statistics, without
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
    scatter: Array | None = None  # [d d] about 0, where it is known


class Setting(NamedTuple):
    """One of `SETTINGS`, and the principal directions it removes."""

    name: str
    n_directions: int = 0
    which: str = "top"  # or "least"


def table1_settings(n_directions: int) -> list[Setting]:
    """Return the five of `SETTINGS`, two of them without that many leading directions."""
    return [Setting(name, n_directions if name in DIRECTED else 0) for name in SETTINGS]


def table2_settings(n_least: Sequence[int]) -> list[Setting]:
    """Return the baseline, zero-mean, and without each number of least directions."""
    changed = [Setting(name, m, "least") for name in DIRECTED for m in n_least]
    return [Setting("baseline"), Setting("zero_mean"), *changed]


def measure_settings(
    ops: ModuleType,
    tokens: Array,
    sentence_ids: Array,
    n_sentences: int,
    labels: Array,
    chosen: Sequence[Setting],
    *,
    n_clusters: int,
    protocol: str = "ours",
    progress: Callable[[Iterable[Setting]], Iterable[Setting]] = iter,
) -> dict[Setting, SettingResult]:
    """Measure token embeddings as they are, and after changes of the study.

    Args:
        ops: `jaxgeom` or `jaxgeom.reference`.
        tokens: [n d] token embeddings, neither centred nor scaled.
        sentence_ids: [n] integers: the sentence in 0..n_sentences - 1 that each token belongs to.
        n_sentences: number of sentences s.
        labels: [n] integers: the cluster of each token, from `cluster`.
        chosen: which settings, as `table1_settings` and `table2_settings` name them; each removes
            0..d - 1 directions.
        n_clusters: number of clusters that `labels` speaks of.
        protocol: "ours" or "authors": how the sign of an eigenvector is read, see `PROTOCOLS`.
        progress: wraps the settings, as `tqdm` does.

    Returns:
        A `SettingResult` for each of `chosen`. The baseline's isotropy is of the raw, uncentred
        tokens. A least direction may be null: null directions count among the d.

    Raises:
        TypeError: an array of the wrong dtype.
        ValueError: a name is unknown; a shape, a label, a sentence or a number out of range.

    Numerics:
        Moments are taken once, of each cluster; the scatter of all tokens and of changed ones is
        computed from these where that costs less. The least directions of each cluster are found
        once, for the largest number of them.
    """
    n, d = _check(tokens, sentence_ids, n_sentences, protocol)
    _checks.integer("n_clusters", n_clusters, 1, n, "number of tokens")
    _checks.labels("labels", labels, n, n_clusters)
    for setting in chosen:
        _checks.option("a setting's name", setting.name, SETTINGS)
        _checks.integer("n_directions", setting.n_directions, 0, d - 1, "d - 1")
    most_least = max((s.n_directions for s in chosen if s.which == "least"), default=0)
    given = Statistics(ops, tokens, labels, n_clusters, most_least)
    centred: Centred | None = None
    results = {}
    for setting in progress(chosen):
        if setting.name in OF_ALL and protocol == "ours":  # else signs are each solver's own
            centred = centred or given.centred(sentence_ids, n_sentences)
            results[setting] = _without(ops, centred, sentence_ids, setting)
        else:
            change = _changed(ops, tokens, labels, given, setting)
            results[setting] = _measured(ops, change, sentence_ids, n_sentences, protocol)
    return results


def settings(
    ops: ModuleType,
    tokens: Array,
    sentence_ids: Array,
    n_sentences: int,
    labels: Array,
    *,
    n_directions: int,
    **options: Any,
) -> dict[str, SettingResult]:
    """Return what `measure_settings` finds for `table1_settings(n_directions)`, by name.

    Its other arguments, `options` among them, and what it raises are those of `measure_settings`.
    """
    chosen = table1_settings(n_directions)
    found = measure_settings(ops, tokens, sentence_ids, n_sentences, labels, chosen, **options)
    return {setting.name: result for setting, result in found.items()}


def least_settings(
    ops: ModuleType,
    tokens: Array,
    sentence_ids: Array,
    n_sentences: int,
    labels: Array,
    *,
    n_least: Sequence[int],
    **options: Any,
) -> dict[tuple[str, int], SettingResult]:
    """Return what `measure_settings` finds for `table2_settings(n_least)`, by name and number.

    Each number is in 1..d - 1. The other arguments and errors are those of `measure_settings`.
    """
    for m in n_least:
        _checks.integer("n_least", m, 1)
    chosen = table2_settings(n_least)
    found = measure_settings(ops, tokens, sentence_ids, n_sentences, labels, chosen, **options)
    return {(setting.name, setting.n_directions): result for setting, result in found.items()}


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


def _unchanged(tokens: Array, scatter: Array | None = None) -> Change:
    """Return the tokens as they are."""
    return Change(tokens, ~np.asarray(tokens).any(axis=1), 0, scatter)


def _changed(
    ops: ModuleType, tokens: Array, labels: Array, given: Statistics, setting: Setting
) -> Change:
    """Return the tokens as a setting leaves them."""
    if setting.name == "baseline":
        return _unchanged(tokens, given.scatter)
    in_clusters = setting.name in CLUSTERED
    removal = given.removal(setting.n_directions, setting.which, in_clusters=in_clusters)
    counts = np.asarray(removal.counts)
    cluster_of = np.asarray(labels) if in_clusters else np.zeros(len(tokens), np.int32)
    return Change(
        ops.apply_removal(tokens, removal, labels if in_clusters else None),
        counts[cluster_of] <= _n_spanned(setting),
        int((counts == 0).sum()),
        given.scatter_after(removal, in_clusters=in_clusters),
    )


def _n_spanned(setting: Setting) -> int:
    """Return how many rows a mean and the directions of a setting take wholly.

    Of so few rows float32 may leave its rounding error.
    """
    return 1 + (setting.n_directions if setting.which == "top" else 0)


def _without(
    ops: ModuleType, given: Centred, sentence_ids: Array, setting: Setting
) -> SettingResult:
    """Return the setting that removes directions of all tokens."""
    vectors, isotropy = without(ops, given, setting.which, setting.n_directions)
    is_zero = given.n_tokens <= _n_spanned(setting)
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
        isotropy=PROTOCOLS[protocol].isotropy(ops, change.rows, change.scatter),
        n_tokens=len(change.rows),
        n_zero_rows=int(change.is_zero.sum()),
        n_zero_sentences=int((n_kept == 0).sum()),
        n_empty_clusters=change.n_empty_clusters,
    )

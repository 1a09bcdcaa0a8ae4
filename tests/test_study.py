"""The study's settings, against what they are by hand, in both sets of operations."""

from collections.abc import Iterable, Iterator
from functools import partial
from types import ModuleType

import numpy as np
import pytest
from scipy.cluster.vq import kmeans2
from scipy.special import logsumexp
from scipy.stats import spearmanr

import jaxgeom
from jaxgeom import reference, study

BACKENDS = pytest.mark.parametrize("ops", [reference, jaxgeom], ids=["numpy", "jax"])
N, D, S, C, K = 240, 6, 40, 4, 2


@pytest.fixture(scope="module")
def tokens() -> np.ndarray:
    """Rows of four separate clusters, far from the origin, of unequal spread along the axes."""
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(C, D)) + 2
    spread = rng.normal(size=(N, D)) * np.geomspace(1, 0.1, D)[None, :]
    return (centres[np.arange(N) % C] + spread).astype(np.float32)


@pytest.fixture(scope="module")
def sentence_ids() -> np.ndarray:
    return np.sort(np.random.default_rng(1).permutation(N) % S).astype(np.int32)


LABELS = (np.arange(N) % C).astype(np.int32)
ONE = np.zeros(N, np.int32)


def by_hand(x: np.ndarray, labels: np.ndarray, removed: slice) -> np.ndarray:
    """Centre each cluster and take out these of its right singular vectors, heaviest first."""
    out = np.array(x, np.float64)
    for label in np.unique(labels):
        rows = out[labels == label] - out[labels == label].mean(axis=0)
        directions = np.linalg.svd(rows, full_matrices=True)[2][removed]
        out[labels == label] = rows - rows @ directions.T @ directions
    return out


NONE, TOP = slice(0), slice(K)


def isotropy_by_hand(x: np.ndarray) -> float:
    """Return I(W) with every eigenvector on its heavier side."""
    products = np.asarray(x, np.float64) @ np.linalg.svd(x)[2].T
    both = np.stack([logsumexp(products, axis=0), logsumexp(-products, axis=0)])
    heavier = both.max(axis=0)
    return float(np.exp(heavier.min() - heavier.max()))


@BACKENDS
def test_settings_are_what_they_are_by_hand(
    ops: ModuleType, tokens: np.ndarray, sentence_ids: np.ndarray
) -> None:
    got = study.settings(ops, tokens, sentence_ids, S, LABELS, n_clusters=C, n_directions=K)
    changed = {
        "baseline": tokens.astype(np.float64),
        "zero_mean": by_hand(tokens, ONE, NONE),
        "cluster_zero_mean": by_hand(tokens, LABELS, NONE),
        "global": by_hand(tokens, ONE, TOP),
        "cluster_based": by_hand(tokens, LABELS, TOP),
    }
    assert tuple(got) == study.SETTINGS == tuple(changed)
    for setting, x in changed.items():
        assert_measured(got[setting], x, sentence_ids, setting)


def assert_measured(
    result: study.SettingResult, x: np.ndarray, sentence_ids: np.ndarray, setting: object
) -> None:
    means = np.stack([x[sentence_ids == s].mean(axis=0) for s in range(S)])
    # float32 means of rows of norm ~10 that cancel: a few units in the last place
    np.testing.assert_allclose(result.vectors, means, atol=1e-5, err_msg=str(setting))
    assert result.isotropy.isotropy == pytest.approx(isotropy_by_hand(x), rel=2e-3), setting
    assert result.isotropy.low <= result.isotropy.isotropy <= result.isotropy.high
    assert result[2:] == (N, 0, 0, 0)


@BACKENDS
def test_least_settings_are_what_they_are_by_hand(
    ops: ModuleType, tokens: np.ndarray, sentence_ids: np.ndarray
) -> None:
    got = study.least_settings(ops, tokens, sentence_ids, S, LABELS, n_clusters=C, n_least=(1, 5))
    changed = {
        ("baseline", 0): tokens.astype(np.float64),
        ("zero_mean", 0): by_hand(tokens, ONE, NONE),
        ("global", 1): by_hand(tokens, ONE, slice(5, D)),
        ("global", 5): by_hand(tokens, ONE, slice(1, D)),
        ("cluster_based", 1): by_hand(tokens, LABELS, slice(5, D)),
        ("cluster_based", 5): by_hand(tokens, LABELS, slice(1, D)),
    }
    assert (
        list(got)
        == list(changed)
        == [(s.name, s.n_directions) for s in study.table2_settings((1, 5))]
    )
    for setting, x in changed.items():
        assert_measured(got[setting], x, sentence_ids, setting)


@BACKENDS
def test_least_directions_leave_a_small_cluster_what_it_has(
    ops: ModuleType, tokens: np.ndarray
) -> None:
    """Three rows span two directions, and the top two stay; a single row is its own mean."""
    labels = np.full(N, 2, np.int32)
    labels[:3], labels[3] = 0, 1
    ids = np.arange(N, dtype=np.int32)
    got = study.least_settings(ops, tokens, ids, N, labels, n_clusters=4, n_least=(D - 2,))
    result = got["cluster_based", D - 2]
    assert result[3:] == (1, 1, 1)
    assert not result.vectors[3].any()
    centred = tokens[:3] - tokens[:3].mean(axis=0)
    np.testing.assert_allclose(result.vectors[:3], centred, atol=1e-5)


@BACKENDS
def test_small_and_empty_clusters_are_counted(ops: ModuleType, tokens: np.ndarray) -> None:
    """Cluster 0 has K + 1 rows, cluster 1 has one, cluster 2 none; sentence 0 is cluster 0."""
    labels = np.full(N, 3, np.int32)
    labels[: K + 1] = 0
    labels[K + 1] = 1
    sentence_ids = (np.arange(N) // (K + 1)).astype(np.int32)
    n_sentences = int(sentence_ids.max()) + 1
    got = study.settings(
        ops, tokens, sentence_ids, n_sentences, labels, n_clusters=C, n_directions=K
    )
    counts = {setting: result[3:] for setting, result in got.items()}
    assert counts == {
        "baseline": (0, 0, 0),
        "zero_mean": (0, 0, 0),
        "cluster_zero_mean": (1, 0, 1),
        "global": (0, 0, 0),
        "cluster_based": (K + 2, 1, 1),
    }
    assert not got["cluster_based"].vectors[0].any()


@BACKENDS
def test_settings_of_both_tables_together_are_those_of_each(
    ops: ModuleType, tokens: np.ndarray, sentence_ids: np.ndarray
) -> None:
    chosen = [*study.table1_settings(K), *study.table2_settings((1, 5))]
    about = (ops, tokens, sentence_ids, S, LABELS)
    together = study.measure_settings(*about, chosen, n_clusters=C)
    top = study.settings(*about, n_clusters=C, n_directions=K)
    least = study.least_settings(*about, n_clusters=C, n_least=(1, 5))
    assert len(together) == len(set(chosen)) == 9  # the baseline and zero-mean are common to both
    pairs = [(setting, top[setting.name]) for setting in chosen[:5]]
    pairs += [(setting, least[setting.name, setting.n_directions]) for setting in chosen[5:]]
    for setting, alone in pairs:
        both = together[setting]
        np.testing.assert_allclose(both.vectors, alone.vectors, atol=1e-6, err_msg=str(setting))
        assert both.isotropy == pytest.approx(alone.isotropy, rel=1e-4), setting
        assert both[2:] == alone[2:]


def test_an_unknown_setting_is_named(tokens: np.ndarray, sentence_ids: np.ndarray) -> None:
    chosen = [study.Setting("whitening")]
    with pytest.raises(ValueError, match=r"a setting's name must be one of 'baseline', .*'whiten"):
        study.measure_settings(reference, tokens, sentence_ids, S, LABELS, chosen, n_clusters=C)


@BACKENDS
def test_isotropy_does_not_underflow(ops: ModuleType, tokens: np.ndarray) -> None:
    """At norms of several hundred I(W) is below the smallest float32, not below a float64."""
    far = 40 * tokens
    got = study.measure(ops, far, np.arange(N, dtype=np.int32), N).isotropy
    assert 0 < got.low <= got.isotropy <= got.high < 1e-50


def test_ours_agrees_between_the_backends(tokens: np.ndarray, sentence_ids: np.ndarray) -> None:
    kernels, oracle = (
        study.settings(ops, tokens, sentence_ids, S, LABELS, n_clusters=C, n_directions=K)
        for ops in (jaxgeom, reference)
    )
    for setting in study.SETTINGS:
        np.testing.assert_allclose(kernels[setting].isotropy, oracle[setting].isotropy, rtol=2e-3)


def test_the_authors_isotropy_is_one_reading_inside_our_range(
    tokens: np.ndarray, sentence_ids: np.ndarray
) -> None:
    got = study.settings(
        reference, tokens, sentence_ids, S, LABELS, n_clusters=C, n_directions=K, protocol="authors"
    )
    ours = study.settings(reference, tokens, sentence_ids, S, LABELS, n_clusters=C, n_directions=K)
    x = tokens.astype(np.float64)
    sums = np.exp(x @ np.linalg.eigh(x.T @ x)[1]).sum(axis=0)
    assert got["baseline"].isotropy == pytest.approx((sums.min() / sums.max(), None, None))
    for setting in study.SETTINGS:
        _, low, high = ours[setting].isotropy
        value = got[setting].isotropy.isotropy
        assert low * (1 - 1e-9) <= value <= high * (1 + 1e-9), setting
        # ours changes the means of tokens, theirs takes means of changed tokens
        np.testing.assert_allclose(got[setting].vectors, ours[setting].vectors, rtol=0, atol=1e-13)


@BACKENDS
def test_our_clusters_find_what_is_separate(ops: ModuleType, tokens: np.ndarray) -> None:
    labels = study.cluster(ops, tokens, n_clusters=C, seed=0)
    assert labels.dtype == np.int32
    assert len({(a, b) for a, b in zip(labels.tolist(), LABELS.tolist(), strict=True)}) == C


@BACKENDS
def test_the_best_restart_wins(ops: ModuleType, tokens: np.ndarray) -> None:
    """Of more clusters than there are, each restart finds others."""

    def inertia(labels: np.ndarray) -> float:
        return sum(
            float(np.square(rows - rows.mean(axis=0)).sum())
            for rows in (tokens[labels == label].astype(np.float64) for label in np.unique(labels))
        )

    alone = [
        inertia(study.cluster(ops, tokens, n_clusters=9, seed=0, progress=partial(only, i)))
        for i in range(study.N_RESTARTS)
    ]
    together = inertia(study.cluster(ops, tokens, n_clusters=9, seed=0))
    assert together == pytest.approx(min(alone))
    assert together < max(alone)


def only(index: int, restarts: Iterable[int]) -> list[int]:
    return [list(restarts)[index]]


def test_the_authors_clusters_are_scipys(tokens: np.ndarray) -> None:
    labels = study.cluster(reference, tokens, n_clusters=9, seed=3, protocol="authors")
    expected = kmeans2(tokens, 9, iter=10, minit="points", seed=3)[1]
    np.testing.assert_array_equal(labels, expected)


def test_the_authors_empty_clusters_do_not_warn() -> None:
    twins = np.repeat(np.eye(2, dtype=np.float32), 4, axis=0)
    labels = study.cluster(reference, twins, n_clusters=5, seed=0, protocol="authors")
    assert len(np.unique(labels)) < 5


def test_seeds_differ(tokens: np.ndarray) -> None:
    first, second = (study.cluster(reference, tokens, n_clusters=9, seed=s) for s in (0, 1))
    assert (first != second).any()


def test_progress_sees_every_setting(tokens: np.ndarray, sentence_ids: np.ndarray) -> None:
    seen: list[study.Setting] = []

    def record(chosen: Iterable[study.Setting]) -> Iterator[study.Setting]:
        for setting in chosen:
            seen.append(setting)
            yield setting

    study.settings(
        reference, tokens, sentence_ids, S, LABELS, n_clusters=C, n_directions=K, progress=record
    )
    assert tuple(setting.name for setting in seen) == study.SETTINGS


def test_spearman_is_of_the_cosines_times_100() -> None:
    angles = np.array([0.1, 0.9, 0.4, 1.3])
    first = np.tile([1.0, 0.0], (4, 1))
    second = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    gold = np.array([5.0, 1.0, 2.0, 3.0])
    expected = 100 * spearmanr(np.cos(angles), gold).statistic
    assert study.spearman(np.concatenate([first, second]), gold) == pytest.approx(expected)
    assert study.spearman(np.concatenate([first, second]), -angles) == pytest.approx(100)


def test_the_first_non_finite_row_is_named() -> None:
    tokens = np.ones((5, 2), np.float32)
    study.require_finite(tokens, np.arange(5))
    tokens[3, 1] = np.nan
    tokens[4, 0] = np.inf
    with pytest.raises(ValueError, match=r"2 of 5 rows .* the first is row 3 \(sentence 7\)"):
        study.require_finite(tokens, np.array([0, 0, 1, 7, 8]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": np.ones(3, np.float32)}, r"tokens must be a matrix \[n d\], got shape \(3,\)"),
        ({"n_clusters": N + 1}, r"n_clusters must be in 1..number of tokens = 1..240, got 241"),
        ({"n_directions": D}, r"n_directions must be in 0..d - 1 = 0..5, got 6"),
        ({"n_clusters": 3}, r"labels must be in 0..2, got 3 in row 3"),
        ({"n_sentences": 5}, r"sentence_ids must be in 0..4, got 5 in row 30"),
        ({"n_sentences": 0}, r"n_sentences must be at least 1, got 0"),
        ({"labels": LABELS[:9]}, r"labels must have shape \[n\] = \(240,\), got \(9,\)"),
        ({"protocol": "yours"}, r"protocol must be one of 'ours', 'authors', got 'yours'"),
    ],
)
def test_bad_input_is_named(tokens: np.ndarray, change: dict, message: str) -> None:
    arguments = {
        "tokens": tokens,
        "sentence_ids": (np.arange(N) // 6).astype(np.int32),
        "n_sentences": S,
        "labels": LABELS,
        "n_clusters": C,
        "n_directions": K,
    }
    with pytest.raises(ValueError, match=message):
        study.settings(reference, **arguments | change)


@pytest.mark.parametrize(
    ("m", "message"),
    [
        (0, "n_least must be at least 1, got 0"),
        (D, r"n_directions must be in 0..d - 1 = 0..5, got 6"),
    ],
)
def test_a_number_of_least_directions_out_of_range_is_named(
    tokens: np.ndarray, sentence_ids: np.ndarray, m: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        study.least_settings(
            reference, tokens, sentence_ids, S, LABELS, n_clusters=C, n_least=(1, m)
        )


def test_more_clusters_than_tokens_is_named(tokens: np.ndarray) -> None:
    with pytest.raises(
        ValueError, match=r"n_clusters must be in 1..number of tokens = 1..3, got 4"
    ):
        study.cluster(reference, tokens[:3], n_clusters=4, seed=0)

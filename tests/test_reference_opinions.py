"""The reference against third opinions: other libraries, brute force, and the long way round."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.cluster.vq import kmeans2
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from jaxgeom import reference as ref
from jaxgeom.results import Isotropy

WHICH = ("top", "least")


def anisotropic(n, d, seed=0):
    """Rows with a mean far from zero and eigenvalues over four decades, in a random basis."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return (rng.normal(size=(n, d)) * np.logspace(0, -2, d)) @ basis + 3 * rng.normal(size=d)


def blobs(n, d, c, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(c, size=n)
    return 4 * rng.normal(size=(c, d))[labels] + rng.normal(size=(n, d)), labels


def log_isotropy_of(x):
    return ref.log_isotropy(ref.isotropy(x).log_partition)


# PCA and isotropy ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(200, 12), (9, 30)])
def test_pca_against_scikit_learn(n, d):
    x = anisotropic(n, d)
    k = min(n - 1, d)  # the n-th variance of n <= d rows is zero, its direction rounding
    ours, theirs = ref.pca(x, k), PCA(k, svd_solver="full").fit(x)
    assert_allclose(ours.mean, theirs.mean_, rtol=1e-14)
    assert_allclose(ours.explained_variance, theirs.explained_variance_, rtol=1e-10)
    assert_allclose(ours.explained_variance_ratio, theirs.explained_variance_ratio_, rtol=1e-10)
    cosines = (ours.components * theirs.components_).sum(axis=1)  # the sign is a convention
    assert_allclose(np.abs(cosines), 1, rtol=1e-10)


def test_pca_not_centred_against_eigh():
    x = anisotropic(100, 6)
    fit = ref.pca(x, center=False)
    eigenvalues, vectors = np.linalg.eigh(x.T @ x)
    assert_allclose(fit.explained_variance, eigenvalues[::-1] / 99, rtol=1e-9)
    assert_allclose(np.abs((fit.components.T * vectors[:, ::-1]).sum(axis=0)), 1, rtol=1e-9)


@pytest.mark.parametrize(("n", "d"), [(50, 7), (4, 7)])
def test_eigenvectors_are_all_of_them(n, d):
    x = anisotropic(n, d)
    fit = ref.isotropy(x)
    assert_allclose(fit.components @ fit.components.T, np.eye(d), atol=1e-13)
    rebuilt = fit.components.T @ (fit.eigenvalues[:, None] * fit.components)
    assert_allclose(rebuilt, x.T @ x, atol=1e-11 * fit.eigenvalues[0])
    assert (np.diff(fit.eigenvalues) <= 0).all()


def test_log_partition_against_the_plain_sum():
    x, directions = (
        anisotropic(40, 5),
        np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0],
    )
    plain = [[np.exp(s * (x @ u)).sum() for u in directions] for s in (1, -1)]
    assert_allclose(ref.log_partition(x, directions), np.log(plain), rtol=1e-13)
    huge = ref.log_partition(500 * x, directions)
    assert_allclose(
        huge, np.stack([np.logaddexp.reduce(s * 500 * x @ directions.T) for s in (1, -1)])
    )


@pytest.mark.parametrize("scales", [[1.0, 2.0], [0.5, 0.5, 3.0, 1.0]])
def test_isotropy_of_a_cross_in_closed_form(scales):
    # rows +-a_i e_i: F(+-e_i) = 2 cosh a_i + 2d - 2, whatever the signs
    a = np.array(scales)
    fit = ref.isotropy(np.concatenate([np.diag(a), -np.diag(a)]))
    f = 2 * np.cosh(np.unique(a)) + 2 * len(a) - 2
    if len(np.unique(a)) == len(a):  # inside a repeated eigenvalue the basis is the solver's
        assert_allclose(fit[:4], [f.min() / f.max()] * 4)
    assert_allclose(np.exp(fit.log_partition[:, 0]), f.max())


@pytest.mark.parametrize(
    ("scales", "expected"), [([1, 1, 1, 1], 1), ([1, 0, 0], 0), ([3, 1], 18 / 82)]
)
def test_isoscore_in_closed_form(scales, expected):
    # IsoScore = (PR - 1)/(d - 1), PR = (sum of variances)^2 / sum of their squares. For scales
    # (3, 1) the variances are as 9 : 1, PR = 100/82.
    a = np.array(scales, np.float64)
    x = np.concatenate([np.diag(a), -np.diag(a)]) + 5
    scatter = ref.moments(x).scatter
    variances = ref.pca(x).explained_variance
    from_scatter = np.trace(scatter) ** 2 / (scatter**2).sum()
    from_variances = variances.sum() ** 2 / (variances**2).sum()
    assert_allclose(from_scatter, from_variances, rtol=1e-12)
    assert_allclose((from_scatter - 1) / (len(a) - 1), expected, atol=1e-12)


# The interval over the signs ----------------------------------------------------------------------


def every_choice(log_f):
    """ln I for each of the 2^d choices of signs."""
    d = log_f.shape[1]
    signs = np.array(list(itertools.product([0, 1], repeat=d)))
    chosen = log_f[signs, np.arange(d)[None, :]]
    return chosen.min(axis=1) - chosen.max(axis=1)


def assert_interval(log_f):
    fit, values = ref.log_isotropy(log_f), every_choice(log_f)
    assert float(fit.low) == values.min()
    assert float(fit.high) == values.max()
    assert fit.symmetric <= fit.low <= fit.heavier <= fit.high <= 0


shapes = st.integers(1, 10).map(lambda d: (2, d))
ties = hnp.arrays(np.float64, shapes, elements=st.integers(0, 4).map(float))
distinct = hnp.arrays(np.float64, shapes, elements=st.floats(-100, 100, width=32))


@given(ties | distinct)
@settings(deadline=None, max_examples=300)
def test_interval_against_every_choice_of_signs(log_f):
    assert_interval(log_f)


@pytest.mark.parametrize(
    "log_f",
    [
        [[0, 2, 3], [9, 4, 5]],  # the first direction holds both ends
        [[0, 1, 3], [9, 8, 5]],  # ... and the second both runners-up
        [[0, 0, 0], [9, 9, 9]],
        [[2, 2], [2, 2]],
        [[0, 5], [1, 5]],
        [[0, 4, 4], [6, 5, 4]],  # high: one direction has no choice
        [[7], [1]],
    ],
)
def test_interval_of_awkward_cases(log_f):
    assert_interval(np.array(log_f, np.float64))
    assert_interval(np.array(log_f[::-1], np.float64))


@pytest.mark.parametrize("seed", range(5))
def test_interval_of_real_partition_functions(seed):
    x = anisotropic(60, 9, seed)
    assert_interval(ref.isotropy(x).log_partition)
    assert_interval(ref.isotropy(ref.zero_mean(x)).log_partition)


def test_pessimistic_end_where_centred_data_has_a_null_direction():
    x = ref.zero_mean(anisotropic(60, 6))
    fit = log_isotropy_of(x - (x @ np.ones((6, 6))) / 6)  # nothing along (1, ..., 1)
    assert_allclose([fit.low, fit.symmetric], [fit.heavier] * 2, rtol=1e-12)
    assert fit.high > fit.heavier + 1e-3


# k-means ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_kmeans_against_scikit_learn(seed):
    x, _ = blobs(300, 4, 6, seed)
    start = x[np.random.default_rng(seed).choice(300, 6, replace=False)]
    ours = ref.kmeans(x, 6, init=start)
    theirs = KMeans(6, init=start, n_init=1, algorithm="lloyd", tol=0, max_iter=300).fit(x)
    assert (ours.counts > 0).all()  # scikit-learn moves an empty cluster, we keep it
    assert_array_equal(ours.labels, theirs.labels_)
    assert_allclose(ours.centroids, theirs.cluster_centers_, rtol=1e-10)
    assert_allclose(ours.inertia, theirs.inertia_, rtol=1e-12)
    assert int(ours.n_iter) == theirs.n_iter_
    assert ours.converged


@pytest.mark.parametrize("max_iter", [1, 3, 50])
def test_kmeans_against_scipy(max_iter):
    x, _ = blobs(200, 3, 5)
    ours = ref.kmeans(x, 5, init=x[:5], max_iter=max_iter)
    centroids, labels = kmeans2(x, x[:5].copy(), iter=max_iter, minit="matrix")
    assert_allclose(ours.centroids, centroids, rtol=1e-12)
    if max_iter == 50:  # SciPy's labels belong to the centroids before the last update
        assert_array_equal(ours.labels, labels)


def test_inertia_never_rises():
    x, _ = blobs(300, 4, 6)
    fits = [ref.kmeans(x, 6, init=x[:6], max_iter=i) for i in range(1, 12)]
    assert (np.diff([float(fit.inertia) for fit in fits]) <= 1e-9).all()
    assert fits[0].inertia > fits[-1].inertia


@pytest.mark.parametrize("init", ["k-means++", "random"])
def test_starts_are_reproducible_and_find_separated_blobs(init):
    x, labels = blobs(200, 8, 4, seed=3)
    fit, again = (ref.kmeans(x, 4, key=7, init=init) for _ in range(2))
    assert_array_equal(fit.labels, again.labels)
    assert len(set(zip(labels, fit.labels, strict=True))) == 4  # one cluster a blob


# Removal and its curves ---------------------------------------------------------------------------


@pytest.mark.parametrize("which", WHICH)
def test_isotropy_curve_against_removing_one_by_one(which):
    x = ref.zero_mean(anisotropic(80, 7) * 3)
    fit = ref.isotropy(x)
    curve = ref.isotropy_curve(fit, which)
    for k in range(7):
        removed = fit.components[:k] if which == "top" else fit.components[7 - k :]
        y = ref.remove_directions(x, removed)
        same_basis = ref.log_isotropy(ref.log_partition(y, fit.components))
        for reading in ("heavier", "low", "high"):
            at_k = getattr(curve, reading)[k]
            assert_allclose(at_k, getattr(same_basis, reading), atol=1e-12)
            # the null space has any basis, but F = n in all of it
            assert_allclose(at_k, getattr(log_isotropy_of(y), reading), atol=1e-9)


@pytest.mark.parametrize("which", WHICH)
def test_isotropy_curve_against_fit_removal(which):
    x = anisotropic(80, 7) * 3
    curve = ref.isotropy_curve(ref.isotropy(ref.zero_mean(x)), which)
    for k in range(7):
        y = ref.apply_removal(x, ref.fit_removal(x, n_directions=k, which=which))
        assert_allclose(curve.heavier[k], log_isotropy_of(y).heavier, atol=1e-9)


def test_least_curve_is_flat_until_the_heaviest_direction_goes():
    x = ref.zero_mean(anisotropic(80, 7) * 3)
    curve = ref.isotropy_curve(ref.isotropy(x), "least")
    assert (np.diff(curve.heavier[1:]) >= 0).all()
    fit = ref.isotropy(x)
    heaviest = fit.log_partition.max()
    assert fit.log_partition[:, 0].max() == heaviest
    assert_allclose(curve.heavier[1:], np.log(80) - heaviest, rtol=1e-12)


def test_curves_keep_nan():
    fit = ref.isotropy(ref.zero_mean(anisotropic(20, 3)))
    broken = Isotropy(**{**fit._asdict(), "log_partition": np.full((2, 3), np.nan)})
    assert np.isnan(ref.isotropy_curve(broken).heavier).all()


@pytest.mark.parametrize("which", WHICH)
def test_similarity_curve_against_removing_one_by_one(which):
    x = anisotropic(30, 6)
    components = ref.pca(x).components
    a, b = x[:15].copy(), x[15:].copy()
    a[3] = 2 * components[0] + 1e-4 * components[5]  # hardly anything without the first direction
    b[7] = 0
    curve = ref.similarity_curve(a, b, components, which)
    for k in range(6):
        removed = components[:k] if which == "top" else components[6 - k :]
        y, z = ref.remove_directions(a, removed), ref.remove_directions(b, removed)
        keeps = [(u**2).sum(1) > 1e-6 * (v**2).sum(1) for u, v in ((y, a), (z, b))]
        with np.errstate(invalid="ignore"):
            cosines = (y * z).sum(1) / np.linalg.norm(y, axis=1) / np.linalg.norm(z, axis=1)
        assert_allclose(curve[k], np.where(keeps[0] & keeps[1], cosines, np.nan), atol=1e-9)
    assert np.isnan(curve[:, 7]).all()
    assert np.isnan(curve[1:, 3]).all() == (which == "top")
    assert np.isfinite(curve[0, 3])


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("n_directions", [0, 1, 3])
def test_changed_scatter_against_the_changed_data(which, n_directions):
    x, labels = blobs(90, 5, 4)
    labels[:3] = 4  # three rows: they vanish with three directions
    options = {"n_clusters": 6, "n_directions": n_directions, "which": which}  # the sixth is empty
    removal = ref.fit_removal(x, labels, **options)
    changed = ref.apply_removal(x, removal, labels)
    clusters = ref.cluster_moments(x, labels, n_clusters=6)
    algebra = ref.changed_scatter(clusters, removal.components)
    assert_allclose(algebra, changed.T @ changed, atol=1e-11 * np.trace(x.T @ x))
    assert_allclose(algebra, ref.moments(changed).scatter, atol=1e-11 * np.trace(x.T @ x))


def test_changed_scatter_of_directions_that_are_no_eigenvectors():
    # where S - V L V^T, or a projection on one side only, would be wrong
    x = ref.zero_mean(anisotropic(50, 5))
    directions = np.linalg.qr(np.random.default_rng(2).normal(size=(5, 2)))[0].T
    changed = ref.remove_directions(x, directions)
    clusters = ref.cluster_moments(x, np.zeros(50, int), n_clusters=1)
    algebra = ref.changed_scatter(clusters, directions[None])
    assert_allclose(algebra, changed.T @ changed, atol=1e-12 * np.trace(x.T @ x))


def test_directions_come_in_descending_order():
    x, labels = blobs(120, 6, 3)
    for which in WHICH:
        removal = ref.fit_removal(x, labels, n_clusters=3, n_directions=3, which=which)
        for c in range(3):
            along = ref.zero_mean(x[labels == c]) @ removal.components[c].T
            assert (np.diff((along**2).sum(axis=0)) < 0).all()


@pytest.mark.parametrize("which", WHICH)
def test_removed_directions_are_gone_and_the_rest_untouched(which):
    x, labels = blobs(120, 6, 3)
    removal = ref.fit_removal(x, labels, n_clusters=3, n_directions=2, which=which)
    changed = ref.apply_removal(x, removal, labels)
    for c in range(3):
        rows = changed[labels == c]
        assert_allclose(rows.mean(axis=0), 0, atol=1e-13)
        assert_allclose(rows @ removal.components[c].T, 0, atol=1e-13)
        variances = ref.pca(x[labels == c]).explained_variance
        kept = variances[2:] if which == "top" else variances[:4]
        assert_allclose(ref.pca(rows).explained_variance[:4], kept, rtol=1e-10)


def test_cluster_zero_mean_is_a_loop_over_zero_mean():
    x, labels = blobs(50, 3, 4)
    changed = ref.cluster_zero_mean(x, labels, n_clusters=4)
    for c in range(4):
        assert_allclose(changed[labels == c], ref.zero_mean(x[labels == c]), atol=1e-14)


def test_cluster_moments_are_the_moments_of_the_clusters():
    x, labels = blobs(50, 3, 4)
    clusters = ref.cluster_moments(x, labels, n_clusters=4)
    for c in range(4):
        masked = ref.moments(x, mask=labels == c)
        for one, all_of_them in zip(masked, clusters, strict=True):
            assert_array_equal(one, all_of_them[c])
    assert_allclose(ref.moments(x).scatter, 49 * np.cov(x.T), rtol=1e-12)

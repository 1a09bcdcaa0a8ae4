"""Both op sets against third opinions: other libraries, closed forms, and every choice of signs."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal
from op_sets import anisotropic, blobs, for_each_op_set
from scipy.cluster.vq import kmeans2
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from jaxgeom.testing_kmeans import clear_of_ties

pytestmark = for_each_op_set


# PCA and isotropy ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(80, 7), (9, 30)])
def test_pca_against_scikit_learn(ops, n, d):
    x = anisotropic(n, d).astype(ops.dtype).astype(np.float64)  # both are given the same numbers
    k = min(n - 1, d)  # the n-th variance of n <= d rows is zero, its direction rounding
    ours, theirs = ops.pca(x, k), PCA(k, svd_solver="full").fit(x)
    ops.assert_close(ours.mean, theirs.mean_)
    ops.assert_close(ours.explained_variance, theirs.explained_variance_, 16)
    ops.assert_close(ours.explained_variance_ratio, theirs.explained_variance_ratio_, 16)
    # a direction turns by the roundings of the largest variance over its gap, at worst a 1e-4th:
    # an angle too small for its cosine to show. The sign is a convention.
    cosines = (np.asarray(ours.components) * theirs.components_).sum(axis=1)
    ops.assert_close(np.abs(cosines), np.ones(k), 16)


def test_pca_not_centred_against_eigh(ops):
    x = anisotropic(80, 7)
    fit = ops.pca(x, center=False)
    eigenvalues, vectors = np.linalg.eigh(x.T @ x)
    ops.assert_close(fit.explained_variance, eigenvalues[::-1] / 79, 16)
    cosines = (np.asarray(fit.components).T * vectors[:, ::-1]).sum(axis=0)
    # the mean weighs a hundred variances, which turns the last directions by so many roundings more
    ops.assert_close(np.abs(cosines[:5]), np.ones(5), 16)


def test_eigenvectors_are_all_of_them(ops):
    x = anisotropic(80, 7)
    fit = ops.isotropy(x)
    basis = np.asarray(fit.components, np.float64)
    ops.assert_close(basis @ basis.T, np.eye(7), 16)
    rebuilt = basis.T @ (np.asarray(fit.eigenvalues)[:, None] * basis)
    ops.assert_close(rebuilt, x.T @ x, 16, scale=np.square(x).sum())
    assert (np.diff(fit.eigenvalues) <= 0).all()


@pytest.mark.parametrize("scale", [1, 500])
def test_log_partition_against_the_plain_sum(ops, scale):
    x = scale * anisotropic(80, 7)
    directions = np.linalg.qr(np.random.default_rng(1).normal(size=(7, 7)))[0]
    exponents = x @ directions.T
    plain = np.stack([np.logaddexp.reduce(s * exponents) for s in (1, -1)])
    if scale == 1:
        np.testing.assert_allclose(plain[0], np.log(np.exp(exponents).sum(0)))
    ops.assert_close(ops.log_partition(x, directions), plain, scale=np.abs(exponents).max())


@pytest.mark.parametrize("scales", [[0.5, 2.0, 3.0, 1.0], [1.0, 1.0, 3.0, 0.0]])
def test_isotropy_of_a_cross_in_closed_form(ops, scales):
    # rows +-a_i e_i: F(+-e_i) = 2 cosh a_i + 2d - 2, whatever the signs
    a = np.array(scales)
    fit = ops.isotropy(np.concatenate([np.diag(a), -np.diag(a)]))
    f = 2 * np.cosh(np.sort(a)[::-1]) + 6
    alone = np.array([np.count_nonzero(a == s) == 1 for s in np.sort(a)[::-1]])
    ops.assert_close(fit.eigenvalues, 2 * np.sort(a)[::-1] ** 2)
    # inside a repeated eigenvalue the basis is the solver's, and lies between the two directions
    ops.assert_close(fit.log_partition[:, alone], np.log([f[alone]] * 2))
    ops.assert_close(fit[:4], [f.min() / f.max()] * 4)


@pytest.mark.parametrize(
    ("scales", "expected"),
    [([1, 1, 1, 1], 1), ([1, 0, 0, 0], 0), ([3, 1, 0, 0], (100 / 82 - 1) / 3)],
)
def test_isoscore_in_closed_form(ops, scales, expected):
    # IsoScore = (PR - 1)/(d - 1), PR = (sum of variances)^2 / sum of their squares. For scales
    # (3, 1) the variances are as 9 : 1, PR = 100/82.
    a = np.array(scales, np.float64)
    x = np.concatenate([np.diag(a), -np.diag(a)]) + 5
    scatter = np.asarray(ops.moments(x).scatter)
    variances = np.asarray(ops.pca(x).explained_variance)
    for ratio in (
        np.trace(scatter) ** 2 / (scatter**2).sum(),
        variances.sum() ** 2 / (variances**2).sum(),
    ):
        ops.assert_close((ratio - 1) / (len(a) - 1), expected, scale=1)


# The interval over the signs ----------------------------------------------------------------------


def every_choice(log_f):
    """ln I for each of the 2^d choices of signs."""
    d = log_f.shape[1]
    signs = np.array(list(itertools.product([0, 1], repeat=d)))
    chosen = log_f[signs, np.arange(d)[None, :]]
    return chosen.min(axis=1) - chosen.max(axis=1)


def assert_interval(ops, log_f):
    """Both ends are differences of two given numbers: there is nothing to round."""
    log_f = np.asarray(log_f, ops.dtype)
    heavier, low, high, symmetric = (np.asarray(v) for v in ops.log_isotropy(log_f))
    values = every_choice(log_f)
    assert low == values.min()
    assert high == values.max()
    assert symmetric <= low <= heavier <= high <= 0


shapes = st.sampled_from([1, 2, 3, 7, 10]).map(lambda d: (2, d))
ties = hnp.arrays(np.float64, shapes, elements=st.integers(0, 4).map(float))
distinct = hnp.arrays(
    np.float64, shapes, elements=st.floats(-100, 100, width=32, allow_subnormal=False)
)


@given(log_f=ties | distinct)
@settings(deadline=None, max_examples=300)
def test_interval_against_every_choice_of_signs(ops, log_f):
    assert_interval(ops, log_f)


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
def test_interval_of_awkward_cases(ops, log_f):
    assert_interval(ops, log_f)
    assert_interval(ops, log_f[::-1])


@pytest.mark.parametrize("seed", range(5))
def test_interval_of_real_partition_functions(ops, seed):
    x = anisotropic(80, 7, seed)
    assert_interval(ops, ops.isotropy(x).log_partition)
    assert_interval(ops, ops.isotropy(ops.zero_mean(x)).log_partition)


def test_pessimistic_end_where_centred_data_has_a_null_direction(ops):
    x = anisotropic(80, 7)
    x -= x @ np.full((7, 7), 1 / 7)  # nothing along (1, ..., 1)
    fit = ops.log_isotropy(ops.isotropy(ops.zero_mean(x)).log_partition)
    ops.assert_close([fit.low, fit.symmetric], [fit.heavier] * 2, scale=np.log(80))
    assert fit.high > fit.heavier + 1e-3


# k-means ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_kmeans_against_scikit_learn(ops, seed):
    x = blobs(200, 4, 5, seed)[0].astype(ops.dtype).astype(np.float64)
    start = x[np.random.default_rng(seed).choice(200, 5, replace=False)]
    assert clear_of_ties(x, start)  # else either could go its own way
    ours = ops.kmeans(x, 5, init=start)
    theirs = KMeans(5, init=start, n_init=1, algorithm="lloyd", tol=0, max_iter=300).fit(x)
    assert (np.asarray(ours.counts) > 0).all()  # scikit-learn moves an empty cluster, we keep it
    assert_array_equal(ours.labels, theirs.labels_)
    assert_array_equal(ours.counts, np.bincount(theirs.labels_))
    ops.assert_close(ours.centroids, theirs.cluster_centers_, 16)
    ops.assert_close(ours.inertia, theirs.inertia_, 16)
    assert int(ours.n_iter) == theirs.n_iter_
    assert ours.converged
    assert_array_equal(ops.assign(x, ours.centroids), theirs.labels_)


@pytest.mark.parametrize("max_iter", [1, 3, 50])
def test_kmeans_against_scipy(ops, max_iter):
    x, _ = blobs(200, 4, 5)
    assert clear_of_ties(x, x[:5])
    ours = ops.kmeans(x, 5, init=x[:5], max_iter=max_iter)
    centroids, labels = kmeans2(x, x[:5].copy(), iter=max_iter, minit="matrix")
    ops.assert_close(ours.centroids, centroids, 16)
    if max_iter == 50:  # SciPy's labels belong to the centroids before the last update
        assert_array_equal(ours.labels, labels)

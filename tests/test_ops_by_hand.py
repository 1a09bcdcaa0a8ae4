"""Both op sets on cases worked out on paper, and at their edges.

Shapes recur from case to case: a kernel is compiled once for each.
"""

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from op_sets import anisotropic, column, for_each_op_set

pytestmark = for_each_op_set

E = np.e


# Moments and principal components -----------------------------------------------------------------


def test_moments_by_hand(ops):
    # mean (3, 3); deviations (-2, -1), (0, -1), (2, 2): squares 8 and 6, products 2 + 0 + 4 = 6
    fit = ops.moments(np.array([[1.0, 2.0], [3.0, 2.0], [5.0, 5.0]]))
    assert int(fit.count) == 3
    assert_array_equal(fit.mean, [3, 3])
    assert_array_equal(fit.scatter, [[8, 6], [6, 6]])


@pytest.mark.parametrize("masked", [0, 1])
def test_masked_rows_are_never_read(ops, masked):
    x = np.array([[1.0, 2.0], [1.0, 2.0], [3.0, 2.0]])
    x[masked] = [np.nan, np.inf]
    fit = ops.moments(x, mask=np.arange(3) != masked)
    assert int(fit.count) == 2
    assert_array_equal(fit.mean, [2, 2])
    assert_array_equal(fit.scatter, [[2, 0], [0, 0]])


def test_moments_of_no_rows_are_zero(ops):
    fit = ops.moments(np.full((3, 2), np.nan), mask=np.zeros(3, bool))
    assert int(fit.count) == 0
    assert not np.asarray(fit.mean).any()
    assert not np.asarray(fit.scatter).any()


def test_cluster_moments_with_an_empty_cluster(ops):
    x = np.array([[0.0, 1.0], [7.0, 7.0], [4.0, 1.0]])
    fit = ops.cluster_moments(x, np.array([0, 2, 0]), n_clusters=3)
    assert_array_equal(fit.count, [2, 0, 1])
    assert_array_equal(fit.mean, [[2, 1], [0, 0], [7, 7]])
    assert_array_equal(fit.scatter[0], [[8, 0], [0, 0]])
    assert not np.asarray(fit.scatter[1:]).any()


def test_pca_by_hand(ops):
    # scatter diag(2, 18): variances 18/3 and 2/3, 90 % and 10 % of the total; the mean is (5, 5)
    fit = ops.pca(np.array([[5.0, 8.0], [5.0, 2.0], [6.0, 5.0], [4.0, 5.0]]))
    assert_array_equal(fit.mean, [5, 5])
    ops.assert_close(fit.components, [[0, 1], [1, 0]])
    ops.assert_close(fit.explained_variance, [6, 2 / 3])
    ops.assert_close(fit.explained_variance_ratio, [0.9, 0.1])


def test_pca_not_centred_by_hand(ops):
    # x^T x = diag(8, 2) / (n - 1) = diag(8, 2); the mean stays zero
    fit = ops.pca(np.array([[2.0, 1.0], [2.0, -1.0]]), 1, center=False)
    assert_array_equal(fit.mean, [0, 0])
    ops.assert_close(fit.components, [[1, 0]])
    ops.assert_close([fit.explained_variance[0], fit.explained_variance_ratio[0]], [8, 0.8])


def test_largest_entry_of_a_component_is_positive(ops):
    x = anisotropic(80, 7)
    for fit in (ops.pca(x), ops.isotropy(x)):
        components = np.asarray(fit.components)
        largest = np.abs(components).argmax(axis=1)
        assert (components[np.arange(7), largest] > 0).all()


def test_one_column_has_one_direction(ops):
    x = column(1, 2, 6)
    assert_array_equal(ops.pca(x).components, [[1]])
    assert_array_equal(ops.isotropy(x).components, [[1]])
    ops.assert_close(ops.isotropy(x).eigenvalues, [41])
    assert ops.fit_removal(x).components.shape == (1, 0, 1)
    assert_array_equal(ops.similarity_curve(x, -x, np.eye(1)), [[-1, -1, -1]])


# Isotropy -----------------------------------------------------------------------------------------


def test_log_partition_of_norms_that_overflow(ops):
    # F(+e1) = e^1000 + e^-1000, ln of it 1000 to the last digit; F(e2) = 1 + 1
    log_f = ops.log_partition(np.array([[1000.0, 0.0], [-1000.0, 0.0]]), np.eye(2))
    assert_allclose(log_f, [[1000, np.log(2)], [1000, np.log(2)]], rtol=2 * ops.eps)


def test_isotropy_by_hand(ops):
    # W^T W = diag(1, 4). F(+e2) = 1 + e^2, F(-e2) = 1 + e^-2, F(+e1) = 1 + e, F(-e1) = 1 + 1/e.
    fit = ops.isotropy(np.array([[1.0, 0.0], [0.0, 2.0]]))
    ops.assert_close(fit.eigenvalues, [4, 1])
    ops.assert_close(fit.components, [[0, 1], [1, 0]])
    ops.assert_close(fit.log_partition, np.log1p(np.exp([[2, 1], [-2, -1]])))
    assert int(fit.count) == 2
    # e2 holds both the smallest and the largest F: low takes the smaller of the runners-up
    low = (1 + 1 / E) / (1 + E**2)  # 0.163; the other is 0.305
    high = (1 + E**-2) / (1 + 1 / E)  # both turned to their lighter side
    symmetric = E**-2  # (1 + e^-2) / (1 + e^2)
    ops.assert_close(fit[:4], [(1 + E) / (1 + E**2), low, high, symmetric])


def test_isotropy_with_fewer_rows_than_columns(ops):
    # one row (2, 0, 0): F(+e1) = e^2, F(-e1) = e^-2; along the two null directions F = n = 1
    fit = ops.isotropy(np.array([[2.0, 0.0, 0.0]]))
    assert fit.components.shape == (3, 3)
    ops.assert_close(fit.components @ fit.components.T, np.eye(3))
    ops.assert_close(fit.eigenvalues, [4, 0, 0])
    ops.assert_close(fit[:4], [E**-2, E**-2, E**-2, E**-4])


def test_isotropy_of_constant_data(ops):
    ops.assert_close(ops.isotropy(np.zeros((2, 2)))[:4], [1] * 4)  # every F is n
    # one direction, F(+1) = 3 e^3 and F(-1) = 3 e^-3: only `symmetric` sees both
    log_f = ops.isotropy(column(3, 3, 3)).log_partition
    ops.assert_close(ops.log_isotropy(log_f), [0, 0, 0, -6])


def test_log_isotropy_of_one_direction(ops):
    # one direction shows one side at a time, whichever it is: min = max
    assert_array_equal(ops.log_isotropy(np.array([[5.0], [2.0]])), [0, 0, 0, -3])


# k-means ------------------------------------------------------------------------------------------


def test_kmeans_by_hand(ops):
    # 0 | 1 9 -> (0, 5); 0 1 | 9 -> (0.5, 9); the third update moves nothing
    fit = ops.kmeans(column(0, 1, 9), 2, init=column(0, 1))
    ops.assert_close(fit.centroids, column(0.5, 9))
    assert_array_equal(fit.labels, [0, 0, 1])
    assert_array_equal(fit.counts, [2, 1])
    ops.assert_close(fit.inertia, 0.5, scale=9)
    assert (int(fit.n_iter), bool(fit.converged)) == (3, True)
    assert fit.labels.dtype == fit.counts.dtype == fit.n_iter.dtype == np.int32


def test_kmeans_stopped_early_has_the_labels_of_its_centroids(ops):
    # after the first update (0, 5): row 1 was in the second cluster and is now nearer to the first
    fit = ops.kmeans(column(0, 1, 9), 2, init=column(0, 1), max_iter=1)
    ops.assert_close(fit.centroids, column(0, 5))
    assert_array_equal(fit.labels, [0, 0, 1])
    ops.assert_close(fit.inertia, 1 + 16)
    assert (int(fit.n_iter), bool(fit.converged)) == (1, False)


@pytest.mark.parametrize(("share", "n_iter"), [(1 + 1e-5, 1), (1 - 1e-5, 2)])
def test_kmeans_tolerance_is_relative_to_the_variance(ops, share, n_iter):
    # shifts 4^2, then 0.25 + 16: the first is 16, against a variance of 146/9 - and the second
    # update is the last one either way, as max_iter says
    tol = share * 16 / (146 / 9)
    fit = ops.kmeans(column(0, 1, 9), 2, init=column(0, 1), tol=tol, max_iter=2)
    assert int(fit.n_iter) == n_iter
    assert bool(fit.converged) == (n_iter == 1)


def test_an_empty_cluster_keeps_its_centroid(ops):
    fit = ops.kmeans(column(0, 1, 2), 2, init=column(0, 100))
    ops.assert_close(fit.centroids, column(1, 100))
    assert_array_equal(fit.counts, [3, 0])


def test_ties_go_to_the_lowest_index(ops):
    assert_array_equal(ops.assign(column(1, 1), column(2, 0, 2)), [0, 0])
    assert ops.assign(column(1, 1), column(2, 0, 2)).dtype == np.int32


@pytest.mark.parametrize(
    ("uniforms", "drawn"),
    [
        ((0.0, 0.5), (0, 3)),  # squared distances to 0 are 0, 1, 9: half of 10 lies in the third
        ((0.0, 0.09), (0, 1)),  # 0.9 lies in the second
        ((0.0, 0.0), (0, 1)),  # the row already drawn has weight 0 and cannot be drawn again
        ((0.5, 0.19), (1, 0)),  # to 1 they are 1, 0, 4: the first ends at a fifth of 5
        ((0.5, 0.21), (1, 3)),
        ((0.99, 0.99), (3, 1)),  # to 3 they are 9, 4, 0
    ],
)
def test_one_uniform_draws_one_centroid(ops, uniforms, drawn):
    assert_array_equal(ops.drawn(column(0, 1, 3), uniforms), column(*drawn))


def test_the_best_restart_wins(ops):
    x = column(*np.random.default_rng(1).normal(size=12))
    best = ops.kmeans(x, 3, key=ops.key(5))
    singles = [ops.kmeans(x, 3, init=start) for start in ops.starts(x, 3, 5, 10)]
    inertias = [float(single.inertia) for single in singles]
    assert max(inertias) > 1.1 * min(inertias)
    ops.assert_close(best.inertia, min(inertias), 2)  # ten restarts are another program than one
    winners = [s for s in singles if float(s.inertia) <= min(inertias) * (1 + 8 * ops.eps)]
    assert any(
        int(best.n_iter) == int(winner.n_iter) and np.array_equal(best.labels, winner.labels)
        for winner in winners
    )


def test_random_rows_are_distinct(ops):
    x = column(*range(12))
    fit, again = (ops.kmeans(x, 12, key=ops.key(0), init="random", n_init=1) for _ in range(2))
    assert_array_equal(fit.labels, again.labels)
    assert_array_equal(fit.counts, np.ones(12))
    ops.assert_close(fit.inertia, 0, scale=12)


def test_kmeans_plus_plus_finds_every_distinct_row(ops):
    x = column(*[2, 7, 8] * 4)
    for start in ops.starts(x, 3, 0, 10):
        assert_array_equal(np.sort(start, axis=0), column(2, 7, 8))


def test_kmeans_plus_plus_repeats_rows_where_fewer_are_distinct(ops):
    fit = ops.kmeans(column(*[2, 7] * 6), 3, key=ops.key(0))
    assert_array_equal(np.sort(fit.counts), [0, 6, 6])
    ops.assert_close(fit.inertia, 0, scale=7)
    assert set(np.round(np.ravel(fit.centroids), 5)) == {2, 7}


def test_kmeans_of_constant_data(ops):
    fit = ops.kmeans(np.full((12, 1), 0.1), 3, key=ops.key(0))
    assert_array_equal(fit.counts, [12, 0, 0])
    ops.assert_close(fit.inertia, 0, scale=0.1)
    assert fit.converged


# Removal ------------------------------------------------------------------------------------------


def test_removal_by_hand(ops):
    # cluster 0: mean (2, 1), deviations (-2, 0), (2, 0), (0, 1), (0, -1): scatter diag(8, 2)
    x = np.array([[0.0, 1.0], [4.0, 1.0], [2.0, 2.0], [2.0, 0.0], [9.0, 9.0]])
    labels = np.array([0, 0, 0, 0, 1])
    top = ops.fit_removal(x, labels, n_clusters=3, n_directions=1)
    assert_array_equal(top.means, [[2, 1], [9, 9], [0, 0]])
    assert_array_equal(top.counts, [4, 1, 0])
    assert_array_equal(top.vanishes, [False, True, False])
    ops.assert_close(top.components[0], [[1, 0]])
    ops.assert_close(np.linalg.norm(top.components, axis=2), np.ones((3, 1)))
    changed = ops.apply_removal(x, top, labels)
    ops.assert_close(changed, [[0, 0], [0, 0], [0, 1], [0, -1], [0, 0]])


def test_least_directions_by_hand(ops):
    # the one row of cluster 1 is its mean: it does become zero, but only "top" says so
    x = np.array([[0.0, 1.0], [4.0, 1.0], [2.0, 2.0], [2.0, 0.0], [9.0, 9.0]])
    labels = np.array([0, 0, 0, 0, 1])
    least = ops.fit_removal(x, labels, n_clusters=3, n_directions=1, which="least")
    ops.assert_close(least.components[0], [[0, 1]])
    assert_array_equal(least.vanishes, [False] * 3)
    changed = ops.apply_removal(x, least, labels)
    ops.assert_close(changed, [[-2, 0], [2, 0], [0, 0], [0, 0], [0, 0]])


def test_a_cluster_of_k_plus_one_rows_vanishes_and_one_of_k_plus_two_does_not(ops):
    x = np.random.default_rng(2).normal(size=(5, 2)) + 100
    labels = np.array([0, 0, 1, 1, 1])
    removal = ops.fit_removal(x, labels, n_clusters=3, n_directions=1)
    assert_array_equal(removal.vanishes, [True, False, False])
    changed = np.asarray(ops.apply_removal(x, removal, labels))
    assert not changed[:2].any()
    assert (np.abs(changed[2:]).max(axis=1) > 1e-3).all()


@pytest.mark.parametrize("which", ["top", "least"])
def test_nothing_vanishes_without_directions(ops, which):
    removal = ops.fit_removal(column(3), which=which)
    assert_array_equal(removal.vanishes, [False])
    assert removal.components.shape == (1, 0, 1)


def test_one_row_is_its_own_mean_and_cluster(ops):
    x = column(3)
    assert_array_equal(ops.zero_mean(x), [[0]])
    fit = ops.kmeans(x, 1, init=x + 1)
    assert_array_equal(fit.centroids, x)
    assert_array_equal(fit.labels, [0])


def test_zero_means_by_hand(ops):
    x, labels = column(0, 4, 7), np.array([0, 0, 1])
    ops.assert_close(ops.zero_mean(x), column(-11 / 3, 1 / 3, 10 / 3))
    assert_array_equal(ops.cluster_zero_mean(x, labels, n_clusters=2), column(-2, 2, 0))


def test_remove_directions_does_not_centre(ops):
    x = np.array([[3.0, 4.0], [5.0, 6.0]])
    assert_array_equal(ops.remove_directions(x, np.array([[0.0, 1.0]])), [[3, 0], [5, 0]])
    assert_array_equal(ops.remove_directions(x, np.zeros((0, 2))), x)


def test_segment_mean_by_hand(ops):
    x = np.array([[1.0, 0.0], [8.0, 8.0], [3.0, 2.0]])
    means = ops.segment_mean(x, np.array([2, 0, 2]), num_segments=4)
    assert_array_equal(means, [[8, 8], [0, 0], [2, 1], [0, 0]])


@pytest.mark.parametrize("scale", [1.0, 1e-12])  # the product of two such squared norms vanishes
def test_similarity_curve_by_hand(ops, scale):
    # (3, 4) and (4, -3) are orthogonal; along e2 alone they are opposite, along e1 alone alike.
    # (1, 1e-4) keeps 1e-8 of its energy along e2: no cosine; along e1 it has nearly all of it.
    a = scale * np.array([[3.0, 4.0], [1.0, 1e-4], [0.0, 0.0]])
    b = scale * np.array([[4.0, -3.0]] * 3)
    top = ops.similarity_curve(a, b, np.eye(2))
    least = ops.similarity_curve(a, b, np.eye(2), "least")
    nearly = (0.8 - 0.6e-4) / np.hypot(1, 1e-4)
    ops.assert_close(top, [[0, nearly, np.nan], [-1, np.nan, np.nan]])
    ops.assert_close(least, [[0, nearly, np.nan], [1, 1, np.nan]])


# Dtypes, and what is not a number -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_computed_in_full(ops, dtype):
    x = np.random.default_rng(4).normal(size=(3, 2)).astype(dtype)
    for op in (
        lambda x: ops.moments(x).scatter,
        lambda x: ops.segment_mean(x, np.array([2, 0, 2]), num_segments=4),
    ):
        assert op(x).dtype == ops.dtype
        ops.assert_close(op(x), op(x.astype(np.float64)))


def test_nan_in_gives_nan_out(ops):
    x = np.array([[1.0, 0.0], [2.0, np.nan], [0.0, 1.0], [3.0, 1.0], [5.0, 9.0]])
    fit = ops.isotropy(x[:2])
    assert np.isnan(fit[:4]).all()
    assert np.isnan(ops.isotropy_curve(fit).low).all()
    assert np.isnan(ops.pca(x[:4]).explained_variance).all()
    assert np.isnan(ops.log_partition(x[:2], np.eye(2))[:, 1]).all()
    means = ops.segment_mean(x[:3], np.array([0, 0, 1]), num_segments=4)
    assert np.isnan(means).any(axis=1).tolist() == [True, False, False, False]
    labels = np.array([0, 0, 0, 1, 1])
    removal = ops.fit_removal(x, labels, n_clusters=3, n_directions=1)
    changed = np.asarray(ops.apply_removal(x, removal, labels))
    assert np.isnan(changed[:3]).any(axis=1).all()


def test_kmeans_of_nan_never_converges(ops):
    fit = ops.kmeans(column(0, np.nan, 9), 2, init=column(0, 9), max_iter=5)
    assert np.isnan(fit.inertia)
    assert (int(fit.n_iter), bool(fit.converged)) == (5, False)


@pytest.mark.parametrize("d", [1, 3])
def test_nan_is_in_all_four_readings(ops, d):
    log_f = np.ones((2, d))
    log_f[0, 0] = np.nan
    assert np.isnan(ops.log_isotropy(log_f)).all()


def test_nan_is_not_hidden_by_a_vanishing_cluster(ops):
    x, labels = np.ones((5, 2)), np.array([0, 0, 1, 1, 1])
    x[1, 0] = np.nan
    removal = ops.fit_removal(x, labels, n_clusters=3, n_directions=1)
    assert_array_equal(removal.vanishes, [True, False, False])
    assert np.isnan(ops.apply_removal(x, removal, labels)[:2]).any(axis=1).all()


@pytest.mark.parametrize("x", [np.full((4, 2), 4.0), np.full((1000, 2), 0.1)])
def test_constant_data_has_no_scatter_although_its_sum_is_rounded(ops, x):
    assert not ops.moments(x).scatter.any()
    assert not ops.zero_mean(x).any()
    fit = ops.pca(x)
    assert_array_equal(fit.explained_variance, [0, 0])
    assert np.isnan(fit.explained_variance_ratio).all()

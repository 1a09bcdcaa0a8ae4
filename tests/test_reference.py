"""The reference on cases worked out on paper, and at its edges."""

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from jaxgeom import reference as ref

E = np.e


class Scripted(np.random.Generator):
    """A generator whose uniform draws are written down beforehand."""

    def __init__(self, *uniforms):
        super().__init__(np.random.PCG64(0))
        self.uniforms = list(uniforms)

    def random(self):
        return self.uniforms.pop(0)


def column(*values):
    return np.array(values, np.float64)[:, None]


def test_moments_by_hand():
    # mean (3, 3); deviations (-2, -1), (0, -1), (2, 2): squares 8 and 6, products 2 + 0 + 4 = 6
    fit = ref.moments(np.array([[1.0, 2.0], [3.0, 2.0], [5.0, 5.0]]))
    assert int(fit.count) == 3
    assert_array_equal(fit.mean, [3, 3])
    assert_array_equal(fit.scatter, [[8, 6], [6, 6]])


def test_masked_rows_are_never_read():
    x = np.array([[1.0, 2.0], [np.nan, np.inf], [3.0, 2.0]])
    fit = ref.moments(x, mask=np.array([True, False, True]))
    assert int(fit.count) == 2
    assert_array_equal(fit.mean, [2, 2])
    assert_array_equal(fit.scatter, [[2, 0], [0, 0]])


def test_moments_of_no_rows_are_zero():
    fit = ref.moments(np.ones((2, 2)), mask=np.zeros(2, bool))
    assert int(fit.count) == 0
    assert not fit.mean.any()
    assert not fit.scatter.any()


def test_cluster_moments_with_an_empty_cluster():
    x = np.array([[0.0, 1.0], [7.0, 7.0], [4.0, 1.0]])
    fit = ref.cluster_moments(x, np.array([0, 2, 0]), n_clusters=3)
    assert_array_equal(fit.count, [2, 0, 1])
    assert_array_equal(fit.mean, [[2, 1], [0, 0], [7, 7]])
    assert_array_equal(fit.scatter[0], [[8, 0], [0, 0]])
    assert not fit.scatter[1:].any()


def test_pca_by_hand():
    # scatter diag(2, 18): variances 18/3 and 2/3, 90 % and 10 % of the total; the mean is (5, 5)
    x = np.array([[5.0, 8.0], [5.0, 2.0], [6.0, 5.0], [4.0, 5.0]])
    fit = ref.pca(x)
    assert_array_equal(fit.mean, [5, 5])
    assert_allclose(fit.components, [[0, 1], [1, 0]], atol=1e-15)
    assert_allclose(fit.explained_variance, [6, 2 / 3])
    assert_allclose(fit.explained_variance_ratio, [0.9, 0.1])


def test_pca_not_centred_by_hand():
    # x^T x = diag(8, 2) / (n - 1) = diag(8, 2); the mean stays zero
    fit = ref.pca(np.array([[2.0, 1.0], [2.0, -1.0]]), 1, center=False)
    assert_array_equal(fit.mean, [0, 0])
    assert_allclose(fit.components, [[1, 0]], atol=1e-15)
    assert_allclose([fit.explained_variance[0], fit.explained_variance_ratio[0]], [8, 0.8])


def test_largest_entry_of_a_component_is_positive():
    x = np.random.default_rng(0).normal(size=(30, 6))
    for components in (ref.pca(x).components, ref.isotropy(x).components):
        largest = np.abs(components).argmax(axis=1)
        assert (components[np.arange(6), largest] > 0).all()


def test_log_partition_of_norms_that_overflow():
    # F(+e1) = e^1000 + e^-1000, ln of it 1000 to the last digit; F(e2) = 1 + 1
    log_f = ref.log_partition(np.array([[1000.0, 0.0], [-1000.0, 0.0]]), np.eye(2))
    assert_allclose(log_f, [[1000, np.log(2)], [1000, np.log(2)]], rtol=1e-15)


def test_isotropy_by_hand():
    # W^T W = diag(1, 4). F(+e2) = 1 + e^2, F(-e2) = 1 + e^-2, F(+e1) = 1 + e, F(-e1) = 1 + 1/e.
    fit = ref.isotropy(np.array([[1.0, 0.0], [0.0, 2.0]]))
    assert_allclose(fit.eigenvalues, [4, 1])
    assert_allclose(fit.components, [[0, 1], [1, 0]], atol=1e-15)
    assert_allclose(fit.log_partition, np.log1p(np.exp([[2, 1], [-2, -1]])))
    assert int(fit.count) == 2
    assert_allclose(fit.heavier, (1 + E) / (1 + E**2))
    # e2 holds both the smallest and the largest F: low takes the smaller of the runners-up
    assert_allclose(fit.low, (1 + 1 / E) / (1 + E**2))  # 0.163; the other is 0.305
    assert_allclose(fit.high, (1 + E**-2) / (1 + 1 / E))  # both turned to their lighter side
    assert_allclose(fit.symmetric, E**-2)  # (1 + e^-2) / (1 + e^2)


def test_isotropy_with_fewer_rows_than_columns():
    # one row (2, 0, 0): F(+e1) = e^2, F(-e1) = e^-2; along the two null directions F = n = 1
    fit = ref.isotropy(np.array([[2.0, 0.0, 0.0]]))
    assert fit.components.shape == (3, 3)
    assert_allclose(fit.components @ fit.components.T, np.eye(3), atol=1e-15)
    assert_allclose(fit.eigenvalues, [4, 0, 0])
    readings = [fit.heavier, fit.low, fit.high, fit.symmetric]
    assert_allclose(readings, [E**-2, E**-2, E**-2, E**-4])


def test_isotropy_of_constant_data():
    assert_allclose(ref.isotropy(np.zeros((7, 3)))[:4], 1)  # every F is n
    # one direction, F(+1) = 5 e^3 and F(-1) = 5 e^-3: only `symmetric` sees both
    assert_allclose(
        ref.log_isotropy(ref.isotropy(np.full((5, 1), 3.0)).log_partition), [0, 0, 0, -6]
    )


def test_log_isotropy_of_one_direction():
    # one direction shows one side at a time, whichever it is: min = max
    assert_array_equal(ref.log_isotropy(np.array([[5.0], [2.0]])), [0, 0, 0, -3])


def test_kmeans_by_hand():
    # 0 | 1 9 -> (0, 5); 0 1 | 9 -> (0.5, 9); the third update moves nothing
    fit = ref.kmeans(column(0, 1, 9), 2, init=column(0, 1))
    assert_array_equal(fit.centroids, column(0.5, 9))
    assert_array_equal(fit.labels, [0, 0, 1])
    assert_array_equal(fit.counts, [2, 1])
    assert (float(fit.inertia), int(fit.n_iter), bool(fit.converged)) == (0.5, 3, True)
    assert fit.labels.dtype == fit.counts.dtype == fit.n_iter.dtype == np.int32


def test_kmeans_stopped_early_has_the_labels_of_its_centroids():
    # after the first update (0, 5): row 1 was in the second cluster and is now nearer to the first
    fit = ref.kmeans(column(0, 1, 9), 2, init=column(0, 1), max_iter=1)
    assert_array_equal(fit.centroids, column(0, 5))
    assert_array_equal(fit.labels, [0, 0, 1])
    assert (float(fit.inertia), int(fit.n_iter), bool(fit.converged)) == (1 + 16, 1, False)


@pytest.mark.parametrize(("tol", "n_iter"), [(16 / 146 * 9 + 1e-9, 1), (16 / 146 * 9 - 1e-9, 2)])
def test_kmeans_tolerance_is_relative_to_the_variance(tol, n_iter):
    # shifts 4^2, then 0.25 + 16: the first is 16, against a variance of 146/9 - and the second
    # update is the last one either way, as max_iter says
    fit = ref.kmeans(column(0, 1, 9), 2, init=column(0, 1), tol=tol, max_iter=2)
    assert int(fit.n_iter) == n_iter
    assert bool(fit.converged) == (n_iter == 1)


def test_an_empty_cluster_keeps_its_centroid():
    fit = ref.kmeans(column(0, 1), 2, init=column(0, 100))
    assert_array_equal(fit.centroids, column(0.5, 100))
    assert_array_equal(fit.counts, [2, 0])


def test_ties_go_to_the_lowest_index():
    assert_array_equal(ref.assign(column(1, 1), column(2, 0, 2)), [0, 0])
    assert ref.assign(column(1), column(0)).dtype == np.int32


@pytest.mark.parametrize(
    ("uniforms", "drawn"),
    [
        ((0.0, 0.5), (0, 3)),  # squared distances to 0 are 0, 1, 9: half of 10 lies in the third
        ((0.0, 0.09), (0, 1)),  # 0.9 lies in the second
        ((0.0, 0.0), (0, 1)),  # the row already drawn has weight 0 and cannot be drawn again
        ((0.5, 0.19), (1, 0)),  # to 1 they are 1, 0, 4: the first ends before a fifth of 5
        ((0.5, 0.2), (1, 3)),
        ((0.99, 0.99), (3, 1)),  # to 3 they are 9, 4, 0
    ],
)
def test_one_uniform_draws_one_centroid(uniforms, drawn):
    x, rng = column(0, 1, 3), Scripted(*uniforms)
    fit = ref.kmeans(x, 2, key=rng, n_init=1, max_iter=1)
    expected = ref.kmeans(x, 2, init=column(*drawn), max_iter=1)
    assert not rng.uniforms
    assert_array_equal(fit.centroids, expected.centroids)


def test_the_best_restart_wins():
    x = np.random.default_rng(1).normal(size=(60, 2))
    best = ref.kmeans(x, 7, key=5, n_init=6)
    rng = np.random.default_rng(5)
    singles = [ref.kmeans(x, 7, key=rng, n_init=1) for _ in range(6)]
    inertias = [float(single.inertia) for single in singles]
    assert len(set(inertias)) > 1
    winner = singles[int(np.argmin(inertias))]
    assert float(best.inertia) == min(inertias)
    assert int(best.n_iter) == int(winner.n_iter)
    assert_array_equal(best.labels, winner.labels)


def test_random_rows_are_distinct():
    x = np.arange(12.0)[:, None]
    assert float(ref.kmeans(x, 12, key=0, init="random", n_init=1).inertia) == 0


def test_kmeans_of_constant_data():
    fit = ref.kmeans(np.full((4, 2), 3.0), 2, key=0)
    assert_array_equal(fit.counts, [4, 0])
    assert (float(fit.inertia), bool(fit.converged)) == (0, True)


def test_removal_by_hand():
    # cluster 0: mean (2, 1), deviations (-2, 0), (2, 0), (0, 1), (0, -1): scatter diag(8, 2)
    x = np.array([[0.0, 1.0], [4.0, 1.0], [2.0, 2.0], [2.0, 0.0], [9.0, 9.0]])
    labels = np.array([0, 0, 0, 0, 1])
    top = ref.fit_removal(x, labels, n_clusters=3, n_directions=1)
    assert_array_equal(top.means, [[2, 1], [9, 9], [0, 0]])
    assert_array_equal(top.counts, [4, 1, 0])
    assert_array_equal(top.vanishes, [False, True, False])
    assert_allclose(top.components[0], [[1, 0]], atol=1e-15)
    assert_allclose(np.linalg.norm(top.components, axis=2), 1)
    expected = [[0, 0], [0, 0], [0, 1], [0, -1], [0, 0]]
    assert_allclose(ref.apply_removal(x, top, labels), expected, atol=1e-15)


def test_least_directions_by_hand():
    x = np.array([[0.0, 1.0], [4.0, 1.0], [2.0, 2.0], [2.0, 0.0]])
    least = ref.fit_removal(x, n_directions=1, which="least")
    assert_allclose(least.components, [[[0, 1]]], atol=1e-15)
    assert not least.vanishes.any()
    expected = [[-2, 0], [2, 0], [0, 0], [0, 0]]
    assert_allclose(ref.apply_removal(x, least), expected, atol=1e-15)


def test_a_cluster_of_k_plus_one_rows_vanishes_and_one_of_k_plus_two_does_not():
    x = np.random.default_rng(2).normal(size=(7, 5)) + 100
    labels = np.array([0, 0, 0, 1, 1, 1, 1])
    removal = ref.fit_removal(x, labels, n_clusters=2, n_directions=2)
    assert_array_equal(removal.vanishes, [True, False])
    changed = ref.apply_removal(x, removal, labels)
    assert not changed[:3].any()
    assert (np.abs(changed[3:]).max(axis=1) > 1e-3).all()


@pytest.mark.parametrize(("n_directions", "which"), [(0, "top"), (0, "least"), (2, "least")])
def test_nothing_else_vanishes(n_directions, which):
    x = np.random.default_rng(3).normal(size=(2, 4))
    removal = ref.fit_removal(x, n_directions=n_directions, which=which)
    assert not removal.vanishes.any()
    assert removal.components.shape == (1, n_directions, 4)


def test_zero_means_by_hand():
    x, labels = column(0, 4, 7), np.array([0, 0, 1])
    assert_allclose(ref.zero_mean(x), column(-11 / 3, 1 / 3, 10 / 3))
    assert_array_equal(ref.cluster_zero_mean(x, labels, n_clusters=2), column(-2, 2, 0))


def test_remove_directions_does_not_centre():
    x = np.array([[3.0, 4.0], [5.0, 6.0]])
    assert_array_equal(ref.remove_directions(x, np.array([[0.0, 1.0]])), [[3, 0], [5, 0]])
    assert_array_equal(ref.remove_directions(x, np.zeros((0, 2))), x)


def test_segment_mean_by_hand():
    x = np.array([[1.0, 0.0], [8.0, 8.0], [3.0, 2.0]])
    means = ref.segment_mean(x, np.array([2, 0, 2]), num_segments=4)
    assert_array_equal(means, [[8, 8], [0, 0], [2, 1], [0, 0]])


def test_similarity_curve_by_hand():
    # (3, 4) and (4, -3) are orthogonal; along e2 alone they are opposite, along e1 alone alike.
    # (1, 1e-4) keeps 1e-8 of its energy along e2: no cosine; along e1 it has nearly all of it.
    a, b = np.array([[3.0, 4.0], [1.0, 1e-4], [0.0, 0.0]]), np.array([[4.0, -3.0]] * 3)
    top = ref.similarity_curve(a, b, np.eye(2))
    least = ref.similarity_curve(a, b, np.eye(2), "least")
    assert_allclose(top, [[0, 0.8 - 0.6e-4, np.nan], [-1, np.nan, np.nan]], rtol=1e-7)
    assert_allclose(least, [[0, 0.8 - 0.6e-4, np.nan], [1, 1, np.nan]], rtol=1e-7)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_every_float_is_computed_in_float64(dtype):
    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x = np.random.default_rng(4).normal(size=(20, 4)).astype(dtype)
    labels = np.arange(20) % 3
    for op in (
        lambda x: ref.isotropy(x).heavier,
        lambda x: ref.kmeans(x, 3, key=0).centroids,
        lambda x: ref.fit_removal(x, labels, n_clusters=3, n_directions=1).components,
        lambda x: ref.segment_mean(x, labels, num_segments=3),
    ):
        out = op(x)
        assert out.dtype == np.float64
        assert_array_equal(out, op(x.astype(np.float64)))


def test_nan_in_gives_nan_out():
    x = np.random.default_rng(5).normal(size=(12, 3))
    x[4, 1] = np.nan
    labels = np.arange(12) % 2  # the NaN row is in cluster 0
    fit = ref.isotropy(x)
    assert np.isnan([fit.heavier, fit.low, fit.high, fit.symmetric]).all()
    assert np.isnan(ref.pca(x).explained_variance).all()
    assert np.isnan(ref.log_partition(x, np.eye(3))[:, 1]).all()
    assert np.isnan(ref.isotropy_curve(fit).low).all()
    clustering = ref.kmeans(x, 2, key=0, n_init=2, max_iter=5)
    assert np.isnan(clustering.inertia)
    assert not clustering.converged
    removal = ref.fit_removal(x, labels, n_clusters=2, n_directions=1)
    changed = ref.apply_removal(x, removal, labels)
    assert np.isnan(changed[::2]).any(axis=1).all()
    assert np.isfinite(changed[1::2]).all()
    assert np.isnan(ref.segment_mean(x, labels, num_segments=2)).any(axis=1).tolist() == [
        True,
        False,
    ]


def test_nan_is_not_hidden_by_a_vanishing_cluster():
    x = np.array([[1.0, 2.0], [np.nan, 2.0]])
    removal = ref.fit_removal(x, n_directions=1)
    assert removal.vanishes.all()
    assert np.isnan(ref.apply_removal(x, removal)).any()


def test_ratio_of_constant_data_is_nan():
    fit = ref.pca(np.full((3, 2), 4.0))
    assert_array_equal(fit.explained_variance, [0, 0])
    assert np.isnan(fit.explained_variance_ratio).all()

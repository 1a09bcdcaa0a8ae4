"""What holds whatever the data: named invariants, and the algebra of removal the long way round."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from op_sets import anisotropic, blobs, column, for_each_op_set

from jaxgeom.testing_kmeans import clear_of_ties, distances

pytestmark = for_each_op_set

WHICH = ("top", "least")
D = 7


@pytest.fixture
def centred(ops):
    """Centred anisotropic rows, of norms at which ln I spans several units."""
    return np.asarray(ops.zero_mean(3 * anisotropic(80, D)), np.float64)


def log_isotropy_of(ops, x):
    return ops.log_isotropy(ops.isotropy(x).log_partition)


# Isotropy -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-4, 1, 1e3])
def test_isotropy_is_above_0_and_at_most_1(ops, scale):
    x = scale * anisotropic(80, D)
    for rows in (x, ops.zero_mean(x)):
        fit = ops.isotropy(rows)
        logs = ops.log_isotropy(fit.log_partition)
        assert (np.asarray(logs) <= 0).all()
        assert np.isfinite(logs).all()  # I > 0, though its exponential may underflow
        np.testing.assert_allclose(fit[:4], np.exp(np.asarray(logs)), rtol=8 * ops.eps)


def test_heavier_is_the_same_under_rotation(ops, centred):
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(D, D)))[0]
    for x in (centred, centred + 1):
        turned, plain = log_isotropy_of(ops, x @ rotation), log_isotropy_of(ops, x)
        # ln F moves by what a direction turns, several roundings over its gap, times the data
        ops.assert_close(turned.heavier, plain.heavier, 64, scale=np.abs(x).max())
        ops.assert_close(turned.symmetric, plain.symmetric, 64, scale=np.abs(x).max())


def test_eigenvalues_are_what_moments_say(ops):
    x = anisotropic(80, D)
    fit, moments = ops.isotropy(x), ops.moments(x)
    total = np.trace(moments.scatter) + 80 * np.square(np.asarray(moments.mean)).sum()
    ops.assert_close(np.asarray(fit.eigenvalues).sum(), total, 16)


@pytest.mark.parametrize("which", WHICH)
def test_isotropy_curve_against_removing_one_by_one(ops, centred, which):
    fit = ops.isotropy(centred)
    curve = ops.isotropy_curve(fit, which)
    basis = np.asarray(fit.components)
    for k in range(D):
        removed = np.arange(D) < k if which == "top" else np.arange(D) >= D - k
        y = ops.remove_directions(centred, basis * removed[:, None])  # a zero row takes nothing
        same_basis = ops.log_isotropy(ops.log_partition(y, basis))
        own_basis = log_isotropy_of(ops, y)  # the null space has any basis: F = n in all of it
        for reading in ("heavier", "low", "high"):
            at_k = np.asarray(getattr(curve, reading)[k])
            scale = np.abs(centred).max()
            ops.assert_close(getattr(same_basis, reading), at_k, scale=scale)
            ops.assert_close(getattr(own_basis, reading), at_k, 64, scale)


@pytest.mark.parametrize("which", WHICH)
def test_isotropy_curve_against_fit_removal(ops, which):
    x = 3 * anisotropic(80, D)
    curve = ops.isotropy_curve(ops.isotropy(ops.zero_mean(x)), which)
    k = {"top": 2, "least": 4}[which]
    y = ops.apply_removal(x, ops.fit_removal(x, n_directions=k, which=which))
    got = log_isotropy_of(ops, y).heavier
    ops.assert_close(got, np.asarray(curve.heavier[k]), 64, scale=np.abs(x).max())


def test_least_curve_is_flat_until_the_heaviest_direction_goes(ops, centred):
    fit = ops.isotropy(centred)
    curve = ops.isotropy_curve(fit, "least")
    log_f = np.asarray(fit.log_partition)
    assert log_f[:, 0].max() == log_f.max()
    ops.assert_close(curve.heavier[1:], [np.log(80) - log_f.max()] * (D - 1))
    # a heaviest direction that is not the first goes before the last k does, and the curve rises
    swapped = fit._replace(log_partition=log_f[:, ::-1].copy())
    risen = np.asarray(ops.isotropy_curve(swapped, "least").heavier)[1:]
    assert (np.diff(risen) >= 0).all()
    assert risen[0] > curve.heavier[1]


def test_curves_never_exceed_1_and_keep_nan(ops):
    fit = ops.isotropy(ops.zero_mean(1e-3 * anisotropic(80, D)))
    below = np.nextafter(np.log(80).astype(ops.dtype), ops.dtype(0))  # F >= n, but for rounding
    for log_f in (fit.log_partition, np.full((2, D), below)):
        for which in WHICH:
            curve = ops.isotropy_curve(fit._replace(log_partition=log_f), which)
            assert (np.stack(curve) <= 0).all()
    broken = fit._replace(log_partition=np.full((2, D), np.nan))
    assert np.isnan(np.stack(ops.isotropy_curve(broken))).all()


@pytest.mark.parametrize("which", WHICH)
def test_similarity_curve_against_removing_one_by_one(ops, which):
    x = anisotropic(30, D)
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(D, D)))[0]
    a, b = x[:15].copy(), x[15:].copy()
    a[3] = 2 * basis[0] + 1e-4 * basis[6]  # hardly anything without the first direction
    b[7] = 0
    curve = np.asarray(ops.similarity_curve(a, b, basis, which))
    for k in range(D):
        removed = np.arange(D) < k if which == "top" else np.arange(D) >= D - k
        y, z = (v - v @ basis[removed].T @ basis[removed] for v in (a, b))
        keeps = [(u**2).sum(1) > 1e-6 * (v**2).sum(1) for u, v in ((y, a), (z, b))]
        with np.errstate(invalid="ignore"):
            cosines = (y * z).sum(1) / np.linalg.norm(y, axis=1) / np.linalg.norm(z, axis=1)
        expected = np.where(keeps[0] & keeps[1], cosines, np.nan)
        ops.assert_close(curve[k], expected, 32)  # of a vector that keeps a fraction of its length
    assert np.isnan(curve[:, 7]).all()
    assert np.isnan(curve[1:, 3]).all() == (which == "top")
    assert np.isfinite(curve[0, 3])


# Removal ------------------------------------------------------------------------------------------


@pytest.fixture
def clustered():
    """Rows in four blobs, a cluster of three rows that vanish with two directions, an empty one."""
    x, labels = blobs(90, 5, 4)
    labels[:3] = 4
    return x, labels, 6


@pytest.mark.parametrize("which", WHICH)
def test_changed_scatter_against_the_changed_data(ops, clustered, which):
    x, labels, n_clusters = clustered
    removal = ops.fit_removal(x, labels, n_clusters=n_clusters, n_directions=2, which=which)
    assert_array_equal(removal.vanishes, np.arange(6) == (4 if which == "top" else -1))
    changed = np.asarray(ops.apply_removal(x, removal, labels), np.float64)
    clusters = ops.cluster_moments(x, labels, n_clusters=n_clusters)
    algebra = ops.changed_scatter(clusters, removal.components)
    scale = np.abs(clusters.scatter).max()
    ops.assert_close(algebra, changed.T @ changed, scale=scale)
    ops.assert_close(algebra, ops.moments(changed).scatter, scale=scale)


def test_changed_scatter_of_directions_that_are_no_eigenvectors(ops, clustered):
    # where S - V L V^T, or a projection on one side only, would be wrong
    x, labels, n_clusters = clustered
    rng = np.random.default_rng(2)
    directions = np.linalg.qr(rng.normal(size=(n_clusters, 5, 2)))[0].swapaxes(1, 2)
    centred = np.asarray(ops.cluster_zero_mean(x, labels, n_clusters=n_clusters), np.float64)
    along = np.einsum("nd,nkd->nk", centred, directions[labels])
    changed = centred - np.einsum("nk,nkd->nd", along, directions[labels])
    clusters = ops.cluster_moments(x, labels, n_clusters=n_clusters)
    algebra = ops.changed_scatter(clusters, directions)
    ops.assert_close(algebra, changed.T @ changed, scale=np.abs(clusters.scatter).max())


@pytest.mark.parametrize("which", WHICH)
def test_removed_directions_are_gone_and_the_rest_untouched(ops, clustered, which):
    x, labels, n_clusters = clustered
    removal = ops.fit_removal(x, labels, n_clusters=n_clusters, n_directions=2, which=which)
    changed = np.asarray(ops.apply_removal(x, removal, labels), np.float64)
    for c in range(4):
        rows, before = changed[labels == c], x[labels == c]
        directions = np.asarray(removal.components[c], np.float64)
        scale = np.abs(x).max()
        ops.assert_close(rows.mean(axis=0), np.zeros(5), scale=scale)
        ops.assert_close(rows @ directions.T, np.zeros((len(rows), 2)), scale=scale)
        variances, kept = (np.linalg.eigvalsh(np.cov(y.T))[::-1] for y in (before, rows))
        expected = variances[2:] if which == "top" else variances[:3]
        ops.assert_close(kept[:3], expected, 16, scale=variances[0])
        along = np.square((before - before.mean(axis=0)) @ directions.T).sum(axis=0)
        assert along[0] > along[1]  # in descending order


@pytest.mark.parametrize("which", WHICH)
def test_removal_is_idempotent(ops, clustered, which):
    x, labels, n_clusters = clustered
    removal = ops.fit_removal(x, labels, n_clusters=n_clusters, n_directions=2, which=which)
    once = ops.apply_removal(x, removal, labels)
    again = ops.apply_removal(once, removal._replace(means=0 * removal.means), labels)
    ops.assert_close(again, once, scale=np.abs(x).max())
    direction = np.asarray(removal.components[0])
    once = ops.remove_directions(x, direction)
    ops.assert_close(ops.remove_directions(once, direction), once, scale=np.abs(x).max())


def test_clusters_are_changed_one_by_one(ops, clustered):
    """Labels mean what a loop over the clusters means, up to the numbering of the clusters."""
    x, labels, n_clusters = clustered
    changed = np.asarray(ops.cluster_zero_mean(x, labels, n_clusters=n_clusters))
    clusters = ops.cluster_moments(x, labels, n_clusters=n_clusters)
    renamed = ops.cluster_moments(x, n_clusters - 1 - labels, n_clusters=n_clusters)
    for c in range(n_clusters):
        alone = ops.moments(x, mask=labels == c)
        mean = np.asarray(alone.mean)[None, :]
        ops.assert_close(changed[labels == c], x[labels == c] - mean, scale=np.abs(x).max())
        for one, all_of_them in zip(alone, clusters, strict=True):
            ops.assert_close(all_of_them[c], one, 16, scale=np.abs(clusters.scatter).max())
        for one, other in zip(clusters, renamed, strict=True):
            ops.assert_close(other[n_clusters - 1 - c], one[c], scale=np.abs(one).max())
    ops.assert_close(ops.moments(x).scatter, 89 * np.cov(x.T))


# k-means ------------------------------------------------------------------------------------------


def test_inertia_never_rises(ops):
    x, _ = blobs(200, 4, 5)
    fits = [ops.kmeans(x, 5, init=x[:5], max_iter=i) for i in (1, 2, 3, 5, 9)]
    inertias = np.array([float(fit.inertia) for fit in fits])
    assert (np.diff(inertias) <= 8 * ops.eps * inertias[0]).all()
    assert inertias[0] > inertias[-1]


def test_a_clustering_fits_its_centroids(ops):
    x, _ = blobs(200, 4, 5)
    assert clear_of_ties(x, x[:5])
    fit = ops.kmeans(x, 5, init=x[:5])
    labels, centroids = np.asarray(fit.labels), np.asarray(fit.centroids, np.float64)
    assert_array_equal(fit.counts, np.bincount(labels, minlength=5))
    ops.assert_close(fit.inertia, np.square(x - centroids[labels]).sum(), 16)
    for c in range(5):  # converged: each centroid is the mean of its rows
        ops.assert_close(centroids[c], x[labels == c].mean(axis=0), 16)
    assert_array_equal(ops.assign(x, fit.centroids), labels)


@pytest.mark.parametrize("max_iter", [1, 2, 3])
def test_counts_and_inertia_are_of_the_labels_of_a_run_that_was_stopped(ops, max_iter):
    x = np.random.default_rng(0).integers(0, 6, (300, 3)).astype(np.float64)  # many ties
    fit = ops.kmeans(x, 5, init=x[:5], max_iter=max_iter)
    assert not fit.converged
    labels, centroids = np.asarray(fit.labels), np.asarray(fit.centroids, np.float64)
    assert not distances(x, centroids, ops.dtype).excess(labels).any()
    assert_array_equal(fit.counts, np.bincount(labels, minlength=5))
    ops.assert_close(fit.inertia, np.square(x - centroids[labels]).sum(), 16)


def test_starts_are_reproducible_and_find_separated_blobs(ops):
    labels = np.arange(12) % 3
    x = column(*(20 * labels + np.random.default_rng(3).normal(size=12)))
    fit, again = (ops.kmeans(x, 3, key=ops.key(7)) for _ in range(2))
    assert_array_equal(fit.labels, again.labels)
    assert len(set(zip(labels, np.asarray(fit.labels), strict=True))) == 3  # one cluster a blob

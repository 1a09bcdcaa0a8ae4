"""What computes less than the definition says gives what the definition says."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from op_sets import anisotropic, blobs

import jaxgeom as jg
from jaxgeom import reference
from jaxgeom.kernels import _bounds, _kmeans, _linalg, _moments
from jaxgeom.kernels._seeding import plus_plus_of_each
from jaxgeom.kernels._triangle import Triangle
from jaxgeom.testing_kmeans import distances, step

N, D, C = 1500, 8, 9


def _overlapping(seed):
    """Clusters that overlap, so that Lloyd's iterations go on for a while."""
    x, _ = blobs(N, D, C, seed)
    return (x / 4 + np.random.default_rng(seed).normal(size=(N, D))).astype(np.float32)


def _runs(x, start, max_iter):
    """Return the plain run and the one with bounds."""
    x, start = jnp.asarray(x), jnp.asarray(start)
    origin = x.mean(0)
    options = (jnp.asarray(max_iter, jnp.int32), jnp.zeros((), x.dtype))
    return [run(x, start - origin[None, :], origin, *options) for run in (_plain, _bounded)]


def _plain_lloyd(x, start, origin, max_iter, least_step):
    rows = _kmeans._Rows(x, None, origin, 200, None)
    return _kmeans._lloyd(rows, start, max_iter, least_step)


_plain = jax.jit(_plain_lloyd)
_bounded = jax.jit(
    lambda x, start, origin, *o: _kmeans._bounded_lloyd(_bounds.rows_of(x, origin, 200), start, *o)
)


@pytest.mark.parametrize("max_iter", [1, 2, 7, 300])
@pytest.mark.parametrize("seed", range(3))
def test_a_run_makes_lloyds_iterations(seed, max_iter):
    """The rows overlap: two runs part at a tie, so each is held against its own centroids."""
    x = _overlapping(seed)
    origin = np.asarray(jnp.asarray(x).mean(0), np.float64)[None, :]
    for which, run in enumerate(_runs(x, x[:C], max_iter)):
        made = int(run.n_iter)
        assert made == max_iter or np.array_equal(run.centroids, run.previous)
        before = _runs(x, x[:C], made - 1)[which]
        assert_array_equal(run.previous, before.centroids)
        one = step(x, np.asarray(run.previous, np.float64) + origin)
        excess = one.excess(np.asarray(run.centroids, np.float64) + origin)
        assert_allclose(excess, 0, rtol=0, atol=2e-6)


@pytest.mark.parametrize(("on_a_grid", "offset", "atol"), [(False, 0, 2e-6), (True, 200, 2e-5)])
@pytest.mark.parametrize("seed", range(3))
def test_bounds_leave_out_nothing_that_matters(seed, on_a_grid, offset, atol):
    """Also far from the origin, and on a grid of many ties: every label is a nearest one."""
    x = _overlapping(seed)
    x = (np.round(x) if on_a_grid else x) + np.float32(offset)
    rows = _bounds.rows_of(jnp.asarray(x), jnp.asarray(x).mean(0), 200)
    origin = np.asarray(rows.origin, np.float64)[None, :]
    move = jax.jit(partial(_bounds.move, rows))
    state = _bounds.start(rows, x[:C] - rows.origin[None, :])
    for _ in range(300):
        state = move(state)
        labels = np.asarray(state.labels)
        found = distances(x, np.asarray(state.previous, np.float64) + origin)
        assert not found.excess(labels).any()
        assert_array_equal(state.counts, np.bincount(labels, minlength=C))
        means = np.stack([x[labels == c].mean(0, dtype=np.float64) for c in range(C)])
        assert_allclose(np.asarray(state.centroids) + origin, means, rtol=0, atol=atol)
        if np.array_equal(state.centroids, state.previous):
            break
    else:
        raise AssertionError("it does not end")


def test_an_empty_cluster_keeps_its_centroid_under_bounds():
    x = _overlapping(4)
    start = np.concatenate([x[: C - 1], np.full((1, D), 1e3, np.float32)])
    for run in _runs(x, start, 300):
        assert_array_equal(run.centroids[-1], start[-1] - jnp.asarray(x).mean(0))
        assert_array_equal(run.centroids, run.previous)


def test_bounds_leave_most_rows_unread_once_a_run_has_settled():
    x = jnp.asarray(_overlapping(5))
    rows = _bounds.rows_of(x, x.mean(0), None)
    state = _bounds.start(rows, x[:C] - rows.origin[None, :])
    step, unsure = jax.jit(partial(_bounds.move, rows)), []
    for _ in range(40):
        unsure.append(float(_bounds._loosened(state)[1].mean()))
        state = step(state)
    assert unsure[0] == 1
    assert np.mean(unsure[20:]) < 0.3


def test_counts_and_inertia_are_of_the_very_labels_that_are_returned(monkeypatch):
    """Not of another pass, in which a row at a tie may fall to the other side."""
    monkeypatch.setattr(_kmeans, "nearest", lambda rows, _: jnp.full(len(rows), 1, jnp.int32))
    x = np.array([[0.0], [1.0], [5.0], [6.0], [7.0]], np.float32)
    _kmeans._kmeans.clear_cache()
    try:
        fit = jg.kmeans(x, 3, init=x[:3], max_iter=1)
    finally:
        _kmeans._kmeans.clear_cache()
    labels = np.asarray(fit.labels)
    assert_array_equal(fit.counts, np.bincount(labels, minlength=3))
    assert_allclose(fit.inertia, np.square(x - fit.centroids[labels]).sum(), rtol=1e-6)


def test_a_row_that_is_not_finite_does_not_end_a_run():
    x = _overlapping(6)
    x[7, 3] = np.nan
    fit = jg.kmeans(x, C, init=x[10 : 10 + C], max_iter=5)
    assert not bool(fit.converged)
    assert np.isnan(float(fit.inertia))


@pytest.mark.parametrize("d", [384, 387])
def test_the_upper_blocks_are_the_whole_product(d):
    x = anisotropic(300, d).astype(np.float32)
    triangle = Triangle(d)
    parts = triangle.gram(jnp.asarray(x))
    assert len(parts) == 4
    whole = triangle.whole(parts)
    assert_array_equal(whole, whole.T)
    expected = x.astype(np.float64).T @ x
    assert_allclose(whole, expected, rtol=0, atol=2e-6 * np.abs(expected).max())
    for part, cut in zip(parts, triangle.cut(whole), strict=True):
        # the diagonal blocks are put together from their upper triangles
        assert_allclose(cut, part, rtol=0, atol=2e-6 * np.abs(expected).max())


def test_wide_moments_agree_with_the_reference():
    x = anisotropic(700, 260).astype(np.float32)
    labels = (np.arange(700) % 3).astype(np.int32)
    for got, wanted in (
        (jg.moments(x), reference.moments(x)),
        (
            jg.cluster_moments(x, labels, n_clusters=3),
            reference.cluster_moments(x, labels, n_clusters=3),
        ),
    ):
        scale = np.abs(wanted.scatter).max()
        assert_allclose(got.scatter, wanted.scatter, rtol=0, atol=4e-6 * scale)
        assert_array_equal(got.count, wanted.count)


def test_wide_moments_have_the_gradient_of_the_plain_product():
    x = jnp.asarray(anisotropic(40, 256), jnp.float32)
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(256, 256)), jnp.float32)

    def plain(x):
        centred = x - x.mean(0)[None, :]
        return (weights * _linalg.gram(centred)).sum()

    got = jax.grad(lambda x: (weights * _moments._moments(x, None).scatter).sum())(x)
    expected = jax.grad(plain)(x)
    assert_allclose(got, expected, rtol=0, atol=1e-5 * float(jnp.abs(expected).max()))


def test_directions_of_many_matrices_are_those_of_each():
    """One matrix has a gap, one has none and needs a full decomposition, one is of no rows."""
    d, k = 64, 3
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))[0]
    values = np.stack([np.geomspace(100, 0.1, d), np.linspace(1.0001, 1, d), np.zeros(d)])
    matrices = jnp.asarray(np.einsum("ji,cj,jk->cik", basis, values, basis), jnp.float32)
    both = jax.jit(_linalg.leading_eigenvectors_of_each, static_argnums=1)
    found, components = both(matrices, k)
    assert_allclose(found, values[:, :k], rtol=1e-4, atol=1e-4)
    assert_allclose(components[0].T @ components[0], basis[:k].T @ basis[:k], rtol=0, atol=1e-4)
    for vectors in components:
        assert_allclose(vectors @ vectors.T, np.eye(k), rtol=0, atol=1e-5)
    assert jax.grad(lambda m: both(m, k)[0].sum())(matrices[:1]).shape == (1, d, d)


def test_centroids_drawn_together_are_those_that_each_restart_draws():
    x = jnp.asarray(_overlapping(10))  # every draw is 2e-5 of the total from the next row's
    keys = jax.random.split(jax.random.key(0), 4)
    together = plus_plus_of_each(x, keys, n_clusters=C)
    for key, start in zip(keys, together, strict=True):
        ours = jg.kmeans(x, C, key=key, n_init=1, max_iter=2)
        theirs = jg.kmeans(x, C, init=start, max_iter=2)
        assert_allclose(ours.centroids, theirs.centroids, rtol=0, atol=1e-5)

"""A row with NaN or infinity reaches its own cluster or segment, and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from op_sets import KERNELS, blobs, for_each_op_set

import jaxgeom as jg
from jaxgeom import streaming
from jaxgeom.kernels import _kmeans, _seeding

N, D, C, K = 300, 32, 4, 2  # so narrow a K that all clusters' directions are iterated together
SCALES = np.repeat([4.0, 1.0, 0.25], [K, D - 2 * K, K])  # a gap on either side
X = (10 + blobs(N, D, C)[0] * SCALES[None, :]).astype(np.float32)
LABELS = (np.arange(N) % C).astype(np.int32)
BAD = [np.nan, np.inf, -np.inf]
ROWS = [0, 161]  # the first, that others are read relative to, and one of the middle
OTHERS = {row: np.arange(C) != LABELS[row] for row in ROWS}

for_bad = pytest.mark.parametrize("bad", BAD)
for_each_row = pytest.mark.parametrize("row", ROWS)


def spoiled(bad, row):
    x = X.copy()
    x[row, 3] = bad
    return x


@pytest.fixture(autouse=True)
def no_warnings():
    """NumPy's reference says what it makes of infinity."""
    with np.errstate(invalid="ignore"):
        yield


def assert_apart(ops, got, wanted, others, roundings=16):
    """Assert that the others' results are what they are without the row, and its own is not."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    ops.assert_close(got[others], wanted[others], roundings, scale=np.abs(wanted).max())
    own = got[~others].reshape((~others).sum(), -1)
    assert not np.isfinite(own).all(axis=1).any()


@for_each_op_set
@for_bad
@for_each_row
def test_cluster_moments(ops, bad, row):
    got, wanted = (ops.cluster_moments(x, LABELS, n_clusters=C) for x in (spoiled(bad, row), X))
    assert_array_equal(got.count, wanted.count)
    assert_apart(ops, got.mean, wanted.mean, OTHERS[row])
    assert_apart(ops, got.scatter, wanted.scatter, OTHERS[row])


@for_bad
@for_each_row
@pytest.mark.parametrize("n_directions", [0, K])
@pytest.mark.parametrize("which", ["top", "least"])
def test_removal(bad, row, n_directions, which):
    options = {"n_clusters": C, "n_directions": n_directions, "which": which}
    x = spoiled(bad, row)
    got, wanted = (jg.fit_removal(rows, LABELS, **options) for rows in (x, X))
    assert_apart(KERNELS, got.means, wanted.means, OTHERS[row])
    if n_directions:
        projectors = (np.einsum("ckd,cke->cde", f.components, f.components) for f in (got, wanted))
        assert_apart(KERNELS, *projectors, OTHERS[row], 512)  # of the largest, over the gap
    changed, expected = jg.apply_removal(x, got, LABELS), jg.apply_removal(X, wanted, LABELS)
    others = OTHERS[row][LABELS]
    KERNELS.assert_close(changed[others], np.asarray(expected)[others], 16, scale=X.max())
    assert not np.isfinite(changed[~others]).all(axis=1).any()


@for_each_op_set
@for_bad
@for_each_row
def test_segment_mean(ops, bad, row):
    got, wanted = (ops.segment_mean(x, LABELS, num_segments=C) for x in (spoiled(bad, row), X))
    assert_apart(ops, got, wanted, OTHERS[row])


@for_each_op_set
@for_bad
def test_a_removal_is_applied_row_by_row(ops, bad):
    fit = ops.fit_removal(X, LABELS, n_clusters=C, n_directions=K)
    got, wanted = (ops.apply_removal(x, fit, LABELS) for x in (spoiled(bad, 161), X))
    assert_apart(ops, got, wanted, np.arange(N) != 161)


@for_each_row
def test_layers_mapped_together(row):
    layers = jnp.stack([X, spoiled(np.nan, row), X + 1])

    def moments(x):
        return jg.cluster_moments(x, LABELS, n_clusters=C)

    mapped = jax.vmap(moments)(layers)
    for i, x in enumerate(layers):
        for got, wanted in zip(mapped, moments(x), strict=True):
            KERNELS.assert_close(got[i], wanted, 16)


@for_each_row
def test_the_gradient_of_other_clusters(row):
    @jax.jit
    @jax.grad
    def gradient(x):
        scatter = jg.cluster_moments(x, LABELS, n_clusters=C).scatter
        return jnp.where(OTHERS[row][:, None, None], scatter, 0)[:, 0, 3].sum()

    others = OTHERS[row][LABELS]
    got, wanted = (gradient(jnp.asarray(x)) for x in (spoiled(np.nan, row), X))
    KERNELS.assert_close(got[others], wanted[others], 64)
    assert np.abs(wanted[others]).max() > 1


# Streams, and masks -------------------------------------------------------------------------------

CENTROIDS = np.stack([X[i::C].mean(0) for i in range(C)])


@for_bad
@pytest.mark.parametrize("chunk_rows", [7, N])
@for_each_row
def test_a_stream(bad, chunk_rows, row):
    """A row that is nearest to no centroid is given to any one of them."""
    x, without = spoiled(bad, row), np.delete(X, row, axis=0)
    options = {"chunk_rows": chunk_rows, "progress": False}
    got, wanted = (streaming.cluster_moments([r], CENTROIDS, **options) for r in (x, without))
    others = got.count == wanted.count
    assert others.sum() == C - 1
    assert_apart(KERNELS, got.mean, wanted.mean, others)
    assert_apart(KERNELS, got.scatter, wanted.scatter, others)
    got, wanted = (streaming.segment_mean([r], LABELS, num_segments=C, **options) for r in (x, X))
    assert_apart(KERNELS, got, wanted, OTHERS[row])


@for_bad
@pytest.mark.parametrize("first", [0, 160])
def test_masked_rows_are_never_read_by_k_means(bad, first):
    """Those of a mesh's padding, of which a device may have nothing else."""
    mask = np.ones(N, bool)
    mask[first : first + 9] = False
    start = X[mask][:C]

    def fit(x, mask):
        limits = jnp.asarray(3, jnp.int32), jnp.zeros((), jnp.float32)
        return _kmeans._kmeans(jnp.asarray(x), jnp.asarray(start)[None], *limits, mask)

    got, wanted = fit(np.where(mask[:, None], X, bad), jnp.asarray(mask)), fit(X[mask], None)
    assert_array_equal(np.asarray(got.labels)[mask], wanted.labels)
    assert_array_equal(got.counts, wanted.counts)
    KERNELS.assert_close(got.centroids, wanted.centroids, 16)
    KERNELS.assert_close(got.inertia, wanted.inertia, 16)


@for_bad
@pytest.mark.parametrize("init", ["k-means++", "random"])
def test_masked_rows_are_never_drawn(bad, init):
    mask = jnp.arange(N) >= 9
    options = {"n_clusters": C, "n_init": 2, "init": init, "chunk_size": None}

    def drawn(filling):
        x = jnp.where(mask[:, None], X, filling)
        key = jax.random.key(0)
        return _seeding.seed_centroids(x, key, mask, n_rows=N - 9, **options)

    assert_array_equal(drawn(bad), drawn(0.0))


@for_bad
def test_k_means_of_a_row_that_is_nearest_to_no_centroid(bad):
    fit = jg.kmeans(spoiled(bad, 161), C, init=CENTROIDS, max_iter=5)
    assert np.isnan(fit.centroids).any(axis=1).all()
    assert np.isnan(fit.inertia)
    assert not fit.converged

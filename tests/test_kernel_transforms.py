"""What JAX users take for granted: vmap is the loop, one trace a shape, any chunk and platform."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgeom as jg
from jaxgeom.kernels import _isotropy, _kmeans, _log_partition, _moments, _pca, _removal, _seeding
from jaxgeom.testing import Problem
from jaxgeom.testing_kmeans import clear_of_ties

C, K = 4, 3
INPUTS = Problem("small", "", 173, 12, C, K, 5.0, 1.0, 2.0).inputs()  # 173 is prime
X = jnp.asarray(INPUTS.x, jnp.float32)
LABELS = jnp.asarray(INPUTS.labels)
DIRECTIONS = jnp.asarray(INPUTS.directions, jnp.float32)
KEY = jax.random.key(0)


def _fit(x, labels, which="top"):
    return jg.fit_removal(x, labels, n_clusters=C, n_directions=K, which=which)


def _isotropy_but_basis(x):
    """Isotropy less its components: neighbours among close eigenvalues mix at rounding."""
    return jg.isotropy(x)[:-1]


def _whichever_restart(fit):
    """A clustering that several restarts may find: its clusters in order, less the iterations.

    The restarts number the same clusters differently, and rounding decides which of them wins.
    """
    order = jnp.argsort(fit.centroids[:, 0])
    labels = jnp.argsort(order)[fit.labels].astype(fit.labels.dtype)
    return fit.centroids[order], labels, fit.counts[order], fit.inertia, fit.converged


# Every public operation as a function of the data; labels, keys and options are bound.
OPERATIONS = {
    "moments": jg.moments,
    "cluster_moments": lambda x: jg.cluster_moments(x, LABELS, n_clusters=C),
    "pca": lambda x: jg.pca(x, K),
    "pca_all": lambda x: jg.pca(x, center=False).explained_variance,
    "log_partition": lambda x: jg.log_partition(x, DIRECTIONS),
    "isotropy": _isotropy_but_basis,
    "log_isotropy": lambda x: jg.log_isotropy(x[:2]),
    "kmeans": lambda x: _whichever_restart(jg.kmeans(x, C, key=KEY, n_init=2)),
    "kmeans_random": lambda x: jg.kmeans(x, C, key=KEY, init="random", n_init=2),  # one is better
    "kmeans_given": lambda x: jg.kmeans(x, C, init=x[:C]),
    "assign": lambda x: jg.assign(x, x[:C]),
    "fit_removal": lambda x: _fit(x, LABELS),
    "fit_removal_least": lambda x: _fit(x, LABELS, "least"),
    "apply_removal": lambda x: jg.apply_removal(x, _fit(x, LABELS), LABELS),
    "changed_scatter": lambda x: jg.changed_scatter(
        jg.cluster_moments(x, LABELS, n_clusters=C), _fit(x, LABELS).components
    ),
    "zero_mean": jg.zero_mean,
    "cluster_zero_mean": lambda x: jg.cluster_zero_mean(x, LABELS, n_clusters=C),
    "remove_directions": lambda x: jg.remove_directions(x, DIRECTIONS),
    "isotropy_curve": lambda x: jg.isotropy_curve(jg.isotropy(x)),
    "similarity_curve": lambda x: jg.similarity_curve(x[:9], x[9:18], jnp.eye(x.shape[1])),
    "segment_mean": lambda x: jg.segment_mean(x, LABELS, num_segments=C),
}


def assert_trees_close(got, expected, tolerance=2e-5):
    """Compare leaf by leaf, relative to each leaf's largest magnitude; counts exactly."""
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert ours.shape == theirs.shape
        if jnp.issubdtype(theirs.dtype, jnp.inexact):
            scale = max(float(jnp.nanmax(jnp.abs(theirs), initial=0.0)), 1e-30)
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * scale)
        else:
            np.testing.assert_array_equal(ours, theirs)


def test_no_row_of_the_data_lies_at_a_tie():
    """What is compared here label by label is the same on every processor."""
    starts = [X[:C]]
    for key in (KEY, *jax.random.split(KEY, 3)):
        for init in ("k-means++", "random"):
            options = {"n_clusters": C, "n_init": 2, "init": init, "chunk_size": None}
            starts.extend(_seeding.seed_centroids(X, key, **options))
    assert all(clear_of_ties(X, start) for start in starts)


def test_every_public_operation_is_listed():
    operations = {n for n in dir(jg.kernels) if callable(getattr(jg.kernels, n)) and n[0] != "_"}
    assert operations <= set(OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_vmap_over_layers_is_the_loop(name):
    layers = jnp.stack([X * (1 + 0.1 * i) + i for i in range(3)])
    mapped = jax.jit(jax.vmap(OPERATIONS[name]))(layers)
    looped = [OPERATIONS[name](x) for x in layers]
    assert_trees_close(mapped, jax.tree.map(lambda *a: jnp.stack(a), *looped))


def test_thirteen_layers_of_isotropy_are_the_loop():
    layers = jnp.stack([X * 1.05**i for i in range(13)])
    mapped = jax.vmap(_isotropy_but_basis)(layers)
    looped = [_isotropy_but_basis(x) for x in layers]
    assert_trees_close(mapped, jax.tree.map(lambda *a: jnp.stack(a), *looped))


def test_kmeans_vmaps_over_keys():
    keys = jax.random.split(KEY, 3)

    def clustering(key):
        return _whichever_restart(jg.kmeans(X, C, key=key, n_init=2))

    mapped, looped = jax.vmap(clustering)(keys), [clustering(key) for key in keys]
    assert_trees_close(mapped, jax.tree.map(lambda *a: jnp.stack(a), *looped))


@pytest.mark.parametrize(
    "operation",
    [
        lambda labels: jg.cluster_moments(X, labels, n_clusters=C),
        lambda labels: jg.apply_removal(X, _fit(X, labels), labels),
        lambda labels: jg.cluster_zero_mean(X, labels, n_clusters=C),
        lambda labels: jg.segment_mean(X, labels, num_segments=C),
    ],
    ids=["cluster_moments", "removal", "cluster_zero_mean", "segment_mean"],
)
def test_clusterings_vmap_over_labels(operation):
    labels = jnp.stack([LABELS, (LABELS + 1) % C, jnp.zeros_like(LABELS)])
    looped = [operation(row) for row in labels]
    assert_trees_close(jax.vmap(operation)(labels), jax.tree.map(lambda *a: jnp.stack(a), *looped))


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_lowers_for(name, platform):
    exported = jax.export.export(jax.jit(OPERATIONS[name]), platforms=[platform])(X)
    assert exported.platforms == (platform,)


@pytest.mark.parametrize("chunk_size", [1, 7, 173, 1000])
@pytest.mark.parametrize(
    "operation",
    [
        lambda size: jg.moments(X, chunk_size=size),
        lambda size: jg.pca(X, K, chunk_size=size),
        lambda size: jg.log_partition(X, DIRECTIONS, chunk_size=size),
        lambda size: jg.isotropy(X, chunk_size=size)[:6],
        lambda size: _whichever_restart(jg.kmeans(X, C, key=KEY, n_init=2, chunk_size=size)),
        lambda size: jg.assign(X, X[:C], chunk_size=size),
    ],
    ids=["moments", "pca", "log_partition", "isotropy", "kmeans", "assign"],
)
def test_the_answer_does_not_depend_on_the_chunk(operation, chunk_size):
    assert_trees_close(operation(chunk_size), operation(None))


@pytest.mark.parametrize(
    ("kernel", "call"),
    [
        (_moments._moments, jg.moments),
        (_moments._cluster_moments, lambda x: jg.cluster_moments(x, LABELS, n_clusters=C)),
        (_pca._pca, lambda x: jg.pca(x, K)),
        (_log_partition._log_partition, lambda x: jg.log_partition(x, DIRECTIONS)),
        (_isotropy._isotropy, jg.isotropy),
        (_kmeans._kmeans, lambda x: jg.kmeans(x, C, key=KEY, max_iter=int(x[0, 0]) % 5 + 1)),
        (_removal._fit_removal, lambda x: _fit(x, LABELS)),
        (_removal._remove_from_clusters, lambda x: jg.apply_removal(x, _fit(X, LABELS), LABELS)),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_one_trace_a_shape(kernel, call):
    kernel.clear_cache()
    for shift in range(3):
        call(X + shift)
    assert kernel._cache_size() == 1
    call(jnp.concatenate([X, X])[: X.shape[0]].astype(jnp.float16))
    assert kernel._cache_size() == 2


def test_isotropy_needs_little_beside_its_input():
    x = jax.ShapeDtypeStruct((200_000, 384), jnp.float32)
    analysis = _isotropy._isotropy.lower(x).compile().memory_analysis()
    assert analysis.temp_size_in_bytes <= 100e6  # the input has 307 MB

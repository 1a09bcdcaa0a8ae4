"""Edges that only the kernels have: hidden labels, mixed dtypes, merged states, float32's own."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from op_sets import KERNELS, anisotropic, column
from scipy.special import softmax
from test_kernel_transforms import OPERATIONS, X

import jaxgeom as jg
from jaxgeom.kernels import _blocks, _kmeans, _linalg, _log_partition, _moments, _seeding
from jaxgeom.streaming import _overview

leading_eigenvectors = jax.jit(_linalg.leading_eigenvectors, static_argnums=1)

CHANGING = {"apply_removal", "zero_mean", "cluster_zero_mean", "remove_directions"}


def dtypes_of(name, dtype):
    """The dtypes of all results of an operation on data of `dtype`."""
    shapes = jax.eval_shape(OPERATIONS[name], jax.ShapeDtypeStruct(X.shape, dtype))
    return {leaf.dtype.name for leaf in jax.tree.leaves(shapes)}


# Dtypes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - {"similarity_curve"}))
def test_float32_stays_float32_where_64_bits_are_on(name):
    # similarity_curve is listed with a basis that 64 bits turn into float64, and its result with it
    with jax.enable_x64(True):
        assert dtypes_of(name, jnp.float32) <= {"float32", "int32", "bool"}


@pytest.mark.parametrize("name", OPERATIONS)
def test_statistics_of_half_precision_are_float32(name):
    expected = "bfloat16" if name in CHANGING else "float32"
    assert dtypes_of(name, jnp.bfloat16) <= {expected, "int32", "bool"}


def test_scatter_and_components_may_differ_in_dtype():
    scatter, v = np.diag([8.0, 2.0])[None].astype(np.float32), np.array([[[1.0, 0.0]]])
    clusters = jg.Moments(np.array([2]), np.zeros((1, 2), np.float32), scatter)
    for dtype in ("float16", "float32"):
        assert_array_equal(jg.changed_scatter(clusters, v.astype(dtype)), np.diag([0, 2]))
    with jax.enable_x64(True):
        assert jg.changed_scatter(clusters, v).dtype == jnp.float64


def test_a_curve_of_half_precision_counts_beyond_65504():
    log_f = np.array([[14.0, 13.0], [12.0, 11.5]], np.float16)
    fit = jg.Isotropy(*[None] * 8)._replace(log_partition=log_f, count=np.asarray(80_000))
    curve = jg.isotropy_curve(fit)
    KERNELS.assert_close(curve.heavier, [-1, np.log(80_000) - 13], scale=14)


# Labels that no check can read --------------------------------------------------------------------

HIDDEN = jnp.array([-1, 0, 0, 9, 1, 1, 1])  # for three clusters: rows 0 and 3 belong to none
ROWS = jnp.asarray(np.random.default_rng(0).normal(size=(7, 2)), jnp.float32)


@jax.jit
def removed(x, labels):
    fit = jg.fit_removal(x, labels, n_clusters=3, n_directions=1)
    return fit, jg.apply_removal(x, fit, labels)


@pytest.mark.parametrize("filling", [1e30, np.nan])
def test_a_row_of_no_cluster_counts_for_none_and_comes_out_nan(filling):
    given = (HIDDEN >= 0) & (HIDDEN < 3)
    fit, changed = removed(jnp.where(given[:, None], ROWS, filling), HIDDEN)
    assert jnp.isnan(changed[~given]).all()
    expected = jg.fit_removal(ROWS[given], HIDDEN[given], n_clusters=3, n_directions=1)
    assert_array_equal(fit.counts, [2, 3, 0])
    assert_array_equal(fit.vanishes, [True, False, False])
    KERNELS.assert_close(fit.means, expected.means)
    KERNELS.assert_close(changed[given], jg.apply_removal(ROWS[given], expected, HIDDEN[given]), 32)


def test_a_row_of_no_segment_counts_for_none():
    means = jax.jit(lambda s: jg.segment_mean(ROWS, s, num_segments=3))(HIDDEN)
    expected = [ROWS[1:3].mean(0), ROWS[4:7].mean(0), jnp.zeros(2)]
    KERNELS.assert_close(means, np.stack(expected))


def test_blocks_hold_every_row_once_and_rows_of_one_cluster():
    rng, n_clusters = np.random.default_rng(0), 20
    plan_blocks = jax.jit(_blocks.plan_blocks, static_argnums=1)
    for labels in (
        rng.integers(-2, n_clusters + 2, 1500),  # some in no cluster
        np.full(1500, n_clusters - 1),
        np.sort(rng.geometric(0.3, 1500)) - 1,  # one cluster of many rows, others of one or none
    ):
        rows, cluster = map(np.asarray, plan_blocks(jnp.asarray(labels, jnp.int32), n_clusters))
        given = np.flatnonzero((labels >= 0) & (labels < n_clusters))
        assert_array_equal(np.sort(rows[rows < 1500]), given)
        for block, c in zip(rows, cluster, strict=True):
            assert (labels[block[block < 1500]] == c).all()


# Accumulators -------------------------------------------------------------------------------------

DATA = jnp.asarray(anisotropic(80, 7), jnp.float32)
PARTS = [(jnp.arange(80) >= a) & (jnp.arange(80) < b) for a, b in ((0, 1), (1, 30), (30, 80))]


@jax.jit
def moments_of(x, mask):
    accumulator = _moments.MomentsAccumulator()
    return accumulator.update(accumulator.init(7, "float32"), x, mask)


@jax.jit
def log_sum_of(u, x, mask):
    accumulator = _log_partition.LogPartitionAccumulator(u)
    return accumulator.update(accumulator.init(7, "float32"), x, mask)


@pytest.mark.parametrize("parts", [PARTS, PARTS[::-1]])
def test_merged_moments_are_those_of_the_whole(parts):
    accumulator = _moments.MomentsAccumulator()
    state = accumulator.init(7, "float32")
    for mask in parts:
        state = accumulator.merge(state, moments_of(DATA, mask))
    for got, expected in zip(state, jg.moments(DATA), strict=True):
        KERNELS.assert_close(got, expected)


def test_moments_merge_on_the_host_in_float64():
    x = np.asarray(DATA, np.float64)
    parts = [jg.reference.moments(x[mask]) for mask in np.asarray(PARTS)]
    both = _moments.merge_moments(_moments.merge_moments(parts[0], parts[1]), parts[2])
    for got, expected in zip(both, jg.reference.moments(x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("scale", [1, 300])  # exponents that stay normal floats, and that do not
@pytest.mark.parametrize("parts", [PARTS, PARTS[::-1]])
def test_merged_log_partitions_are_those_of_the_whole(parts, scale):
    u = scale * jnp.eye(7)
    accumulator = _log_partition.LogPartitionAccumulator(u)
    state = accumulator.init(7, "float32")
    for mask in parts:
        state = accumulator.merge(state, log_sum_of(u, DATA, mask))
    got, expected = accumulator.finalise(state), jg.log_partition(DATA, u)
    KERNELS.assert_close(got, expected, scale=scale * float(abs(DATA).max()))


ACCUMULATORS = [
    _moments.MomentsAccumulator(),
    _moments.ClusterMomentsAccumulator(DATA[:3]),
    _log_partition.LogPartitionAccumulator(jnp.eye(7)),
    _kmeans.ClusterSumsAccumulator(DATA[:3], jnp.zeros(7)),
    _overview.NormsAccumulator(),
]


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=lambda a: type(a).__name__)
def test_devices_reduce_to_what_their_states_merge_to(accumulator):
    start = accumulator.init(7, "float32")
    states = [accumulator.update(start, DATA, mask) for mask in PARTS]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    reduced = jax.vmap(lambda s: accumulator.all_reduce(s, "rows"), axis_name="rows")(stacked)
    merged = functools.reduce(accumulator.merge, states)
    for got, expected in zip(reduced, merged, strict=True):
        for on_device in got:
            KERNELS.assert_close(on_device, expected)


def test_a_masked_row_reaches_neither_log_partition_nor_its_gradient():
    @jax.jit
    def log_f(u, x, mask):
        accumulator = _log_partition.LogPartitionAccumulator(u)
        return accumulator.finalise(log_sum_of(u, x, mask)).sum()

    run, mask = jax.jit(jax.value_and_grad(log_f)), jnp.arange(80) < 50
    for scale in (1, 300):
        u = scale * jnp.eye(7)
        got = run(u, jnp.where(mask[:, None], DATA, jnp.nan), mask)
        expected = run(u, DATA, mask)
        for ours, theirs in zip(got, expected, strict=True):
            KERNELS.assert_close(ours, theirs)


# Branches under vmap, and float32's own -----------------------------------------------------------


def test_gradient_of_a_vmapped_branch_is_that_of_the_branch_taken():
    """Under vmap both branches run, and what overflows in the other must not be multiplied by 0."""
    scales = np.array([1.0, 300.0])  # of the second the plain exponentials are infinite

    def loss(scale):
        return jg.log_partition(scale * DATA, jnp.eye(7)).sum()

    got = jax.jit(jax.grad(lambda s: jax.vmap(loss)(s).sum()))(scales)
    exponents = np.asarray(jnp.stack([DATA, -DATA]), np.float64)
    expected = [(softmax(s * exponents, axis=1) * exponents).sum() for s in scales]
    KERNELS.assert_close(got, expected)


@pytest.mark.parametrize("gap", [3.0, 1.0])  # without one, subspace iteration does not converge
def test_leading_eigenvectors_with_and_without_a_gap(gap):
    d, k = 60, 3
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))[0]
    eigenvalues = np.linspace(1, 0.95, d)
    eigenvalues[:k] *= gap
    matrix = jnp.asarray(basis * eigenvalues @ basis.T, jnp.float32)
    values, vectors = leading_eigenvectors(matrix, k)
    KERNELS.assert_close(values, eigenvalues[:k], 32)  # grows with d, slower than d
    KERNELS.assert_close(vectors @ vectors.T, np.eye(k), 32)
    KERNELS.assert_close(vectors @ matrix, values[:, None] * vectors, 32, scale=gap)


@pytest.mark.parametrize("d", [96, 400])
def test_leading_directions_are_as_good_as_their_float32_matrix(d):
    """Those of `eigh` alone are some five times further off."""
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))[0]
    eigenvalues = np.geomspace(1, 1e-4, d)
    matrix = (basis.T * eigenvalues @ basis).astype(np.float32)
    values, components = _linalg.eigenbasis(jnp.asarray(matrix))
    exact = np.linalg.eigh(matrix.astype(np.float64))[1].T[::-1][:8]
    leading = np.asarray(components, np.float64)[:8]
    error = np.linalg.norm(leading - exact * np.sign((leading * exact).sum(1))[:, None], axis=1)
    gap = eigenvalues[:8] - eigenvalues[1:9]  # the smaller of a direction's two
    assert np.median(error * gap) <= 0.5 * np.finfo(np.float32).eps
    KERNELS.assert_close(components @ components.T, np.eye(d), 64)
    KERNELS.assert_close(values, eigenvalues, 32)


def test_refinement_leaves_equal_eigenvalues_orthonormal():
    matrix = np.diag(np.repeat([3.0, 1.0, 0.0], 30)).astype(np.float32)
    turned = np.linalg.qr(np.random.default_rng(1).normal(size=(90, 90)))[0].astype(np.float32)
    values, components = _linalg.eigenbasis(jnp.asarray(turned.T @ matrix @ turned))
    KERNELS.assert_close(components @ components.T, np.eye(90), 64)
    KERNELS.assert_close(values, np.diag(matrix), 64)


def test_kmeans_plus_plus_draws_no_row_twice():
    """A row's distance to itself is a difference of rounded squares, and need not come out as 0."""
    draw = jax.jit(_seeding._plus_plus, static_argnums=2)
    for seed in range(20):
        x = 100 + np.random.default_rng(seed).normal(size=(40, 50))
        uniforms = jnp.zeros((1, 2))  # the first row, then the first row of positive weight
        assert_array_equal(draw(jnp.asarray(x, jnp.float32), uniforms, None), [[0, 1]])


def test_kmeans_takes_traced_limits():
    x, start = column(0, 1, 9), column(0, 1)
    run = jax.jit(lambda max_iter, tol: jg.kmeans(x, 2, init=start, max_iter=max_iter, tol=tol))
    for max_iter, tol, n_iter in ((1, 0.0, 1), (300, 0.0, 3), (300, 2.0, 1)):
        assert int(run(max_iter, tol).n_iter) == n_iter

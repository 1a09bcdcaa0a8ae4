"""Gradients against finite differences in float64, and against float64 where float32 is used."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxgeom as jg
from jaxgeom.testing import Problem

C, K = 3, 2
INPUTS = Problem("tiny", "", 31, 5, C, K, 2.0, 0.5, 2.0).inputs()
WEIGHTS = np.random.default_rng(1).normal(size=(31, 5))


def _removed(x):
    fit = jg.fit_removal(x, INPUTS.labels, n_clusters=C, n_directions=K)
    return (jg.apply_removal(x, fit, INPUTS.labels) * jnp.asarray(WEIGHTS)).sum()


def _least_removed(x):
    fit = jg.fit_removal(x, n_directions=K, which="least")
    return (jg.apply_removal(x, fit) * jnp.asarray(WEIGHTS)).sum()


SCALARS = {
    "moments": lambda x: (jg.moments(x).scatter * WEIGHTS[:5]).sum(),
    "masked_moments": lambda x: (jg.moments(x, mask=WEIGHTS[:, 0] > 0).mean * WEIGHTS[0]).sum(),
    "cluster_moments": lambda x: (
        jg.cluster_moments(x, INPUTS.labels, n_clusters=C).scatter * WEIGHTS[None, :5]
    ).sum(),
    "pca": lambda x: (jg.pca(x, K).components * WEIGHTS[:K]).sum(),
    "explained_variance": lambda x: jg.pca(x, K).explained_variance[0],
    "log_partition": lambda x: (jg.log_partition(x, INPUTS.directions) * WEIGHTS[:2, :K]).sum(),
    "long_log_partition": lambda x: jg.log_partition(100 * x, INPUTS.directions).sum() / 100,
    "isotropy": lambda x: jg.log_isotropy(jg.isotropy(x).log_partition).heavier,
    "removal": _removed,
    "least_removal": _least_removed,
    "similarity_curve": lambda x: jg.similarity_curve(x[:5], x[5:10], jnp.eye(5)).sum(),
    "segment_mean": lambda x: (
        jg.segment_mean(x, INPUTS.labels, num_segments=C) * WEIGHTS[:C]
    ).sum(),
}


def assert_gradients_close(loss, tolerance):
    """Compare the float32 gradient with the float64 one, relative to its largest entry."""
    ours = np.asarray(jax.grad(loss)(jnp.asarray(INPUTS.x, jnp.float32)))
    with jax.enable_x64(True):
        exact = np.asarray(jax.grad(loss)(jnp.asarray(INPUTS.x)))
    np.testing.assert_allclose(ours, exact, rtol=0, atol=tolerance * np.abs(exact).max())


@pytest.mark.parametrize("name", SCALARS)
def test_gradient_is_the_finite_difference(name):
    with jax.enable_x64(True):
        check_grads(
            SCALARS[name], (jnp.asarray(INPUTS.x),), order=1, modes=["fwd", "rev"], rtol=1e-5
        )


@pytest.mark.parametrize("name", ["isotropy", "removal"])
def test_float32_gradient_is_near_the_float64_one(name):
    assert_gradients_close(SCALARS[name], 1e-4)


def test_gradient_after_a_removal_is_finite_and_near_float64():
    """After a removal several eigenvalues are 0 together: the derivative must not mix those."""

    def loss(x):
        changed = jg.apply_removal(x, jg.fit_removal(x, n_directions=K))
        return jg.log_isotropy(jg.isotropy(changed).log_partition).heavier

    assert_gradients_close(loss, 1e-3)


def test_labels_and_clusterings_carry_no_gradient():
    gradient = jax.grad(lambda x: jg.kmeans(x, C, init=x[:C]).inertia)(
        jnp.asarray(INPUTS.x, jnp.float32)
    )
    np.testing.assert_array_equal(gradient, 0)

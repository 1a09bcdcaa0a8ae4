"""Cosines and correlations: by hand, against SciPy and scikit-learn, and at the edges."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import rankdata
from sklearn.metrics.pairwise import paired_cosine_distances

from jaxgeom.tasks import cosine_scores, sts_scores


def test_cosines_by_hand():
    # (3, 4) . (4, 3) = 24 over 5 * 5; opposite; orthogonal
    a = np.array([[3.0, 4.0], [1.0, 1.0], [1.0, 0.0]])
    b = np.array([[4.0, 3.0], [-2.0, -2.0], [0.0, 7.0]])
    assert_allclose(cosine_scores(a, b), [0.96, -1, 0], rtol=1e-15)


def test_cosines_against_scikit_learn():
    a, b = np.random.default_rng(0).normal(size=(2, 50, 8))
    assert_allclose(cosine_scores(a, b), 1 - paired_cosine_distances(a, b), atol=1e-14)


def test_a_zero_vector_has_cosine_zero_and_nan_stays():
    a = np.array([[0.0, 0.0], [np.nan, 1.0], [0.0, 0.0]])
    b = np.array([[1.0, 2.0], [1.0, 1.0], [0.0, 0.0]])
    assert_array_equal(cosine_scores(a, b), [0, np.nan, 0])


def test_cosines_of_jax_arrays_are_computed_in_float64():
    a = np.array([[300.0, 1.0]])  # its square is beyond float16
    out = cosine_scores(jnp.asarray(a, jnp.float16), jnp.asarray(a, jnp.bfloat16))
    assert out.dtype == np.float64
    assert_allclose(out, 1, rtol=1e-12)


def test_scores_by_hand():
    # deviations (-1, 0, 1) and (-4, -1, 5): Pearson 9 / sqrt(2 * 42); the ranks agree
    scores = sts_scores([1, 2, 3], [0, 3, 9])
    assert_allclose(scores["pearson_cosine"], 9 / np.sqrt(84))
    assert_allclose(scores["spearman_cosine"], 1)
    assert list(scores) == ["pearson_cosine", "spearman_cosine"]


def test_ties_share_their_mean_rank():
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 5, size=(2, 100)).astype(float)
    expected = np.corrcoef(rankdata(x), rankdata(y))[0, 1]
    assert_allclose(sts_scores(x, y)["spearman_cosine"], expected, rtol=1e-12)
    assert_allclose(sts_scores(x, y)["pearson_cosine"], np.corrcoef(x, y)[0, 1], rtol=1e-12)


@pytest.mark.parametrize("x", [[1.0, 1.0, 1.0], [1.0, np.nan, 3.0]])
def test_constant_or_nan_scores_have_no_correlation(x):
    y = [0.0, 1.0, 2.0]
    assert np.isnan([*sts_scores(x, y).values(), *sts_scores(y, x).values()]).all()


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (np.ones((3, 2)), np.ones((2, 2)), r"one shape \[p d\], got \(3, 2\) and \(2, 2\)"),
        (np.ones(3), np.ones(3), r"must be matrices of one shape"),
    ],
)
def test_cosines_of_bad_shapes(a, b, message):
    with pytest.raises(ValueError, match=message):
        cosine_scores(a, b)


@pytest.mark.parametrize("shapes", [((3,), (2,)), ((1,), (1,)), ((2, 2), (2, 2))])
def test_scores_of_bad_shapes(shapes):
    with pytest.raises(ValueError, match=r"vectors of one length \[p\] >= 2, got \("):
        sts_scores(*map(np.zeros, shapes))

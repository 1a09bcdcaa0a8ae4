"""What judges k-means lets two correct runs part at a tie, and no wrong one through."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from op_sets import blobs, column

from benchmarks.ops import LLOYD_TOLERANCES
from jaxgeom import reference
from jaxgeom.results import KMeans
from jaxgeom.testing import TOLERANCES, Inputs, compare
from jaxgeom.testing_kmeans import clear_of_ties, distances, judged, step

MAX_ITER = 6


def grid():
    """Rows on a grid, many of them halfway between two of the first centroids."""
    return np.random.default_rng(0).integers(0, 6, (300, 3)).astype(np.float64)


def lloyd(x, start, max_iter, last=False):
    """Return Lloyd's iterations of which a tie goes to the first or to the last centroid."""
    centroids = start.copy()

    def nearest():
        distance = np.square(x[:, None, :] - centroids[None]).sum(2).round(9)
        return len(start) - 1 - distance[:, ::-1].argmin(1) if last else distance.argmin(1)

    for _ in range(max_iter):
        labels = nearest()
        centroids = np.stack([x[labels == c].mean(0) for c in range(len(start))])
    labels = nearest()
    counts = np.bincount(labels, minlength=len(start))
    inertia = np.square(x - centroids[labels]).sum()
    return KMeans(centroids, labels, counts, inertia, np.asarray(max_iter), np.asarray(False))


def assert_right(run, fit, x, start):
    got, expected = judged(run, fit, x, start, MAX_ITER, 3e-6 * np.abs(x).max())
    inputs = Inputs(x, *[None] * 6)
    compare(got, expected, inputs, TOLERANCES["jax", "float32"] | LLOYD_TOLERANCES)


def test_runs_that_part_at_a_tie_are_both_right():
    x = grid()
    start = x[:4]
    fits = [lloyd(x, start, MAX_ITER, last) for last in (False, True)]
    assert np.abs(fits[0].centroids - fits[1].centroids).max() > 0.05  # no tolerance for these
    for last, fit in enumerate(fits):
        assert_right(lambda j, last=last: lloyd(x, start, j, last), fit, x, start)


def off_by_a_percent(fit):
    centroids = fit.centroids.copy()
    centroids[1] *= 1.01
    return fit._replace(centroids=centroids)


def wrong_label(fit):
    labels = fit.labels.copy()
    labels[7] = (labels[7] + 1) % len(fit.centroids)
    return fit._replace(labels=labels, counts=np.bincount(labels, minlength=len(fit.centroids)))


def of_another_pass(fit):
    return fit._replace(counts=fit.counts + np.array([1, -1, 0, 0]))


WRONG = {
    "last_step": off_by_a_percent,
    "nearest": wrong_label,
    "count": of_another_pass,
    "lloyd_inertia": lambda fit: fit._replace(inertia=fit.inertia * 1.0001),
    "n_iter": lambda fit: fit._replace(n_iter=fit.n_iter - 1),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("always", [False, True], ids=["in the end", "in every run"])
def test_what_is_wrong_is_found(name, always):
    x = np.random.default_rng(0).normal(size=(300, 5))  # no clusters: it goes on for a while
    start = x[:4]

    def run(max_iter):
        fit = lloyd(x, start, max_iter)
        return WRONG[name](fit) if always else fit

    right = lloyd(x, start, MAX_ITER)
    assert_right(lambda j: lloyd(x, start, j), right, x, start)
    with pytest.raises(AssertionError, match=f"{name}: differs by"):
        assert_right(run, WRONG[name](right), x, start)


def test_a_wrong_first_iteration_is_found_where_later_ones_are_right():
    x, _ = blobs(300, 5, 4)
    start = x[:4]
    with pytest.raises(AssertionError, match="first_step: differs by"):
        assert_right(
            lambda j: lloyd(x, x[4:8] if j == 1 else start, j), lloyd(x, start, MAX_ITER), x, start
        )


def test_a_run_may_end_where_nothing_moves():
    x, labels = blobs(300, 5, 4)
    start = np.stack([x[labels == c].mean(0) for c in range(4)])
    fit = reference.kmeans(x, 4, init=start)
    assert int(fit.n_iter) < MAX_ITER
    assert_right(lambda j: reference.kmeans(x, 4, init=start, max_iter=j), fit, x, start)


def test_threads_that_add_in_any_order_are_tried_again():
    """The shorter run goes another way at first; the next one is of the same path."""
    x = grid()
    start, ways = x[:4], iter([False, True])

    def run(max_iter):
        return lloyd(x, start, max_iter, max_iter > 1 and next(ways))

    assert_right(run, lloyd(x, start, MAX_ITER, True), x, start)
    assert next(ways, None) is None


def test_a_step_by_hand():
    # 1 lies halfway: it joins the mean of {0} or that of {2, 2}, and moves it by 1/2 or by 1/3
    one = step(column(0, 1, 2, 2), column(0, 2))
    assert_array_equal(one.centroids, column(0, 2))
    assert_allclose(one.slack, column(1 / 2, 1 / 3))
    for right in (column(0.5, 2), column(0, 5 / 3)):
        assert not one.excess(right).any()
    assert_allclose(one.excess(column(0.51, 2)), column(0.01, 0), atol=1e-12)
    assert_array_equal(step(column(0, 1), column(0, 100)).centroids, column(0.5, 100))


def test_labels_are_nearest_up_to_rounding():
    # squares about the mean: 1 and 1, so that 32 roundings of them are 7.6e-6
    found = distances(column(-1, 1), column(-1, 1))
    assert_allclose(found.squared, [[0, 4], [4, 0]])
    assert_allclose(found.rounding, 64 * np.finfo(np.float32).eps)
    assert_allclose(found.excess([1, 1]), [4, 0], rtol=1e-5)
    assert np.isnan(distances(column(np.nan, 1), column(-1, 1)).excess([0, 0])).all()


def test_ties_on_the_way_are_seen():
    assert clear_of_ties(column(0, 1, 9), column(0, 1))
    assert not clear_of_ties(column(0, 1, 2), column(0, 2))
    assert not clear_of_ties(column(0, 2, 6), column(0, 2.5))  # the next two are 0 and 4

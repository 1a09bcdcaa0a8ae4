"""The reference on bad input: the argument, what it must be, and what came."""

import re

import numpy as np
import pytest

from jaxgeom import _checks
from jaxgeom import reference as ref

X, L = np.ones((4, 3)), np.array([0, 1, 1, 0])
FIT = ref.fit_removal(X, L, n_clusters=2)
BAD = [
    (lambda: ref.moments("x"), TypeError, "x must be an array, got str"),
    (lambda: ref.moments([[1.0], [2.0, 3.0]]), TypeError, "x must be an array, got list"),
    (
        lambda: ref.moments(X.astype(int)),
        TypeError,
        "x must have one of the dtypes float16, bfloat",
    ),
    (lambda: ref.pca(X > 0), TypeError, "x must have one of the dtypes .*, got bool"),
    (lambda: ref.isotropy(X + 0j), TypeError, "x must have one of the dtypes .*, got complex128"),
    (lambda: ref.isotropy(X[0]), ValueError, r"x must be a matrix \[n d\], got shape \(3,\)"),
    (lambda: ref.zero_mean(X[None]), ValueError, r"x must be a matrix .*, got shape \(1, 4, 3\)"),
    (lambda: ref.moments(X[:0]), ValueError, r"x \[n d\] must not be empty, got shape \(0, 3\)"),
    (lambda: ref.kmeans(X[:, :0], 1), ValueError, r"must not be empty, got shape \(4, 0\)"),
    (lambda: ref.moments(X, mask=L), TypeError, "mask must be an array of bool dtype, got int64"),
    (lambda: ref.moments(X, mask=L[:3] > 0), ValueError, r"mask must have shape \[n\] = \(4,\)"),
    (lambda: ref.pca(X, 4), ValueError, r"n_components must be in 1..min\(n, d\) = 1..3, got 4"),
    (lambda: ref.pca(X, 0), ValueError, "n_components must be in .*, got 0"),
    (lambda: ref.pca(X, 2.0), TypeError, "n_components"),
    (lambda: ref.pca(X[:1]), ValueError, r"x must have at least 2 rows .*, got shape \(1, 3\)"),
    (lambda: ref.log_partition(X, X[:, :2]), ValueError, "components must be as wide as x: d = 3"),
    (lambda: ref.log_isotropy(X), ValueError, r"log_partition must have shape \[2 d\] = \(2, 3\)"),
    (lambda: ref.log_isotropy(X[0]), ValueError, r"log_partition must be a matrix \[2 d\]"),
    (lambda: ref.kmeans(X, 5, key=0), ValueError, r"n_clusters must be in 1..n = 1..4, got 5"),
    (lambda: ref.kmeans(X, 0, key=0), ValueError, "n_clusters must be in .*, got 0"),
    (lambda: ref.kmeans(X, 2), ValueError, "key must be given unless init is an array of"),
    (lambda: ref.kmeans(X, 2, key="0"), TypeError, "key"),
    (lambda: ref.kmeans(X, 2, key=True), TypeError, "key must be an int .*, got bool"),
    (
        lambda: ref.kmeans(X, 2, init="k"),
        ValueError,
        r"init must be one of 'k-means\+\+', 'random'",
    ),
    (lambda: ref.kmeans(X, 2, init=X), ValueError, r"init must have shape \[c d\] = \(2, 3\)"),
    (lambda: ref.kmeans(X, 2, init=L), TypeError, "init must have one of the dtypes .* int64"),
    (lambda: ref.kmeans(X, 2, key=0, n_init=0), ValueError, "n_init must be at least 1, got 0"),
    (lambda: ref.kmeans(X, 2, key=0, max_iter=0), ValueError, "max_iter must be at least 1, got 0"),
    (lambda: ref.kmeans(X, 2, key=0, tol=-1.0), ValueError, "tol must be at least 0, got -1.0"),
    (lambda: ref.kmeans(X, 2, key=0, tol=np.nan), ValueError, "tol must be at least 0, got nan"),
    (lambda: ref.assign(X, X[:, :2]), ValueError, "centroids must be as wide as x: d = 3, got 2"),
    (lambda: ref.fit_removal(X, n_directions=3), ValueError, r"in 0..d - 1 = 0..2, got 3"),
    (lambda: ref.fit_removal(X, which="all"), ValueError, "which must be one of 'top', 'least'"),
    (
        lambda: ref.fit_removal(X, n_clusters=2),
        ValueError,
        "labels must be given for n_clusters = 2",
    ),
    (lambda: ref.fit_removal(X, L), ValueError, "labels must be in 0..0, got 1 in row 1"),
    (lambda: ref.fit_removal(X, L - 1, n_clusters=2), ValueError, "in 0..1, got -1 in row 0"),
    (lambda: ref.fit_removal(X, L * 1.0, n_clusters=2), TypeError, "labels must be .* got float64"),
    (lambda: ref.fit_removal(X, L[:3], n_clusters=2), ValueError, r"\[n\] = \(4,\), got \(3,\)"),
    (lambda: ref.apply_removal(X, FIT), ValueError, "labels must be given for n_clusters = 2"),
    (
        lambda: ref.apply_removal(X, FIT, L + 1),
        ValueError,
        "labels must be in 0..1, got 2 in row 1",
    ),
    (lambda: ref.apply_removal(X[:, :2], FIT, L), ValueError, r"removal.components must .* d = 2"),
    (lambda: ref.cluster_moments(X, L, n_clusters=1), ValueError, "labels must be in 0..0"),
    (
        lambda: ref.cluster_zero_mean(X, L, n_clusters=0),
        ValueError,
        "n_clusters must be at least 1",
    ),
    (lambda: ref.segment_mean(X, L, num_segments=1), ValueError, "segment_ids must be in 0..0"),
    (
        lambda: ref.changed_scatter(ref.moments(X), X[None]),
        ValueError,
        r"clusters.scatter must be \[c d d\], got shape \(3, 3\)",
    ),
    (
        lambda: ref.changed_scatter(ref.cluster_moments(X, L, n_clusters=2), X[None]),
        ValueError,
        r"components must be \[c k d\] with c = 2, d = 3, got shape \(1, 4, 3\)",
    ),
    (lambda: ref.remove_directions(X, X[0]), ValueError, r"\[k d\] with d = 3, got \(3,\)"),
    (lambda: ref.isotropy_curve(ref.isotropy(X), "most"), ValueError, "which must be one of"),
    (lambda: ref.similarity_curve(X, X[:3], np.eye(3)), ValueError, r"b must have .* = \(4, 3\)"),
    (lambda: ref.similarity_curve(X, X, X), ValueError, r"components must .* \[d d\] = \(3, 3\)"),
]


@pytest.mark.parametrize(
    ("call", "error", "message"), BAD, ids=[re.sub(r"\W+", "-", b[2]) for b in BAD]
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_options_of_the_wrong_kind_are_named():
    # asked of the checks themselves: in tests the annotations of public functions speak first
    with pytest.raises(TypeError, match="n_components must be an int, got float"):
        _checks.integer("n_components", 2.0, 1)
    with pytest.raises(TypeError, match="n_init must be an int, got bool"):
        _checks.integer("n_init", True, 1)
    with pytest.raises(TypeError, match="tol must be a number, got str"):
        _checks.non_negative("tol", "0")

"""Both op sets on bad input: the argument, what it must be, and what came, in the same words."""

import re

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from op_sets import KERNELS, REFERENCE, for_each_op_set

from jaxgeom.results import Moments, Removal

X, L = np.ones((4, 3)), np.array([0, 1, 1, 0])
I3 = np.eye(3)


FIT = Removal(np.zeros((2, 3)), np.zeros((2, 0, 3)), np.array([2, 2]), np.zeros(2, bool))
CLUSTERS = Moments(np.array([2, 2]), np.zeros((2, 3)), np.zeros((2, 3, 3)))

BAD = [
    # the matrix
    (lambda ops: ops.moments("x"), TypeError, "x must be an array, got str"),
    (lambda ops: ops.moments(None), TypeError, "x must be an array, got NoneType"),
    (lambda ops: ops.moments([[1.0], [2.0, 3.0]]), TypeError, "x must be an array, got list"),
    (
        lambda ops: ops.moments(X.astype(int)),
        TypeError,
        "x must have one of the dtypes float16, bfloat16, float32, float64, got int64",
    ),
    (lambda ops: ops.pca(X > 0), TypeError, "x must have one of the dtypes .*, got bool"),
    (
        lambda ops: ops.isotropy(X + 0j),
        TypeError,
        "x must have one of the dtypes .*, got complex128",
    ),
    (lambda ops: ops.isotropy(X[0]), ValueError, r"x must be a matrix \[n d\], got shape \(3,\)"),
    (
        lambda ops: ops.zero_mean(X[None]),
        ValueError,
        r"x must be a matrix .*, got shape \(1, 4, 3\)",
    ),
    (lambda ops: ops.moments(X[:0]), ValueError, r"x \[n d\] must not be empty, got .* \(0, 3\)"),
    (lambda ops: ops.kmeans(X[:, :0], 1), ValueError, r"must not be empty, got shape \(4, 0\)"),
    (
        lambda ops: ops.moments(X, mask=L),
        TypeError,
        "mask must be an array of bool dtype, got int64",
    ),
    (lambda ops: ops.moments(X, mask=L[:3] > 0), ValueError, r"mask must have .* \(4,\), got \(3,"),
    # principal components and isotropy
    (lambda ops: ops.pca(X, 4), ValueError, r"n_components must be in 1..min\(n, d\) = 1..3, got"),
    (lambda ops: ops.pca(X, 0), ValueError, "n_components must be in .*, got 0"),
    (lambda ops: ops.pca(X, 2.0), TypeError, "n_components must be an int, got float"),
    (lambda ops: ops.pca(X[:1]), ValueError, r"x must have at least 2 rows .*, got shape \(1, 3\)"),
    (
        lambda ops: ops.log_partition(X, X[:, :2]),
        ValueError,
        "components must be as wide as x: d = 3",
    ),
    (
        lambda ops: ops.log_isotropy(X),
        ValueError,
        r"log_partition must have shape \[2 d\] = \(2, 3\)",
    ),
    (lambda ops: ops.log_isotropy(X[0]), ValueError, r"log_partition must be a matrix \[2 d\]"),
    # k-means
    (lambda ops: ops.kmeans(X, 5), ValueError, r"n_clusters must be in 1..n = 1..4, got 5"),
    (lambda ops: ops.kmeans(X, 0), ValueError, "n_clusters must be in .*, got 0"),
    (lambda ops: ops.kmeans(X, True), TypeError, "n_clusters must be an int, got bool"),
    (lambda ops: ops.kmeans(X, 2), ValueError, "key must be given unless init is an array of"),
    (lambda ops: ops.kmeans(X, 2, key="0"), TypeError, "key must be .*, got str"),
    (lambda ops: ops.kmeans(X, 2, key=True), TypeError, "key must be .*, got bool"),
    (
        lambda ops: ops.kmeans(X, 2, init="k"),
        ValueError,
        r"init must be one of 'k-means\+\+', 'random', got 'k'",
    ),
    (lambda ops: ops.kmeans(X, 2, init=X), ValueError, r"init must have shape \[c d\] = \(2, 3\)"),
    (lambda ops: ops.kmeans(X, 2, init=L), TypeError, "init must have one of the dtypes .* int64"),
    (lambda ops: ops.kmeans(X, 2, n_init=0), ValueError, "n_init must be at least 1, got 0"),
    (lambda ops: ops.kmeans(X, 2, init=X[:2], n_init=0), ValueError, "n_init must be at least 1"),
    (lambda ops: ops.kmeans(X, 2, max_iter=0), ValueError, "max_iter must be at least 1, got 0"),
    (lambda ops: ops.kmeans(X, 2, max_iter=np.int32(0)), ValueError, "max_iter must be at least 1"),
    (lambda ops: ops.kmeans(X, 2, max_iter=2.5), TypeError, "max_iter must be an int, got float"),
    (lambda ops: ops.kmeans(X, 2, tol=-1.0), ValueError, "tol must be at least 0, got -1.0"),
    (lambda ops: ops.kmeans(X, 2, tol=np.nan), ValueError, "tol must be at least 0, got nan"),
    (lambda ops: ops.kmeans(X, 2, tol="0"), TypeError, "tol must be a number, got str"),
    (
        lambda ops: ops.assign(X, X[:, :2]),
        ValueError,
        "centroids must be as wide as x: d = 3, got 2",
    ),
    # removal
    (lambda ops: ops.fit_removal(X, n_directions=3), ValueError, r"in 0..d - 1 = 0..2, got 3"),
    (lambda ops: ops.fit_removal(X, n_directions=-1), ValueError, r"in 0..d - 1 = 0..2, got -1"),
    (
        lambda ops: ops.fit_removal(X, which="all"),
        ValueError,
        "which must be one of 'top', 'least', got 'all'",
    ),
    (
        lambda ops: ops.fit_removal(X, n_clusters=2),
        ValueError,
        "labels must be given for n_clusters = 2",
    ),
    (lambda ops: ops.fit_removal(X, L), ValueError, "labels must be in 0..0, got 1 in row 1"),
    (lambda ops: ops.fit_removal(X, L - 1, n_clusters=2), ValueError, "in 0..1, got -1 in row 0"),
    (
        lambda ops: ops.fit_removal(X, L << 32, n_clusters=2),  # 0 in its lower 32 bits
        ValueError,
        "in 0..1, got 4294967296 in row 1",
    ),
    (
        lambda ops: ops.fit_removal(X, L * 1.0, n_clusters=2),
        TypeError,
        "labels must be an array of integer dtype, got float64",
    ),
    (
        lambda ops: ops.fit_removal(X, L[:3], n_clusters=2),
        ValueError,
        r"\[n\] = \(4,\), got \(3,\)",
    ),
    (
        lambda ops: ops.apply_removal(X, FIT),
        ValueError,
        "labels must be given for n_clusters = 2",
    ),
    (
        lambda ops: ops.apply_removal(X, FIT, L + 1),
        ValueError,
        "labels must be in 0..1, got 2 in row 1",
    ),
    (
        lambda ops: ops.apply_removal(X[:, :2], FIT, L),
        ValueError,
        r"removal.components must .* d = 2, got \(2, 0, 3\)",
    ),
    (
        lambda ops: ops.apply_removal(X, FIT._replace(means=X), L),
        ValueError,
        r"removal.means must have shape \[c d\] = \(2, 3\), got \(4, 3\)",
    ),
    (
        lambda ops: ops.apply_removal(X, FIT._replace(vanishes=L > 0), L),
        ValueError,
        r"removal.vanishes must have shape \[c\] = \(2,\), got \(4,\)",
    ),
    (lambda ops: ops.cluster_moments(X, L, n_clusters=1), ValueError, "labels must be in 0..0"),
    (
        lambda ops: ops.cluster_zero_mean(X, L, n_clusters=0),
        ValueError,
        "n_clusters must be at least 1, got 0",
    ),
    (
        lambda ops: ops.segment_mean(X, L, num_segments=1),
        ValueError,
        "segment_ids must be in 0..0, got 1 in row 1",
    ),
    (
        lambda ops: ops.changed_scatter(CLUSTERS._replace(scatter=I3), X[None]),
        ValueError,
        r"clusters.scatter must be \[c d d\], got shape \(3, 3\)",
    ),
    (
        lambda ops: ops.changed_scatter(CLUSTERS, X[None]),
        ValueError,
        r"components must be \[c k d\] with c = 2, d = 3, got shape \(1, 4, 3\)",
    ),
    (lambda ops: ops.remove_directions(X, X[0]), ValueError, r"\[k d\] with d = 3, got \(3,\)"),
    (lambda ops: ops.remove_directions(X, L), TypeError, "components must have .* got int64"),
    # curves
    (lambda ops: ops.isotropy_curve(None, "most"), ValueError, "which must be one of"),
    (
        lambda ops: ops.similarity_curve(X, X[:3], I3),
        ValueError,
        r"b must have shape \[p d\] = \(4, 3\), got \(3, 3\)",
    ),
    (
        lambda ops: ops.similarity_curve(X, X, X),
        ValueError,
        r"components must have shape \[d d\] = \(3, 3\), got \(4, 3\)",
    ),
    (lambda ops: ops.similarity_curve(X, X, I3, "all"), ValueError, "which must be one of"),
]


@pytest.fixture(autouse=True)
def _as_users_run_it(monkeypatch):
    """Switch off the tests' own check of annotations, which would speak before the package does."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.parametrize(
    ("call", "error", "message"), BAD, ids=[re.sub(r"\W+", "-", b[2]) for b in BAD]
)
@for_each_op_set
def test_bad_input_is_named(ops, call, error, message):
    with pytest.raises(error, match=message):
        call(ops)


@pytest.mark.parametrize(("call", "error"), [b[:2] for b in BAD if "key must be ." not in b[2]])
def test_both_say_it_in_the_same_words(call, error):
    texts = []
    for ops in (REFERENCE, KERNELS):
        with pytest.raises(error) as caught:
            call(ops)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("size", [0, -1, 2.0, True])
@pytest.mark.parametrize(
    "name", ["moments", "pca", "log_partition", "isotropy", "kmeans", "assign"]
)
def test_chunk_size_is_positive(name, size):
    arguments = {"log_partition": (X, I3), "kmeans": (X, 2), "assign": (X, I3)}.get(name, (X,))
    wrong = ValueError if type(size) is int else TypeError
    with pytest.raises(wrong, match=r"chunk_size must be (at least 1|an int), got"):
        getattr(KERNELS, name)(*arguments, chunk_size=size)


@pytest.mark.parametrize("key", [np.zeros(2, np.uint32), 0])
def test_a_key_of_the_kernels_is_typed(key):
    with pytest.raises(TypeError, match=r"key must be a typed key, jax.random.key\(seed\), got"):
        KERNELS.kmeans(X, 2, key=key)


def test_labels_are_read_unless_a_transformation_hides_them():
    message = r"labels must be in 0\.\.1, got 2 in row 1"
    for labels in (L + 1, jnp.asarray(L + 1)):
        with pytest.raises(ValueError, match=message):
            KERNELS.cluster_moments(X, labels, n_clusters=2)
    with pytest.raises(ValueError, match=message):  # the data is traced, the labels are not
        jax.eval_shape(lambda x: KERNELS.cluster_moments(x, L + 1, n_clusters=2), X)
    jax.eval_shape(lambda labels: KERNELS.cluster_moments(X, labels, n_clusters=2), L + 1)

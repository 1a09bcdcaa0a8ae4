"""One table of operations, backends, problems and tolerances, for the tests and the benchmarks.

An operation is run by the reference on the float64 value of the very numbers that the backend gets,
and compared in what is identifiable: projectors instead of eigenvectors, ln F at given directions,
partitions from given centroids. A new backend is one row of `BACKENDS`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import jaxgeom
from jaxgeom import reference
from jaxgeom.results import PCA, Isotropy, IsotropyCurve, KMeans, Moments

Outputs = dict[str, Any]  # quantity -> array; the quantity names the tolerance


class Inputs(NamedTuple):
    """What the operations are given; floating arrays are float64 until a backend takes them."""

    x: Any  # [n d]
    labels: Any  # [n] int32
    centroids: Any  # [c d], a start from which Lloyd's iterations are stable
    directions: Any  # [k d] orthonormal
    segment_ids: Any  # [n] int32
    n_clusters: int
    n_directions: int


@dataclass(frozen=True)
class Problem:
    """A seeded data set: what makes it hard is said in `why`."""

    name: str
    why: str
    n: int
    d: int
    n_clusters: int
    n_directions: int
    mean_norm: float = 0.0  # distance of the cloud from the origin
    decades: float = 0.0  # eigenvalues of the covariance fall over so many powers of ten
    gap_after_top: float = 1.0  # factor by which the leading standard deviations stand out
    norm: float | None = None  # root mean square norm the rows are scaled to
    spread: float = 6.0  # distance of the cluster centres, in standard deviations

    def inputs(self, seed: int = 0) -> Inputs:
        """Return the data: anisotropic clusters, rotated at random, far from the origin."""
        rng = np.random.default_rng(seed)
        scale = 10.0 ** (-self.decades / 2 * np.linspace(0, 1, self.d))
        scale[: self.n_directions] *= self.gap_after_top
        basis = np.linalg.qr(rng.normal(size=(self.d, self.d)))[0]
        centres = self.spread * rng.normal(size=(self.n_clusters, self.d)) * scale[None, :]
        labels = np.sort(rng.integers(0, self.n_clusters, self.n)).astype(np.int32)
        labels = labels[rng.permutation(self.n)]
        x = (rng.normal(size=(self.n, self.d)) * scale[None, :] + centres[labels]) @ basis
        offset = rng.normal(size=self.d)
        x += self.mean_norm * (offset / np.linalg.norm(offset))[None, :]
        if self.norm is not None:
            x *= self.norm / np.sqrt(np.square(x).sum(1).mean())
        picked = np.array([np.flatnonzero(labels == c)[0] for c in range(self.n_clusters)])
        segments = np.sort(rng.integers(0, max(self.n // 15, 1), self.n)).astype(np.int32)
        return Inputs(
            x, labels, x[picked], basis[: self.n_directions], segments,
            self.n_clusters, self.n_directions,
        )  # fmt: skip


_SHAPE = (1200, 64, 4, 6)  # one shape, so that an operation is compiled once for most problems

PROBLEMS = (
    Problem("gaussian", "nothing hard: clusters and a gap", *_SHAPE, gap_after_top=2.0),
    Problem("far", "a mean far from zero eats digits", *_SHAPE, 300.0, 0.0, 2.0),
    Problem("anisotropic", "five decades of variance, a gap", *_SHAPE, 8.0, 5.0, 3.0),
    Problem("long", "the same with norms of 500: exp overflows", *_SHAPE, 8.0, 5.0, 3.0, 500.0),
    Problem("wide", "fewer rows than features", 40, 64, 2, 3, gap_after_top=2.0),
)

SIZES = (
    Problem("S", "a few sentences", 2_000, 64, 5, 4, 4.0, 3.0, 3.0),
    Problem("M", "a small model", 10_000, 256, 9, 8, 6.0, 4.0, 3.0),
    Problem("L", "MiniLM on STS-B", 40_000, 384, 27, 12, 8.0, 5.0, 3.0),
    Problem("paper", "the study: BERT-base on STS-B dev", 40_960, 768, 27, 12, 8.0, 5.0, 3.0),
)


@dataclass(frozen=True)
class Op:
    """An operation: how it is called, and what of its result is identifiable."""

    name: str
    call: Callable[[Any, Inputs], Any]  # (ops, inputs) -> result: what a benchmark times
    identify: Callable[[Any, Any, Inputs], Outputs]  # (ops, result, inputs) -> what is compared
    centres_first: bool = False  # a centred matrix rounded to half precision is another matrix

    def run(self, ops: Any, inputs: Inputs) -> Outputs:
        """Return the identifiable part of the result."""
        return self.identify(ops, self.call(ops, inputs), inputs)


def _field(name: str) -> Callable[..., Outputs]:
    """Return the identification of a result that is one array, compared as it is."""
    return lambda _, result, __: {name: result}


def _moments(ops: Any, a: Inputs) -> Any:
    return ops.moments(a.x)


def _identify_moments(_: Any, m: Moments, __: Inputs) -> Outputs:
    return {"count": m.count, "mean": m.mean, "scatter": m.scatter}


def _cluster_moments(ops: Any, a: Inputs) -> Any:
    return ops.cluster_moments(a.x, a.labels, n_clusters=a.n_clusters)


def _identify_cluster_moments(_: Any, m: Moments, __: Inputs) -> Outputs:
    return {"count": m.count, "mean": m.mean, "cluster_scatter": m.scatter}


def _pca(ops: Any, a: Inputs) -> Any:
    return ops.pca(a.x, a.n_directions)


def _identify_pca(_: Any, fit: PCA, __: Inputs) -> Outputs:
    components = np.asarray(fit.components, np.float64)
    return {
        "mean": fit.mean,
        "explained_variance": fit.explained_variance,
        "explained_variance_ratio": fit.explained_variance_ratio,
        "projector": components.T @ components,  # free of the rows' signs and order
    }


def _log_partition(ops: Any, a: Inputs) -> Any:
    return ops.log_partition(a.x, a.directions)


def _isotropy(ops: Any, a: Inputs) -> Any:
    return ops.isotropy(ops.zero_mean(a.x))


def _identify_isotropy(ops: Any, fit: Isotropy, _: Inputs) -> Outputs:
    log_i = ops.log_isotropy(fit.log_partition)
    return {
        "log_isotropy": np.stack([np.asarray(v) for v in log_i]),
        "eigenvalues": fit.eigenvalues,
    }


def _uncentred_isotropy(ops: Any, a: Inputs) -> Any:
    return ops.isotropy(a.x)


def _identify_uncentred_isotropy(ops: Any, fit: Isotropy, _: Inputs) -> Outputs:
    return {"log_isotropy": ops.log_isotropy(fit.log_partition).heavier}


def _kmeans(ops: Any, a: Inputs) -> Any:
    return ops.kmeans(a.x, a.n_clusters, init=a.centroids)


def _identify_kmeans(_: Any, fit: KMeans, __: Inputs) -> Outputs:
    return {
        "labels": fit.labels,
        "count": fit.counts,
        "mean": fit.centroids,
        "inertia": fit.inertia,
    }


def _assign(ops: Any, a: Inputs) -> Any:
    return ops.assign(a.x, a.centroids)


def _removal(n_clusters: bool, n_directions: bool, which: str = "top") -> Callable[..., Any]:
    """Return the call of one of the study's settings: fitted, and applied."""

    def call(ops: Any, a: Inputs) -> Any:
        labels = a.labels if n_clusters else None
        fit = ops.fit_removal(
            a.x,
            labels,
            n_clusters=a.n_clusters if n_clusters else 1,
            n_directions=a.n_directions if n_directions else 0,
            which=which,
        )
        return fit, ops.apply_removal(a.x, fit, labels)

    return call


def _identify_removal(_: Any, result: Any, __: Inputs) -> Outputs:
    fit, changed = result
    return {"mean": fit.means, "count": fit.counts, "changed": changed}


def _changed_scatter(ops: Any, a: Inputs) -> Any:
    clusters: Moments = ops.cluster_moments(a.x, a.labels, n_clusters=a.n_clusters)
    fit = ops.fit_removal(a.x, a.labels, n_clusters=a.n_clusters, n_directions=a.n_directions)
    return ops.changed_scatter(clusters, fit.components)


def _remove_directions(ops: Any, a: Inputs) -> Any:
    return ops.remove_directions(a.x, a.directions)


def _curves(ops: Any, a: Inputs) -> Any:
    fit = ops.isotropy(ops.zero_mean(a.x))
    return [ops.isotropy_curve(fit, which) for which in ("top", "least")]


def _identify_curves(_: Any, curves: list[IsotropyCurve], __: Inputs) -> Outputs:
    return {"log_isotropy_curve": np.stack([np.asarray(v) for curve in curves for v in curve])}


def _similarity_curve(ops: Any, a: Inputs) -> Any:
    centred = ops.zero_mean(a.x)
    components = ops.isotropy(centred).components
    return ops.similarity_curve(centred[:20], centred[20:40], components)


def _identify_similarity_curve(_: Any, curve: Any, a: Inputs) -> Outputs:
    """Compare up to the gap: what is left beyond it depends on how a solver splits the rest."""
    return {"cosine": curve[: a.n_directions + 1 : a.n_directions]}


def _segment_mean(ops: Any, a: Inputs) -> Any:
    return ops.segment_mean(a.x, a.segment_ids, num_segments=int(a.segment_ids.max()) + 1)


_SETTINGS = {
    "zero_mean": _removal(n_clusters=False, n_directions=False),
    "cluster_zero_mean": _removal(n_clusters=True, n_directions=False),
    "global": _removal(n_clusters=False, n_directions=True),
    "cluster_based": _removal(n_clusters=True, n_directions=True),
}

OPS = (
    Op("moments", _moments, _identify_moments),
    Op("cluster_moments", _cluster_moments, _identify_cluster_moments),
    Op("pca", _pca, _identify_pca),
    Op("log_partition", _log_partition, _field("log_partition")),
    Op("isotropy", _isotropy, _identify_isotropy, centres_first=True),
    Op("isotropy_uncentred", _uncentred_isotropy, _identify_uncentred_isotropy),
    Op("kmeans", _kmeans, _identify_kmeans),
    Op("assign", _assign, _field("labels")),
    *(Op(name, call, _identify_removal) for name, call in _SETTINGS.items()),
    Op("changed_scatter", _changed_scatter, _field("changed_scatter")),
    Op("remove_directions", _remove_directions, _field("changed")),
    Op("isotropy_curves", _curves, _identify_curves, centres_first=True),
    Op(
        "similarity_curve",
        _similarity_curve,
        _identify_similarity_curve,
        centres_first=True,
    ),
    Op("segment_mean", _segment_mean, _field("mean")),
)


@dataclass(frozen=True)
class Backend:
    """An implementation of the operations, and how it takes its arrays."""

    name: str
    ops: ModuleType
    asarray: Callable[[Any, str], Any]  # (float64 array, dtype name) -> array of that dtype
    dtypes: tuple[str, ...]


BACKENDS = (
    Backend(
        "jax",
        jaxgeom,
        jnp.asarray,
        ("float32", "float16", "bfloat16", "float64"),
    ),
    Backend("numpy", reference, lambda x, dtype: np.asarray(x, jnp.dtype(dtype)), ("float32",)),
)


@dataclass(frozen=True)
class Tolerance:
    """|got - expected| <= absolute + relative * scale, scale the largest magnitude in `of`."""

    why: str
    absolute: float = 0.0
    relative: float = 0.0
    of: str = "expected"  # or "data": the input, for what is a difference of such numbers


_EXACT = Tolerance("a count or a partition: no rounding can show")

# float16 and bfloat16 data are computed in float32, and the reference is given the rounded numbers:
# what remains of their dtype is the rounding of a result that is returned in it.
_FLOAT32 = {
    "count": _EXACT,
    "labels": _EXACT,
    "mean": Tolerance("sums relative to one row: a few roundings of the data", 0.0, 3e-6, "data"),
    "scatter": Tolerance("n products, each rounded; their sum grows slower", 0.0, 2e-6),
    "cluster_scatter": Tolerance("as scatter", 0.0, 4e-6),
    "changed_scatter": Tolerance("the scatter's error where the heavy part is gone", 0.0, 5e-4),
    "explained_variance": Tolerance("as scatter", 0.0, 4e-6),
    "explained_variance_ratio": Tolerance("as scatter", 0.0, 4e-6),
    "eigenvalues": Tolerance("backward error of eigh: eps * d of the largest", 0.0, 5e-6),
    "projector": Tolerance("rounding of the largest eigenvalue over the gap", 1e-4),
    "log_partition": Tolerance("see log_partition_bound", 1e-6, 1e-6),
    "log_isotropy": Tolerance("each side has its own directions", 2e-3, 2e-5),
    "log_isotropy_curve": Tolerance("as log_isotropy, among ever closer eigenvalues", 2e-3, 1e-4),
    "inertia": Tolerance("a sum of n squares", 0.0, 4e-6),
    "changed": Tolerance("the projector's error times the data", 0.0, 5e-5, "data"),
    "cosine": Tolerance("the basis' error over the energy that is left", 1e-4),
}
_FLOAT64 = {
    name: Tolerance(t.why, t.absolute * 1e-6, t.relative * 1e-6, t.of)
    for name, t in _FLOAT32.items()
}
_ROUNDED_RESULT = {
    dtype: _FLOAT32
    | {
        "changed": Tolerance(
            "rounding of the result itself", 0.0, float(jnp.finfo(dtype).eps), "data"
        )
    }
    for dtype in ("float16", "bfloat16")
}

TOLERANCES: dict[tuple[str, str], dict[str, Tolerance]] = {
    ("jax", "float32"): _FLOAT32,
    ("jax", "float64"): _FLOAT64,
    ("jax", "float16"): _ROUNDED_RESULT["float16"],
    ("jax", "bfloat16"): _ROUNDED_RESULT["bfloat16"],
    ("numpy", "float32"): dict.fromkeys(_FLOAT32, _EXACT),  # float64 inside: the same numbers
}


def rounded(inputs: Inputs, backend: Backend, dtype: str) -> tuple[Inputs, Inputs]:
    """Return the inputs as the backend takes them, and the same numbers for the reference."""

    def back(x: Any) -> Any:
        return np.asarray(x).astype(np.float64)

    x, centroids, directions = (
        backend.asarray(v, dtype) for v in (inputs.x, inputs.centroids, inputs.directions)
    )
    given = inputs._replace(x=x, centroids=centroids, directions=directions)
    exact = given._replace(x=back(x), centroids=back(centroids), directions=back(directions))
    return given, exact


def compare(
    got: Outputs, expected: Outputs, inputs: Inputs, tolerances: dict[str, Tolerance]
) -> dict[str, float]:
    """Return the largest error of each quantity, as a share of what its tolerance allows.

    Raises:
        AssertionError: a quantity differs by more than that; all such are named.
    """
    failures, shares = [], {}
    for name, tolerance in ((name, tolerances[name]) for name in expected):
        ours, wanted = np.asarray(got[name], np.float64), np.asarray(expected[name], np.float64)
        scale = np.abs(inputs.x if tolerance.of == "data" else wanted).max()
        bound = tolerance.absolute + tolerance.relative * float(scale)
        if ours.shape != wanted.shape:
            failures.append(f"{name}: shape {ours.shape}, expected {wanted.shape}")
        elif not (error := float(np.abs(ours - wanted).max())) <= bound:  # a NaN fails too
            failures.append(
                f"{name}: differs by {error:.2e}, allowed {bound:.2e} ({tolerance.why})"
            )
        else:
            shares[name] = error / bound if bound else 0.0
    if failures:
        raise AssertionError("; ".join(failures))
    return shares

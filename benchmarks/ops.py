"""What is timed: the operations of `jaxgeom.testing`, one more, and what each of them costs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from jaxgeom.results import KMeans
from jaxgeom.testing import OPS as TESTED
from jaxgeom.testing import PROBLEMS, SIZES, TOLERANCES, Inputs, Op, Outputs, Problem, Tolerance

BY_SIZE = {problem.name: problem for problem in (*PROBLEMS, *SIZES)}
LLOYD_ITERATIONS = 25
_OVERLAP = 0.5  # distance of Lloyd's clusters, in standard deviations


def lloyd(ops: Any, a: Inputs, max_iter: int = LLOYD_ITERATIONS) -> KMeans:
    """Return Lloyd's iterations from the first rows."""
    return ops.kmeans(a.x, a.n_clusters, init=a.x[: a.n_clusters], max_iter=max_iter)


def _nothing(_: Any, __: KMeans, ___: Inputs) -> Outputs:
    """Identify nothing: the paths of two runs part, see `jaxgeom.testing_kmeans`."""
    return {}


OPS = (*TESTED, Op("lloyd", lloyd, _nothing))

LLOYD_TOLERANCES = {
    "first_step": TOLERANCES["jax", "float32"]["mean"],
    "last_step": TOLERANCES["jax", "float32"]["mean"],
    "lloyd_inertia": Tolerance("n squares that a peer may add one by one in float32", 0.0, 1e-5),
    "nearest": Tolerance("rounding of the two distances is taken off"),
    "n_iter": Tolerance("the same work, or nothing moves any more"),
}


def problem_of(op: Op, size: str) -> Problem:
    """Return the data of an operation; Lloyd's clusters overlap, so that it has work to do."""
    problem = BY_SIZE[size]
    return replace(problem, spread=_OVERLAP) if op.name == "lloyd" else problem


@dataclass(frozen=True)
class Cost:
    """Arithmetic and traffic that an operation's definition needs, not what a backend spends."""

    flops: float  # multiplications and additions; of a symmetric product one triangle
    bytes: float  # float32 inputs read once, results written once


def cost(op: Op, problem: Problem) -> Cost:
    """Return what an operation needs at least."""
    n, d, c, k = problem.n, problem.d, problem.n_clusters, problem.n_directions
    flops, written = _COSTS[op.name](n, d, c, k)
    return Cost(flops, 4 * (n * d + written))


def _gram(n: int, d: int) -> float:
    return float(n) * d * (d + 1)


def _eigenbasis(d: int) -> float:
    """Return the arithmetic of a full symmetric decomposition (Golub and Van Loan, 8.3)."""
    return 9.0 * d**3


def _isotropy(n: int, d: int) -> float:
    return _gram(n, d) + _eigenbasis(d) + 2.0 * n * d * d


_COSTS: dict[str, Callable[[int, int, int, int], tuple[float, float]]] = {
    "moments": lambda n, d, c, k: (_gram(n, d), d * d),
    "cluster_moments": lambda n, d, c, k: (_gram(n, d), c * d * d),
    "pca": lambda n, d, c, k: (_gram(n, d), k * d),
    "log_partition": lambda n, d, c, k: (2.0 * n * d * k, 2 * k),
    "isotropy": lambda n, d, c, k: (_isotropy(n, d), d * d),
    "isotropy_uncentred": lambda n, d, c, k: (_isotropy(n, d), d * d),
    "kmeans": lambda n, d, c, k: (2.0 * n * d * c, n),
    "lloyd": lambda n, d, c, k: (LLOYD_ITERATIONS * (2.0 * n * d * c + n * d), n),
    "assign": lambda n, d, c, k: (2.0 * n * d * c, n),
    "zero_mean": lambda n, d, c, k: (2.0 * n * d, n * d),
    "cluster_zero_mean": lambda n, d, c, k: (2.0 * n * d, n * d),
    "global": lambda n, d, c, k: (_gram(n, d) + 4.0 * n * d * k, n * d),
    "cluster_based": lambda n, d, c, k: (_gram(n, d) + 4.0 * n * d * k, n * d),
    "changed_scatter": lambda n, d, c, k: (2 * _gram(n, d) + 8.0 * c * k * d * d, d * d),
    "remove_directions": lambda n, d, c, k: (4.0 * n * d * k, n * d),
    "isotropy_curves": lambda n, d, c, k: (_isotropy(n, d), 6 * d),
    "similarity_curve": lambda n, d, c, k: (_isotropy(n, d), d * 20),
    "segment_mean": lambda n, d, c, k: (1.0 * n * d, n * d / 15),
}

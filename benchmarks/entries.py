"""One entry of the suite: inputs on the device, first call, check against the reference, clock."""

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks.backends import Backend
from benchmarks.ops import LLOYD_ITERATIONS, cost, lloyd, problem_of
from benchmarks.peers.arrays import to_numpy
from jaxgeom import reference
from jaxgeom.results import KMeans
from jaxgeom.testing import Inputs, Op, Outputs, compare
from jaxgeom.testing_kmeans import judged

_SHORT = 0.25  # seconds; a shorter call is timed at least `_ROUNDS` times
_ROUNDS = 20
_LONG = 10.0  # seconds; a longer call is timed twice
_PATIENCE = 4.0  # seconds that an entry may take beyond its least number of rounds


class Missing(NamedTuple):
    """Why a backend has no such operation."""

    reason: str


class Entry(NamedTuple):
    """A checked call, ready to be timed."""

    call: Callable[[], Any]  # one round; returns when the result is there
    seconds: float  # of a call, roughly
    info: dict[str, Any]


def prepare(op: Op, backend: Backend, size: str) -> Entry | Missing:
    """Put the inputs on the device, compile, and compare with the reference.

    Raises:
        AssertionError: the backend's result is not the reference's, within its tolerances.
    """
    ops = backend.load()
    exact = _inputs(op, size)
    start = time.perf_counter()
    given = backend.block(on_device(exact, backend))
    transfer = time.perf_counter() - start

    def call() -> Any:
        return backend.block(op.call(ops, given))

    try:
        first, result = clocked(call)
    except (AttributeError, NotImplementedError) as error:
        return Missing(f"{backend.name} has no {op.name}: {error}")
    shares = check(op, result, given, exact, size, backend)
    seconds = clocked(call)[0]
    need = cost(op, problem_of(op, size))
    info = {
        "op": op.name, "backend": backend.name, "size": size,
        "n": exact.x.shape[0], "d": exact.x.shape[1],
        "n_clusters": exact.n_clusters, "n_directions": exact.n_directions,
        "flops": need.flops, "bytes": need.bytes,
        "transfer_s": transfer, "first_call_s": first,
        "error": {name: round(share, 4) for name, share in shares.items()},
    }  # fmt: skip
    return Entry(call, seconds, info)


def check(
    op: Op, result: Any, given: Inputs, exact: Inputs, size: str, backend: Backend
) -> dict[str, float]:
    """Return each quantity's error as a share of its tolerance; raise where one is beyond."""
    if op.name == "lloyd":
        got, expected = _judged_lloyd(result, given, exact, backend)
    else:
        expected = _expected(op, size)
        if not backend.is_peer and backend.name != "reference":
            got = op.identify(backend.load(), result, exact)
        else:
            got = op.identify(reference, _numpy(result), exact)
    return compare(got, expected, exact, backend.tolerances)


def _judged_lloyd(
    result: KMeans, given: Inputs, exact: Inputs, backend: Backend
) -> tuple[Outputs, Outputs]:
    """Return what Lloyd's iterations gave, and what they should from the run's own centroids."""

    def run(max_iter: int) -> KMeans:
        return _numpy(lloyd(backend.load(), given, max_iter))

    step, x = backend.tolerances["last_step"], exact.x
    near = step.absolute + step.relative * float(np.abs(x).max())
    return judged(run, _numpy(result), x, x[: exact.n_clusters], LLOYD_ITERATIONS, near)


def n_rounds(seconds: float) -> int:
    """Return how often a call of so many seconds is timed."""
    if seconds <= _SHORT:
        return max(_ROUNDS, min(100, int(_PATIENCE / 2 / max(seconds, 1e-6))))
    return max(3 if seconds < _LONG else 2, int(_PATIENCE / seconds))


def clocked(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return how long one call took, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def first_and_next(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return the seconds of the first call, roughly those of a later one, and the first result."""
    first, result = clocked(call)
    return first, first if first > _LONG else clocked(call)[0], result


def on_device(inputs: Inputs, backend: Backend) -> Inputs:
    """Return the inputs as float32 and int32 arrays of the backend."""

    def put(x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return x
        return backend.asarray(x.astype(np.float32 if x.dtype.kind == "f" else np.int32))

    return Inputs(*map(put, inputs))


def _numpy(result: Any) -> Any:
    """Return a peer's result with NumPy arrays for its own."""
    return jax.tree.map(to_numpy, result)


@lru_cache(maxsize=1)  # the large ones are large
def _data(problem: Any) -> Inputs:
    """Return a problem's float32 numbers, in float64 for the reference."""
    drawn = problem.inputs()

    def rounded(x: Any) -> Any:
        return x.astype(np.float32).astype(np.float64) if np.ndim(x) == 2 else x

    return Inputs(*map(rounded, drawn))


def _inputs(op: Op, size: str) -> Inputs:
    return _data(problem_of(op, size))


@lru_cache(maxsize=1)
def _expected(op: Op, size: str) -> Outputs:
    """Return what the reference computes; kept for the next backend's turn."""
    return op.run(reference, _inputs(op, size))

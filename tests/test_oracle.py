"""Every operation, on every backend, dtype and problem, against the float64 reference."""

import contextlib

import jax
import pytest

import jaxgeom
from jaxgeom import reference
from jaxgeom.testing import BACKENDS, OPS, PROBLEMS, TOLERANCES, compare, rounded
from jaxgeom.testing_kmeans import clear_of_ties

HALF = ("float16", "bfloat16")
CASES = [
    pytest.param(op, backend, dtype, problem, id=f"{op.name}-{backend.name}-{dtype}-{problem.name}")
    for backend in BACKENDS
    for dtype in backend.dtypes
    for problem in PROBLEMS
    for op in OPS
    if not (op.centres_first and dtype in HALF)
]


@pytest.mark.parametrize(("op", "backend", "dtype", "problem"), CASES)
def test_operation_agrees_with_the_reference(op, backend, dtype, problem):
    wide = jax.enable_x64(True) if dtype == "float64" else contextlib.nullcontext()
    with wide:
        given, exact = rounded(problem.inputs(), backend, dtype)
        got, expected = op.run(backend.ops, given), op.run(reference, exact)
        compare(got, expected, exact, TOLERANCES[backend.name, dtype])


class Recorded:
    """The reference, and which of its operations were asked for."""

    def __init__(self):
        self.names = set()

    def __getattr__(self, name):
        self.names.add(name)
        return getattr(reference, name)


def test_every_public_operation_is_compared():
    inputs, ops = PROBLEMS[0].inputs(), Recorded()
    for op in OPS:
        op.run(ops, inputs)
    fronts = {"cluster_zero_mean"}  # made of operations that are
    kernels = vars(jaxgeom.kernels).items()
    public = {name for name, value in kernels if callable(value) and name[0] != "_"}
    assert public - ops.names == fronts


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_no_row_lies_at_a_tie(problem):
    """Labels are compared one by one: the clusters are apart, whatever rounds the distances."""
    a = problem.inputs()
    assert clear_of_ties(a.x, a.centroids, factor=1000.0)

"""Operations × backends × sizes, each checked against the float64 reference before it is timed."""

import pytest

from benchmarks.backends import BACKENDS
from benchmarks.entries import Missing, prepare
from benchmarks.ops import OPS
from benchmarks.targets import COMPARED


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Order the entries so that those compared with each other run one after the other."""
    sizes = metafunc.config.getoption("size")
    cases = [
        pytest.param(op, backend, size, id=f"{size}-{op.name}-{backend.name}")
        for size in sizes or ("S", "paper")
        for op in OPS
        for backend in BACKENDS
        if sizes or size == "S" or backend.name in COMPARED.get(f"{op.name}-{size}", ())
    ]
    metafunc.parametrize(("op", "backend", "size"), cases)


def test_operation(op, backend, size, timed):
    if reason := backend.missing():
        pytest.skip(reason)
    entry = prepare(op, backend, size)
    if isinstance(entry, Missing):
        pytest.skip(entry.reason)
    timed(entry, group=f"{op.name}-{size}")

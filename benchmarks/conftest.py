"""Options of the suite, what it records of the machine, and when it refuses to run at all."""

import os
from typing import Any

import jax
import pytest

from benchmarks import environment
from benchmarks.entries import Entry, n_rounds
from jaxgeom._process import enable_compilation_cache
from jaxgeom.testing import SIZES


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of sizes."""
    parser.addoption(
        "--size",
        action="append",
        choices=[problem.name for problem in SIZES],
        help="of the problems, may be given several times; by default S for every operation, and "
        "the study's size for those of the table",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse where a peer's BLAS is held back; keep compiled programs between runs."""
    if reason := environment.refusal(os.environ):
        raise pytest.UsageError(reason)
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning:importlib")  # faiss's own
    enable_compilation_cache()


def pytest_benchmark_update_machine_info(
    config: pytest.Config, machine_info: dict[str, Any]
) -> None:
    """Put versions, threads, BLAS kernels and the machine's rates beside the results."""
    machine_info["jaxgeom"] = environment.describe() | environment.rates()


@pytest.fixture
def timed(benchmark: Any) -> Any:
    """Time a prepared entry, which is compiled and checked, and keep what it is."""

    def time_entry(entry: Entry, group: str, rounds: int | None = None) -> Any:
        benchmark.group = group
        benchmark.extra_info.update(entry.info | {"blas": environment.blas_kernels()})
        benchmark.extra_info["device"] = str(jax.devices()[0].device_kind)
        benchmark.extra_info["threads"] = len(os.sched_getaffinity(0))
        rounds = rounds or n_rounds(entry.seconds)
        return benchmark.pedantic(entry.call, rounds=rounds, iterations=1)

    return time_entry

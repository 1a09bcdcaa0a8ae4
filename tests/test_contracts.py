"""What the project promises of itself: layers, a light import, examples that run, a true README."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jaxgeom

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    p for f in ("jaxgeom", "experiments", "benchmarks") for p in (ROOT / f).rglob("*.py")
)

# Which parts of the package a part may import: imports run one way, downwards.
BASE = {"results", "_checks"}
FILES = {"_files", "distributed"}
LAYERS = {
    "_checks": set(),
    "results": set(),
    "distributed": BASE,
    "_mesh": set(),
    "_versions": set(),
    "_files": {"distributed"},
    "reference": BASE,
    "kernels": BASE,
    "tasks": BASE,
    "sharded": BASE | {"kernels", "distributed", "_mesh"},
    "streaming": BASE | FILES | {"kernels", "_mesh"},
    "models": BASE | {"kernels", "_mesh"},
    "training": BASE | FILES | {"kernels", "models", "tasks", "_mesh", "_versions"},
    "study": BASE | {"kernels", "reference", "tasks"},
    "testing": BASE | {"kernels", "reference", ""},
    "testing_kmeans": BASE,
    "analyze": BASE | FILES | {"streaming"},
    "": BASE | {"kernels"},
}
HEAVY = ("flax", "optax", "tokenizers", "transformers", "datasets", "tyro", "matplotlib", "sklearn")
HEAVY_SCIPY = ("scipy.stats", "scipy.cluster", "scipy.optimize")


def _part(path: Path) -> str:
    """Return which part of the package a file belongs to; '' is the package's own __init__."""
    first = path.relative_to(ROOT / "jaxgeom").parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def _imported_parts(tree: ast.AST) -> set[str]:
    """Return the parts of the package that a syntax tree imports."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "parent-relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    parts = [name.split(".") for name in names]
    known = {p.removesuffix(".py") for p in (f.name for f in (ROOT / "jaxgeom").iterdir())}
    return {(p[1] if len(p) > 1 and p[1] in known else "") for p in parts if p[0] == "jaxgeom"}


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if p.parts[len(ROOT.parts)] == "jaxgeom"], ids=str
)
def test_imports_run_downwards(path):
    part = _part(path)
    imported = _imported_parts(ast.parse(path.read_text(encoding="utf-8")))
    assert imported <= LAYERS[part] | {part}


def test_nothing_imports_experiments_or_benchmarks_from_the_package():
    for path in (ROOT / "jaxgeom").rglob("*.py"):
        assert not re.search(
            r"^\s*(from|import) (experiments|benchmarks|tests)", path.read_text("utf-8"), re.M
        )


def test_import_is_light():
    code = "import sys, jaxgeom; print('\\n'.join(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert not [name for name in loaded if name.split(".")[0] in HEAVY or name in HEAVY_SCIPY]


def _modules() -> list[str]:
    return [m.name for m in pkgutil.walk_packages(jaxgeom.__path__, "jaxgeom.")]


@pytest.mark.parametrize("name", _modules())
def test_docstring_examples_run(name):
    module = importlib.import_module(name)
    outcome = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert outcome.failed == 0


FRONTS = ("zero_mean", "cluster_zero_mean")  # they refer to what they are made of


@pytest.mark.parametrize(
    "name", [n for n in dir(jaxgeom.kernels) if n[0] != "_" and n not in FRONTS]
)
def test_public_docstring_is_complete(name):
    operation = getattr(jaxgeom.kernels, name)
    if inspect.ismodule(operation):
        return
    for section in ("Args:", "Returns:", "Raises:", "Numerics:", "Example:"):
        assert section in operation.__doc__, section


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_are_short(path):
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= 400
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            length = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            assert length <= 40, f"{node.name}: {length} lines"


def _readme_blocks(language: str) -> list[str]:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", readme, re.S)


def test_readme_test_command_is_what_ci_runs():
    command = _readme_blocks("bash")[1].strip().splitlines()[-1].split("&& ")[-1].split("/")[-1]
    assert command.startswith("pytest")
    assert f"python -m {command} " in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_readme_tour_runs():
    (tour,) = _readme_blocks("python")
    exec(compile(tour, "README.md", "exec"), {})

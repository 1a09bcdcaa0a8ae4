"""What the project promises of itself: layers, a light import, examples that run, a true README."""

import ast
import doctest
import graphlib
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
    "_roll_call": set(),
    "distributed": BASE | {"_roll_call"},
    "_mesh": set(),
    "_versions": set(),
    "_process": set(),
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
# The rooms of `experiments`, in the order in which data flows; the commands stand above them.
ROOMS = ("command", "spaces", "rows", "layout")
HEAVY = ("flax", "optax", "tokenizers", "transformers", "datasets", "tyro", "matplotlib", "sklearn")
HEAVY_SCIPY = ("scipy.stats", "scipy.cluster", "scipy.optimize")


def _part(path: Path) -> str:
    """Return which part of the package a file belongs to; '' is the package's own __init__."""
    first = path.relative_to(ROOT / "jaxgeom").parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def _imported(tree: ast.AST) -> set[str]:
    """Return the modules, or what is taken from them, that a syntax tree imports."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "parent-relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _imported_parts(tree: ast.AST) -> set[str]:
    """Return the parts of the package that a syntax tree imports."""
    parts = [name.split(".") for name in _imported(tree)]
    known = {p.removesuffix(".py") for p in (f.name for f in (ROOT / "jaxgeom").iterdir())}
    return {(p[1] if len(p) > 1 and p[1] in known else "") for p in parts if p[0] == "jaxgeom"}


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if p.parts[len(ROOT.parts)] == "jaxgeom"], ids=str
)
def test_imports_run_downwards(path):
    part = _part(path)
    imported = _imported_parts(ast.parse(path.read_text(encoding="utf-8")))
    assert imported <= LAYERS[part] | {part}


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").rglob("*.py")), ids=str)
def test_rooms_of_the_experiments_import_what_comes_before_them(path):
    """Of the commands only `all` imports others; no room imports a command."""
    place = path.relative_to(ROOT / "experiments").parts[0]
    parts = [n.split(".")[1:] for n in _imported(ast.parse(path.read_text("utf-8")))
             if n.split(".")[0] == "experiments"]  # fmt: skip
    imported = {part[0] for part in parts}
    if place in ROOMS:
        assert imported <= {*ROOMS[: ROOMS.index(place) + 1]}
    elif place != "all.py":
        assert imported <= {*ROOMS}


def _imports(root: Path, package: str) -> dict[str, set[str]]:
    """Return which modules of a package each of its modules names in an import, wherever it stands.

    A package stands for its __init__. That it is loaded before any module in it is no import of
    that module's, or re-exports would all be circles.
    """
    paths = [path.with_suffix("") for path in (root / package).rglob("*.py")]
    names = {path: ".".join(path.relative_to(root).parts) for path in paths}
    modules = {name.removesuffix(".__init__"): path for path, name in names.items()}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        graph[module] = set()
        for node in ast.walk(ast.parse(path.with_suffix(".py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                graph[module] |= {alias.name for alias in node.names} & set(modules)
            elif isinstance(node, ast.ImportFrom):
                named = {f"{node.module}.{alias.name}" for alias in node.names}
                of_module = {node.module} if named - set(modules) else set()
                graph[module] |= (named | of_module) & set(modules)
    return graph


def _circle(graph: dict[str, set[str]]) -> list[str]:
    """Return modules that import each other in a circle; none where there is no circle."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1][::-1]  # each imports the next
    return []


@pytest.mark.parametrize("package", ["jaxgeom", "experiments", "benchmarks"])
def test_no_modules_import_each_other_in_a_circle(package):
    circle = _circle(_imports(ROOT, package))
    assert not circle, " imports ".join(circle)


@pytest.mark.parametrize(
    ("back", "found"),
    [
        ("import p.a", True),
        ("from p import a", True),
        ("from p.a import thing", True),
        ("if TYPE_CHECKING:\n    from p.a import Thing", True),
        ("def f():\n    from p.a import thing", True),
        ("from p import thing", True),  # by way of the package, which re-exports
        ("from p.c import thing", False),
        ("import os", False),
    ],
)
def test_a_circle_is_found_wherever_the_import_stands(back, found, tmp_path):
    (tmp_path / "p").mkdir()
    files = {"__init__": "from p.a import thing", "a": "from p import b, c", "b": back, "c": ""}
    for name, text in files.items():
        (tmp_path / "p" / f"{name}.py").write_text(text)
    circle = _circle(_imports(tmp_path, "p"))
    assert ("p.b" in circle) == found
    assert bool(circle) == found


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


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name)
def test_docs_name_files_that_exist(path):
    """A path may leave out the folder that the sentence speaks of."""
    named = re.findall(r"`([\w/]+/[\w/]+\.py)`", path.read_text(encoding="utf-8"))
    for name in named:
        if "NAME" not in name:
            assert any((ROOT / f / name).is_file() for f in ("", "jaxgeom", "experiments")), name

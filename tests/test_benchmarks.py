"""The benchmark suite: wrong results fail, held-back peers are refused, the report is true."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import environment, report, results
from benchmarks.backends import BACKENDS
from benchmarks.entries import Missing, n_rounds, prepare
from benchmarks.ops import OPS, cost, problem_of
from benchmarks.targets import LIMITS, TARGETS

ROOT = Path(__file__).parents[1]
SIZE = "gaussian"
BACKEND = {backend.name: backend for backend in BACKENDS}
OP = {op.name: op for op in OPS}
# No package that the GPU machine lacks, and none that only tests need.
WITHOUT = "import sys\nfor name in ('tyro', 'datasets', 'beartype'): sys.modules[name] = None\n"


def _run(*args, **environ):
    kept = {k: v for k, v in os.environ.items() if k not in environment.CRIPPLING}
    environ = kept | {"PYTHONPATH": str(ROOT)} | environ
    return subprocess.run(
        [sys.executable, *args], cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", ["numpy", "scikit-learn", "faiss", "torch"])
def test_every_operation_of_a_peer_agrees_with_the_reference(name):
    if BACKEND[name].missing():
        pytest.skip(f"the peer is not installed: {name}")
    done = [op.name for op in OPS if not isinstance(prepare(op, BACKEND[name], SIZE), Missing)]
    assert done


class _OffByAPercent:
    """A set of operations of which one is wrong."""

    def __init__(self, ops, name):
        self.ops, self.name = ops, name

    def __getattr__(self, name):
        right = getattr(self.ops, name)
        return right if name != self.name else lambda *a, **o: _scaled(right(*a, **o))


def _scaled(result):
    return jax.tree.map(
        lambda a: a * 1.01 if jnp.issubdtype(jnp.result_type(a), jnp.floating) else a, result
    )


@pytest.mark.parametrize("backend", ["jaxgeom", "numpy"])
@pytest.mark.parametrize("name", ["moments", "pca", "log_partition", "remove_directions"])
def test_an_operation_off_by_a_percent_fails(name, backend):
    right = BACKEND[backend]
    wrong = replace(right, load=lambda: _OffByAPercent(right.load(), name))
    assert not isinstance(prepare(OP[name], right, SIZE), Missing)
    with pytest.raises(AssertionError, match="differs by"):
        prepare(OP[name], wrong, SIZE)


class _OffInOneCentroid(_OffByAPercent):
    """k-means with one centroid that is a percent too long."""

    def __getattr__(self, name):
        right = getattr(self.ops, name)
        if name != self.name:
            return right

        def wrong(*args, **options):
            fit = right(*args, **options)
            return fit._replace(centroids=fit.centroids * (1 + 0.01 * (np.arange(4) == 1))[:, None])

        return wrong


@pytest.mark.parametrize("backend", ["jaxgeom", "numpy"])
def test_iterations_that_are_off_in_one_centroid_fail(backend):
    right = BACKEND[backend]
    wrong = replace(right, load=lambda: _OffInOneCentroid(right.load(), "kmeans"))
    with pytest.raises(AssertionError, match=r"first_step: differs by .* last_step: differs by"):
        prepare(OP["lloyd"], wrong, SIZE)


def test_a_kernel_off_by_a_percent_makes_its_benchmark_fail(tmp_path):
    (tmp_path / "wrong.py").write_text(
        "import jaxgeom\n"
        "right = jaxgeom.log_partition\n"
        "jaxgeom.log_partition = lambda *args, **options: 1.01 * right(*args, **options)\n"
    )
    chosen = ["-k", "S-log_partition-jaxgeom or S-remove_directions-jaxgeom"]
    arguments = ["-m", "pytest", "benchmarks/test_ops.py", "-q", "--size", "S", *chosen]
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    run = _run(*arguments, "-p", "wrong", PYTHONPATH=path)
    assert run.returncode == 1, run.stdout
    assert "1 failed, 1 passed" in run.stdout
    assert "log_partition: differs by" in run.stdout


def test_the_suite_refuses_while_a_peer_is_held_back():
    run = _run("-m", "pytest", "benchmarks", "--collect-only", OPENBLAS_CORETYPE="Haswell")
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "OPENBLAS_CORETYPE must not be set" in run.stderr
    assert "env -u OPENBLAS_CORETYPE pytest benchmarks" in run.stderr


def test_refusal_names_every_variable():
    both = dict.fromkeys(environment.CRIPPLING, "1")
    assert "OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE" in environment.refusal(both)
    assert environment.refusal({"OPENBLAS_CORETYPE": ""}) is None


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_operation_says_what_it_costs(op):
    need, doubled = (cost(op, replace(problem_of(op, "S"), n=n)) for n in (2000, 4000))
    assert 0 < need.flops < doubled.flops
    assert 0 < need.bytes < doubled.bytes


def test_short_calls_are_timed_often():
    assert n_rounds(0.1) >= 20
    assert n_rounds(1e-6) == 100
    assert n_rounds(2.0) == 3
    assert n_rounds(60.0) == 2


def _entry(group, backend, median, **info):
    stats = {"median": median, "iqr": median / 100, "rounds": 20}
    return {"group": group, "stats": stats, "extra_info": {"backend": backend, **info}}


@pytest.fixture
def document():
    """A run in which isotropy wins, PCA loses, k-means has the faster of two peers."""
    machine = {
        "python": "3.12.1",
        "versions": {"jax": "0.11.0"},
        "device": "a processor",
        "platform": "cpu",
        "threads": 2,
        "blas": ["openblas 0.3.30 SkylakeX, 2 threads"],
        "matmul_gflops": 200.0,
        "copy_gbs": 10.0,
    }
    counted = {
        "flops": 20e9,
        "bytes": 0.9e9,
        "first_call_s": 1.5,
        "error": {"mean": 0.25, "scatter": 0.5},
    }
    return {
        "machine_info": {"jaxgeom": machine},
        "commit_info": {"id": "abc"},
        "benchmarks": [
            _entry("isotropy_uncentred-paper", "jaxgeom", 0.2, **counted),
            _entry("isotropy_uncentred-paper", "numpy", 0.3),
            _entry("isotropy_uncentred-paper", "reference", 2.0),
            _entry("pca-paper", "jaxgeom", 0.2),
            _entry("pca-paper", "scikit-learn", 0.1),
            _entry("lloyd-paper", "jaxgeom", 0.1),
            _entry("lloyd-paper", "scikit-learn", 0.4),
            _entry("lloyd-paper", "faiss", 0.2),
            _entry("memory", "jaxgeom", 9.0, temporaries_mb=120.0),
            _entry("import", "jaxgeom", 2.5),
        ],
    }


@pytest.fixture
def written(document, tmp_path):
    path = tmp_path / "out.json"
    path.write_text(json.dumps(document))
    return path


def test_outcomes_take_the_best_peer_and_hide_no_loss(written):
    outcomes = {o.work: o for o in report.outcomes(results.read(written))}
    assert len(outcomes) == len(TARGETS) + len(LIMITS)
    isotropy = outcomes["isotropy: Gram, eigenvectors, both signs"]
    assert (isotropy.measured, isotropy.met) == ("1.50×", True)
    assert (outcomes["12 leading directions"].measured, outcomes["12 leading directions"].met) == (
        "0.50×",
        False,
    )
    lloyd = outcomes["k-means, 27 clusters, 25 iterations"]
    assert (lloyd.against, lloyd.measured) == ("faiss", "2.00×")
    assert outcomes["encode STS-B dev, MiniLM"].met is None
    assert outcomes["temporaries of isotropy, 1,000,000 × 384"].met is True
    assert outcomes["import and first isotropy, warm compilation cache"].met is False


def test_report_is_printed_and_written(written, tmp_path, capsys):
    assert report.main([str(written), "--output", str(tmp_path / "report")]) == 0
    printed = capsys.readouterr().out
    assert "| **no**" in printed
    assert "a processor (cpu), 2 threads" in printed
    assert "openblas 0.3.30 SkylakeX, 2 threads" in printed
    row = next(line for line in printed.splitlines() if line.startswith("| jaxgeom"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    # 20 GFLOP in 0.2 s, half of the machine's rate; ten times the reference, 1.5 times NumPy
    assert cells[4:] == ["10.00×", "1.50×", "100", "50% product", "1.5 s", "0.5"]
    files = sorted(path.name for path in (tmp_path / "report").iterdir())
    assert files == ["entries.png", "report.md", "targets.png"]


def test_the_limit_is_the_slower_of_product_and_copy(written):
    run = results.read(written)
    entry = run.timings["isotropy_uncentred-paper", "jaxgeom"]  # 0.2 s of 200 GFLOP/s, 10 GB/s
    assert results.share(run, entry) == "50% product"
    moved = entry._replace(info=entry.info | {"bytes": 1.2e9})
    assert results.share(run, moved) == "60% copy"
    assert results.share(run, entry._replace(info={})) == "—"
    (isotropy,) = (o for o in report.outcomes(run) if o.work.startswith("isotropy: Gram"))
    assert isotropy.share == "50% product"


def test_report_of_another_file_is_an_error(tmp_path, capsys):
    (tmp_path / "other.json").write_text("{}")
    assert report.main([str(tmp_path / "other.json")]) == 2
    assert "not written by pytest benchmarks" in capsys.readouterr().err


def test_targets_name_entries_of_the_suite():
    operations = {"isotropy_uncentred", "pca", "lloyd", "cluster_based"}
    groups = {f"{op}-paper" for op in operations}
    groups |= {"tables-paper", "curve-paper", "layers", "encode", "finetune"}
    assert {target.group for target in TARGETS} == groups
    assert operations <= set(OP)


def test_gpu_run_at_a_small_size(tmp_path):
    out = tmp_path / "gpu.json"
    arguments = f"['--small', '--output', {str(out)!r}]"
    run = _run("-c", f"{WITHOUT}from benchmarks import gpu\nsys.exit(gpu.main({arguments}))")
    assert run.returncode == 0, run.stdout + run.stderr
    document = json.loads(out.read_text())
    assert {name: stage["status"] for name, stage in document["stages"].items()} == dict.fromkeys(
        ("kernels", "encoding", "finetuning", "table1", "suite"), "passed"
    )
    stages = {name: stage["results"] for name, stage in document["stages"].items()}
    assert {entry["op"] for entry in stages["kernels"]} == set(OP)
    assert {row["state"] for row in stages["table1"]["rows"]} == {"pretrained", "finetuned"}
    assert {"train", "encode", "cluster", "settings"} <= set(stages["table1"]["seconds"])
    timed = [entry for entry in stages["suite"] if entry["backend"] == "jaxgeom"]
    assert all(entry["of_matmul"] > 0 and entry["of_copy"] > 0 for entry in timed)

"""`python -m jaxgeom.analyze`: what it prints and writes, and what every fault leaves on disk."""

import json
import re
import resource
import signal

import drivers
import numpy as np
import pytest

import jaxgeom as jg
from jaxgeom import analyze
from jaxgeom.streaming._overview import TRANSFORMS

N, D = 300, 8
FLAGS = ("--clusters", "3", "--directions", "2")


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(0)
    centres = 5 * rng.normal(size=(3, D))
    rows = centres[rng.integers(0, 3, N)] + rng.normal(size=(N, D)) * np.linspace(2, 0.5, D) + 2
    return rows.astype(np.float32)


@pytest.fixture
def folder(tmp_path, monkeypatch, x):
    """The current folder, with x.npy in it and in `shards` the same in two files."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", x)
    (tmp_path / "shards").mkdir()
    np.save("shards/a.npy", x[:70])
    np.save("shards/b.npy", x[70:])
    return tmp_path


def run(*args):
    return analyze.main([*map(str, args), *FLAGS])


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_the_numbers_are_those_of_the_kernels(folder, x, capsys):
    assert run("x.npy") == 0
    printed = capsys.readouterr().out
    document = json.loads((folder / "x.npy.analysis.json").read_text())
    assert (document["n_rows"], document["n_features"], document["dtype"]) == (N, D, "float32")
    norms = np.linalg.norm(x.astype(np.float64), axis=1)
    assert document["norms"]["mean"] == pytest.approx(norms.mean(), rel=1e-6)
    assert document["norms"]["max"] == pytest.approx(norms.max(), rel=1e-6)
    pca = jg.pca(x)
    np.testing.assert_allclose(
        document["spectrum"]["explained_variance"], pca.explained_variance, rtol=1e-4
    )
    shares = [d["share"] for d in document["directions"]]
    np.testing.assert_allclose(shares, pca.explained_variance_ratio[:2], rtol=1e-5)
    assert sum(document["clusters"]["counts"]) == N
    for name, fit in document["isotropy"].items():
        assert 0 < fit["low"] <= fit["heavier"] <= fit["high"] <= 1
        assert f"{name:<20}" in printed
    assert_same_isotropy(document["isotropy"]["baseline"]["log"], x)
    assert "300 x 8 float32" in printed


@pytest.mark.parametrize("name", TRANSFORMS)
def test_each_transform_has_the_isotropy_of_the_matrix_it_writes(folder, x, name):
    assert run("shards", "--json", "said.json", "--transform", name, "--output", "y.npy") == 0
    said = json.loads((folder / "said.json").read_text())["isotropy"][name]["log"]
    changed = np.load("y.npy")
    assert changed.shape == x.shape
    assert changed.dtype == x.dtype
    assert_same_isotropy(said, changed)


def assert_same_isotropy(said, rows):
    logs = jg.log_isotropy(jg.isotropy(rows).log_partition)._asdict()
    for reading, value in logs.items():
        assert said[reading] == pytest.approx(float(value), abs=2e-3), reading


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("x.npy", "--transform", "global"), "--transform and --output must be given together"),
        (("x.npy", "--transform", "global", "--output", "y.txt"), "output must be a .npy file"),
        (
            ("shards", "--transform", "global", "--output", "shards/y.npy"),
            "output must not lie among the files that are read",
        ),
        (("none.npy",), "No such file or directory: 'none.npy'"),
        (("x.npy", "--directions", "8"), "n_directions must be in 0..d - 1 = 0..7, got 8"),
        (("x.npy", "--coordinator", "h:1"), "num_processes .* must be given too"),
        (("x.npy", "--chunk-rows", "0"), "chunk_rows must be at least 1, got 0"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(args, message, folder, capsys):
    before = names(folder)
    assert analyze.main([*FLAGS, *args]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert re.search(message, error), error
    assert error.count("\n") == 1
    assert names(folder) == before


def test_rows_with_nan_are_counted_and_the_first_is_named(folder, x, capsys):
    bad = x.copy()
    bad[[75, 200, 290], 3] = np.nan, np.inf, np.nan
    np.save("shards/b.npy", bad[70:])
    before = names(folder)
    assert run("shards", "--chunk-rows", 64, "--transform", "global", "--output", "y.npy") == 2
    error = capsys.readouterr().err
    assert "shards must be finite, got 3 of 300 rows with NaN or infinity" in error
    assert "the first is shards/b.npy, row 5" in error
    assert names(folder) == before


def test_a_full_disk_leaves_the_old_file_and_nothing_else(folder, capsys):
    np.save("y.npy", np.arange(3.0))
    before = names(folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9000, hard))  # y.npy would take 9,728 bytes
    try:
        status = run("x.npy", "--transform", "global", "--output", "y.npy")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert status == 2
    assert "File too large" in capsys.readouterr().err
    assert names(folder) == sorted([*before, "x.npy.analysis.json"])
    np.testing.assert_array_equal(np.load("y.npy"), np.arange(3.0))


def test_an_interrupt_leaves_nothing_half_written(folder):
    rows = np.random.default_rng(1).normal(size=(40_000, D)).astype(np.float32)
    np.save("long.npy", rows)
    before = names(folder)
    script = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's job ignores it
        "from jaxgeom import streaming\n"
        "removal = streaming.fit_removal('long.npy')\n"
        "streaming.apply_removal('long.npy', removal, 'y.npy', chunk_rows=1)\n"
    )
    with drivers.ended([drivers.start("-c", script, cwd=folder)]) as (process,):
        drivers.wait_for(lambda: any(name.endswith(".tmp") for name in names(folder)), process)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=300)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in error
    assert names(folder) == before

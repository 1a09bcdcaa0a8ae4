"""Two processes on this machine, over gloo: one result, one error, and no survivor of a death."""

import json
import time
from pathlib import Path

import drivers
import numpy as np
import pytest
import tiny_study

from jaxgeom import analyze, distributed

D = 8
FLAGS = ("--clusters", "3", "--directions", "2")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder; `shards` holds 300 rows in two files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shards").mkdir()
    rng = np.random.default_rng(0)
    x = 5 * rng.normal(size=(3, D))[rng.integers(0, 3, 300)] + rng.normal(size=(300, D))
    np.save("shards/a.npy", x[:70].astype(np.float32))
    np.save("shards/b.npy", x[70:].astype(np.float32))
    return tmp_path


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def own_lines(printed):
    """Return what was printed, less the lines of the library underneath."""
    return [line for line in printed.splitlines() if not line.startswith("[Gloo]")]


def test_two_processes_say_what_one_says(folder):
    output = ("--transform", "global", "--output", "one.npy")
    assert analyze.main(["shards", "--json", "one.json", *FLAGS, *output]) == 0
    output = ("--transform", "global", "--output", folder / "two.npy")
    processes = drivers.start_two(
        "-m", "jaxgeom.analyze", folder / "shards", "--json", folder / "two.json", *FLAGS, *output
    )
    with drivers.ended(processes):
        printed = [drivers.finish(process) for process in processes]
    assert "300 x 8 float32" in printed[0]
    assert own_lines(printed[1]) == []
    one, two = (json.loads((folder / f"{name}.json").read_text()) for name in ("one", "two"))
    assert one["clusters"]["counts"] == two["clusters"]["counts"]
    for name, fit in one["isotropy"].items():
        assert two["isotropy"][name]["log"] == pytest.approx(fit["log"], abs=2e-3)
    np.testing.assert_allclose(np.load("two.npy"), np.load("one.npy"), rtol=0, atol=1e-4)


def test_a_mistake_on_one_process_ends_both(folder):
    bad = np.load("shards/b.npy")
    bad[-1] = np.nan  # in the second process's share
    np.save("shards/b.npy", bad)
    before = names(folder)
    command = ("-m", "jaxgeom.analyze", folder / "shards", *FLAGS)
    with drivers.ended(drivers.start_two(*command, cwd=folder)) as processes:
        for process in processes:
            _, error = process.communicate(timeout=300)
            assert process.returncode == 2
            assert "got 1 of 300 rows with NaN or infinity" in error
    assert names(folder) == before


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc to see open files in")
@pytest.mark.parametrize("killed", [0, 1])
def test_when_one_process_is_killed_the_other_ends_and_says_why(killed, folder):
    np.save("long.npy", np.random.default_rng(1).normal(size=(2_000_000, D)).astype(np.float32))
    flags = ("--chunk-rows", 16, "--heartbeat-timeout", 10, "--json", folder / "out.json", *FLAGS)
    before = names(folder)
    processes = drivers.start_two("-m", "jaxgeom.analyze", folder / "long.npy", *flags)
    with drivers.ended(processes):
        for process in processes:  # joined, and at the first pass, which takes minutes
            drivers.wait_for(lambda p=process: drivers.reads(p, folder / "long.npy"), process)
        processes[killed].kill()
        start = time.monotonic()
        _, error = processes[1 - killed].communicate(timeout=60)
        assert time.monotonic() - start < 60
        assert processes[1 - killed].returncode != 0
        assert error.strip()
    assert names(folder) == before


def test_table1_is_the_same_from_two_processes(tmp_path):
    tiny_study.write_pairs(tmp_path)
    data = ("--data", tmp_path, "--train", tmp_path / "dev.csv", "--states", "finetuned")
    recipe = ("--epochs", "1", "--batch-size", "8", "--lr", "1e-3")
    models = ("--models", f"tiny={tiny_study.ROBERTA}", *tiny_study.SMALL)
    command = ("-m", "experiments.table1", *models, *data, *recipe, "--output")
    with drivers.ended(drivers.start_two(*command, tmp_path / "two", by="environment")) as both:
        printed = [drivers.finish(process) for process in both]
    # the same clusters: of embeddings that differ by rounding a token may be of another one
    labels = ("--labels", tmp_path / "two" / "labels")
    with drivers.ended([drivers.start(*command, tmp_path / "one", *labels)]) as (alone,):
        drivers.finish(alone)
    assert "Table 1" in printed[0]
    assert own_lines(printed[1]) == []
    one, two = (json.loads((tmp_path / n / "table1.json").read_text()) for n in ("one", "two"))
    assert tiny_study.files_in(tmp_path / "two") == tiny_study.files_in(tmp_path / "one")
    assert not list((tmp_path / "two").rglob("*.tmp"))
    for ours, theirs in zip(two["rows"], one["rows"], strict=True):
        for name, value in theirs.items():
            # rounding alone, which a few steps of training carry on
            near = {"abs": 0.3} if name == "spearman" else {"rel": 2e-2}
            is_number = isinstance(value, float)
            assert ours[name] == (pytest.approx(value, **near) if is_number else value), name


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (
            {"coordinator": "h:1"},
            r"num_processes \(JAX_NUM_PROCESSES\), process_id .* must",
        ),
        ({"coordinator": "h", "num_processes": 2, "process_id": 0}, "HOST:PORT, got 'h'"),
        (
            {"coordinator": "h:1", "num_processes": 2, "process_id": 2},
            "process_id must be in 0",
        ),
    ],
)
def test_processes_that_cannot_join_say_why(known, message):
    with pytest.raises(ValueError, match=message):
        distributed.initialize(**known, environment={})
    written = {distributed._VARIABLES[name]: str(value) for name, value in known.items()}
    with pytest.raises(ValueError, match=message):
        distributed.initialize(environment=written)
    assert not distributed.initialize(environment={"SLURM_STEP_NUM_TASKS": "1"})

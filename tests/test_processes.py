"""Two processes on this machine, over gloo: one result, one error, and no survivor of a death."""

import json
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import drivers
import numpy as np
import pytest
import tiny_study

from jaxgeom import _roll_call, analyze, distributed

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


@pytest.mark.parametrize(("came", "by"), [(0, "flag"), (1, "environment")])
def test_when_one_process_does_not_come_the_other_says_so(came, by, folder):
    address = f"127.0.0.1:{drivers.free_port()}"
    flags = ("--coordinator", address, "--num-processes", 2, "--process-id", came)
    environment = {"JAXGEOM_JOIN_TIMEOUT": "300"}
    if by == "flag":
        flags += ("--join-timeout", 5)
    else:
        environment = {"JAXGEOM_JOIN_TIMEOUT": "5"}
    before = names(folder)
    start = time.monotonic()
    command = ("-m", "jaxgeom.analyze", folder / "shards", *flags)
    with drivers.ended([drivers.start(*command, environment=environment)]) as (process,):
        printed, error = process.communicate(timeout=60)
        assert process.returncode == 2
    assert 5 <= time.monotonic() - start < 60
    assert printed == ""
    assert error == (
        f"error: 2 processes were to meet at {address}, and after 5 seconds number {1 - came} is "
        "not there; JAXGEOM_JOIN_TIMEOUT=SECONDS makes the others wait longer\n"
    )
    assert names(folder) == before


def meet(address, n, indices, seconds):
    """Return what becomes of some of the processes that are to meet: None, or the error."""

    def one(index):
        try:
            _roll_call.meet(address, n, index, seconds)
        except TimeoutError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(len(indices)) as pool:
        return list(pool.map(one, indices))


def test_all_who_came_are_told_who_is_missing():
    address = f"127.0.0.1:{drivers.free_port()}"
    assert meet(address, 5, [3, 0, 1], 3) == 3 * [
        f"5 processes were to meet at {address}, and after 3 seconds numbers 2, 4 are not there; "
        "JAXGEOM_JOIN_TIMEOUT=SECONDS makes the others wait longer"
    ]
    assert meet(address, 5, [3, 0, 1, 4, 2], 30) == 5 * [None]  # the same port, at once
    assert all("number 0 is not" in error for error in meet(address, 3, [1, 2], 1))


@pytest.mark.parametrize(
    "words",
    [b"jaxgeom 2 of 3\n", b"jaxgeom 2 of 4\n", b"jaxgeom 7 of 3\n", b"GET / HTTP/1.1\r\n\r\n", b""],
    ids=["who leaves", "of another run", "of no number", "stranger", "silent"],
)
def test_who_leaves_and_who_does_not_belong_here_is_missing(words):
    """Number 1 comes when the visitor has gone: else all might be there for a moment."""
    port = drivers.free_port()
    address = f"127.0.0.1:{port}"
    with ThreadPoolExecutor() as pool:
        first = pool.submit(meet, address, 3, [0], 3)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=1) as line:
                    line.sendall(words)
                    break
            except ConnectionRefusedError:
                time.sleep(0.05)
        else:
            pytest.fail("nobody listens")
        errors = meet(address, 3, [1], 3) + first.result()
        assert [re.search(r"number.* not there", error)[0] for error in errors] == 2 * [
            "number 2 is not there"
        ]


def test_processes_that_a_launcher_started_end_with_a_line_too():
    code = (
        "import time; from jaxgeom._roll_call import end_after\nwith end_after(1): time.sleep(60)"
    )
    with drivers.ended([drivers.start("-c", code)]) as (process,):
        _, error = process.communicate(timeout=60)
        assert process.returncode == 2
    assert error == "error: the processes did not join within 1 seconds\n"
    with _roll_call.end_after(1):
        pass
    time.sleep(1.5)  # or this very process would end


@pytest.mark.parametrize("text", ["soon", "0", "-5", ""])
def test_how_long_processes_wait_is_a_number_of_seconds(text):
    run = {"coordinator": "h:1", "num_processes": 2, "process_id": 0}
    with pytest.raises(ValueError, match=r"JAXGEOM_JOIN_TIMEOUT must be .*, got"):
        distributed.initialize(**run, environment={"JAXGEOM_JOIN_TIMEOUT": text})
    with pytest.raises(ValueError, match=r"join_timeout_seconds must be .*, got 0"):
        distributed.initialize(**run, join_timeout_seconds=0, environment={})


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

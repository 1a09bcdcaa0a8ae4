"""Table 1 from a small file of embeddings: its numbers, its four files, its failures."""

import csv
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import drivers
import jax
import numpy as np
import pytest

from experiments import table1
from experiments.command.stages import Stages
from experiments.command.start import main
from experiments.layout.settings import tables_of
from experiments.layout.tables import correlation, isotropy
from experiments.spaces.space import read_space
from jaxgeom import reference, study
from jaxgeom._process import enable_compilation_cache

ROOT = Path(__file__).parents[1]
PAIRS, WORDS, D = 20, 5, 6
SMALL = ("--n-clusters", "4", "--n-directions", "2")


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    """Pairs whose second sentence drifts away from the first as the score falls."""
    rng = np.random.default_rng(0)
    scores = rng.uniform(0, 5, PAIRS)
    topics = rng.normal(size=(PAIRS, D))
    drift = rng.normal(size=(PAIRS, D)) * (5 - scores)[:, None] / 2
    sentences = np.concatenate([topics, topics + drift])
    tokens = np.repeat(sentences, WORDS, axis=0) + 1.5 * rng.normal(size=(2 * PAIRS * WORDS, D))
    return {
        "tokens": (tokens + 3).astype(np.float32),
        "sentence_ids": np.repeat(np.arange(2 * PAIRS), WORDS),
        "scores": scores,
    }


@pytest.fixture
def file(arrays: dict[str, np.ndarray], tmp_path: Path) -> Path:
    np.savez(tmp_path / "tiny.npz", **arrays)
    return tmp_path / "tiny.npz"


def table(*args: Any) -> int:
    return main(table1.Config, table1.run, name="table1", args=[str(arg) for arg in args])


def rows_of(output: Path) -> list[dict[str, Any]]:
    document = json.loads((output / "table1.json").read_text())
    assert document["schema"] == 1
    return document["rows"]


def written(output: Path) -> list[str]:
    """Names of everything in the output folder but what is reused, temporary files included."""
    files = [path for path in output.rglob("*") if path.is_file() and path.name != ".run.json.lock"]
    names = sorted(str(path.relative_to(output)) for path in files)
    return [name for name in names if not re.fullmatch(r"measured/\w{64}\.json", name)]


def test_rows_are_the_studys_settings(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert table("--embeddings", file, *SMALL, "--output", out) == 0
    rows = rows_of(out)
    assert [row["setting"] for row in rows] == list(study.SETTINGS)
    space, labels = read_space(file), np.load(out / "labels" / "tiny-given-0.npy")
    expected = study.settings(
        reference, space.tokens, space.sentence_ids, 2 * PAIRS, labels, n_clusters=4, n_directions=2
    )
    for row in rows:
        result = expected[row["setting"]]
        assert row["spearman"] == pytest.approx(
            study.spearman(result.vectors, space.scores), abs=0.01
        )
        got = [row["isotropy"], row["isotropy_low"], row["isotropy_high"]]
        np.testing.assert_allclose(got, result.isotropy, rtol=2e-3)
        assert row | dict.fromkeys(("spearman", "isotropy", "isotropy_low", "isotropy_high")) == {
            "model": "tiny",
            "state": "given",
            "setting": row["setting"],
            "seed": 0,
            "protocol": "ours",
            "n_tokens": 2 * PAIRS * WORDS,
            "spearman": None,
            "isotropy": None,
            "isotropy_low": None,
            "isotropy_high": None,
            "n_zero_rows": 0,
            "n_zero_sentences": 0,
            "n_empty_clusters": 0,
            "paper_spearman": None,
            "paper_isotropy": None,
        }
    names = ["labels/tiny-given-0.npy", "run.json", *(f"table1.{e}" for e in ("csv", "json", "md"))]
    assert written(out) == [*names, "table1.tex"]
    record = json.loads((out / "run.json").read_text())["experiments"]["table1"]
    assert record["options"]["n_clusters"] == 4
    assert set(record["seconds"]) == {"read", "cluster", "settings"}
    assert record["inputs"][0]["n_tokens"] == 2 * PAIRS * WORDS


def test_backends_agree_on_the_same_labels(file: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "jax", tmp_path / "numpy"
    assert table("--embeddings", file, *SMALL, "--output", first) == 0
    numpy = ("--backend", "numpy", "--labels", first / "labels", "--output", second)
    assert table("--embeddings", file, *SMALL, *numpy) == 0
    for ours, oracle in zip(rows_of(first), rows_of(second), strict=True):
        assert ours["spearman"] == pytest.approx(oracle["spearman"], abs=0.01)
        for field in ("isotropy", "isotropy_low", "isotropy_high"):
            assert ours[field] == pytest.approx(oracle[field], rel=2e-3)
    labels = [np.load(out / "labels" / "tiny-given-0.npy") for out in (first, second)]
    np.testing.assert_array_equal(*labels)


def test_every_cell_is_the_json_number(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert table("--embeddings", file, *SMALL, "--output", out) == 0
    console = capsys.readouterr().out
    rows = rows_of(out)
    with (out / "table1.csv").open(newline="") as text:
        cells = list(csv.DictReader(text))
    assert cells == [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]
    faces = (
        cells_of((out / "table1.md").read_text(), r"\|"),
        cells_of((out / "table1.tex").read_text().replace("{[}", "["), "&"),
        cells_of(console, r"\s{2,}"),
    )
    expected = {
        "Perf.": [correlation(row["spearman"]) for row in rows],
        "Isotropy": [isotropy(row["isotropy"]) for row in rows],
        "[low, high]": [
            f"[{isotropy(row['isotropy_low'])}, {isotropy(row['isotropy_high'])}]" for row in rows
        ],
    }
    for face in faces:
        assert {label: face[label] for label in expected} == expected


def cells_of(text: str, between: str) -> dict[str, list[str]]:
    """Return the cells of each line by its label."""
    lines = (
        [cell.strip(" \\") for cell in re.split(between, line.strip(" |\\"))]
        for line in text.splitlines()
    )
    return {label: cells for label, *cells in lines if cells}


def test_seeds_are_rows_and_the_table_their_mean_and_deviation(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert table("--embeddings", file, *SMALL, "--seeds", 0, 3, "--output", out) == 0
    rows = rows_of(out)
    assert [row["seed"] for row in rows] == [0] * 5 + [3] * 5
    assert written(out)[:2] == ["labels/tiny-given-0.npy", "labels/tiny-given-3.npy"]
    markdown = (out / "table1.md").read_text()
    assert "### tiny · given · seeds 0, 3 · 200 tokens" in markdown
    cells = cells_of(markdown, r"\|")["Perf."]
    for setting, cell in zip(study.SETTINGS, cells, strict=True):
        values = [row["spearman"] for row in rows if row["setting"] == setting]
        assert cell == f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}"


def test_the_authors_protocol_has_no_range(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert table("--embeddings", file, *SMALL, "--protocol", "authors", "--output", out) == 0
    for row in rows_of(out):
        assert row["protocol"] == "authors"
        assert (row["isotropy_low"], row["isotropy_high"]) == (None, None)
    markdown = (out / "table1.md").read_text()
    assert cells_of(markdown, r"\|")["[low, high]"] == ["—"] * 5
    assert "kmeans2" in markdown


def test_the_study_stands_beside_its_own_models_and_below_others() -> None:
    def lines(model: str, state: str) -> dict[str, list[str]]:
        row = dict.fromkeys(("n_zero_rows", "n_zero_sentences", "n_empty_clusters"), 0)
        row |= {"model": model, "state": state, "seed": 0, "protocol": "ours", "n_tokens": 9}
        row |= {"spearman": 1.0, "isotropy": 0.5, "isotropy_low": 0.1, "isotropy_high": 0.9}
        (only,) = tables_of([row | {"setting": s} for s in ("baseline", "cluster_based", "cls")])
        return {label.strip(): cells for label, *cells in only.lines[: len(only.lines) // 2]}

    own = lines("bert-base-uncased", "pretrained")
    assert own == {"Perf.": ["1.00"] * 3, "study, BERT": ["54.14", "74.01", "—"]}
    others = lines("minilm", "pretrained")
    assert others["study, BERT"] == ["54.14", "74.01", "—"]
    assert others["study, RoBERTa"] == ["33.99", "73.86", "—"]
    assert lines("roberta-base", "random") == {"Perf.": ["1.00"] * 3, "study": ["—"] * 3}


def test_what_became_zero_is_noted(arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    """A labelled pair of rows is too few for two directions."""
    labels = np.zeros(len(arrays["tokens"]), np.int32)
    labels[:2] = 1
    np.savez(tmp_path / "tiny.npz", **arrays)
    np.save(tmp_path / "tiny-given-0.npy", labels)
    out = tmp_path / "out"
    given = ("--embeddings", tmp_path / "tiny.npz", "--labels", tmp_path)
    assert table(*given, *SMALL, "--output", out) == 0
    row = rows_of(out)[-1]
    assert (row["n_zero_rows"], row["n_empty_clusters"]) == (2, 2)
    markdown = (out / "table1.md").read_text()
    assert "Tokens that became zero: Cluster-based 2 (seed 0)." in markdown
    assert "Empty clusters: Clustering+ZM 2 (seed 0), Cluster-based 2 (seed 0)." in markdown


@pytest.mark.parametrize(
    ("change", "flags", "message"),
    [
        ({"tokens": None}, (), "tiny.npz: must be an .npz file that holds tokens, sentence_ids"),
        (
            {"tokens": np.ones(4, np.float32)},
            (),
            r"tokens must be floating \[n d\], .* float32 \[4\]",
        ),
        ({"tokens": np.ones((4, 2), int)}, (), r"tokens must be floating .* got int64 \[4, 2\]"),
        ({"scores": np.array(["5", "4"])}, (), "scores must be real numbers .* got <U1"),
        ({"scores": np.ones(1)}, (), r"scores must be .* two or more, got float64 \[1\]"),
        ({"scores": np.array([1.0, np.nan])}, (), "scores must be finite, got nan"),
        ({"sentence_ids": np.zeros(3, int)}, (), r"sentence_ids must be integers \[n\] = \(200,\)"),
        (
            {"sentence_ids": np.full(200, 40)},
            (),
            r"sentence_ids must be in 0..2p - 1 = 0..39, got 40",
        ),
        (
            {},
            ("--n-clusters", "201"),
            "n_clusters must be in 1..number of tokens = 1..200, got 201",
        ),
        ({}, ("--n-directions", "6"), "n_directions must be in 0..d - 1 = 0..5, got 6"),
        ({}, ("--n-clusters", "0"), "--n-clusters must be at least 1, got 0"),
        ({}, ("--seeds", "1", "1"), r"--seeds must be one or more different values, got \[1, 1\]"),
        ({}, ("--seeds", "-1"), "--seeds must be at least 0, got -1"),
        ({}, ("--models", "a"), "give either --models or --embeddings"),
        ({}, ("--labels", "nowhere"), "nowhere/tiny-given-0.npy"),
        (
            {},
            ("--labels", "labels"),
            r"labels/tiny-given-0.npy: labels must be in .* 0..3, got 0..9",
        ),
    ],
)
def test_a_users_mistake_is_one_line(
    change: dict[str, Any],
    flags: tuple[str, ...],
    message: str,
    arrays: dict[str, np.ndarray],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("labels").mkdir()
    np.save("labels/tiny-given-0.npy", np.arange(200) % 10)
    np.savez("tiny.npz", **{k: v for k, v in (arrays | change).items() if v is not None})
    assert table("--embeddings", "tiny.npz", *SMALL, *flags, "--output", "out") == 2
    error = capsys.readouterr().err
    assert re.search(f"^error: .*{message}", error)
    assert error.count("\n") == 1
    assert not Path("out").exists() or written(Path("out")) in ([], ["labels/tiny-given-0.npy"])


def test_non_finite_tokens_stop_before_clustering(
    arrays: dict[str, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays["tokens"][17, 2] = np.nan
    np.savez(tmp_path / "nan.npz", **arrays)
    assert table("--embeddings", tmp_path / "nan.npz", *SMALL, "--output", tmp_path / "out") == 2
    assert "the first is row 17 (sentence 3)" in capsys.readouterr().err
    assert written(tmp_path / "out") == []


def test_a_missing_file_and_an_output_that_is_a_file(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert table("--embeddings", tmp_path / "no.npz", "--output", tmp_path / "out") == 2
    assert "no.npz" in capsys.readouterr().err
    assert table("--embeddings", file, "--output", file) == 2
    assert "tiny.npz" in capsys.readouterr().err


def test_an_unknown_flag_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        table("--states", "finished")
    assert "finished" in capsys.readouterr().err


def test_a_defect_keeps_its_traceback(file: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(study, "settings", lambda *_, **__: {}["defect"])
    with pytest.raises(KeyError, match="defect"):
        table("--embeddings", file, *SMALL, "--output", tmp_path / "out")


def test_interrupted_between_seeds_only_whole_files_stay(
    file: Path, tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "settings", interrupt)
    assert table("--embeddings", file, *SMALL, "--output", tmp_path / "out") == 130
    assert written(tmp_path / "out") == ["labels/tiny-given-0.npy"]
    assert "interrupted" in capsys.readouterr().err


CHILD = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent may have had it ignored
sys.argv = ["table1", *sys.argv[1:]]
runpy.run_module("experiments.table1", run_name="__main__")
"""


def test_ctrl_c_ends_a_child_with_130(tmp_path: Path) -> None:
    """The reference's k-means on this file runs for many seconds; the signal meets it there."""
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "big.npz",
        tokens=rng.normal(size=(30_000, 96)).astype(np.float32),
        sentence_ids=np.arange(30_000),
        scores=rng.uniform(size=15_000),
    )
    out = tmp_path / "out"
    flags = ("--embeddings", tmp_path / "big.npz", "--backend", "numpy", "--output", out)
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, *flags], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as child:
        drivers.wait_for(out.exists, child)
        time.sleep(1)  # into the clustering
        child.send_signal(signal.SIGINT)
        _, error = child.communicate(timeout=300)
    assert child.returncode == 130, error
    assert error.strip().splitlines()[-1].startswith("interrupted")
    assert "Traceback" not in error
    assert written(out) == []


def test_the_command_prints_the_table(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = ("--embeddings", file, *SMALL, "--backend", "numpy", "--output", out)
    child = subprocess.run(
        [sys.executable, "-m", "experiments.table1", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"COLUMNS": "200"},
    )
    assert cells_of(child.stdout, r"\s{2,}")["Perf."] == [
        correlation(row["spearman"]) for row in rows_of(out)
    ]
    assert "Cluster-based" in child.stdout


def test_the_compilation_cache_is_the_users_unless_named(monkeypatch: Any, tmp_path: Path) -> None:
    updates: dict[str, str] = {}
    monkeypatch.setattr(jax.config, "update", updates.__setitem__)
    enable_compilation_cache()
    assert updates == {}
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    enable_compilation_cache()
    assert updates == {"jax_compilation_cache_dir": str(tmp_path / "jaxgeom" / "xla")}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_freed_memory_is_kept() -> None:
    """A block that was freed is touched again without a single page being mapped."""
    child = """
import resource
from jaxgeom._process import keep_freed_memory

keep_freed_memory()

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    b"x" * int(128e6)  # 31,250 pages, unless they are large ones
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

assert faults() > 50 > faults()
"""
    subprocess.run([sys.executable, "-c", child], cwd=ROOT, check=True)


def test_stages_add_up_and_survive_an_error(monkeypatch: Any) -> None:
    clock = iter([0.0, 1.0, 10.0, 12.5])
    monkeypatch.setattr("experiments.command.stages.time.perf_counter", lambda: next(clock))
    stages = Stages()
    with stages("encode"):
        pass
    with pytest.raises(ZeroDivisionError), stages("encode"):
        raise ZeroDivisionError
    assert stages.seconds == {"encode": 3.5}

"""Files are whole or absent; a table says the same on the console, in Markdown and in LaTeX."""

import csv
import json
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from experiments.command.record import read_records, run_record
from experiments.layout.publish import write_csv
from experiments.layout.tables import Table, correlation, isotropy, show, to_latex, to_markdown
from jaxgeom._files import replacing, write_array, write_json, write_text

ROOT = Path(__file__).parents[1]
TABLE = Table(
    "minilm · random_2",
    ["", "Baseline", "50 % | half"],
    [["Perf.", "54.14", "—"], ["  [low, high]", "[1.1E-5, 0.31]", "0.83 ± 0.01"]],
    ["Table 1, Pre-trained†."],
)


def write_half_a_file(path: Path) -> None:
    with replacing(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt


def write_half_a_folder(path: Path) -> None:
    with replacing(path) as temporary:
        temporary.mkdir()
        (temporary / "half").write_text("half")
        raise KeyboardInterrupt


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(KeyboardInterrupt):
        write_half_a_file(path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "old"


def test_a_failed_folder_is_removed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_half_a_folder(tmp_path / "entry")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_another_run_is_kept(tmp_path: Path) -> None:
    with replacing(tmp_path / "entry") as temporary:
        temporary.mkdir()
        (tmp_path / "entry").mkdir()
        (tmp_path / "entry" / "theirs").write_text("whole")
    assert [p.name for p in tmp_path.rglob("*")] == ["entry", "theirs"]


def test_a_folder_in_the_way_of_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(OSError, match=r"a\.txt"):
        write_text(tmp_path / "a.txt", "text")
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_arrays_come_back(tmp_path: Path) -> None:
    write_array(tmp_path / "new" / "labels.npy", np.arange(3, dtype=np.int32))
    np.testing.assert_array_equal(np.load(tmp_path / "new" / "labels.npy"), [0, 1, 2])


def test_json_and_csv_hold_the_same_numbers(tmp_path: Path) -> None:
    rows = [
        {"name": 'a, "b"', "value": np.float32(0.1), "count": np.int64(3), "none": None},
        {"name": "é", "value": math.nan, "count": 0, "none": math.inf},
    ]
    write_json(tmp_path / "t.json", rows)
    write_csv(tmp_path / "t.csv", rows)
    text = (tmp_path / "t.json").read_text(encoding="utf-8")
    loaded = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert loaded[0] == {**rows[0], "value": float(np.float32(0.1)), "count": 3}
    assert loaded[1]["value"] is None
    assert loaded[1]["none"] is None
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        cells = list(csv.DictReader(file))
    assert cells == [{k: "" if v is None else str(v) for k, v in row.items()} for row in loaded]


def test_run_record_says_what_ran(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Options:
        output: Path
        seeds: tuple[int, ...]

    record = run_record(Options(tmp_path, (0, 1)), {"encode": 1.23456}, [{"model": "m"}])
    write_json(tmp_path / "run.json", record)
    loaded = json.loads((tmp_path / "run.json").read_text())
    assert loaded["options"] == {"output": str(tmp_path), "seeds": [0, 1]}
    assert loaded["seconds"] == {"encode": 1.235}
    assert loaded["inputs"] == [{"model": "m"}]
    assert loaded["versions"]["numpy"] == np.__version__
    assert loaded["device"]["platform"] in ("cpu", "gpu", "tpu")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.8312, "0.83"),
        (0.1, "0.10"),
        (0.0999, "0.10"),
        (0.0994, "9.9E-2"),
        (0.083, "8.3E-2"),
        (1.1e-5, "1.1E-5"),
        (2.5e-123, "2.5E-123"),
        (0.0, "0.00"),
        (None, "—"),
        (math.nan, "—"),
    ],
)
def test_isotropy_is_written_as_in_the_study(value: float | None, text: str) -> None:
    assert isotropy(value) == text


def test_correlation_has_two_digits() -> None:
    assert [correlation(v) for v in (54.144, -3.0, None, math.nan)] == ["54.14", "-3.00", "—", "—"]


def test_markdown_keeps_cells_apart() -> None:
    lines = to_markdown([TABLE], "Legend.").splitlines()
    assert lines[0] == "### minilm · random_2"
    assert lines[2] == "|  | Baseline | 50 % \\| half |"
    assert lines[3] == "| --- | ---: | ---: |"
    assert lines[5] == "|   [low, high] | [1.1E-5, 0.31] | 0.83 ± 0.01 |"
    assert lines[7] == "Table 1, Pre-trained†."
    assert lines[-1] == "Legend."


def test_latex_is_escaped_booktabs() -> None:
    text = to_latex([TABLE], "Perf.: × 100.")
    assert text.startswith("% Perf.: × 100.\n")
    assert r"\caption{minilm $\cdot$ random\_2. Table 1, Pre-trained\dag{}.}" in text
    assert r" & Baseline & 50 \% | half \\" in text
    assert r"Perf. & 54.14 & --- \\" in text
    assert r"  {[}low, high] & {[}1.1E-5, 0.31] & 0.83 $\pm$ 0.01 \\" in text
    rules = [line for line in text.splitlines() if line.endswith("rule")]
    assert rules == [r"\toprule", r"\midrule", r"\bottomrule"]


def test_console_shows_every_cell(capsys: pytest.CaptureFixture[str]) -> None:
    show([TABLE], "Legend.")
    printed = capsys.readouterr().out
    cells = [TABLE.title, *TABLE.header, *(c for line in TABLE.lines for c in line), *TABLE.notes]
    assert [cell for cell in cells if cell.strip() not in printed] == []


def test_records_written_at_the_same_time_are_all_there(tmp_path: Path) -> None:
    """Four processes that start together write ten records each into one file."""
    child = """
import sys, time
from pathlib import Path
from experiments.command.record import write_record

folder, name = Path(sys.argv[1]), sys.argv[2]
(folder / name).touch()
while len(list(folder.glob("process*"))) < 4:
    time.sleep(0.001)
for i in range(10):
    write_record(folder / "run.json", f"{name}-{i}", {"i": i})
"""
    names = [f"process{i}" for i in range(4)]
    command = [sys.executable, "-c", child, str(tmp_path)]
    children = [subprocess.Popen([*command, name], cwd=ROOT) for name in names]
    assert [process.wait(120) for process in children] == [0] * 4
    expected = {f"{name}-{i}": {"i": i} for name in names for i in range(10)}
    assert read_records(tmp_path / "run.json") == expected

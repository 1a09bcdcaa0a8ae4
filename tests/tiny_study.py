"""A random RoBERTa of 32 features, a few pairs of sentences, and the files an experiment left."""

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from experiments.command.start import main

ROBERTA = Path(__file__).parent / "golden" / "roberta"
D, PAIRS = 32, 30
SMALL = ("--n-clusters", "3", "--n-directions", "2", "--max-length", "16")
WORDS = ("a", "man", "woman", "plays", "cuts", "the", "guitar", "red", "cat", "dog", "runs")


def write_pairs(folder: Path, *, split: str = "dev", seed: int = 0) -> Path:
    """Write pairs of five words; the score counts the words that they share."""
    rng = np.random.default_rng(seed)
    pairs = [(rng.choice(WORDS, 5), rng.choice(WORDS, 5)) for _ in range(PAIRS)]
    lines = [f"{' '.join(a)},{' '.join(b)},{min(5, len({*a} & {*b}))}\n" for a, b in pairs]
    (folder / f"{split}.csv").write_text("".join(lines))
    return folder


def run(experiment: ModuleType, folder: Path, *args: Any) -> dict[str, Any]:
    """Run an experiment on the tiny RoBERTa and return its JSON document; it writes FOLDER/out."""
    name = experiment.__name__.rsplit(".", 1)[1]
    flags = ("--models", f"tiny={ROBERTA}", "--data", folder, *SMALL, "--output", folder / "out")
    assert main(experiment.Config, experiment.run, name=name, args=[*map(str, flags + args)]) == 0
    document = json.loads((folder / "out" / f"{name}.json").read_text())
    assert document["schema"] == 1
    return document


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as text:
        return list(csv.DictReader(text))


def as_csv(rows: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Return JSON's rows as the cells of a CSV file."""
    return [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]


def tables_in(markdown: str) -> list[list[list[str]]]:
    """Return the cells of each table of a Markdown document, its header first."""
    blocks = re.findall(r"(?:^\|.*\|$\n)+", markdown, re.M)
    return [
        [[cell.strip() for cell in line[1:-1].split("|")] for line in block.splitlines()]
        for block in blocks
    ]


def files_in(folder: Path) -> list[str]:
    """Return the names of the files in a folder, temporary ones too; caches, locks left out."""
    return sorted(p.name for p in folder.iterdir() if p.is_file() and p.name != ".run.json.lock")

"""A corpus: the lines of a folder's text files, split into training and held-out sentences."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from jaxgeom import _checks
from jaxgeom.tasks import DataError

_BUCKETS = 1 << 32


class TextFile(NamedTuple):
    """One file of a corpus."""

    name: str
    n_sentences: int
    n_bytes: int
    sha256: str


class Corpus(NamedTuple):
    """Different sentences, in the order of the files' names, then of their lines."""

    sentences: list[str]
    files: list[TextFile]


class Split(NamedTuple):
    """A corpus in two parts that share no sentence."""

    train: list[str]
    held_out: list[str]


def read_corpus(folder: str | Path) -> Corpus:
    """Read all `*.txt` of a folder, one sentence a line.

    Args:
        folder: The folder; UTF-8. Empty lines are passed over, repeated sentences kept once.

    Returns:
        The corpus.

    Raises:
        DataError: If there is no such folder, no text file in it, no sentence in them, or if a file
            is not UTF-8.
    """
    folder = Path(folder)
    paths = sorted(folder.glob("*.txt"))
    if not paths:
        came = "no *.txt in it" if folder.is_dir() else "no such folder"
        raise DataError(f"{folder} must be a folder of text files: there is {came}")
    sentences: dict[str, None] = {}
    files = []
    for path in paths:
        content = path.read_bytes()
        lines = _lines(path, content)
        sentences |= dict.fromkeys(lines)
        digest = hashlib.sha256(content).hexdigest()
        files.append(TextFile(path.name, len(lines), len(content), digest))
    if not sentences:
        raise DataError(f"{folder} must hold one sentence or more, got empty files")
    return Corpus(list(sentences), files)


def split_corpus(sentences: Iterable[str], *, share: float, seed: int) -> Split:
    """Hold a share of the sentences out.

    Args:
        sentences: The corpus.
        share: Of the sentences, between 0 and 1, neither included.
        seed: Another seed holds out others.

    Returns:
        The two parts, each in the corpus's order. A sentence's own text decides where it goes, so
        it stays there whatever else is in the corpus.

    Raises:
        ValueError: If `share` is out of range, or if one part would be empty.

    Example:
        >>> parts = split_corpus(map(str, range(1000)), share=0.1, seed=0)
        >>> len(parts.train), len(parts.held_out)
        (885, 115)
    """
    _checks.integer("seed", seed, 0)
    if not 0 < share < 1:
        raise ValueError(f"share must lie between 0 and 1, got {share}")
    parts = Split([], [])
    for sentence in sentences:
        held_out = _bucket(sentence, seed) < share * _BUCKETS
        parts[held_out].append(sentence)
    if not all(parts):
        raise ValueError(
            f"share must leave sentences on both sides, got {share} for {len(parts.train)} "
            f"to train on and {len(parts.held_out)} held out"
        )
    return parts


def _bucket(sentence: str, seed: int) -> int:
    """Return a number in 0..2³² - 1 that a sentence and a seed draw."""
    digest = hashlib.sha256(f"{seed}\n{sentence}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def _lines(path: Path, content: bytes) -> Sequence[str]:
    """Return the lines of a file that hold something."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise DataError(f"{path}:{line}: not UTF-8: {error.reason}") from error
    return [line.strip() for line in text.split("\n") if line.strip()]

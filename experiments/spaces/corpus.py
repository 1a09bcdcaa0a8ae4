"""A corpus, how often each token occurs in it, and the sentences that stand for it."""

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxgeom.models.tokens import Tokenized, Tokenizer

COLUMN = "Sentence"
_WHOLE = 1_000_000  # tokens a sentence may have while they are counted: none is cut off


class Corpus(NamedTuple):
    """Sentences of a file, and how often each token occurs in all of them."""

    sentences: list[str]
    lengths: np.ndarray  # [s]: tokens of each sentence, without special ones
    counts: np.ndarray  # [v]: occurrences of each token id


def read_sentences(path: Path) -> list[str]:
    """Read the sentences of a corpus.

    Args:
        path: `.csv` with a header that names the column `Sentence`, or `.txt` with one sentence a
            line, where empty lines only part paragraphs. UTF-8.

    Returns:
        The sentences in the file's order.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another ending, no such column, an empty sentence or a row that does not fit
            the header, not UTF-8, or no sentences; the message names the file and the line.
    """
    if path.suffix not in (".csv", ".txt"):
        raise ValueError(f"{path} must be named *.csv or *.txt, which says its layout")
    try:
        sentences = _csv_sentences(path) if path.suffix == ".csv" else _lines(path)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: must be UTF-8 ({error})") from error
    if not sentences:
        raise ValueError(f"{path} holds no sentences")
    return sentences


def count_tokens(tokenizer: Tokenizer, sentences: list[str]) -> Corpus:
    """Tokenise all sentences whole, and count; special tokens do not take part."""
    tokenized = tokenizer.encode(sentences, max_length=_WHOLE)
    kept = [_kept(tokens) for tokens in tokenized]
    lengths = np.array([ids.size for ids in kept])
    return Corpus(sentences, lengths, np.bincount(np.concatenate(kept)))


def sample(corpus: Corpus, max_tokens: int, max_length: int, seed: int) -> list[str]:
    """Draw sentences at random, without repetition, as long as their tokens are few enough.

    Args:
        corpus: where they come from.
        max_tokens: the most tokens of all drawn sentences together, special ones not counted.
        max_length: the most tokens of a sentence that count, as the rest is cut off.
        seed: of the draw.

    Returns:
        The drawn sentences, in the corpus's order.

    Raises:
        ValueError: no sentence is short enough.
    """
    order = np.random.default_rng(seed).permutation(len(corpus.sentences))
    total = np.cumsum(np.minimum(corpus.lengths[order], max_length))
    drawn = np.sort(order[: np.searchsorted(total, max_tokens, side="right")])
    if not drawn.size:
        raise ValueError(
            f"--max-tokens must be at least the {total[0]} of the first sentence drawn, "
            f"got {max_tokens}"
        )
    return [corpus.sentences[i] for i in drawn]


def _csv_sentences(path: Path) -> list[str]:
    """Return the column of sentences; an error names the line on which its row begins."""
    sentences: list[str] = []
    line = 1
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, strict=True)
        try:
            header = next(rows, [])
            if COLUMN not in header:
                got = ", ".join(header) or "none"
                raise ValueError(f"{path}:1: the header must name {COLUMN}, got {got}")
            line = rows.line_num + 1
            for row in rows:
                if len(row) != len(header) or not row[header.index(COLUMN)].strip():
                    raise ValueError(f"{path}:{line}: must fit the header and hold a sentence")
                sentences.append(row[header.index(COLUMN)])
                line = rows.line_num + 1
        except csv.Error as error:
            raise ValueError(f"{path}:{line}: {error}") from error
    return sentences


def _lines(path: Path) -> list[str]:
    """Return the lines that are not empty."""
    text = path.read_text(encoding="utf-8-sig")
    return [line.strip() for line in text.split("\n") if line.strip()]


def _kept(tokens: Tokenized) -> np.ndarray:
    """Return a sentence's token ids without special ones."""
    return tokens.ids[~tokens.special]

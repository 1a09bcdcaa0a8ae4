"""STS-B readers: pairs of sentences with a gold score in 0..5, from files or from the Hub.

Five kinds of source, each with its declared columns and scale; whatever does not fit them is an
error that names the line, never a row left out:

* `{train,dev,test}.csv`: commas, no header: sentence1, sentence2, score in 0..5.
* `{train,dev}.tsv` of GLUE: tabs, a header that names the columns, score in 0..5.
* `sts-{train,dev,test}.csv`, the original: tabs, no header, seven columns or more, score in 0..5.
* `mini-sts`, which is made up here and needs no file; see `jaxgeom.tasks.mini_sts`.
* a data set on the Hub, of those in `HUB`; ID@REVISION reads one of its branches, tags or commits.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxgeom import _checks
from jaxgeom.tasks._pairs import draw_pairs

SPLITS = ("train", "dev", "test")
QUOTING = ("plain", "default")
MAX_SCORE = 5.0
_SCALE_SAMPLE = 20  # so many scores, all within 0..1 and not whole, are on the scale 0..1


class DataError(ValueError):
    """Data that is not what its source declares; the message names the file and the line."""


class StsPairs(NamedTuple):
    """Sentence pairs with gold scores, in the order of their source."""

    sentences1: list[str]  # p of them
    sentences2: list[str]
    scores: np.ndarray  # [p] float64, 0 (unrelated) to 5 (equivalent)
    name: str  # the file, or the data set and its split


class HubSource(NamedTuple):
    """Where a data set on the Hub keeps its scores, and on which scale."""

    config: str | None
    score_column: str
    scale: float


HUB = {
    "sentence-transformers/stsb": HubSource(None, "score", 1.0),
    "nyu-mll/glue": HubSource("stsb", "label", 5.0),
    "mteb/stsbenchmark-sts": HubSource(None, "score", 5.0),
}
_HUB_SPLITS = {"train": "train", "dev": "validation", "test": "test"}


MINI_STS = "mini-sts"
MINI_STS_PAIRS = {"train": 2500, "dev": 1000, "test": 1000}


class _Record(NamedTuple):
    """One pair as its source has it, and where it stands there."""

    where: str
    sentence1: Any
    sentence2: Any
    score: Any


def read_sts(
    source: str | Path,
    *,
    split: str = "dev",
    quoting: str = "plain",
    revision: str | None = None,
) -> StsPairs:
    """Return the sentence pairs of an STS-B source.

    Args:
        source: a folder with one of the layouts above, a file of one of them, "mini-sts", or the
            id of a data set in `HUB`, or ID@REVISION. What exists on disk comes first.
        split: "train", "dev" or "test"; ignored where `source` is a file.
        quoting: how the layouts with tabs are read. "plain": a quotation mark is a character like
            any other, as their makers meant it. "default": as csv and pandas read by default, where
            a sentence that opens with a quotation mark swallows tabs and lines up to the next one,
            and pairs are lost. Sources without tabs are read one way.
        revision: a branch, a tag or a commit of a data set on the Hub; its default branch where
            there is none.

    Returns:
        `StsPairs`, scores brought to 0..5.

    Raises:
        DataError: no such source; a revision of a source that is not on the Hub; not UTF-8; a wrong
            number of columns, an empty sentence, a score that is missing, out of scale or -1
            (unlabelled), each with its line.
        ImportError: a data set on the Hub without the extra `hf`.
        ValueError: `split` or `quoting` is unknown.

    Source:
        Cer et al. (2017), "SemEval-2017 Task 1", the STS Benchmark.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "dev.csv").write_text("A cat.,A dog.,2.5", encoding="utf-8")
        ...     read_sts(folder).scores.tolist()
        [2.5]
    """
    _checks.option("split", split, SPLITS)
    _checks.option("quoting", quoting, QUOTING)
    name, revision = _split(source, revision)
    if name in HUB and not Path(name).exists():
        records = _records_on_hub(name, split, revision)
        return _collect(records, HUB[name].scale, f"{_written(name, revision)}:{split}")
    if revision is not None:
        hub = ", ".join(HUB)
        raise DataError(f"a revision must be one of {hub} on the Hub, got {revision!r} for {name}")
    path = Path(source)
    if path.is_dir():
        path = _file_in(path, split)
    if path.is_file():
        return _collect(_records_in(path, quoting), MAX_SCORE, str(path))
    if name == MINI_STS:
        return made_up(split)
    known = f"{MINI_STS}, {', '.join(HUB)}"
    raise DataError(f"{name} is no file, no folder and none of the data sets {known}")


def made_up(split: str, *, n_pairs: int | None = None, seed: int = 0) -> StsPairs:
    """Return pairs of mini-sts.

    Args:
        split: "train", "dev" or "test"; no two share a combination of template and words.
        n_pairs: How many; those of `MINI_STS_PAIRS` if not given. A larger set begins with the
            same pairs.
        seed: Another one draws other pairs; 0 is what `read_sts` gives.

    Returns:
        `StsPairs`, the same on every machine.

    Raises:
        ValueError: `split` is unknown, or a number is out of range.

    Example:
        >>> made_up("dev", n_pairs=9).scores.tolist()[:1]
        [5.0]
    """
    _checks.option("split", split, SPLITS)
    number = MINI_STS_PAIRS[split] if n_pairs is None else _checks.integer("n_pairs", n_pairs, 1)
    _checks.integer("seed", seed, 0)
    pairs = draw_pairs(split, number, seed)
    records = (_Record(f"{MINI_STS}, pair {i}", *pair[:3]) for i, pair in enumerate(pairs))
    return _collect(records, MAX_SCORE, f"{MINI_STS}:{split}")


def _split(source: str | Path, revision: str | None) -> tuple[str, str | None]:
    """Return a source and its revision, which may be in its name; what is on disk may hold "@"."""
    text = str(source)
    name, at, named = text.partition("@")
    if at and name in (*HUB, MINI_STS) and not Path(text).exists():
        if revision is not None:
            raise DataError(f"{text} names a revision already, got revision={revision!r} too")
        text, revision = name, named
    if revision == "":
        raise DataError(f"revision must be a branch, a tag or a commit, got '' for {text}")
    return text, revision


def _file_in(folder: Path, split: str) -> Path:
    """Return the file of `folder` that holds `split`."""
    names = [f"{split}.csv", f"{split}.tsv", f"sts-{split}.csv"]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder} must hold one of the files {', '.join(names)}")


def _records_in(path: Path, quoting: str) -> Iterator[_Record]:
    """Return the records of a file, by the layout that its name stands for."""
    if path.suffix == ".tsv":
        return _glue_records(path, quoting)
    if path.suffix == ".csv":
        original = path.name.startswith("sts-")
        return _original_records(path, quoting) if original else _csv_records(path)
    raise DataError(f"{path} must be named *.csv, *.tsv or sts-*.csv, which says its layout")


def _csv_records(path: Path) -> Iterator[_Record]:
    """Read commas without a header; quotation marks enclose, and must be closed."""
    columns = "3 columns (sentence1, sentence2, score; no header)"
    for where, row in _rows(path, ",", csv.QUOTE_MINIMAL, strict=True):
        _expect(len(row) == 3, where, columns, row)
        yield _Record(where, *row)


def _glue_records(path: Path, quoting: str) -> Iterator[_Record]:
    """Read tabs with a header that names the columns."""
    rows = _tab_rows(path, quoting)
    where, header = next(rows, (f"{path}:1", []))
    names = ("sentence1", "sentence2", "score")
    missing = [name for name in names if name not in header]
    if missing:
        raise DataError(f"{where}: the header must name {', '.join(missing)}, got {header}")
    places = [header.index(name) for name in names]
    for where, row in rows:
        _expect(len(row) == len(header), where, f"{len(header)} columns as in the header", row)
        yield _Record(where, *(row[place] for place in places))


def _original_records(path: Path, quoting: str) -> Iterator[_Record]:
    """Read tabs without a header; columns after the seventh are sources and licences."""
    columns = "7 columns or more (genre, file, year, index, score, sentence1, sentence2)"
    for where, row in _tab_rows(path, quoting):
        _expect(len(row) >= 7, where, columns, row)
        yield _Record(where, row[5], row[6], row[4])


def _tab_rows(path: Path, quoting: str) -> Iterator[tuple[str, list[str]]]:
    """Return the rows of a file with tabs."""
    return _rows(path, "\t", csv.QUOTE_NONE if quoting == "plain" else csv.QUOTE_MINIMAL)


def _rows(
    path: Path, delimiter: str, quoting: Any, *, strict: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """Yield "file:line" (its first line) and the fields of every row."""
    text = io.StringIO(_text(path), newline="")
    reader = csv.reader(text, delimiter=delimiter, quoting=quoting, strict=strict)
    while True:
        where = f"{path}:{reader.line_num + 1}"
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(f"{where}: {error}") from error
        yield where, row


def _text(path: Path) -> str:
    """Return the text of a UTF-8 file; a byte order mark is left out."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        byte = error.object[error.start]
        raise DataError(f"{path}:{line}: not UTF-8, byte 0x{byte:02x}: {error.reason}") from error


def _expect(fits: bool, where: str, columns: str, row: list[str]) -> None:
    """Raise `DataError` unless the row `fits` its columns."""
    if not fits:
        lines = sum(field.count("\n") for field in row) + 1
        spans = f" (quotation marks make one row of {lines} lines)" if lines > 1 else ""
        raise DataError(f"{where}: expected {columns}, got {len(row)}{spans}")


def _records_on_hub(name: str, split: str, revision: str | None) -> Iterator[_Record]:
    """Read a data set of the Hub, or its copy in the local cache."""
    config, score_column, _ = HUB[name]
    rows = _load_dataset(name, config, _HUB_SPLITS[split], revision)
    written = _written(name, revision)
    names = ("sentence1", "sentence2", score_column)
    missing = [column for column in names if column not in rows.column_names]
    if missing:
        raise DataError(f"{written} must have the columns {', '.join(missing)}")
    for i, row in enumerate(rows):
        yield _Record(f"{written}:{split}, row {i}", *(row[column] for column in names))


def _load_dataset(name: str, config: str | None, split: str, revision: str | None) -> Any:
    """Return a split of a data set of the Hub."""
    try:
        import datasets  # noqa: PLC0415  (an extra, and slow to import)
    except ImportError as error:
        message = f"{name} is on the Hub, which needs datasets: pip install 'jaxgeom[hf]'"
        raise ImportError(message) from error
    try:
        path = name if revision is None else _fetch(name, config, revision)
        return datasets.load_dataset(path, config, split=split)
    except (OSError, ValueError) as error:
        advice = "Without a network, name a folder or a file"
        written = _written(name, revision)
        raise DataError(f"{written} cannot be loaded from the Hub: {error}. {advice}") from error


def _fetch(name: str, config: str | None, revision: str) -> str:
    """Return the folder of a data set's revision, from the Hub or the local cache.

    `datasets` takes a revision too, but without a network it gives whichever one it read last.
    """
    from huggingface_hub import snapshot_download  # noqa: PLC0415  (for revisions alone)
    from huggingface_hub.errors import RevisionNotFoundError  # noqa: PLC0415

    wanted = None if config is None else ["README.md", f"{config}/*"]
    try:
        return snapshot_download(
            name, repo_type="dataset", revision=revision, allow_patterns=wanted
        )
    except RevisionNotFoundError as error:
        raise ValueError(
            f"it has no revision {revision!r}, which must be one of its branches, tags or commits"
        ) from error


def _written(name: str, revision: str | None) -> str:
    """Return how a data set on the Hub is named on a command line."""
    return name if revision is None else f"{name}@{revision}"


def _collect(records: Iterable[_Record], scale: float, name: str) -> StsPairs:
    """Check every record and return the pairs, scores brought from 0..`scale` to 0..5."""
    sentences1, sentences2, scores = [], [], []
    for record in records:
        sentences1.append(_sentence(record, "sentence1"))
        sentences2.append(_sentence(record, "sentence2"))
        scores.append(_score(record, scale))
    if not scores:
        raise DataError(f"{name} holds no pairs")
    array: np.ndarray = np.array(scores, np.float64)
    if scale > 1 and len(array) >= _SCALE_SAMPLE and array.max() <= 1 and (array % 1).any():
        raise DataError(f"{name}: scores must be on the scale 0..{scale:g}, all are within 0..1")
    return StsPairs(sentences1, sentences2, array * (MAX_SCORE / scale), name)


def _sentence(record: _Record, field: str) -> str:
    """Return a sentence of the record, which must hold more than white space."""
    sentence = getattr(record, field)
    if not isinstance(sentence, str) or not sentence.strip():
        raise DataError(f"{record.where}: {field} is empty")
    return sentence


def _score(record: _Record, scale: float) -> float:
    """Return the record's score, which must be a number on the scale."""
    try:
        score = float(record.score)
    except (TypeError, ValueError):
        score = np.nan
    if score == -1:
        raise DataError(f"{record.where}: the score is -1, this split is unlabelled")
    if not 0 <= score <= scale:
        must = f"the score must be a number in 0..{scale:g}"
        raise DataError(f"{record.where}: {must}, got {record.score!r}")
    return score

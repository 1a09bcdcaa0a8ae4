"""Several sentences to a row: which sentence lies where, and the arrays that an encoder reads.

With a sentence of a dozen tokens to a row, most of what is computed is padding. Packed first-fit
decreasing, almost every place holds a token; and all rows have one length, so one compilation does.
Attention costs in proportion to that length: many short sentences get shorter rows.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, Int32, Int64

from jaxgeom import _checks

_SHORT = 64  # tokens of the shortest rows: in rows of 32 too many places stay empty
_WORTH = 8  # batches that shorter rows must fill: each length of row is compiled by itself


class Rows(NamedTuple):
    """What an encoder reads, int32 [rows, row_length] each."""

    input_ids: Int32[np.ndarray, "r s"]
    segment_ids: Int32[np.ndarray, "r s"]  # 0 is padding, 1, 2, … the row's sentences
    position_ids: Int32[np.ndarray, "r s"]


class Packing(NamedTuple):
    """Where each sentence lies; made by `pack`."""

    lengths: Int64[np.ndarray, " n"]  # tokens of each sentence
    rows: Int64[np.ndarray, " n"]  # the row that each one lies in
    starts: Int64[np.ndarray, " n"]  # the place of its first token in that row
    segments: Int64[np.ndarray, " n"]  # its number within that row, from 1 on
    n_rows: int  # empty rows included
    row_length: int

    @property
    def places(self) -> Int64[np.ndarray, " t"]:
        """[t] Where each token lies in the flattened rows: by sentence, then by position."""
        return _ranges(self.rows * self.row_length + self.starts, self.lengths)

    @property
    def positions(self) -> Int64[np.ndarray, " t"]:
        """[t] The position of each token within its sentence, from 0 on; ordered as `places`."""
        return _ranges(np.zeros_like(self.lengths), self.lengths)

    def fill(
        self, ids: Sequence[Int[np.ndarray, " _"]], *, first_position: int = 0, pad_id: int = 0
    ) -> Rows:
        """Lay the sentences' tokens out.

        Args:
            ids: The tokens of each sentence, as long as `pack` was told.
            first_position: The position id of a sentence's first token; see
                `EncoderConfig.first_position`.
            pad_id: What stands where no token is.

        Returns:
            The rows. Padding has segment 0, and the position of a first token.

        Raises:
            ValueError: If the lengths are others.
        """
        came = np.asarray([len(tokens) for tokens in ids])
        if not np.array_equal(came, self.lengths):
            raise ValueError("ids must have the lengths that were packed, got others")
        places = self.places

        def laid_out(values: np.ndarray, padding: int) -> np.ndarray:
            flat = np.full(self.n_rows * self.row_length, padding, np.int32)
            flat[places] = values
            return flat.reshape(self.n_rows, self.row_length)

        return Rows(
            input_ids=laid_out(np.concatenate(ids), pad_id),
            segment_ids=laid_out(np.repeat(self.segments, self.lengths), 0),
            position_ids=laid_out(self.positions + first_position, first_position),
        )


class Group(NamedTuple):
    """Sentences in rows of one length, and where the tokens of all that read alike lie in them."""

    rows: Rows
    n_rows: int  # of a batch; the group has whole batches
    tokens: Int64[np.ndarray, " t"]  # numbers of tokens, counted through all sentences
    places: Int64[np.ndarray, " t"]  # of each in the flattened rows, ascending


def pack(
    lengths: Sequence[int] | Int[np.ndarray, " n"], row_length: int, *, row_multiple: int = 1
) -> Packing:
    """Find each sentence a place, first-fit decreasing.

    Args:
        lengths: Tokens of each sentence, 1 to `row_length`.
        row_length: Tokens of a row.
        row_multiple: Empty rows are added until their number is a multiple of this.

    Returns:
        The packing. Every sentence lies in exactly one row.

    Raises:
        TypeError: If the lengths are not integers.
        ValueError: If there are no sentences, or if one is empty or longer than a row.

    Example:
        >>> packing = pack([3, 6, 2, 5], 8)
        >>> packing.rows.tolist(), packing.starts.tolist(), packing.n_rows
        ([1, 0, 0, 1], [5, 0, 6, 0], 2)
    """
    _checks.integer("row_length", row_length, 1)
    _checks.integer("row_multiple", row_multiple, 1)
    sizes = np.asarray(lengths)
    if sizes.size == 0:
        raise ValueError("lengths must not be empty, got no sentences")
    _checks.vector("lengths", sizes, sizes.size, "integer")
    bad = np.flatnonzero((sizes < 1) | (sizes > row_length))
    if bad.size:
        raise ValueError(
            f"lengths must be in 1..row_length = 1..{row_length}, "
            f"got {sizes[bad[0]]} for sentence {bad[0]}"
        )
    rows, starts, segments, used = _first_fit_decreasing(sizes.astype(np.int64), row_length)
    n_rows = -(-used // row_multiple) * row_multiple
    return Packing(sizes.astype(np.int64), rows, starts, segments, n_rows, int(row_length))


def pack_different(
    ids: Sequence[Int[np.ndarray, " _"]],
    max_length: int,
    batch_size: int,
    *,
    first_position: int = 0,
    pad_id: int = 0,
    row_multiple: int = 1,
) -> Iterator[Group]:
    """Pack sentences for an encoder that is not trained: each different one once, in short rows.

    Args:
        ids: The tokens of each sentence, 1 to `max_length`.
        max_length: Tokens of the longest rows; shorter ones have 64 tokens, twice that, and so on.
        batch_size: Tokens of a batch, at least; `max_length` or more.
        first_position: As `Packing.fill` takes it.
        pad_id: As `Packing.fill` takes it.
        row_multiple: A batch has a multiple of so many rows.

    Yields:
        The groups, that of the shortest rows first. Every token lies in exactly one of them.
    """
    numbers: dict[bytes, int] = {}  # of the sentences that differ
    which = np.array([numbers.setdefault(i.tobytes(), len(numbers)) for i in ids])
    lengths = np.array([i.size for i in ids], np.int64)
    offsets = np.cumsum(lengths) - lengths
    first = np.unique(which, return_index=True)[1]
    row_lengths = _row_lengths(lengths[first], max_length, batch_size)
    for row_length in np.unique(row_lengths).tolist():
        members = np.flatnonzero(row_lengths == row_length)
        n_rows = -(-batch_size // row_length // row_multiple) * row_multiple
        packing = pack(lengths[first[members]], row_length, row_multiple=n_rows)
        chosen = [ids[i] for i in first[members]]
        rows = packing.fill(chosen, first_position=first_position, pad_id=pad_id)
        starts = np.zeros(len(numbers), np.int64)
        starts[members] = packing.rows * row_length + packing.starts
        inside = np.flatnonzero(row_lengths[which] == row_length)
        tokens = _ranges(offsets[inside], lengths[inside])
        places = _ranges(starts[which[inside]], lengths[inside])
        order = np.argsort(places, kind="stable")
        yield Group(rows, n_rows, tokens[order], places[order])


def _row_lengths(
    lengths: Int64[np.ndarray, " n"], max_length: int, batch_size: int
) -> Int64[np.ndarray, " n"]:
    """Return the length of the row that each sentence shares.

    The longest sentence decides upon that of the longest rows; sentences for which half of it would
    do have rows of their own where they fill enough batches.
    """
    longest = min(_SHORT, max_length)
    while longest < lengths.max():
        longest = min(2 * longest, max_length)
    chosen = np.full(len(lengths), longest, np.int64)
    while longest > _SHORT:
        longest = max(_SHORT, longest // 2)
        fitting = lengths <= longest
        if lengths[fitting].sum() < _WORTH * batch_size:
            break
        chosen[fitting] = longest
    return chosen


def _ranges(
    starts: Int64[np.ndarray, " n"], lengths: Int64[np.ndarray, " n"]
) -> Int64[np.ndarray, " t"]:
    """Return start, start + 1, … of each range, one after the other."""
    before = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) + np.repeat(starts - before, lengths)


def _first_fit_decreasing(
    sizes: Int64[np.ndarray, " n"], row_length: int
) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"], Int64[np.ndarray, " n"], int]:
    """Return each sentence's row, start and number there, and how many rows that takes."""
    rows, starts, segments = np.zeros((3, sizes.size), np.int64)
    filled: list[int] = []  # tokens in each row
    members: list[int] = []  # sentences in each row
    row, previous = 0, 0
    for i in np.argsort(-sizes, kind="stable").tolist():
        size = int(sizes[i])
        if size != previous:  # a row without room for one of this size gets none later
            row, previous = 0, size
        while row < len(filled) and filled[row] + size > row_length:
            row += 1
        if row == len(filled):
            filled.append(0)
            members.append(0)
        members[row] += 1
        rows[i], starts[i], segments[i] = row, filled[row], members[row]
        filled[row] += size
    return rows, starts, segments, len(filled)

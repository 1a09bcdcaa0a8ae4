"""Pairs of sentences in packed rows: what one training step reads.

A padded batch of short sentences is two thirds padding. Here a batch's sentences share rows, as in
`jaxgeom.models.packing`. Rows are as long as the longest of all sentences, not as `max_length`:
attention costs a row's length squared. A step is compiled anew for every number of rows, and that
takes as long as dozens of steps: `row_sizes` chooses few numbers for a whole run, and empty rows
fill a batch up to the next of them. The last, short batch of an epoch is filled up with pairs of
weight 0, which leave the loss alone; they are pairs of that epoch again, so its size is no other.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int, Int32

from jaxgeom.models import EncoderConfig, Packing, Rows, Tokenizer, pack
from jaxgeom.tasks import StsPairs
from jaxgeom.tasks.sts import MAX_SCORE

_COMPILATION = 25  # steps that take as long as the compilation of one, roughly, on two CPU cores
_LENGTH_MULTIPLE = 16  # of a row; compiled code is best at round numbers


class TokenizedPairs(NamedTuple):
    """Sentence pairs as an encoder reads them."""

    ids: list[np.ndarray]  # 2p of them: the first sentences, then the second ones
    scores: Float32[np.ndarray, " p"]  # 0 (unrelated) to 1 (equivalent)
    n_truncated: int  # sentences that lost their end


class Batch(NamedTuple):
    """What one step reads; p is the batch size, also in a short batch."""

    rows: Rows
    places: Int32[np.ndarray, "2 p"]  # of each pair's two vectors, row x segments + segment - 1
    scores: Float32[np.ndarray, " p"]
    weights: Float32[np.ndarray, " p"]  # 1, or 0 for what fills up a short batch


def tokenize_pairs(
    tokenizer: Tokenizer, pairs: StsPairs, config: EncoderConfig, *, max_length: int
) -> TokenizedPairs:
    """Turn the sentences of pairs into tokens, and the scores into 0 to 1.

    Args:
        tokenizer: The encoder's tokenizer.
        pairs: The pairs, their scores in 0 to 5.
        config: The encoder's config.
        max_length: The most tokens of a sentence; the end of a longer one is cut off and counted.

    Returns:
        The pairs.

    Raises:
        ValueError: If a token is none of the encoder's.
    """
    tokenized = tokenizer.encode([*pairs.sentences1, *pairs.sentences2], max_length=max_length)
    largest = max(int(tokens.ids.max()) for tokens in tokenized)
    if largest >= config.vocab_size:
        raise ValueError(
            f"tokenizer must give ids below the encoder's vocab_size = {config.vocab_size}, "
            f"got {largest}"
        )
    return TokenizedPairs(
        [tokens.ids for tokens in tokenized],
        (pairs.scores / MAX_SCORE).astype(np.float32),
        sum(tokens.truncated for tokens in tokenized),
    )


def row_sizes(
    pairs: TokenizedPairs,
    orders: Iterable[Int[np.ndarray, " p"]],
    *,
    batch_size: int,
    max_length: int,
    n_devices: int = 1,
) -> tuple[int, ...]:
    """Return the numbers of rows that the batches of a run have.

    Of all choices the one with the least work: rows computed, and compilations counted as so many
    steps. A short run has one number, a long one several.

    Args:
        pairs: All pairs.
        orders: The order of every epoch.
        batch_size: Pairs of a batch.
        max_length: The most tokens that a row may have.
        n_devices: Which share the rows of a batch evenly: each number is a multiple.

    Returns:
        Ascending numbers; no batch needs more rows than the last of them.
    """
    length = row_length(pairs, max_length=max_length)
    needed = Counter(
        -(-_packed(pairs, chosen, length).n_rows // n_devices) * n_devices
        for order in orders
        for chosen, _ in _cut(order, batch_size)
    )
    sizes, counts = zip(*sorted(needed.items()), strict=True)
    compilation = _COMPILATION * np.average(sizes, weights=counts)
    # the least work of all batches up to a size that is chosen, and what was chosen for it
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for j, size in enumerate(sizes):
        best.append(
            min(
                (work + compilation + size * sum(counts[i : j + 1]), (*chosen, size))
                for i, (work, chosen) in enumerate(best)
            )
        )
    return best[-1][1]


def batches(
    pairs: TokenizedPairs,
    order: Int[np.ndarray, " p"],
    config: EncoderConfig,
    *,
    batch_size: int,
    max_length: int,
    sizes: Sequence[int],
) -> Iterator[Batch]:
    """Yield the batches of one epoch, the last one with what is left.

    Args:
        pairs: All pairs.
        order: In which they are read.
        config: The encoder's config.
        batch_size: Pairs of a batch.
        max_length: The most tokens that a row may have.
        sizes: Rows that a batch may have, from `row_sizes`.

    Yields:
        ceil(p / batch_size) batches; each pair counts in exactly one.

    Raises:
        ValueError: If a batch needs more rows than the largest of `sizes`.
    """
    length = row_length(pairs, max_length=max_length)
    for chosen, n_real in _cut(order, batch_size):
        packing = _packed(pairs, chosen, length)
        if packing.n_rows > max(sizes):
            raise ValueError(f"sizes must reach the {packing.n_rows} rows of a batch, got {sizes}")
        size = min(size for size in sizes if size >= packing.n_rows)
        yield _batch(pairs, chosen, n_real, config, packing._replace(n_rows=size))


def row_length(pairs: TokenizedPairs, *, max_length: int) -> int:
    """Return how long rows have to be: the longest sentence, rounded up, at most `max_length`."""
    longest = max(len(ids) for ids in pairs.ids)
    return min(max_length, -(-longest // _LENGTH_MULTIPLE) * _LENGTH_MULTIPLE)


def n_segments(batch_size: int) -> int:
    """Return how many sentences a row of a batch has at most: all of them."""
    return 2 * batch_size


def _cut(
    order: Int[np.ndarray, " p"], batch_size: int
) -> Iterator[tuple[Int[np.ndarray, " b"], int]]:
    """Yield the pairs of each batch, and how many of them count: the first ones."""
    for start in range(0, len(order), batch_size):
        yield np.resize(order, start + batch_size)[start:], min(batch_size, len(order) - start)


def _ids(pairs: TokenizedPairs, chosen: Int[np.ndarray, " b"]) -> list[np.ndarray]:
    """Return the tokens of chosen pairs: the first sentences, then the second ones."""
    return [pairs.ids[i] for i in np.concatenate([chosen, chosen + len(pairs.scores)])]


def _packed(pairs: TokenizedPairs, chosen: Int[np.ndarray, " b"], length: int) -> Packing:
    """Find the sentences of chosen pairs their places."""
    return pack([len(tokens) for tokens in _ids(pairs, chosen)], length)


def _batch(
    pairs: TokenizedPairs,
    chosen: Int[np.ndarray, " p"],
    n_real: int,
    config: EncoderConfig,
    packing: Packing,
) -> Batch:
    """Lay out the chosen pairs, of which the first `n_real` count."""
    places = packing.rows * n_segments(len(chosen)) + packing.segments - 1
    return Batch(
        rows=packing.fill(
            _ids(pairs, chosen), first_position=config.first_position, pad_id=config.pad_token_id
        ),
        places=places.reshape(2, -1).astype(np.int32),
        scores=pairs.scores[chosen],
        weights=(np.arange(len(chosen)) < n_real).astype(np.float32),
    )

"""Pairs of sentences in packed rows: what one training step reads.

A padded batch of short sentences is two thirds padding. Here a batch's sentences share rows, as in
`jaxgeom.models.packing`. Rows are as long as the longest of all sentences, not as `max_length`:
attention costs a row's length squared. Their number is rounded up by some `TOKEN_MULTIPLE` tokens:
the step is compiled, which takes as long as dozens of steps, for two or three shapes, not for every
batch. The last, short batch of an epoch is filled up with pairs of weight 0, which leave the loss
alone; they are pairs of that epoch again, so that the batch needs no shape of its own.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int, Int32

from jaxgeom.models import EncoderConfig, Rows, Tokenizer, pack
from jaxgeom.tasks import StsPairs
from jaxgeom.tasks.sts import MAX_SCORE

TOKEN_MULTIPLE = 256  # of a batch; at least one row
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


def batches(
    pairs: TokenizedPairs,
    order: Int[np.ndarray, " p"],
    config: EncoderConfig,
    *,
    batch_size: int,
    max_length: int,
    n_devices: int = 1,
) -> Iterator[Batch]:
    """Yield the batches of one epoch, the last one with what is left.

    Args:
        pairs: All pairs.
        order: In which they are read.
        config: The encoder's config.
        batch_size: Pairs of a batch.
        max_length: The most tokens that a row may have.
        n_devices: Which share the rows of a batch evenly.

    Yields:
        ceil(p / batch_size) batches; each pair counts in exactly one.
    """
    length = row_length(pairs, max_length=max_length)
    row_multiple = math.lcm(-(-TOKEN_MULTIPLE // length), n_devices)
    for start in range(0, len(order), batch_size):
        n_real = min(batch_size, len(order) - start)
        chosen = np.resize(order, start + batch_size)[start:]
        yield _batch(pairs, chosen, n_real, config, length, row_multiple)


def row_length(pairs: TokenizedPairs, *, max_length: int) -> int:
    """Return how long rows have to be: the longest sentence, rounded up, at most `max_length`."""
    longest = max(len(ids) for ids in pairs.ids)
    return min(max_length, -(-longest // _LENGTH_MULTIPLE) * _LENGTH_MULTIPLE)


def n_segments(batch_size: int) -> int:
    """Return how many sentences a row of a batch has at most: all of them."""
    return 2 * batch_size


def _batch(
    pairs: TokenizedPairs,
    chosen: Int[np.ndarray, " p"],
    n_real: int,
    config: EncoderConfig,
    length: int,
    row_multiple: int,
) -> Batch:
    """Pack the chosen pairs, of which the first `n_real` count."""
    ids: Sequence[np.ndarray] = [
        pairs.ids[i] for i in np.concatenate([chosen, chosen + len(pairs.scores)])
    ]
    packing = pack([len(tokens) for tokens in ids], length, row_multiple=row_multiple)
    places = packing.rows * n_segments(len(chosen)) + packing.segments - 1
    return Batch(
        rows=packing.fill(ids, first_position=config.first_position, pad_id=config.pad_token_id),
        places=places.reshape(2, -1).astype(np.int32),
        scores=pairs.scores[chosen],
        weights=(np.arange(len(chosen)) < n_real).astype(np.float32),
    )

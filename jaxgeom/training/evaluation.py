"""How well an encoder does on sentence pairs, from text to scores, every token pooled."""

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float64

from jaxgeom import _checks
from jaxgeom.models import Encoder, TokenEmbeddings, Tokenizer, encode
from jaxgeom.models.pooling import POOLINGS
from jaxgeom.tasks import StsPairs, cosine_scores, sts_scores


def evaluate(
    encoder: Encoder,
    tokenizer: Tokenizer,
    pairs: StsPairs,
    *,
    pooling: str = "mean",
    max_length: int = 128,
    progress: bool = True,
    mesh: Mesh | None = None,
) -> dict[str, float]:
    """Return the correlations of an encoder's cosines with the gold scores of pairs.

    Args:
        encoder: The encoder.
        tokenizer: Its tokenizer.
        pairs: The pairs; two or more.
        pooling: "mean" over all tokens, special ones included, as in training; or "cls".
        max_length: The most tokens of a sentence.
        progress: Whether a bar is shown, where there is a terminal to show it on.
        mesh: Whose devices share the work; see `encode`.

    Returns:
        {"pearson_cosine": ..., "spearman_cosine": ...}, each in -1..1; NaN if an embedding is.
    """
    sentences = [*pairs.sentences1, *pairs.sentences2]
    embeddings = encode(
        encoder, tokenizer, sentences, max_length=max_length, progress=progress, mesh=mesh
    )
    first, second = np.split(sentence_vectors(embeddings, pooling=pooling), 2)
    return sts_scores(cosine_scores(first, second), pairs.scores)


def sentence_vectors(
    embeddings: TokenEmbeddings, *, pooling: str = "mean"
) -> Float64[np.ndarray, "s h"]:
    """Return one vector for each sentence: the mean of all its tokens, or its first token's.

    Args:
        embeddings: The tokens of s sentences, special ones included, one layer [n h].
        pooling: "mean" or "cls".

    Returns:
        [s, h].

    Example:
        >>> hidden = np.array([[1, 0], [3, 0], [0, 5]], np.float32)
        >>> ids = np.array([0, 0, 1], np.int32)
        >>> tokens = TokenEmbeddings(hidden, ids, ids, np.zeros(3, bool), 0)
        >>> sentence_vectors(tokens).tolist()
        [[2.0, 0.0], [0.0, 5.0]]
    """
    _checks.option("pooling", pooling, POOLINGS)
    _, starts, counts = np.unique(embeddings.sentence_ids, return_index=True, return_counts=True)
    if pooling == "cls":
        return embeddings.hidden[starts].astype(np.float64)
    return np.add.reduceat(embeddings.hidden, starts, dtype=np.float64) / counts[:, None]

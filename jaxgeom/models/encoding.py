"""Text to token embeddings: tokenise, pack, run the encoder batch by batch, put back in order."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Bool, Float, Float32, Int32
from tqdm import tqdm

from jaxgeom import _checks
from jaxgeom._mesh import COMMON, ROWS, place
from jaxgeom.models.config import EncoderConfig
from jaxgeom.models.encoder import Encoder
from jaxgeom.models.packing import Group, Rows, pack_different
from jaxgeom.models.tokens import Tokenized, Tokenizer

LAYERS = ("last", "all")
_Item = TypeVar("_Item")


class TokenEmbeddings(NamedTuple):
    """The tokens of sentences, by sentence and then by position, special ones included."""

    hidden: Float32[np.ndarray, "*layers_plus_1 n h"]  # [n h], or [layers + 1, n, h]
    sentence_ids: Int32[np.ndarray, " n"]  # index of the sentence each token belongs to
    token_ids: Int32[np.ndarray, " n"]
    special: Bool[np.ndarray, " n"]  # added around the sentence, not part of it
    n_truncated: int  # sentences that lost their end


def encode(
    encoder: Encoder,
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    *,
    max_length: int = 128,
    rows_per_batch: int = 8,
    layers: str = "last",
    progress: bool = True,
    out: np.ndarray | None = None,
    mesh: Mesh | None = None,
) -> TokenEmbeddings:
    """Embed every token of every sentence.

    Args:
        encoder: The encoder.
        tokenizer: The tokenizer of the same model.
        sentences: Texts; none of them empty.
        max_length: The most tokens of a sentence, special ones included; longer ones are cut and
            counted.
        rows_per_batch: How many times `max_length` tokens the encoder computes at a time.
        layers: "last", or "all": the embeddings' output and every layer's.
        progress: Whether a bar is shown, where there is a terminal to show it on.
        out: [n h] or [layers + 1, n, h] float32; where to write the hidden states (a `numpy.memmap`
            for those that do not fit into memory). Made if not given.
        mesh: from `jaxgeom.sharded.row_mesh`: each of its devices computes `rows_per_batch` rows at
            a time. With several processes all of them call this alike and receive all tokens.

    Returns:
        The embeddings and what they belong to.

    Raises:
        TypeError: If a sentence is not a string.
        ValueError: If a sentence is empty, `max_length` is more than the encoder has positions for,
            the tokenizer gives ids that the encoder does not know, or `out` has the wrong shape or
            dtype.

    Numerics:
        A token's embedding does not depend on which sentences share its row or batch, up to
        rounding (1e-6).
    """
    _checks.option("layers", layers, LAYERS)
    _checks.integer("rows_per_batch", rows_per_batch, 1)
    config = encoder.config
    _checks.integer("max_length", max_length, 1, config.max_length, "the encoder's positions")
    tokenized = tokenizer.encode(sentences, max_length=max_length)
    token_ids = np.concatenate([tokens.ids for tokens in tokenized])
    _check_vocabulary(token_ids, config)
    shape: tuple[int, ...] = (token_ids.size, config.hidden_size)
    if layers == "all":
        shape = (config.num_hidden_layers + 1, *shape)
    hidden = np.empty(shape, np.float32) if out is None else _checked_out(out, shape)
    _fill_hidden(hidden, encoder, tokenized, max_length, rows_per_batch, progress, mesh)
    lengths = [tokens.ids.size for tokens in tokenized]
    return TokenEmbeddings(
        hidden=hidden,
        sentence_ids=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        token_ids=token_ids,
        special=np.concatenate([tokens.special for tokens in tokenized]),
        n_truncated=sum(tokens.truncated for tokens in tokenized),
    )


def _fill_hidden(
    hidden: np.ndarray,
    encoder: Encoder,
    tokenized: Sequence[Tokenized],
    max_length: int,
    rows_per_batch: int,
    progress: bool,
    mesh: Mesh | None,
) -> None:
    """Write the hidden states of all tokens into `hidden`, batch by batch."""
    ids = [tokens.ids for tokens in tokenized]
    size = rows_per_batch * max_length * (1 if mesh is None else mesh.size)
    groups = pack_different(
        ids,
        max_length,
        size,
        first_position=encoder.config.first_position,
        pad_id=encoder.config.pad_token_id,
        row_multiple=1 if mesh is None else mesh.size,
    )
    started = _start(encoder, groups, hidden.ndim == 3, mesh)
    with tqdm(total=hidden.shape[-2], unit="tok", disable=None if progress else True) as bar:
        for tokens, within, states in _one_ahead(started):
            flat = np.asarray(states).reshape(*hidden.shape[:-2], -1, hidden.shape[-1])
            hidden[..., tokens, :] = flat[..., within, :]
            bar.update(tokens.size)


def _start(
    encoder: Encoder, groups: Iterable[Group], all_layers: bool, mesh: Mesh | None
) -> Iterator[tuple[np.ndarray, np.ndarray, jax.Array]]:
    """Start each batch; yield which tokens it holds, their places in it, and its hidden states."""
    graphdef, state = nnx.split(encoder)
    state = state if mesh is None else place(state, mesh)
    for rows, n_rows, tokens, places in groups:
        size = n_rows * rows.input_ids.shape[1]
        for first in range(0, len(rows.input_ids), n_rows):
            batch = Rows(*(array[first : first + n_rows] for array in rows))
            offset = first // n_rows * size
            low, high = np.searchsorted(places, [offset, offset + size])
            batch = batch if mesh is None else place(batch, mesh, ROWS)
            states = _forward(graphdef, state, batch, all_layers=all_layers, mesh=mesh)
            yield tokens[low:high], places[low:high] - offset, states


def _one_ahead(items: Iterator[_Item]) -> Iterator[_Item]:
    """Yield each item when the next one has been started: it computes while this one is copied."""
    waiting = next(items)
    for item in items:
        yield waiting
        waiting = item
    yield waiting


@partial(jax.jit, static_argnames=("all_layers", "mesh"))
def _forward(
    graphdef: nnx.GraphDef, state: Any, rows: Rows, *, all_layers: bool, mesh: Mesh | None
) -> Float[Array, "*layers_plus_1 b s h"]:
    """Run the encoder; jit over a split module has less overhead a call than `nnx.jit`."""
    states = nnx.merge(graphdef, state)(*rows)
    states = states if all_layers else states[-1]
    if mesh is None:
        return states
    return jax.lax.with_sharding_constraint(states, NamedSharding(mesh, COMMON))


def _check_vocabulary(token_ids: Int32[np.ndarray, " n"], config: EncoderConfig) -> None:
    """Raise unless the encoder has an embedding for every token."""
    if token_ids.max() >= config.vocab_size:
        raise ValueError(
            f"tokenizer must give ids below the encoder's vocab_size = {config.vocab_size}, "
            f"got {token_ids.max()}"
        )


def _checked_out(out: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return `out`, if the hidden states fit into it."""
    if out.shape != shape or out.dtype != np.float32:
        raise ValueError(f"out must be float32 {shape}, got {out.dtype} {out.shape}")
    return out

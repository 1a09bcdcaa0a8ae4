"""Token embeddings on disk, keyed by content: encoded once, memory-mapped afterwards.

An entry is a folder OUTPUT/embeddings/KEY with `hidden.npy` (float32, special tokens included),
`tokens.npz` (sentence, id and kind of each token) and `key.json` (what KEY is the sha256 of).
All layers are written to the disk as they are encoded, never held in memory; who asks for the last
layer alone, later, gets a view of them.
"""

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from experiments.spaces.checkpoints import DTYPES, Checkpoint, digest
from jaxgeom import distributed
from jaxgeom._files import replacing, write_json
from jaxgeom._mesh import shared_mesh
from jaxgeom.models.config import read_config
from jaxgeom.models.encoding import TokenEmbeddings, encode
from jaxgeom.models.tokens import TOKENIZER_FILES, load_tokenizer

FORMAT = 1  # raise it whenever the same key would stand for other numbers or other files


def key_parts(
    checkpoint: Checkpoint, sentences: list[str], *, max_length: int, dtype: str, layers: str
) -> dict[str, Any]:
    """Return everything that shapes the embeddings, by content: a moved folder changes nothing."""
    return {
        "format": FORMAT,
        "weights": checkpoint.weights,
        "config": digest(checkpoint.folder, ("config.json",)),
        "tokenizer": digest(checkpoint.folder, TOKENIZER_FILES),
        "sentences": _sha256(sentences),
        "max_length": max_length,
        "dtype": dtype,
        "layers": layers,
    }


def embeddings(
    checkpoint: Checkpoint,
    sentences: list[str],
    cache: Path,
    *,
    max_length: int = 128,
    dtype: str = "float32",
    layers: str = "last",
) -> TokenEmbeddings:
    """Return the token embeddings of `sentences`: from `cache` where they are, else encoded.

    Args:
        checkpoint: the encoder and its tokenizer.
        sentences: the sentences.
        cache: folder of entries.
        max_length: tokens a sentence may have.
        dtype: of the encoder's computation, a key of `DTYPES`.
        layers: "last": `hidden` is [n h]; or "all": [layers + 1, n, h], the embeddings' output
            first; the space that these need is printed before they are encoded.

    Returns:
        The embeddings; `hidden` is memory-mapped, read-only.

    Raises:
        OSError: no room on the disk for all layers.
        ValueError: an entry that cannot be read; the message names its folder.
    """
    parts = key_parts(checkpoint, sentences, max_length=max_length, dtype=dtype, layers=layers)
    entry = cache / _sha256(parts)
    if distributed.agreed(entry.is_dir()):
        return _read(entry)
    all_layers = cache / _sha256(parts | {"layers": "all"})
    if distributed.agreed(all_layers.is_dir()):
        found = _read(all_layers)
        return found._replace(hidden=found.hidden[-1])
    with replacing(entry) as temporary:
        temporary.mkdir()
        encoded = encode(
            checkpoint.build(dtype=DTYPES[dtype]),
            load_tokenizer(checkpoint.folder),
            sentences,
            max_length=max_length,
            layers=layers,
            out=_room(temporary, checkpoint, sentences, max_length) if layers == "all" else None,
            mesh=shared_mesh(),
        )
        if distributed.is_writer():
            _write(temporary, encoded, parts)
    distributed.barrier()
    return _read(entry)


def all_layers_shape(
    checkpoint: Checkpoint, sentences: list[str], *, max_length: int
) -> tuple[int, int, int]:
    """Return the shape [layers + 1, n, h] of all layers' float32 embeddings; nothing is built."""
    config = read_config(checkpoint.folder)
    tokenized = load_tokenizer(checkpoint.folder).encode(sentences, max_length=max_length)
    n_tokens = sum(tokens.ids.size for tokens in tokenized)
    return config.num_hidden_layers + 1, n_tokens, config.hidden_size


def _room(
    folder: Path, checkpoint: Checkpoint, sentences: list[str], max_length: int
) -> np.memmap[Any, Any]:
    """Return the file for all layers, after saying how large it is.

    A full disk would otherwise end the process with a signal, in the middle of a write to memory.
    """
    shape = all_layers_shape(checkpoint, sentences, max_length=max_length)
    need, free = 4 * int(np.prod(shape, dtype=np.int64)), shutil.disk_usage(folder).free
    what = f"all {shape[0]} layers of {checkpoint.model} {checkpoint.state} seed {checkpoint.seed}"
    size = f"{need / 1e9:.3g} GB for {what}: {shape[1]:,} tokens, {shape[2]} wide"
    if need > free:
        raise OSError(f"{folder.parent} must have {size}; {free / 1e9:.3g} GB are free")
    print(f"{folder.parent} takes {size}", file=sys.stderr)
    return np.lib.format.open_memmap(folder / "hidden.npy", "w+", np.float32, shape)


def _write(folder: Path, encoded: TokenEmbeddings, parts: dict[str, Any]) -> None:
    """Write the files of an entry into `folder`; a memory-mapped `hidden` lies there already."""
    if isinstance(encoded.hidden, np.memmap):
        encoded.hidden.flush()
    else:
        np.save(folder / "hidden.npy", np.asarray(encoded.hidden, np.float32))
    rest = {k: v for k, v in encoded._asdict().items() if k != "hidden"}
    np.savez(folder / "tokens.npz", **rest)
    write_json(folder / "key.json", parts)


def _read(entry: Path) -> TokenEmbeddings:
    """Read an entry, the embeddings memory-mapped."""
    try:
        hidden = np.load(entry / "hidden.npy", mmap_mode="r")
        with np.load(entry / "tokens.npz") as stored:
            rest = dict(stored)
    except (OSError, ValueError) as error:
        raise ValueError(f"{entry}: cannot be read ({error}); delete it to encode anew") from error
    rest["n_truncated"] = int(rest["n_truncated"])
    return TokenEmbeddings(hidden=hidden, **rest)


def _sha256(value: Any) -> str:
    """Return the sha256 of a value's JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()

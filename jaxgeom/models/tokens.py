"""Sentences to token ids, with the tokenizer that lies in a model's folder."""

import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tokenizers
from jaxtyping import Bool, Int32

from jaxgeom import _checks
from jaxgeom.models.config import ModelError

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",  # WordPiece
    "vocab.json",  # byte-level BPE, with the next
    "merges.txt",
)


class Tokenized(NamedTuple):
    """One sentence's tokens, special ones included."""

    ids: Int32[np.ndarray, " s"]  # [s] int32
    special: Bool[np.ndarray, " s"]  # [s] bool: added around the sentence, not part of it
    truncated: bool  # whether it had more tokens than max_length


class Tokenizer:
    """A tokenizer read by `load_tokenizer`."""

    def __init__(self, backend: tokenizers.Tokenizer, files: Sequence[Path]):
        backend.no_padding()  # a file may bake in both of them
        backend.no_truncation()
        self._backend = backend
        self._files = tuple(files)

    @property
    def vocab_size(self) -> int:
        """Entries of the vocabulary, special tokens included."""
        return self._backend.get_vocab_size(with_added_tokens=True)

    def encode(self, sentences: Sequence[str], *, max_length: int = 128) -> list[Tokenized]:
        """Turn sentences into tokens.

        Args:
            sentences: Texts; none of them empty.
            max_length: The most tokens a sentence may have, special ones included; the end of a
                longer one is cut off, and it is marked.

        Returns:
            A `Tokenized` for each sentence.

        Raises:
            TypeError: If a sentence is not a string.
            ValueError: If a sentence has no tokens but special ones, or if `max_length` leaves
                none.
        """
        _check_sentences(sentences)
        n_special = self._backend.num_special_tokens_to_add(is_pair=False)
        _checks.integer("max_length", max_length, n_special + 1)
        self._backend.enable_truncation(max_length)
        try:
            encodings = self._backend.encode_batch(list(sentences))
        finally:
            self._backend.no_truncation()
        tokenized = [_tokenized(encoding) for encoding in encodings]
        for i, tokens in enumerate(tokenized):
            if tokens.special.all():
                raise ValueError(f"sentences[{i}] must have tokens, got {sentences[i]!r}")
        return tokenized

    def save(self, folder: str | Path) -> None:
        """Copy the tokenizer's files into `folder`, which is made if need be."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for path in self._files:
            if path.parent.resolve() != folder.resolve():
                shutil.copyfile(path, folder / path.name)


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """Read the tokenizer of a model folder.

    Args:
        folder: Holds `tokenizer.json`; or the older files of a WordPiece or byte-level BPE
            tokenizer, which need `transformers` (the extra `hf`).

    Returns:
        The tokenizer; whatever padding and truncation its files ask for is switched off.

    Raises:
        ModelError: If the folder has no tokenizer, or a broken one.
        ImportError: If the older files are there, but `transformers` is not.
    """
    folder = Path(folder)
    files = [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]
    path = folder / "tokenizer.json"
    if path not in files:
        return Tokenizer(_convert(folder, [file.name for file in files]), files)
    try:
        return Tokenizer(tokenizers.Tokenizer.from_file(str(path)), files)
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(f"{path} must be a tokenizer's file: {error}") from None


def _convert(folder: Path, names: Sequence[str]) -> tokenizers.Tokenizer:
    """Build a tokenizer from the files that came before tokenizer.json."""
    if "vocab.txt" not in names and not {"vocab.json", "merges.txt"} <= set(names):
        raise ModelError(
            f"{folder} must hold tokenizer.json, vocab.txt, or vocab.json and merges.txt, got none"
        )
    if importlib.util.find_spec("transformers") is None:
        raise ImportError(
            f"{folder} has no tokenizer.json; reading {' and '.join(names)} needs transformers: "
            "pip install 'jaxgeom[hf]'"
        )
    from transformers import AutoTokenizer  # noqa: PLC0415 (an extra, and slow to import)

    return AutoTokenizer.from_pretrained(str(folder), use_fast=True).backend_tokenizer


def _check_sentences(sentences: Sequence[str]) -> None:
    """Raise unless every sentence is a string with something in it."""
    if isinstance(sentences, str):
        raise TypeError("sentences must be a sequence of strings, got a single string")
    if not len(sentences):
        raise ValueError("sentences must not be empty, got none")
    for i, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            raise TypeError(f"sentences[{i}] must be a string, got {type(sentence).__name__}")
        if not sentence.strip():
            raise ValueError(f"sentences[{i}] must not be empty, got {sentence!r}")


def _tokenized(encoding: tokenizers.Encoding) -> Tokenized:
    """Take over what is needed of an encoded sentence."""
    return Tokenized(
        ids=np.asarray(encoding.ids, np.int32),
        special=np.asarray(encoding.special_tokens_mask, np.bool_),
        truncated=bool(encoding.overflowing),
    )

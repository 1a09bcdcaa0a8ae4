"""Tokenizers trained on a corpus, in the files that Hugging Face's fast tokenizers read.

A BERT gets WordPiece over lower-case words, a RoBERTa byte-level BPE over text as it stands; both
with the special tokens of their originals, which take the first ids.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import tokenizers
from tokenizers import (
    AddedToken,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from jaxgeom import _checks
from jaxgeom.models.config import MODEL_TYPES
from jaxgeom.training.checkpoints import write_json


class SpecialTokens(NamedTuple):
    """The special tokens of an architecture."""

    pad: str
    unknown: str
    begin: str
    end: str
    mask: str
    ids: dict[str, int]  # 0, 1, 2, …

    @property
    def mask_id(self) -> int:
        """The id of the token that stands for a hidden one."""
        return self.ids[self.mask]

    @property
    def pad_id(self) -> int:
        """The id of padding."""
        return self.ids[self.pad]


def _special(pad: str, unknown: str, begin: str, end: str, mask: str, order: str) -> SpecialTokens:
    """Number the special tokens in the order given."""
    ids = {token: i for i, token in enumerate(order.split())}
    return SpecialTokens(pad, unknown, begin, end, mask, ids)


SPECIAL = {
    "bert": _special(
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", order="[PAD] [UNK] [CLS] [SEP] [MASK]"
    ),
    "roberta": _special(
        "<pad>", "<unk>", "<s>", "</s>", "<mask>", order="<s> <pad> </s> <unk> <mask>"
    ),
}


def train_tokenizer(
    sentences: Sequence[str], folder: str | Path, *, arch: str, vocab_size: int, max_length: int
) -> Path:
    """Train a tokenizer and write `tokenizer.json` and `tokenizer_config.json`.

    Args:
        sentences: The corpus.
        folder: Where to; made if need be.
        arch: "bert" (WordPiece, lower case) or "roberta" (byte-level BPE).
        vocab_size: Entries of the vocabulary, special ones included; a small corpus gives fewer.
        max_length: What the files say of the longest sentence that the model takes.

    Returns:
        The folder, which `load_tokenizer` and transformers' `AutoTokenizer` open.

    Raises:
        ValueError: If `arch` is neither, or if the vocabulary would have room for nothing but
            single characters.

    Source:
        Devlin et al. (2019) and Liu et al. (2019) for what a tokenizer of each kind consists of.
    """
    _checks.option("arch", arch, MODEL_TYPES)
    _checks.integer("vocab_size", vocab_size, len(SPECIAL[arch].ids) + 256)
    tokenizer, trainer = {"bert": _word_piece, "roberta": _byte_level}[arch](vocab_size)
    tokenizer.train_from_iterator(sentences, trainer, length=len(sentences))
    tokenizer.post_processor = _enclosed(SPECIAL[arch])
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", _settings(SPECIAL[arch], max_length))
    return folder


def _word_piece(vocab_size: int) -> tuple[tokenizers.Tokenizer, trainers.Trainer]:
    """Return BERT's kind of tokenizer, untrained, and its trainer."""
    special = SPECIAL["bert"]
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token=special.unknown))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, special_tokens=list(special.ids), show_progress=False
    )
    return tokenizer, trainer


def _byte_level(vocab_size: int) -> tuple[tokenizers.Tokenizer, trainers.Trainer]:
    """Return RoBERTa's kind of tokenizer, untrained, and its trainer."""
    special = SPECIAL["roberta"]
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokens = [
        AddedToken(token, lstrip=True) if token == special.mask else token for token in special.ids
    ]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=tokens,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),  # so that no text is unknown
        show_progress=False,
    )
    return tokenizer, trainer


def _enclosed(special: SpecialTokens) -> processors.TemplateProcessing:
    """Return what puts the special tokens around a sentence."""
    begin, end = special.begin, special.end
    return processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} $B:1 {end}:1",
        special_tokens=[(token, special.ids[token]) for token in (begin, end)],
    )


def _settings(special: SpecialTokens, max_length: int) -> dict[str, object]:
    """Return the contents of `tokenizer_config.json`."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "pad_token": special.pad,
        "unk_token": special.unknown,
        "cls_token": special.begin,
        "sep_token": special.end,
        "bos_token": special.begin,
        "eos_token": special.end,
        "mask_token": special.mask,
    }

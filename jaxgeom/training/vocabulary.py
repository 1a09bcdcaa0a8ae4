"""Tokenizers trained on a corpus, in the files that Hugging Face's fast tokenizers read.

A BERT gets WordPiece over lower-case words, a RoBERTa byte-level BPE over text as it stands; both
with the special tokens of their originals, which take the first ids. The same corpus always gives
the same tokenizer.
"""

from collections.abc import Iterator, Sequence
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

# Codes below the first are moved up by the second, where Unicode has no characters of its own.
_BEYOND, _PRIVATE = "\U00010000", 0x100000


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
    tokenizer = {"bert": _word_piece, "roberta": _byte_level}[arch](sentences, vocab_size)
    tokenizer.post_processor = _enclosed(SPECIAL[arch])
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", _settings(SPECIAL[arch], max_length))
    return folder


def _word_piece(sentences: Sequence[str], vocab_size: int) -> tokenizers.Tokenizer:
    """Train BERT's kind of tokenizer.

    Its vocabulary is found by pair merging, as the library's own trainer finds it; that one numbers
    the characters within words by the order of a hash table, another one in every process. Here
    they are characters of their own, which byte-pair encoding numbers by their code.
    """
    special = SPECIAL["bert"]
    normalizer = normalizers.BertNormalizer(lowercase=True)
    splitter = pre_tokenizers.BertPreTokenizer()
    merging = tokenizers.Tokenizer(models.BPE())
    merging.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size - len(special.ids), show_progress=False)
    merging.train_from_iterator(_marked(sentences, normalizer, splitter), trainer)
    merged = merging.get_vocab()
    pieces = [*special.ids, *(_piece(token) for token in sorted(merged, key=merged.__getitem__))]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=special.unknown))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(list(special.ids))
    return tokenizer


def _marked(
    sentences: Sequence[str],
    normalizer: normalizers.Normalizer,
    splitter: pre_tokenizers.PreTokenizer,
) -> Iterator[str]:
    """Yield each sentence's words, every character but a word's first one moved to a private code.

    A word with a character that has no place there (an emoji, say) plays no part.
    """
    for sentence in sentences:
        words = splitter.pre_tokenize_str(normalizer.normalize_str(sentence))
        yield " ".join(
            word[0] + "".join(chr(ord(character) + _PRIVATE) for character in word[1:])
            for word, _ in words
            if max(word) < _BEYOND
        )


def _piece(token: str) -> str:
    """Return a merged token as WordPiece writes it: with ## where it goes on with a word."""
    text = "".join(chr(ord(character) % _PRIVATE) for character in token)
    return text if ord(token[0]) < _PRIVATE else f"##{text}"


def _byte_level(sentences: Sequence[str], vocab_size: int) -> tokenizers.Tokenizer:
    """Train RoBERTa's kind of tokenizer."""
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
    tokenizer.train_from_iterator(sentences, trainer, length=len(sentences))
    return tokenizer


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

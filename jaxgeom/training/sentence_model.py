"""A finished model on disk, as transformers and sentence-transformers open it.

Beside the encoder's and the tokenizer's files lie the small ones by which sentence-transformers
reads a folder as "this encoder, then this pooling", in the spelling that all its versions know, and
`training.json`, our record of where the weights come from.
"""

from pathlib import Path
from typing import Any

from jaxgeom.models import Encoder, Tokenizer, save_encoder
from jaxgeom.training.checkpoints import write_json

RECORD = "training.json"
_POOLING = "1_Pooling"


def save_sentence_model(
    encoder: Encoder,
    tokenizer: Tokenizer,
    folder: str | Path,
    *,
    pooling: str,
    max_length: int,
    record: dict[str, Any],
    source: str | Path | None = None,
) -> None:
    """Write an encoder, its tokenizer and its pooling into a folder.

    Args:
        encoder: The encoder.
        tokenizer: Its tokenizer.
        folder: Where to; made if need be.
        pooling: "mean" or "cls".
        max_length: Where sentence-transformers cuts a sentence off, special tokens included.
        record: What goes into `training.json`.
        source: The model folder that the encoder comes from: further entries of its config, and its
            pooler, are carried over.
    """
    folder = Path(folder)
    save_encoder(encoder, folder, source=source)
    tokenizer.save(folder)
    modules = [("", "Transformer"), (_POOLING, "Pooling")]
    write_json(
        folder / "modules.json",
        [
            {
                "idx": index,
                "name": str(index),
                "path": path,
                "type": f"sentence_transformers.models.{module}",
            }
            for index, (path, module) in enumerate(modules)
        ],
    )
    write_json(
        folder / _POOLING / "config.json",
        {
            "word_embedding_dimension": encoder.config.hidden_size,
            "pooling_mode_cls_token": pooling == "cls",
            "pooling_mode_mean_tokens": pooling == "mean",
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
    )
    # the tokenizer's own files say whether it lowers case; this would do it a second time
    transformer = {"max_seq_length": max_length, "do_lower_case": False}
    write_json(folder / "sentence_bert_config.json", transformer)
    write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})
    write_json(folder / RECORD, record)

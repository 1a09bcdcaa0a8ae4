"""Fine-tuned models on disk, keyed by content: trained once, found again afterwards.

A run is a folder OUTPUT/finetuned/KEY with `model/` (which `--models` takes, and transformers and
sentence-transformers open), `metrics.jsonl`, and `key.json` (what KEY is the sha256 of).
"""

import dataclasses
import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

from experiments.command.options import Common
from experiments.spaces.checkpoints import WEIGHTS, Checkpoint, Source, checkpoint, digest
from jaxgeom import distributed
from jaxgeom._files import write_json
from jaxgeom._mesh import shared_mesh
from jaxgeom.models.tokens import TOKENIZER_FILES, load_tokenizer
from jaxgeom.models.weights import load_encoder
from jaxgeom.tasks.sts import StsPairs, read_sts
from jaxgeom.training.finetuning import MODEL, finetune
from jaxgeom.training.siamese import SiameseConfig

FORMAT = 1  # raise it whenever the same key would stand for other weights or other files
KEY_LENGTH = 16  # hexadecimal digits of the sha256 in a folder's name

NAMES = {
    "pretrained": "finetuned",
    "random": "random_finetuned",
}  # a state, and that after training
QUOTING = {"ours": "plain", "authors": "default"}  # how a protocol reads quotation marks


def in_state(
    source: Source, state: str, seed: int, config: Common, *, protocol: str = "ours"
) -> Checkpoint:
    """Return the model of `source` in a state, trained first where the state asks for it."""
    for start, trained in NAMES.items():
        if state == trained:
            return finetuned(checkpoint(source, start, seed, config), config, protocol=protocol)
    return checkpoint(source, state, seed, config)


def finetuned(start: Checkpoint, config: Common, *, protocol: str = "ours") -> Checkpoint:
    """Return the model that training makes of `start`: trained now, or found in the output folder.

    An interrupted run goes on from its last whole epoch.

    Args:
        start: The model to train, in the state "pretrained" or "random"; its seed drives order and
            dropout. It is built only if there is something to train.
        config: The options; training reads their data, pooling, max_length, dtype and those that
            say fine-tuning, and writes to OUTPUT/finetuned.
        protocol: How the pairs are read, see `read_pairs`.

    Returns:
        The model in the state "finetuned" or "random_finetuned".

    Raises:
        ValueError: Data that cannot be trained on, options out of range, a loss that is NaN, or
            what lies in the output folder is broken.
    """
    recipe = recipe_of(config)
    pairs = read_training_pairs(config, protocol=protocol)
    parts = key_parts(start, pairs, recipe)
    run = config.output / "finetuned" / content_hash(parts)[:KEY_LENGTH]
    model = run / MODEL
    if not distributed.agreed(model.is_dir()):
        write_json(run / "key.json", parts)
        finetune(
            start.build(),
            load_tokenizer(start.folder),
            pairs,
            read_sts(config.data or "", split="dev", quoting=QUOTING[protocol]),
            seed=start.seed,
            folder=run,
            config=recipe,
            source=start.folder,
            mesh=shared_mesh(),
        )
    return Checkpoint(
        model=start.model,
        state=NAMES[start.state],
        seed=start.seed,
        folder=model,
        weights={"sha256": digest(model, WEIGHTS)},
        build=partial(load_encoder, model),
    )


def key_parts(start: Checkpoint, pairs: StsPairs, recipe: SiameseConfig) -> dict[str, Any]:
    """Return everything that shapes the weights, by content: a moved folder changes nothing."""
    return {
        "format": FORMAT,
        "weights": start.weights,
        "config": digest(start.folder, ("config.json",)),
        "tokenizer": digest(start.folder, TOKENIZER_FILES),
        "pairs": content_hash([pairs.sentences1, pairs.sentences2, pairs.scores.tolist()]),
        "recipe": dataclasses.asdict(recipe),
        "seed": start.seed,
    }


def recipe_of(config: Common) -> SiameseConfig:
    """Return the options as the library's settings."""
    return SiameseConfig(
        batch_size=config.batch_size,
        learning_rate=config.lr,
        epochs=config.epochs,
        weight_decay=config.weight_decay,
        warmup=config.warmup,
        pooling=config.pooling,
        max_length=config.max_length,
        dtype=config.dtype,
    )


def read_training_pairs(config: Common, *, protocol: str = "ours") -> StsPairs:
    """Read the training pairs from `--train`, or from beside the pairs that are analysed."""
    if config.data is None:
        raise ValueError("--data must name STS-B: a folder, a file or a Hub data set id")
    if config.train is None and Path(config.data).is_file():
        raise ValueError(
            f"--train must name the training pairs where --data is a single file, got {config.data}"
        )
    return read_sts(config.train or config.data, split="train", quoting=QUOTING[protocol])


def content_hash(value: Any) -> str:
    """Return the sha256 of a value's JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()

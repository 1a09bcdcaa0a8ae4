"""Fine-tuning from an encoder to a finished model, or from wherever it was interrupted.

RUN/checkpoints/epoch-0001 and so on hold the state after an epoch, RUN/metrics.jsonl the log so
far, RUN/model the finished model. Whatever lies there has to be of the same run: same encoder,
pairs, recipe and seed, by content.
"""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from jaxgeom import _checks, distributed
from jaxgeom._versions import versions
from jaxgeom.models import Encoder, EncoderConfig, Tokenizer
from jaxgeom.tasks import StsPairs
from jaxgeom.tasks.sts import MAX_SCORE
from jaxgeom.training.batches import TokenizedPairs, tokenize_pairs
from jaxgeom.training.checkpoints import (
    CHECKPOINTS,
    FORMAT,
    Checkpoint,
    read_record,
    remove_checkpoints,
    require_same_run,
    whole_folder,
)
from jaxgeom.training.evaluation import evaluate
from jaxgeom.training.loop import Run, run_epochs
from jaxgeom.training.sentence_model import RECORD, save_sentence_model
from jaxgeom.training.siamese import DTYPES, SiameseConfig

MODEL = "model"  # the finished model's folder within the run's
RECORDED = ("jaxgeom", "jax", "jaxlib", "flax", "optax", "numpy", "tokenizers")


def finetune(
    encoder: Encoder,
    tokenizer: Tokenizer,
    train: StsPairs,
    dev: StsPairs,
    *,
    seed: int,
    folder: str | Path,
    config: SiameseConfig | None = None,
    source: str | Path | None = None,
    progress: bool = True,
    mesh: Mesh | None = None,
) -> Path:
    """Fine-tune an encoder on sentence pairs; go on, or find it done, where a run was before.

    Args:
        encoder: Where to start from; it is left as it is.
        tokenizer: Its tokenizer.
        train: Pairs to train on.
        dev: Pairs whose scores are logged after every epoch; they shape no weight.
        seed: Drives order and dropout.
        folder: The run's folder.
        config: The recipe; the study's if not given.
        source: The model folder that the encoder comes from; see `save_sentence_model`.
        progress: Whether a bar is shown, where there is a terminal to show it on.
        mesh: From `jaxgeom.sharded.row_mesh`: its devices share every batch, which stays the same.
            With several processes all of them call this alike, on a folder that all of them see;
            the first one writes.

    Returns:
        The finished model's folder, which transformers and sentence-transformers open.

    Raises:
        CheckpointError: If what lies in `folder` is incomplete, broken, or of another run.
        DivergenceError: If a loss is NaN or infinite; the last checkpoint stays.
        ValueError: If there are no scores or only one, or fewer pairs than a batch has, or if the
            encoder has no positions for `config.max_length` tokens.

    Numerics:
        Weights, gradients and optimiser are float32, also where `config.dtype` is bfloat16.
    """
    config = SiameseConfig() if config is None else config
    _check(encoder, train, dev, config, seed)
    pairs = tokenize_pairs(tokenizer, train, encoder.config, max_length=config.max_length)
    run = Run(
        folder=Path(folder),
        identity=_identity(encoder, pairs, config, seed),
        pairs=pairs,
        config=config,
        encoder_config=encoder.config,
        graphdef=_graphdef(encoder.config, config.dtype),
        seed=seed,
        mesh=mesh,
    )
    target = run.folder / MODEL
    if not distributed.agreed(target.exists()):
        final = _train(run, encoder, tokenizer, dev, progress)
        record = _record(run, final, train, dev)
        distributed.on_writer(lambda: _save(run, final.params, tokenizer, record, source))
    require_same_run(target, read_record(target, RECORD), run.identity)
    distributed.on_writer(lambda: remove_checkpoints(run.folder))
    return target


def _save(
    run: Run,
    params: Any,
    tokenizer: Tokenizer,
    record: dict[str, Any],
    source: str | Path | None,
) -> None:
    """Write the finished model."""
    if run.mesh is not None:  # every device holds all of them
        params = jax.tree.map(np.asarray, params)
    with whole_folder(run.folder / MODEL, scratch=run.folder / CHECKPOINTS) as temporary:
        save_sentence_model(
            nnx.merge(run.graphdef, params),
            tokenizer,
            temporary,
            pooling=run.config.pooling,
            max_length=run.config.max_length,
            record=record,
            source=source,
        )


def _train(
    run: Run, encoder: Encoder, tokenizer: Tokenizer, dev: StsPairs, progress: bool
) -> Checkpoint:
    """Return the state after the last epoch."""

    def on_dev(params: Any) -> dict[str, float]:
        return evaluate(
            nnx.merge(run.graphdef, params),
            tokenizer,
            dev,
            pooling=run.config.pooling,
            max_length=run.config.max_length,
            progress=progress,
            mesh=run.mesh,
        )

    # a step destroys the parameters that it is given, and these are the caller's
    params = jax.tree.map(jnp.copy, _params(encoder))
    return run_epochs(run, params, on_dev, progress=progress)


def _check(
    encoder: Encoder, train: StsPairs, dev: StsPairs, config: SiameseConfig, seed: int
) -> None:
    """Raise unless these can be trained on."""
    _checks.integer("seed", seed, 0)
    longest = encoder.config.max_length
    _checks.integer("max_length", config.max_length, 1, longest, "the encoder's positions")
    for name, pairs in (("train", train), ("dev", dev)):
        scores = np.asarray(pairs.scores)
        bad = scores[~((scores >= 0) & (scores <= MAX_SCORE))]  # NaN is neither
        if bad.size:
            raise ValueError(
                f"{name}: {pairs.name} must have scores in 0..{MAX_SCORE:g}, got {bad[0]}"
            )
        if len(np.unique(scores)) < 2:
            raise ValueError(
                f"{name}: {pairs.name} must have two different scores or more, "
                f"got {np.unique(scores).tolist()} for all of its {len(scores)} pairs"
            )
    if config.batch_size > len(train.scores):
        raise ValueError(
            f"batch_size must be at most the number of training pairs = {len(train.scores)} "
            f"({train.name}), got {config.batch_size}"
        )


def _params(encoder: Encoder) -> Any:
    """Return an encoder's parameters as a pure dict."""
    return nnx.to_pure_dict(nnx.state(encoder, nnx.Param))


def _identity(
    encoder: Encoder, pairs: TokenizedPairs, config: SiameseConfig, seed: int
) -> dict[str, Any]:
    """Return everything that shapes a run's weights: the large parts by their sha256."""
    weights = hashlib.sha256(json.dumps(encoder.config.to_dict(), sort_keys=True).encode())
    for leaf in jax.tree.leaves(_params(encoder)):
        weights.update(np.ascontiguousarray(leaf).data)
    data = hashlib.sha256(json.dumps([ids.tolist() for ids in pairs.ids]).encode())
    data.update(np.ascontiguousarray(pairs.scores).data)
    hashes = {"encoder": weights.hexdigest(), "training_data": data.hexdigest()}
    return dataclasses.asdict(config) | {"seed": seed} | hashes


def _graphdef(config: EncoderConfig, dtype: str) -> nnx.GraphDef:
    """Return an encoder without parameters, whose products are in the recipe's dtype."""

    def build() -> Encoder:
        return Encoder(config, rngs=nnx.Rngs(0), dtype=DTYPES[dtype])

    return nnx.graphdef(nnx.eval_shape(build))


def _record(run: Run, final: Checkpoint, train: StsPairs, dev: StsPairs) -> dict[str, Any]:
    """Return what the finished model says of its origin."""
    return {
        "format": FORMAT,
        "identity": dict(run.identity),
        "train": {
            "name": train.name,
            "n_pairs": run.n_pairs,
            "n_truncated": run.pairs.n_truncated,
        },
        "dev": {"name": dev.name, "n_pairs": len(dev.scores)},
        "n_steps": final.step,
        "epochs": [record for record in final.log if "mean_loss" in record],
        "versions": versions(RECORDED),
    }

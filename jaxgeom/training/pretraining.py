"""Pre-training from text to a finished model, or from wherever it was interrupted.

RUN/tokenizer holds the trained tokenizer, RUN/checkpoints/step-0200 and so on the state after so
many steps, RUN/metrics.jsonl the log so far, RUN/model the finished model. Whatever lies there has
to be of the same run: same text, recipe and seed, by content.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from jaxgeom import _checks
from jaxgeom._versions import versions
from jaxgeom.models import EncoderConfig, ModelError, Rows, Tokenizer, load_tokenizer, pack
from jaxgeom.models.masked_lm import STORED, MaskedLM, load_masked_lm, save_masked_lm
from jaxgeom.training.checkpoints import (
    CHECKPOINTS,
    FORMAT,
    Checkpoint,
    read_record,
    remove_checkpoints,
    require_same_run,
    whole_folder,
    write_json,
)
from jaxgeom.training.corpus import Split, split_corpus
from jaxgeom.training.finetuning import MODEL, RECORDED
from jaxgeom.training.mlm import MLMConfig
from jaxgeom.training.mlm_loop import MLMRun, evaluate_held_out, run_steps
from jaxgeom.training.sentence_model import RECORD
from jaxgeom.training.siamese import DTYPES
from jaxgeom.training.vocabulary import train_tokenizer

TOKENIZER = "tokenizer"  # the trained tokenizer's folder within the run's


class Start(NamedTuple):
    """What a run starts from instead of fresh weights."""

    params: Any  # a pure dict
    sha256: str  # of the weights
    record: dict[str, Any]  # the model's `training.json`

    @property
    def n_steps(self) -> int:
        """Steps that are behind it, of all its runs."""
        return sum(record["n_steps"] for record in runs_of(self.record))


class PackedText(NamedTuple):
    """Sentences as an encoder reads them."""

    rows: Rows
    n_tokens: int  # special ones included
    n_truncated: int  # sentences that lost their end


def pretrain(
    sentences: Sequence[str],
    *,
    seed: int,
    folder: str | Path,
    config: MLMConfig | None = None,
    stored: str = "float32",
    every: int = 200,
    init: str | Path | None = None,
    progress: bool = True,
) -> Path:
    """Pre-train a masked language model; go on, or find it done, where a run was before.

    Args:
        sentences: The corpus; a share of it is held out.
        seed: Drives the held-out share, the fresh weights, the order and the masks.
        folder: The run's folder.
        config: The recipe; that of a small BERT if not given.
        stored: What the finished model's weights are stored in, "float32" or "bfloat16".
        every: Steps between one look at held-out text, with its checkpoint, and the next.
        init: Folder of a model that another run left: its weights and its tokenizer are the start,
            its order of rows and masks goes on. Optimiser and learning rate begin anew.
        progress: Whether a bar is shown, where there is a terminal to show it on.

    Returns:
        The finished model's folder: encoder, head and tokenizer as transformers opens them, and
        `training.json`, which says how it came about and how well it does on held-out text.

    Raises:
        CheckpointError: If what lies in `folder` is incomplete, broken, or of another run.
        DivergenceError: If a loss is NaN or infinite; the last checkpoint stays.
        ModelError: If `init` holds no model with a head and a record.
        ValueError: If the corpus is too small for two parts, or `config.vocab_size` for single
            characters, if an option is out of range, or if the model of `init` has another shape
            or was trained on what is held out here.

    Numerics:
        Weights, gradients and optimiser are float32, also where `config.dtype` is bfloat16.
    """
    config = MLMConfig() if config is None else config
    _checks.integer("seed", seed, 0)
    _checks.integer("every", every, 1)
    _checks.option("stored", stored, STORED)
    folder = Path(folder)
    parts = split_corpus(sentences, share=config.held_out_share, seed=seed)
    tokenizer = load_tokenizer(_tokenizer(parts, folder, config) if init is None else init)
    start = None if init is None else _start(Path(init), tokenizer, config, seed)
    train, held_out = (packed_text(part, tokenizer, config, seed=seed) for part in parts)
    run = _run(folder, train.rows, held_out.rows, tokenizer, config, stored, seed, start)
    target = folder / MODEL
    if not target.exists():
        params = _fresh_params(run, tokenizer) if start is None else start.params
        final = run_steps(run, params, every=every, progress=progress)
        with whole_folder(target, scratch=folder / CHECKPOINTS) as temporary:
            save_masked_lm(nnx.merge(run.graphdef, final.params), temporary, dtype=stored)
            tokenizer.save(temporary)
            record = _record(run, final, temporary, train, held_out, start)
            write_json(temporary / RECORD, record)
    require_same_run(target, read_record(target, RECORD), run.identity)
    remove_checkpoints(folder)
    return target


def runs_of(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the records of the runs that a model went through, the first one first.

    Args:
        record: The contents of its `training.json`.
    """
    before = record.get("before")
    return [*(runs_of(before) if before else []), record]


def unigram_baseline(train: Rows, held_out: Rows, n_special: int) -> dict[str, float]:
    """Return how well held-out tokens are found by their frequency in the training text alone.

    Args:
        train: Packed rows.
        held_out: Packed rows.
        n_special: Ids below this do not count.

    Returns:
        {"unigram_loss": nats a token, every entry counted once more than it occurs,
        "unigram_accuracy": share of the training text's most frequent token}.
    """
    ids, others = (rows.input_ids[rows.input_ids >= n_special] for rows in (train, held_out))
    counts = np.bincount(ids, minlength=max(ids.max(), others.max()) + 1)[n_special:] + 1
    log_shares = np.log(counts) - np.log(counts.sum())
    return {
        "unigram_loss": float(-log_shares[others - n_special].mean()),
        "unigram_accuracy": float(np.mean(others - n_special == np.argmax(counts))),
    }


def _tokenizer(parts: Split, folder: Path, config: MLMConfig) -> Path:
    """Return the folder of the run's tokenizer, which is trained if there is none yet."""
    target = folder / TOKENIZER
    if not target.exists():
        with whole_folder(target, scratch=folder / CHECKPOINTS) as temporary:
            train_tokenizer(
                parts.train,
                temporary,
                arch=config.arch,
                vocab_size=config.vocab_size,
                max_length=config.row_length,
            )
    return target


def _start(folder: Path, tokenizer: Tokenizer, config: MLMConfig, seed: int) -> Start:
    """Return the weights of a model that another run left, if this one can go on from there."""
    model = load_masked_lm(folder)
    wanted = config.encoder_config(tokenizer.vocab_size).to_dict()
    _require_same("shape", folder, model.encoder.config.to_dict(), wanted)
    if not (folder / RECORD).exists():
        raise ModelError(f"{folder} must be a model that pre-training left: there is no {RECORD}")
    record = read_record(folder, RECORD)
    split = {"seed": seed, "held_out_share": config.held_out_share}
    _require_same("held-out text", folder, record["identity"], split)
    params = _params(model)
    return Start(params, _sha256(jax.tree.leaves(params)), record)


def _sha256(arrays: Iterable[Any]) -> str:
    """Return the digest of arrays, one after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _require_same(
    what: str, folder: Path, there: Mapping[str, Any], here: Mapping[str, Any]
) -> None:
    """Raise `ValueError` unless every value here is also there."""
    for name, value in here.items():
        if there.get(name) != value:
            raise ValueError(
                f"init must have the {what} of this run: {name} is {there.get(name)!r} in {folder} "
                f"and {value!r} here"
            )


def packed_text(
    sentences: Sequence[str], tokenizer: Tokenizer, config: MLMConfig, *, seed: int
) -> PackedText:
    """Turn sentences into packed rows, as many as whole batches have; those at the end are empty.

    Args:
        sentences: Text.
        tokenizer: The model's tokenizer.
        config: The recipe: lengths of rows and batches.
        seed: Sentences are shuffled first; neighbours in the corpus, where they are of one length,
            would share rows.

    Returns:
        The rows and what is to be said of them.
    """
    tokenized = tokenizer.encode(sentences, max_length=config.row_length)
    order = np.random.default_rng(seed).permutation(len(tokenized))
    ids = [tokenized[i].ids for i in order]
    packing = pack([len(x) for x in ids], config.row_length, row_multiple=config.batch_size)
    encoder_config = config.encoder_config(tokenizer.vocab_size)
    rows = packing.fill(
        ids, first_position=encoder_config.first_position, pad_id=encoder_config.pad_token_id
    )
    n_truncated = sum(tokens.truncated for tokens in tokenized)
    return PackedText(rows, int(packing.lengths.sum()), n_truncated)


def _run(
    folder: Path,
    train: Rows,
    held_out: Rows,
    tokenizer: Tokenizer,
    config: MLMConfig,
    stored: str,
    seed: int,
    start: Start | None,
) -> MLMRun:
    """Gather what stays the same from step to step."""
    encoder_config = config.encoder_config(tokenizer.vocab_size)
    identity = dataclasses.asdict(config) | {
        "seed": seed,
        "stored": stored,
        "encoder": encoder_config.to_dict(),
        "text": _sha256([*train, *held_out]),
    }
    if start is not None:
        identity["init"] = start.sha256
    return MLMRun(
        folder=folder,
        identity=identity,
        train=train,
        held_out=held_out,
        config=config,
        vocabulary=config.vocabulary(tokenizer.vocab_size),
        graphdef=_graphdef(encoder_config, config.dtype),
        seed=seed,
        n_before=0 if start is None else start.n_steps,
    )


def _graphdef(config: EncoderConfig, dtype: str) -> nnx.GraphDef:
    """Return a model without parameters, whose products are in the recipe's dtype."""

    def build() -> MaskedLM:
        return MaskedLM(config, rngs=nnx.Rngs(0), dtype=DTYPES[dtype])

    return nnx.graphdef(nnx.eval_shape(build))


def _fresh_params(run: MLMRun, tokenizer: Tokenizer) -> Any:
    """Return fresh parameters, a pure dict."""
    config = run.config.encoder_config(tokenizer.vocab_size)
    return _params(MaskedLM(config, rngs=nnx.Rngs(params=jax.random.key(run.seed))))


def _params(model: MaskedLM) -> Any:
    """Return a model's parameters as a pure dict."""
    return nnx.to_pure_dict(nnx.state(model, nnx.Param))


def _record(
    run: MLMRun,
    final: Checkpoint,
    model: Path,
    train: PackedText,
    held_out: PackedText,
    start: Start | None,
) -> dict[str, Any]:
    """Return what the finished model says of its origin; its scores are those of what is saved."""
    params = _params(load_masked_lm(model))
    return {
        "format": FORMAT,
        "identity": dict(run.identity),
        "train": _text_record(train),
        "held_out": _text_record(held_out),
        "n_steps": final.step,
        "n_epochs": round(final.step / run.steps_per_epoch, 3),
        "n_parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        **evaluate_held_out(run, params),
        **unigram_baseline(run.train, run.held_out, run.vocabulary.n_special),
        "curve": final.log,
        "versions": versions(RECORDED),
        **({} if start is None else {"before": start.record}),
    }


def _text_record(text: PackedText) -> dict[str, int]:
    """Return what is said of a part of the corpus."""
    return {
        "n_rows": len(text.rows.input_ids),
        "n_tokens": text.n_tokens,
        "n_truncated": text.n_truncated,
    }

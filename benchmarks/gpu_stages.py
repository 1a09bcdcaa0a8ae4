"""The stages of `benchmarks.gpu`: each returns what it measured, for the JSON."""

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import environment, synthetic
from benchmarks.backends import BACKENDS, Backend
from benchmarks.entries import Missing, clocked, n_rounds, prepare
from benchmarks.ops import OPS
from benchmarks.synthetic import Shape
from benchmarks.training import Training
from experiments import table1 as experiment
from jaxgeom.models import Encoder, Tokenizer, encode, load_encoder, load_tokenizer
from jaxgeom.testing import Op
from jaxgeom.training import SiameseConfig

DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}
_BFLOAT16_DIFFERENCE = 0.1  # mean difference of a hidden state of unit variance, over 12 layers


class Scale(NamedTuple):
    """How large everything is."""

    checked: str  # problem on which every kernel is checked
    timed: str  # problem on which the suite is timed
    timed_ops: tuple[str, ...]
    shape: Shape
    n_train: int
    n_dev: int
    n_steps: int  # of fine-tuning that are timed
    n_clusters: int
    n_directions: int
    patience: float  # multiplies the seconds that a stage needs


LARGE_SCALE = Scale(
    "M", "paper",
    ("moments", "isotropy_uncentred", "pca", "log_partition", "lloyd", "assign",
     "cluster_zero_mean", "cluster_based", "segment_mean"),
    synthetic.BERT_BASE, 5749, 1500, 30, 27, 12, 1.0,
)  # fmt: skip
SMALL_SCALE = Scale(
    "gaussian", "gaussian", ("isotropy_uncentred", "pca"), synthetic.TINY, 64, 32, 2, 3, 2, 0.0
)


def kernels(scale: Scale, _: Path) -> list[dict[str, Any]]:
    """Check every operation of ours against the reference."""
    (ours,) = (backend for backend in BACKENDS if backend.name == "jaxgeom")
    return [_checked(op, ours, scale.checked) for op in OPS]


def suite(scale: Scale, _: Path) -> list[dict[str, Any]]:
    """Check and time ours, torch and cupy, one operation after the other."""
    chosen = [op for op in OPS if op.name in scale.timed_ops]
    backends = [b for b in BACKENDS if b.name in ("jaxgeom", "torch", "cupy")]
    return [_timed(op, backend, scale.timed) for op in chosen for backend in backends]


def _checked(op: Op, backend: Backend, size: str) -> dict[str, Any]:
    """Return an operation's errors, or in what it failed."""
    try:
        entry = prepare(op, backend, size)
    except AssertionError as error:
        return {"op": op.name, "backend": backend.name, "failed": str(error)}
    return {"op": op.name, "backend": backend.name, "skipped": entry.reason} if isinstance(
        entry, Missing
    ) else entry.info  # fmt: skip


def _timed(op: Op, backend: Backend, size: str) -> dict[str, Any]:
    """Return an operation's errors and its time, as shares of what the device can do as well."""
    if reason := backend.missing():
        return {"op": op.name, "backend": backend.name, "skipped": reason}
    try:
        entry = prepare(op, backend, size)
    except AssertionError as error:
        return {"op": op.name, "backend": backend.name, "failed": str(error)}
    if isinstance(entry, Missing):
        return {"op": op.name, "backend": backend.name, "skipped": entry.reason}
    seconds = _median(entry.call, n_rounds(entry.seconds))
    rates = environment.rates()
    return entry.info | {
        "median_s": seconds,
        "of_matmul": entry.info["flops"] / seconds / 1e9 / rates["matmul_gflops"],
        "of_copy": entry.info["bytes"] / seconds / 1e9 / rates["copy_gbs"],
    }


def encoding(scale: Scale, scratch: Path) -> dict[str, Any]:
    """Encode sentences of synthetic pairs in float32 and in bfloat16."""
    folder = _model(scale, scratch)
    tokenizer = load_tokenizer(folder)
    pairs = synthetic.pairs(scale.n_dev, scale.shape.vocab_size, 1)
    sentences = [*pairs.sentences1, *pairs.sentences2]
    results: dict[str, Any] = {}
    hidden = {}
    for name, dtype in DTYPES.items():
        encoder = load_encoder(folder, dtype=dtype)
        rows = 8 if jax.default_backend() == "cpu" else 64

        def call(encoder: Encoder = encoder, rows: int = rows) -> Any:
            return encode(encoder, tokenizer, sentences, rows_per_batch=rows, progress=False)

        first, embedded = clocked(call)
        hidden[name] = embedded.hidden
        seconds = _median(call, 3)
        tokens = len(embedded.token_ids)
        flops = 2 * _n_weights(scale.shape) * tokens
        results[name] = {
            "first_call_s": first,
            "median_s": seconds,
            "tokens": tokens,
            "tokens_per_s": tokens / seconds,
            "sentences_per_s": len(sentences) / seconds,
            "of_matmul": flops / seconds / 1e9 / _rate(name),
        }
    difference = float(np.abs(hidden["bfloat16"] - hidden["float32"]).mean())
    assert difference <= _BFLOAT16_DIFFERENCE, f"bfloat16 differs by {difference}"
    results["bfloat16_difference"] = difference
    results["cpu_difference"] = _difference_from_cpu(folder, tokenizer, sentences[:8])
    return results


def _difference_from_cpu(folder: Path, tokenizer: Tokenizer, sentences: list[str]) -> float:
    """Return the largest difference of float32 hidden states from those that the CPU computes."""
    here = encode(load_encoder(folder), tokenizer, sentences, progress=False).hidden
    with jax.default_device(jax.devices("cpu")[0]):
        there = encode(load_encoder(folder), tokenizer, sentences, progress=False).hidden
    difference = float(np.abs(here - there).max())
    assert difference <= 1e-4, f"the CPU's hidden states differ by {difference}"
    return difference


def finetuning(scale: Scale, scratch: Path) -> dict[str, Any]:
    """Take steps of the recipe in float32 and in bfloat16."""
    folder = _model(scale, scratch)
    return {name: _steps(scale, folder, name) for name in DTYPES}


def _steps(scale: Scale, folder: Path, dtype: str) -> dict[str, Any]:
    """Return the pace of the steps of one dtype, and the losses of the first and the last."""
    recipe = SiameseConfig(dtype=dtype, batch_size=32)
    encoder, tokenizer = load_encoder(folder, dtype=DTYPES[dtype]), load_tokenizer(folder)
    training = Training(encoder, recipe, scale.n_steps)
    pairs = synthetic.pairs(scale.n_steps * recipe.batch_size, scale.shape.vocab_size, 2)
    seconds, losses, shapes = [], [], set()
    for batch in training.batches(tokenizer, pairs):
        spent, loss = clocked(partial(training.take, batch))
        losses.append(loss)
        if batch.rows.input_ids.shape in shapes:  # else it was compiled
            seconds.append(spent)
        shapes.add(batch.rows.input_ids.shape)
    assert np.isfinite(losses).all(), losses
    pace = statistics.median(seconds) if seconds else None
    return {
        "step_s": pace,
        "pairs_per_s": recipe.batch_size / pace if pace else None,
        "compilations": len(shapes),
        "first_loss": losses[0],
        "last_loss": losses[-1],
    }


def table1(scale: Scale, scratch: Path) -> dict[str, Any]:
    """Run Table 1 on both states, from sentences on, and return its time by stage."""
    data = synthetic.write_sts(scratch / "sts", scale.n_train, scale.n_dev, scale.shape.vocab_size)
    config = experiment.Config(
        models=(f"synthetic={_model(scale, scratch)}",),
        data=str(data),
        states=("pretrained", "finetuned"),
        epochs=1,
        n_clusters=scale.n_clusters,
        n_directions=scale.n_directions,
        output=scratch / "table1",
    )
    result = experiment.run(config)
    shown = ("state", "setting", "n_tokens", "spearman", "isotropy")
    rows = [{name: row[name] for name in shown} for row in result.rows]
    assert all(np.isfinite(row["isotropy"]) for row in rows), rows
    return {"seconds": result.record["seconds"], "rows": rows}


def _model(scale: Scale, scratch: Path) -> Path:
    """Return the folder of the random model, written once."""
    folder = scratch / "model"
    return folder if folder.exists() else synthetic.write_model(folder, scale.shape)


def _n_weights(shape: Shape) -> int:
    """Return how many weights a token is multiplied with."""
    return shape.layers * (
        4 * shape.hidden_size**2 + 2 * shape.hidden_size * shape.intermediate_size
    )


def _rate(dtype: str) -> float:
    """Return the device's matrix-product rate in a dtype, in GFLOP/s."""
    if dtype == "float32":
        return environment.rates()["matmul_gflops"]
    return environment.half_rates()["bfloat16_gflops"]


def _median(call: Callable[[], Any], rounds: int) -> float:
    """Return the median time of a call."""
    return statistics.median(clocked(call)[0] for _ in range(rounds))

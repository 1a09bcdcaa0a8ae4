"""The steps of a pre-training run, with a look at held-out text and a checkpoint now and then.

Order and masks depend on the seed and on the number of the epoch or step, on nothing that came
before. So a run that is killed and resumed ends with the same log and, on the same machine, with
the same weights bit for bit.
"""

import math
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from tqdm import tqdm

from jaxgeom._files import write_text
from jaxgeom.models import Rows
from jaxgeom.training.checkpoints import (
    Checkpoint,
    load_checkpoint,
    save_checkpoint,
    to_jsonl,
)
from jaxgeom.training.loop import LOG, require_finite
from jaxgeom.training.masking import Vocabulary
from jaxgeom.training.mlm import MLMConfig, evaluation_step, train_step


class MLMRun(NamedTuple):
    """What stays the same from step to step."""

    folder: Path
    identity: Mapping[str, Any]  # everything that shapes the weights, as JSON
    train: Rows
    held_out: Rows  # their number is a multiple of the batch size
    config: MLMConfig
    vocabulary: Vocabulary
    graphdef: nnx.GraphDef
    seed: int
    n_before: int = 0  # steps behind the starting weights: rows and masks go on there

    @property
    def steps_per_epoch(self) -> int:
        """Batches that the rows give; what is left over has its turn in another epoch."""
        return len(self.train.input_ids) // self.config.batch_size


def run_steps(run: MLMRun, params: Any, *, every: int, progress: bool = True) -> Checkpoint:
    """Train all steps that are still missing.

    Args:
        run: The run.
        params: The parameters to start from, a pure dict; the first step destroys them.
        every: Steps between one look at held-out text, with its checkpoint, and the next.
        progress: Whether a bar is shown, where there is a terminal to show it on.

    Returns:
        The state after the last step.

    Raises:
        CheckpointError: If the newest checkpoint is broken, or of another run.
        DivergenceError: If a loss, a gradient, or the loss on held-out text is NaN or infinite.
    """
    opt_state = run.config.optimizer().init(params)
    resumed = load_checkpoint(run.folder, (params, opt_state), run.identity)
    state = resumed or Checkpoint(params, opt_state, 0, 0, [])
    write_text(run.folder / LOG, to_jsonl(state.log))
    n_steps = run.config.n_steps
    with tqdm(
        desc="pre-training",
        unit="step",
        initial=state.step,
        total=n_steps,
        leave=False,
        disable=None if progress else True,
    ) as bar:
        while state.step < n_steps:
            until = min(n_steps, (state.step // every + 1) * every)
            state = _advance(run, state, until, bar)
            save_checkpoint(run.folder, state, run.identity, by="step")
            write_text(run.folder / LOG, to_jsonl(state.log))
    return state


def evaluate_held_out(run: MLMRun, params: Any) -> dict[str, float]:
    """Return loss and accuracy on the held-out rows, under masks that are always the same.

    Args:
        run: The run.
        params: The model's parameters.

    Returns:
        {"held_out_loss": nats a hidden token, "held_out_accuracy": share of them found}.
    """
    key = masks_of_held_out_text(run.seed)
    options = {"graphdef": run.graphdef, "vocabulary": run.vocabulary}
    size = run.config.batch_size
    found = [
        jax.device_get(evaluation_step(params, rows, key, index, **options))
        for index, rows in enumerate(held_out_batches(run.held_out, size))
    ]
    loss, n_correct, n = np.sum(np.asarray(found, np.float64), axis=0)
    return {"held_out_loss": float(loss / n), "held_out_accuracy": float(n_correct / n)}


def held_out_batches(rows: Rows, batch_size: int) -> list[Rows]:
    """Return rows in batches, as they lie."""
    starts = range(0, len(rows.input_ids), batch_size)
    return [Rows(*(part[start : start + batch_size] for part in rows)) for start in starts]


def masks_of_held_out_text(seed: int) -> jax.Array:
    """Return the key of the masks of held-out text; the number of a batch is folded in."""
    return _keys(seed)[2]


@lru_cache(maxsize=2)
def epoch_rows(seed: int, epoch: int, n_rows: int) -> np.ndarray:
    """Return the order in which the rows of an epoch, counted from 0, are read."""
    key = jax.random.fold_in(_keys(seed)[0], epoch)
    return np.asarray(jax.random.permutation(key, n_rows))


def _keys(seed: int) -> jax.Array:
    """Return the keys of the rows' order, of the masks, and of the masks of held-out text."""
    return jax.random.split(jax.random.key(seed), 3)


def _advance(run: MLMRun, state: Checkpoint, until: int, bar: tqdm) -> Checkpoint:
    """Return the state after step `until`, a record of it at the end of the log."""
    start = time.perf_counter()
    params, opt_state, losses = _steps(run, state, until, bar)
    seconds = time.perf_counter() - start
    held_out = evaluate_held_out(run, params)
    _require_finite(run, "held-out loss", held_out["held_out_loss"], until)
    bar.set_postfix_str(
        f"held out: loss {held_out['held_out_loss']:.3f}, "
        f"accuracy {held_out['held_out_accuracy']:.3f}"
    )
    record = {
        "step": until,
        "epoch": round((run.n_before + until) / run.steps_per_epoch, 3),
        "mean_loss": math.fsum(losses) / len(losses),
        **held_out,
        "steps_per_second": round(len(losses) / seconds, 3),
    }
    epoch = until // run.steps_per_epoch
    return Checkpoint(params, opt_state, epoch, until, [*state.log, record])


def _steps(run: MLMRun, state: Checkpoint, until: int, bar: tqdm) -> tuple[Any, Any, list[float]]:
    """Take the steps up to `until`; return parameters, optimiser state and every loss."""
    params, opt_state = state.params, state.opt_state
    losses: list[float] = []
    mask_key = _keys(run.seed)[1]
    for step in range(state.step, until):
        params, opt_state, *numbers = train_step(
            params,
            opt_state,
            _batch(run, run.n_before + step),
            mask_key,
            run.n_before + step,
            graphdef=run.graphdef,
            vocabulary=run.vocabulary,
            config=run.config,
        )
        loss, grad_norm = map(float, numbers)
        for name, value in (("loss", loss), ("gradient norm", grad_norm)):
            _require_finite(run, name, value, step + 1)
        losses.append(loss)
        bar.update()
    return params, opt_state, losses


def _batch(run: MLMRun, step: int) -> Rows:
    """Return the rows of a step, counted from 0."""
    epoch, within = divmod(step, run.steps_per_epoch)
    size = run.config.batch_size
    order = epoch_rows(run.seed, epoch, len(run.train.input_ids))
    chosen = order[within * size : (within + 1) * size]
    return Rows(*(part[chosen] for part in run.train))


def _require_finite(run: MLMRun, name: str, value: float, step: int) -> None:
    """Raise unless a value at a step counted from 1 is finite."""
    where = f"step {step} of {run.config.n_steps}"
    require_finite(name, value, where, run.config.learning_rate, "the last checkpoint", run.folder)

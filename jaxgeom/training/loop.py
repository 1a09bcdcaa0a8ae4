"""The epochs of a run: order, steps, scores on dev, and a checkpoint after each.

Order and dropout depend on the seed and on the number of the epoch or step, on nothing that came
before. So a run that is killed and resumed ends with the same log and, on the same machine, with
the same weights bit for bit.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from tqdm import tqdm

from jaxgeom import distributed
from jaxgeom._files import write_text
from jaxgeom._mesh import ROWS, place
from jaxgeom.models import EncoderConfig
from jaxgeom.training.batches import Batch, TokenizedPairs, batches, row_sizes
from jaxgeom.training.checkpoints import (
    CHECKPOINTS,
    Checkpoint,
    Record,
    load_checkpoint,
    save_checkpoint,
    to_jsonl,
)
from jaxgeom.training.siamese import SiameseConfig, train_step

LOG = "metrics.jsonl"  # in the run's folder: a line for each step, and one for each epoch


class DivergenceError(ValueError):
    """Losses that are no numbers any more; the message says from which step on."""


def require_finite(
    name: str, value: float, step: str, learning_rate: float, checkpoint: str, folder: Path
) -> None:
    """Raise `DivergenceError` unless a value is finite; say which `checkpoint` stays in a run."""
    if not math.isfinite(value):
        raise DivergenceError(
            f"{name} must be finite, got {value} at {step} (learning_rate {learning_rate:g}); "
            f"{checkpoint}, if there is one, stays in {folder / CHECKPOINTS}"
        )


class Run(NamedTuple):
    """What stays the same from step to step."""

    folder: Path
    identity: Mapping[str, Any]  # everything that shapes the weights, as JSON
    pairs: TokenizedPairs
    config: SiameseConfig
    encoder_config: EncoderConfig
    graphdef: nnx.GraphDef
    seed: int
    mesh: Mesh | None = None  # whose devices share every batch

    @property
    def n_pairs(self) -> int:
        """Pairs of an epoch."""
        return len(self.pairs.scores)

    @property
    def n_steps(self) -> int:
        """Steps of the whole run."""
        return self.config.n_steps(self.n_pairs)

    def row_sizes(self) -> tuple[int, ...]:
        """Return the numbers of rows that batches have: the same ones in a run that goes on."""
        return row_sizes(
            self.pairs,
            (epoch_order(self.seed, e, self.n_pairs) for e in range(self.config.epochs)),
            batch_size=self.config.batch_size,
            max_length=self.config.max_length,
            n_devices=1 if self.mesh is None else self.mesh.size,
        )

    def placed(self, tree: Any) -> Any:
        """Return arrays as every device needs them."""
        return tree if self.mesh is None else place(tree, self.mesh)

    def shared(self, batch: Batch) -> Batch:
        """Return a batch whose rows the devices share."""
        if self.mesh is None:
            return batch
        return self.placed(batch)._replace(rows=place(batch.rows, self.mesh, ROWS))


def run_epochs(
    run: Run, params: Any, on_dev: Callable[[Any], dict[str, float]], *, progress: bool = True
) -> Checkpoint:
    """Train all epochs that are still missing, each followed by a checkpoint.

    Args:
        run: The run.
        params: The parameters to start from, a pure dict; the first step destroys them.
        on_dev: Makes scores of parameters; called after every epoch.
        progress: Whether a bar is shown, where there is a terminal to show it on.

    Returns:
        The state after the last epoch.

    Raises:
        CheckpointError: If the newest checkpoint is broken, or of another run.
        DivergenceError: If a loss, a gradient or a score is NaN or infinite.
    """
    opt_state = run.config.optimizer(run.n_steps).init(params)
    resumed = load_checkpoint(run.folder, (params, opt_state), run.identity)
    state = resumed or Checkpoint(params, opt_state, 0, 0, [])
    state = state._replace(params=run.placed(state.params), opt_state=run.placed(state.opt_state))
    distributed.on_writer(lambda: write_text(run.folder / LOG, to_jsonl(state.log)))
    sizes = run.row_sizes()
    with tqdm(
        desc="fine-tuning",
        unit="pair",
        initial=state.epoch * run.n_pairs,
        total=run.config.epochs * run.n_pairs,
        leave=False,
        disable=None if progress else True,
    ) as bar:
        while state.epoch < run.config.epochs:
            state = _epoch(run, state, sizes, on_dev, bar)
            distributed.on_writer(partial(_save, run, state))
    return state


def _save(run: Run, state: Checkpoint) -> None:
    """Write an epoch's checkpoint and the log."""
    save_checkpoint(run.folder, state, run.identity)
    write_text(run.folder / LOG, to_jsonl(state.log))


def epoch_order(seed: int, epoch: int, n_pairs: int) -> np.ndarray:
    """Return the order [p] in which the pairs of an epoch, counted from 0, are read."""
    key = jax.random.fold_in(_keys(seed)[0], epoch)
    return np.asarray(jax.random.permutation(key, n_pairs))


def _keys(seed: int) -> tuple[jax.Array, jax.Array]:
    """Return the keys that epochs (order) and steps (dropout) fold their numbers into."""
    order, dropout = jax.random.split(jax.random.key(seed))
    return order, dropout


def _epoch(
    run: Run,
    state: Checkpoint,
    sizes: Sequence[int],
    on_dev: Callable[[Any], dict[str, float]],
    bar: tqdm,
) -> Checkpoint:
    """Return the state an epoch later."""
    epoch = state.epoch + 1
    start = time.perf_counter()
    params, opt_state, losses = _steps(run, state, sizes, bar)
    seconds = time.perf_counter() - start
    scores = on_dev(params)
    last = state.step + len(losses)
    for score in scores.values():
        _require_finite(run, "scores on dev", score, last)
    bar.set_description(f"fine-tuning (dev {100 * scores['spearman_cosine']:.2f})")
    steps: list[Record] = [
        {"epoch": epoch, "step": step, "loss": loss}
        for step, loss in enumerate(losses, state.step + 1)
    ]
    summary = {
        "epoch": epoch,
        "step": last,
        "mean_loss": math.fsum(losses) / len(losses),
        "pairs_per_second": round(run.n_pairs / seconds, 2),
        **scores,
    }
    return Checkpoint(params, opt_state, epoch, last, [*state.log, *steps, summary])


def _steps(
    run: Run, state: Checkpoint, sizes: Sequence[int], bar: tqdm
) -> tuple[Any, Any, list[float]]:
    """Take the steps of one epoch; return parameters, optimiser state and every loss."""
    params, opt_state = state.params, state.opt_state
    losses: list[float] = []
    dropout_key = _keys(run.seed)[1]
    for batch in batches(
        run.pairs,
        epoch_order(run.seed, state.epoch, run.n_pairs),
        run.encoder_config,
        batch_size=run.config.batch_size,
        max_length=run.config.max_length,
        sizes=sizes,
    ):
        step = state.step + len(losses)
        params, opt_state, *numbers = train_step(
            params,
            opt_state,
            run.shared(batch),
            dropout_key,
            step,
            graphdef=run.graphdef,
            config=run.config,
            n_steps=run.n_steps,
            mesh=run.mesh,
        )
        loss, grad_norm = map(float, numbers)
        for name, value in (("loss", loss), ("gradient norm", grad_norm)):
            _require_finite(run, name, value, step + 1)
        losses.append(loss)
        bar.update(int(batch.weights.sum()))
        bar.set_postfix_str(f"loss {loss:.4f}", refresh=False)
    return params, opt_state, losses


def _require_finite(run: Run, name: str, value: float, step: int) -> None:
    """Raise unless a value at a step counted from 1 is finite."""
    where = f"step {step} of {run.n_steps}"
    kept = "the checkpoint of the last whole epoch"
    require_finite(name, value, where, run.config.learning_rate, kept, run.folder)

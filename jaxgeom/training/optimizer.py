"""A step of training, and AdamW as encoders are trained with it: warm-up, decay, clipping."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax
from jaxtyping import Array, Float

# Parameters that weight decay shrinks: those of products and look-ups. Biases, and the scales of
# layer normalisation, are left alone.
DECAYED = ("kernel", "embedding")


class Step(NamedTuple):
    """What a training step gives back."""

    params: Any
    opt_state: Any
    loss: Float[Array, ""]  # of the batch, before the step
    grad_norm: Float[Array, ""]  # before clipping


def descend(
    optimizer: optax.GradientTransformation,
    loss_of: Callable[[Any], Float[Array, ""]],
    params: Any,
    opt_state: Any,
) -> Step:
    """Take one step of an optimiser.

    Args:
        optimizer: The run's.
        loss_of: The loss of a batch, a function of the parameters alone.
        params: The parameters, a pytree.
        opt_state: The optimiser's state.

    Returns:
        The new parameters and state; loss and gradient norm at the old ones.
    """
    loss, grads = jax.value_and_grad(loss_of)(params)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return Step(optax.apply_updates(params, updates), opt_state, loss, optax.tree.norm(grads))


def adamw(
    *,
    learning_rate: float,
    n_steps: int,
    warmup: float,
    weight_decay: float,
    max_grad_norm: float,
) -> optax.GradientTransformation:
    """Build the optimiser of a run of `n_steps` steps.

    Args:
        learning_rate: The highest one, at the end of the warm-up.
        n_steps: Steps of the whole run.
        warmup: Share of the steps over which the learning rate rises, 0 to 1.
        weight_decay: Decoupled decay of the parameters called `DECAYED`.
        max_grad_norm: Gradients longer than this, over all parameters, are scaled down to it.

    Returns:
        The optimiser.

    Source:
        Loshchilov and Hutter (2019), with the moments and epsilon of PyTorch's AdamW.
    """
    schedule = warmup_linear_decay(learning_rate, n_steps=n_steps, warmup=warmup)
    return optax.chain(
        optax.clip_by_global_norm(max_grad_norm),
        optax.adamw(
            schedule, b1=0.9, b2=0.999, eps=1e-8, weight_decay=weight_decay, mask=is_decayed
        ),
    )


def warmup_linear_decay(learning_rate: float, *, n_steps: int, warmup: float) -> optax.Schedule:
    """Return the learning rate by step: from 0 up to `learning_rate`, then down to 0.

    Args:
        learning_rate: The highest one.
        n_steps: Steps of the whole run.
        warmup: Share of the steps, rounded up, that the rise takes.

    Returns:
        A function of the step, which counts from 0. As in Hugging Face's schedule of this kind,
        the first step has learning rate 0, and 0 is reached again after the last one.

    Example:
        >>> rate = warmup_linear_decay(1.0, n_steps=10, warmup=0.2)
        >>> [round(float(rate(step)), 3) for step in (0, 1, 2, 6, 9)]
        [0.0, 0.5, 1.0, 0.5, 0.125]
    """
    n_warmup = math.ceil(n_steps * warmup)
    rise = optax.linear_schedule(0.0, learning_rate, max(n_warmup, 1))
    fall = optax.linear_schedule(learning_rate, 0.0, max(n_steps - n_warmup, 1))
    return optax.join_schedules([rise, fall], [n_warmup])


def is_decayed(params: Any) -> Any:
    """Return, in the shape of `params`, which of them weight decay shrinks."""
    return jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key in DECAYED, params)

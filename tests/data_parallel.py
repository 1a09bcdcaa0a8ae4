"""Fine-tuning and encoding on one device and on four: what a test compares."""

from functools import partial

import jax
import numpy as np
import optax
from flax import nnx
from tiny_training import RECIPE, tiny_encoder, tiny_pairs, tiny_tokenizer

from jaxgeom._mesh import ROWS, place, row_mesh
from jaxgeom.models import encode
from jaxgeom.training.batches import batches, row_sizes, tokenize_pairs
from jaxgeom.training.loop import epoch_order
from jaxgeom.training.siamese import siamese_loss, train_step

N_PAIRS, N_STEPS = 160, 20


def training():
    """Return losses, gradient, parameters and embeddings on 1 and on 4 devices, as lists."""
    return {str(devices): _on(devices) for devices in (1, 4)}


def _on(devices):
    mesh = row_mesh(jax.devices()[:devices])
    encoder, tokenizer = tiny_encoder(), tiny_tokenizer()
    pairs = tokenize_pairs(tokenizer, tiny_pairs(N_PAIRS, 0), encoder.config, max_length=64)
    order = epoch_order(0, 0, N_PAIRS)
    options = {"batch_size": RECIPE.batch_size, "max_length": RECIPE.max_length}
    sizes = row_sizes(pairs, [order], n_devices=4, **options)
    given = list(batches(pairs, order, encoder.config, sizes=sizes, **options))
    given = [place(b, mesh)._replace(rows=place(b.rows, mesh, ROWS)) for b in given]
    graphdef, state = nnx.split(encoder, nnx.Param)
    start = place(nnx.to_pure_dict(state), mesh)
    key = jax.random.key(1)
    sentences = tiny_pairs(9, 1).sentences1
    embedded = encode(encoder, tokenizer, sentences, max_length=32, rows_per_batch=2, mesh=mesh)
    return {
        "losses": _losses(start, given, key, graphdef, mesh),
        **_descent(start, given, key, graphdef),
        "embedded": embedded.hidden.ravel().tolist(),
    }


def _losses(start, given, key, graphdef, mesh):
    """Return the loss of every step of the recipe itself."""
    assert len(given) == N_STEPS
    params = jax.tree.map(lambda a: a + 0, start)  # a step destroys what it is given
    opt_state = RECIPE.optimizer(N_STEPS).init(params)
    losses = []
    for step, batch in enumerate(given):
        options = {"graphdef": graphdef, "config": RECIPE, "n_steps": N_STEPS, "mesh": mesh}
        params, opt_state, loss, _ = train_step(params, opt_state, batch, key, step, **options)
        losses.append(float(loss))
    return losses


def _descent(params, given, key, graphdef):
    """Return the first gradient, and the parameters after twenty steps down plain gradients.

    Adam divides by the gradient's size: where that is rounding, a step would be all rounding.
    """

    @jax.jit
    def gradient(params, batch, step):
        dropout_key = jax.random.fold_in(key, step)
        loss = partial(siamese_loss, batch=batch, dropout_key=dropout_key)
        return jax.grad(lambda p: loss(nnx.merge(graphdef, p)))(params)

    first = None
    for step, batch in enumerate(given):
        slope = gradient(params, batch, step)
        first = slope if first is None else first
        params = optax.apply_updates(params, jax.tree.map(lambda g: -0.1 * g, slope))
    return {"gradient": _flat(first), "params": _flat(params)}


def _flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]).tolist()

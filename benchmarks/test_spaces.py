"""End to end: Tables 1 and 2 from embeddings, the removal curve, thirteen layers at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgeom as jg
from benchmarks import spaces
from benchmarks.entries import Entry, first_and_next
from benchmarks.ops import BY_SIZE
from benchmarks.peers import tables as peer
from jaxgeom import reference, study

N_LAYERS = 13  # of BERT-base, the embeddings' output among them


@pytest.fixture(scope="module")
def size(request):
    """The largest size asked for; the study's by default."""
    asked = request.config.getoption("size") or ["paper"]
    return max(asked, key=list(BY_SIZE).index)


@pytest.fixture(scope="module")
def given(size):
    return spaces.space(size)


@pytest.fixture(scope="module")
def expected(given):
    """The tables in float64 for the clustering that the data was drawn with."""
    return spaces.tables(reference, given, given.labels)


def _entry(call, backend, group_size, **info):
    first, seconds, _ = first_and_next(call)
    about = {"backend": backend, "size": group_size, "first_call_s": first}
    return Entry(call, seconds, about | info)


def test_tables_ours(given, expected, size, timed):
    ours = spaces.on_device(given)
    got = spaces.tables(jg, ours, given.labels)
    error = spaces.compare_tables(got, expected, len(given.scores))

    def call():
        return spaces.tables(jg, ours, spaces.clustering(jg, ours))

    timed(_entry(call, "jaxgeom", size, error=error), group=f"tables-{size}")


def test_tables_peer(given, expected, size, timed):
    about = (given.tokens, given.sentence_ids, given.scores)
    options = (given.n_directions, given.n_least)
    got = peer.tables(*about, given.labels, *options)
    error = spaces.compare_tables(got, expected, len(given.scores))

    def call():
        labels = peer.labels_of(given.tokens, given.n_clusters, spaces.SEED, study.N_RESTARTS)
        return peer.tables(*about, labels, *options)

    timed(_entry(call, "numpy + scikit-learn", size, error=error), group=f"tables-{size}")


def test_curve(given, size, timed):
    ours = spaces.on_device(given)
    got, wanted = spaces.curve(jg, ours), spaces.curve(reference, given)
    np.testing.assert_allclose(np.log(got.isotropy), np.log(wanted.isotropy), rtol=1e-4, atol=2e-3)
    kept = slice(0, given.n_directions + 1, given.n_directions)  # where a gap fixes the directions
    atol = spaces.spearman_tolerance(len(given.scores))
    np.testing.assert_allclose(got.spearman[kept], wanted.spearman[kept], rtol=0, atol=atol)
    timed(_entry(lambda: spaces.curve(jg, ours), "jaxgeom", size), group=f"curve-{size}")


def test_curve_against_one_isotropy(given, size, timed):
    x = jnp.asarray(given.tokens)
    call = lambda: jax.block_until_ready(jg.isotropy(x))  # noqa: E731
    timed(_entry(call, "isotropy", size), group=f"curve-{size}")


@pytest.fixture(scope="module")
def layers(given):
    x = jnp.asarray(given.tokens)
    return jnp.stack([x * 1.02**i for i in range(N_LAYERS)])


def test_layers_one_call(layers, size, timed):
    traces = []

    @jax.jit
    def together(layers):
        traces.append(layers.shape)
        return jax.lax.map(lambda x: jg.isotropy(x).log_partition, layers)

    apart = jnp.stack([jg.isotropy(x).log_partition for x in layers])
    error = jnp.abs(together(layers).max(1) - apart.max(1)).max() / jnp.abs(apart).max()
    assert error <= 1e-5  # of one program and another
    call = lambda: together(layers).block_until_ready()  # noqa: E731
    timed(_entry(call, "jaxgeom", size), group="layers")
    assert len(traces) == 1


def test_layers_thirteen_calls(layers, size, timed):
    def call():
        return [jg.isotropy(x).log_partition.block_until_ready() for x in layers]

    timed(_entry(call, "13 calls", size), group="layers")

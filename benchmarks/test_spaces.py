"""End to end: Tables 1 and 2 from embeddings, the removal curve, thirteen layers at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgeom as jg
from benchmarks import spaces
from benchmarks.entries import Entry, clocked, first_and_next
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
def smaller(size):
    """A problem whose tables the float64 reference makes in seconds, not in minutes."""
    return spaces.space(min(size, "M", key=list(BY_SIZE).index))


@pytest.fixture(scope="module")
def expected(smaller):
    """The smaller problem's tables in float64, for the clustering that it was drawn with."""
    return spaces.tables(reference, smaller, smaller.labels)


@pytest.fixture(scope="module")
def ours(given):
    return spaces.on_device(given)


@pytest.fixture(scope="module")
def our_tables(ours):
    """Ours at full size, for the clustering that it was drawn with."""
    return spaces.tables(jg, ours, ours.labels)


def _entry(call, backend, group_size, **info):
    first, seconds, _ = first_and_next(call)
    about = {"backend": backend, "size": group_size, "first_call_s": first}
    return Entry(call, seconds, about | info)


def _peer_tables(given, labels):
    about = (given.tokens, given.sentence_ids, given.scores, labels)
    return peer.tables(*about, given.n_directions, given.n_least)


def test_tables_ours(smaller, expected, ours, size, timed):
    got = spaces.tables(jg, spaces.on_device(smaller), smaller.labels)
    error = spaces.compare_tables(got, expected, len(smaller.scores))

    def call():
        return spaces.tables(jg, ours, spaces.clustering(jg, ours))

    timed(_entry(call, "jaxgeom", size, error=error), group=f"tables-{size}")


def test_tables_peer(smaller, expected, given, our_tables, size, timed):
    """At full size either is the other's check."""
    small = spaces.compare_tables(
        _peer_tables(smaller, smaller.labels), expected, len(smaller.scores)
    )
    seconds, got = clocked(lambda: _peer_tables(given, given.labels))
    large = spaces.compare_tables(got, our_tables, len(given.scores))
    error = {name: max(share, large[name]) for name, share in small.items()}

    def call():
        labels = peer.labels_of(given.tokens, given.n_clusters, spaces.SEED, study.N_RESTARTS)
        return _peer_tables(given, labels)

    info = {"backend": "numpy + scikit-learn", "size": size, "error": error}
    timed(Entry(call, seconds, info), group=f"tables-{size}")  # nothing of it is compiled


def test_curve(given, ours, size, timed):
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
    call = lambda: together(layers).block_until_ready()  # noqa: E731
    first, result = clocked(call)
    error = jnp.abs(result.max(1) - apart.max(1)).max() / jnp.abs(apart).max()
    assert error <= 1e-5  # of one program and another
    info = {"backend": "jaxgeom", "size": size, "first_call_s": first}
    timed(Entry(call, first, info), group="layers")
    assert len(traces) == 1


def test_layers_thirteen_calls(layers, size, timed):
    def call():
        return [jg.isotropy(x).log_partition.block_until_ready() for x in layers]

    seconds = clocked(call)[0]  # compiled before, by the check of the one call
    timed(Entry(call, seconds, {"backend": "13 calls", "size": size}), group="layers")

"""Packing: every sentence once, in one row, to be found again; and pooling out of packed rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxgeom.models import pack, pool
from jaxgeom.models.packing import pack_different

SENTENCE_LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=60)


def sentences(lengths) -> list[np.ndarray]:
    """Tokens that are all different, so that each one's way can be followed."""
    return np.split(np.arange(1, sum(lengths) + 1, dtype=np.int32), np.cumsum(lengths)[:-1])


def test_by_hand():
    # In order of length: 6 opens row 0, 5 opens row 1, 3 goes behind 5, 2 goes behind 6.
    packing = pack([3, 6, 2, 5], 8)
    assert packing.rows.tolist() == [1, 0, 0, 1]
    assert packing.starts.tolist() == [5, 0, 6, 0]
    assert packing.segments.tolist() == [2, 1, 2, 1]
    rows = packing.fill(sentences([3, 6, 2, 5]), first_position=2, pad_id=99)
    assert rows.input_ids.tolist() == [
        [4, 5, 6, 7, 8, 9, 10, 11],
        [12, 13, 14, 15, 16, 1, 2, 3],
    ]
    assert rows.segment_ids.tolist() == [[1, 1, 1, 1, 1, 1, 2, 2], [1, 1, 1, 1, 1, 2, 2, 2]]
    assert rows.position_ids.tolist() == [[2, 3, 4, 5, 6, 7, 2, 3], [2, 3, 4, 5, 6, 2, 3, 4]]


def test_padding():
    packing = pack([2], 4, row_multiple=3)
    rows = packing.fill(sentences([2]), first_position=2, pad_id=9)
    assert packing.n_rows == 3
    assert rows.input_ids.tolist() == [[1, 2, 9, 9], [9] * 4, [9] * 4]
    assert rows.segment_ids.tolist() == [[1, 1, 0, 0], [0] * 4, [0] * 4]
    assert rows.position_ids.tolist() == [[2, 3, 2, 2], [2] * 4, [2] * 4]
    assert {array.dtype for array in rows} == {np.dtype(np.int32)}


@given(SENTENCE_LENGTHS, st.integers(12, 30), st.integers(1, 5))
def test_every_token_once_and_in_order(lengths, row_length, row_multiple):
    packing = pack(lengths, row_length, row_multiple=row_multiple)
    rows = packing.fill(sentences(lengths))
    n = sum(lengths)
    assert packing.n_rows % row_multiple == 0
    assert rows.input_ids.shape == (packing.n_rows, row_length)
    np.testing.assert_array_equal(rows.input_ids.ravel()[packing.places], np.arange(1, n + 1))
    assert (rows.segment_ids > 0).sum() == n
    for i, ids in enumerate(sentences(lengths)):
        mine = rows.segment_ids[packing.rows[i]] == packing.segments[i]
        assert np.flatnonzero(mine).tolist() == list(
            range(packing.starts[i], packing.starts[i] + len(ids))
        )
        np.testing.assert_array_equal(rows.input_ids[packing.rows[i]][mine], ids)
        np.testing.assert_array_equal(rows.position_ids[packing.rows[i]][mine], np.arange(len(ids)))


@given(SENTENCE_LENGTHS, st.integers(12, 30))
def test_it_is_first_fit_decreasing(lengths, row_length):
    free, expected = [], {}
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        row = next((r for r, room in enumerate(free) if room >= lengths[i]), len(free))
        if row == len(free):
            free.append(row_length)
        expected[i] = (row, row_length - free[row])
        free[row] -= lengths[i]
    packing = pack(lengths, row_length)
    assert packing.n_rows == len(free)
    for i, place in expected.items():
        assert (packing.rows[i], packing.starts[i]) == place


@given(
    st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=12), min_size=1, max_size=60),
    st.integers(12, 30),
    st.integers(1, 3),
    st.integers(1, 4),
)
def test_different_sentences_once_in_rows_as_short_as_pays(texts, max_length, batch, row_multiple):
    """Rows of 4 tokens, 8, 16 … up to `max_length`, a length of its own for two batches or more."""
    ids = [np.array(text, np.int32) for text in texts]
    size = batch * max_length
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxgeom.models.packing._SHORT", 4)
        patch.setattr("jaxgeom.models.packing._WORTH", 2)
        groups = [*pack_different(ids, max_length, size, row_multiple=row_multiple)]
    found, computed = {}, 0
    for rows, n_rows, tokens, places in groups:
        count, length = rows.input_ids.shape
        assert count % n_rows == 0
        assert n_rows % row_multiple == 0
        assert n_rows * length >= size
        assert (np.diff(places) >= 0).all()
        found |= {t: rows.input_ids.ravel()[p] for t, p in zip(tokens, places, strict=True)}
        computed += int((rows.segment_ids > 0).sum())
    everything = np.concatenate(ids)
    assert [found[t] for t in range(everything.size)] == everything.tolist()
    assert computed == sum(len(text) for text in {*map(tuple, texts)})
    row_lengths = [group.rows.input_ids.shape[1] for group in groups]
    assert row_lengths == sorted({*row_lengths})
    filled = [int((group.rows.segment_ids > 0).sum()) for group in groups]
    assert all(n >= 2 * size for n in filled[:-1])
    longest = max(map(len, texts))
    assert longest <= row_lengths[-1] <= max(4, min(2 * longest - 1, max_length))


def test_short_sentences_fill_their_rows():
    lengths = np.random.default_rng(0).integers(5, 40, 3000)
    packing = pack(lengths, 128, row_multiple=8)
    assert lengths.sum() / (packing.n_rows * 128) >= 0.95


@pytest.mark.parametrize(
    ("lengths", "row_length", "error", "message"),
    [
        ([], 8, ValueError, "lengths must not be empty"),
        (
            [3, 9],
            8,
            ValueError,
            r"lengths must be in 1\.\.row_length = 1\.\.8, got 9 for sentence 1",
        ),
        ([0], 8, ValueError, "got 0 for sentence 0"),
        (np.array([2.5]), 8, TypeError, "lengths must be an array of integer dtype, got float64"),
        ([1], 0, ValueError, "row_length must be at least 1, got 0"),
    ],
)
def test_bad_lengths(lengths, row_length, error, message):
    pack_unchecked = pack.__wrapped__  # without the annotations, which stop some in tests only
    with pytest.raises(error, match=message):
        pack_unchecked(lengths, row_length)


def test_other_sentences_than_packed():
    with pytest.raises(ValueError, match="ids must have the lengths that were packed"):
        pack([2, 3], 8).fill(sentences([3, 2]))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_pooling_is_that_of_each_sentence(pooling):
    lengths = [3, 6, 2, 5, 1]
    packing = pack(lengths, 8, row_multiple=4)
    segment_ids = jnp.asarray(packing.fill(sentences(lengths)).segment_ids)
    hidden = jax.random.normal(jax.random.key(0), (packing.n_rows, 8, 4))
    call = jax.jit(lambda h, s: pool(h, s, 3, pooling=pooling))
    vectors = np.asarray(call(hidden, segment_ids))
    assert vectors.shape == (packing.n_rows, 3, 4)
    tokens = np.asarray(hidden).reshape(-1, 4)[packing.places]
    for i, own in enumerate(np.split(tokens, np.cumsum(lengths)[:-1])):
        expected = own.mean(axis=0) if pooling == "mean" else own[0]
        vector = vectors[packing.rows[i], packing.segments[i] - 1]
        np.testing.assert_allclose(vector, expected, rtol=1e-6, atol=1e-6)
    used = np.zeros(vectors.shape[:2], bool)
    used[packing.rows, packing.segments - 1] = True
    assert (vectors[~used] == 0).all()


def test_pooling_has_a_gradient_everywhere_it_should():
    segment_ids = jnp.array([[1, 1, 2, 0]])
    hidden = jnp.ones((1, 4, 1))
    mean = jax.grad(lambda h: pool(h, segment_ids, 3).sum())(hidden)
    assert mean.ravel().tolist() == [0.5, 0.5, 1.0, 0.0]
    first = jax.grad(lambda h: pool(h, segment_ids, 3, pooling="cls").sum())(hidden)
    assert first.ravel().tolist() == [1.0, 0.0, 1.0, 0.0]


def test_unknown_pooling():
    with pytest.raises(ValueError, match="pooling must be one of 'mean', 'cls', got 'max'"):
        pool(jnp.ones((1, 2, 3)), jnp.ones((1, 2), jnp.int32), 1, pooling="max")

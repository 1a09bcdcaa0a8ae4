"""What a matrix on disk may look like, and what is said of one that cannot be read."""

import re
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from jaxgeom import reference, streaming
from jaxgeom.streaming import _columns
from jaxgeom.streaming._read_ahead import read_ahead
from jaxgeom.streaming._sample import Sample

X = np.random.default_rng(0).normal(size=(23, 4)).astype(np.float32)


def rows_of(source):
    """Read a source to its end, five rows at a time, as a pass does."""
    return np.concatenate([chunk[:n].copy() for chunk, n in read_ahead(source, 5)])


def as_lists(x, fixed=True):
    import pyarrow as pa

    values = pa.array(x.ravel())
    if fixed:
        return pa.FixedSizeListArray.from_arrays(values, x.shape[1])
    return pa.ListArray.from_arrays(np.arange(0, x.size + 1, x.shape[1], np.int32), values)


def write_npy(path, x):
    np.save(path, x)


def write_safetensors(path, x):
    save_file({"x": x}, path)


def write_parquet(path, x):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({"text": ["t"] * len(x), "vector": as_lists(x, fixed=False)})
    parquet.write_table(table, path, row_group_size=6)


def write_arrow(path, x):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"vector": as_lists(x)})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=6)


def write_feather(path, x):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"vector": as_lists(x)})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=6)


WRITERS = {
    ".npy": write_npy,
    ".safetensors": write_safetensors,
    ".parquet": write_parquet,
    ".arrow": write_arrow,
    ".feather": write_feather,
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_kind_of_file_holds_the_same_rows(suffix, tmp_path):
    WRITERS[suffix](tmp_path / f"a{suffix}", X[:9])
    WRITERS[suffix](tmp_path / f"b{suffix}", X[9:])
    source = streaming.open_source(tmp_path)
    assert (source.n_rows, source.n_features, source.dtype) == (23, 4, X.dtype)
    np.testing.assert_array_equal(rows_of(source), X)
    part = streaming.Source(source.name, source.parts, 7, 20)
    np.testing.assert_array_equal(rows_of(part), X[7:20])
    assert part.where(4).endswith(f"b{suffix}, row 2")


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_dtypes(dtype, tmp_path):
    np.save(tmp_path / "x.npy", X.astype(dtype))
    got = streaming.moments(tmp_path / "x.npy", chunk_rows=4)
    expected = reference.moments(X.astype(dtype))
    np.testing.assert_allclose(got.scatter, expected.scatter, rtol=0, atol=1e-5)


def test_bfloat16_is_read_and_its_changed_rows_are_float32(tmp_path):
    x = np.asarray(jnp.asarray(X, jnp.bfloat16))
    save_file({"x": x}, tmp_path / "x.safetensors")
    removal = streaming.fit_removal(tmp_path / "x.safetensors")
    streaming.apply_removal(tmp_path / "x.safetensors", removal, tmp_path / "y.npy")
    changed = np.load(tmp_path / "y.npy")
    assert changed.dtype == np.float32
    expected = x.astype(np.float32) - x.astype(np.float32).mean(0)
    np.testing.assert_allclose(changed, expected, rtol=0, atol=0.02)  # bfloat16 has 8 bits


def test_an_iterable_is_read_as_often_as_needed():
    blocks = [X[:5], X[5:6], X[6:]]
    np.testing.assert_array_equal(rows_of(streaming.open_source(blocks)), X)
    assert int(streaming.isotropy(blocks).count) == 23
    np.testing.assert_array_equal(rows_of(streaming.open_source(iter(blocks))), X)
    assert int(streaming.moments(iter(blocks)).count) == 23
    with pytest.raises(ValueError, match="must start anew for another pass"):
        streaming.isotropy(iter(blocks))
    with pytest.raises(ValueError, match=r"blocks\[1\] must be float32 \[b d\] with d = 4, got"):
        streaming.moments([X, X[:, :3]])


def test_the_sample_is_the_same_whatever_the_chunks():
    def sample(size, chunk):
        source = streaming.open_source([X])
        kept = Sample(source, size, jax.random.key(1))
        for first in range(0, len(X), chunk):
            kept.see(X[first : first + chunk], first)
        return kept.of_all_processes()

    np.testing.assert_array_equal(sample(23, 4), X)
    np.testing.assert_array_equal(sample(100, 4), X)
    wanted = sample(6, 23)
    assert len(np.unique(wanted, axis=0)) == 6
    for chunk in (1, 5):
        np.testing.assert_array_equal(sample(6, chunk), wanted)


def test_the_sample_is_uniform():
    n, size = 400, 40
    rows = np.arange(n, dtype=np.float32)[:, None]
    taken = np.zeros(n)
    for seed in range(60):
        kept = Sample(streaming.open_source([rows]), size, jax.random.key(seed))
        kept.see(rows, 0)
        taken[kept.of_all_processes().ravel().astype(int)] += 1
    expected = 60 * size / n  # 6 a row; halves and quarters of the rows get their share
    for part in np.split(taken, 4):
        assert abs(part.mean() - expected) < 4 * np.sqrt(expected / len(part))
    assert taken.max() < 20


def test_reading_stops_where_nobody_asks_for_more():
    before = threading.active_count()
    chunks = read_ahead(streaming.open_source([X] * 50), 5)
    next(chunks)
    chunks.close()
    assert threading.active_count() == before


# Files that cannot be read ------------------------------------------------------------------------


def cut(path, length):
    path.write_bytes(path.read_bytes()[:length])


def test_truncated_and_foreign_files(tmp_path):
    for suffix in (".npy", ".safetensors"):
        WRITERS[suffix](tmp_path / f"x{suffix}", X)
        cut(tmp_path / f"x{suffix}", -1)
        with pytest.raises(ValueError, match=rf"x{suffix} is truncated: 23 x 4 needs \d+ bytes"):
            streaming.open_source(tmp_path / f"x{suffix}")
    for suffix in (".parquet", ".arrow"):
        WRITERS[suffix](tmp_path / f"x{suffix}", X)
        cut(tmp_path / f"x{suffix}", 300)
        with pytest.raises(ValueError, match=f"x{suffix} must be a whole (Parquet|Arrow) file"):
            streaming.open_source(tmp_path / f"x{suffix}")
    for suffix in WRITERS:
        (tmp_path / f"f{suffix}").write_text("no matrix at all, but a line of text\n")
        with pytest.raises(ValueError, match=rf"f{suffix} must be a .*file"):
            streaming.open_source(tmp_path / f"f{suffix}")


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.zeros((3, 2), np.int64), TypeError, "x.npy must have one of the dtypes .*, got int64"),
        (np.zeros((3, 2), ">f4"), TypeError, "x.npy must be in this machine's byte order, got >f4"),
        (np.zeros(3, np.float32), ValueError, r"x.npy must be a matrix \[n d\], got shape \[3\]"),
        (np.zeros((0, 2), np.float32), ValueError, r"x.npy must not be empty, got \[0, 2\]"),
        (np.asfortranarray(X), ValueError, "x.npy must be in C order"),
    ],
)
def test_a_file_that_is_no_matrix_of_floats(x, error, message, tmp_path):
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(error, match=message):
        streaming.open_source(tmp_path / "x.npy")


def test_shards_that_do_not_fit_together(tmp_path):
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", X[:, :3])
    with pytest.raises(ValueError, match=r"b.npy must have the n_features of .*a.npy = 4, got 3"):
        streaming.open_source(tmp_path)
    np.save(tmp_path / "b.npy", X.astype(np.float16))
    with pytest.raises(ValueError, match=r"b.npy must have the dtype of .* float32, got float16"):
        streaming.open_source(tmp_path)
    np.save(tmp_path / "b.npy", X[:0])
    with pytest.raises(ValueError, match=r"b.npy must not be empty, got \[0, 4\]"):
        streaming.open_source(tmp_path)
    write_safetensors(tmp_path / "c.safetensors", X)
    with pytest.raises(ValueError, match=r"must hold files of one of .* got \.npy, \.safe"):
        streaming.open_source(tmp_path)
    with pytest.raises(FileNotFoundError):
        streaming.open_source(tmp_path / "none.npy")
    with pytest.raises(ValueError, match=re.escape("x.txt must be a folder or one of .npy")):
        streaming.open_source(tmp_path / "x.txt")


def test_tensors_and_columns_are_named_where_there_are_several(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    save_file({"a": X, "b": X[:7]}, tmp_path / "x.safetensors")
    assert streaming.open_source(tmp_path / "x.safetensors", key="b").n_rows == 7
    with pytest.raises(ValueError, match=r"key must be one of the tensors of .* \(a, b\), got c"):
        streaming.open_source(tmp_path / "x.safetensors", key="c")
    parquet.write_table(pa.table({"n": [1, 2], "v": as_lists(X[:2])}), tmp_path / "x.parquet")
    with pytest.raises(TypeError, match="column n must be lists of floating numbers, got int64"):
        streaming.open_source(tmp_path / "x.parquet", key="n")
    ragged = pa.table({"v": pa.array([[1.0, 2.0], [3.0]], pa.list_(pa.float32()))})
    parquet.write_table(ragged, tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="must have lists of 2 numbers, got one of 1"):
        streaming.moments(tmp_path / "x.parquet")


def test_a_missing_pyarrow_is_named_with_its_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"need pyarrow: pip install 'jaxgeom\[hf\]'"):
        _columns.open_columns(tmp_path / "x.parquet", None)


def test_a_file_cut_off_while_it_is_read(tmp_path):
    np.save(tmp_path / "x.npy", X)
    source = streaming.open_source(tmp_path / "x.npy")
    cut(tmp_path / "x.npy", -40)
    with pytest.raises(ValueError, match=r"x\.npy ended early"):
        streaming.moments(source, chunk_rows=5)

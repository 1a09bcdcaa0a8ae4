"""Whole = chunked = sharded = two processes: one table of tolerances for every driver."""

import json

import drivers
import jax
import numpy as np
import pytest

import jaxgeom
from jaxgeom import reference, streaming
from jaxgeom.testing import TOLERANCES, compare
from jaxgeom.testing_kmeans import clear_of_ties, distances

WAYS = (
    "in memory",
    *drivers.CHUNKS,
    *(f"mesh of {devices}" for devices in drivers.DEVICES),
    "chunks on 8 devices",
    "two processes, a mesh",
    "two processes, chunks",
)


@pytest.fixture(scope="module")
def data():
    return drivers.inputs()


@pytest.fixture(scope="module")
def expected(data):
    exact = data._replace(**{k: getattr(data, k).astype(np.float64) for k in ("x", "centroids")})
    return drivers.in_memory(reference, exact)


@pytest.fixture(scope="module")
def results(data, tmp_path_factory):
    """Return a folder with what the other processes found; they run while this one streams."""
    folder = tmp_path_factory.mktemp("drivers")
    (folder / "shards").mkdir()
    np.save(folder / "shards" / "a.npy", data.x[: drivers.CUT])
    np.save(folder / "shards" / "b.npy", data.x[drivers.CUT :])
    (folder / "one").mkdir()
    script = drivers.ROOT / "tests" / "drivers.py"
    processes = drivers.start_two(script, "two", folder)
    processes.append(drivers.start(script, "meshes", folder / "one", devices=8))
    with drivers.ended(processes):
        for way, chunk_rows in drivers.CHUNKS.items():
            found = drivers.streamed(folder / "shards", data, folder / "one", chunk_rows)
            drivers.save(folder / f"{way}.npz", found)
        found = drivers.in_memory(jaxgeom, data) | drivers.drawn(data)
        drivers.save(folder / "in memory.npz", found)
        for process in processes:
            drivers.finish(process)
    for path in (folder / "one").glob("*.npz"):
        path.rename(folder / path.name)
    return folder


def test_no_row_of_the_data_lies_at_a_tie(data):
    """What the drivers find label by label is the same on every processor."""
    assert clear_of_ties(data.x, data.centroids)
    assert all(clear_of_ties(data.x, start) for start in drivers.starts(data))


@pytest.mark.parametrize("way", WAYS)
def test_every_driver_agrees_with_the_reference(way, results, expected, data):
    found = drivers.load(results / f"{way}.npz")
    for op, wanted in expected.items():
        compare(found[op], wanted, data, TOLERANCES["jax", "float32"])


@pytest.mark.parametrize("devices", drivers.DRAWN)
@pytest.mark.parametrize("init", ["k-means++", "random"])
def test_a_mesh_draws_the_centroids_that_are_drawn_in_memory(init, devices, results, data):
    found = drivers.load(results / f"mesh of {devices}.npz")[init]
    wanted = drivers.load(results / "in memory.npz")[init]
    compare(found, wanted, data, TOLERANCES["jax", "float32"])


@pytest.mark.parametrize("devices", drivers.DEVICES)
def test_counts_of_a_run_that_was_stopped_are_of_its_labels(devices, results):
    found = drivers.load(results / f"mesh of {devices}.npz")["stopped"]
    assert len(found["labels"]) == drivers.N
    expected = np.bincount(found["labels"], minlength=drivers.N_DRAWN)
    np.testing.assert_array_equal(found["count"], expected)


@pytest.mark.parametrize("devices", drivers.DEVICES)
def test_nan_on_one_device_reaches_its_own_cluster_alone(devices, results, data):
    found = drivers.load(results / f"mesh of {devices}.npz")["spoiled"]
    others = np.arange(data.n_clusters) != data.labels[0]
    exact = data.x.astype(np.float64)
    wanted = reference.cluster_moments(exact, data.labels, n_clusters=data.n_clusters)
    expected = dict(zip(found, (field[others] for field in wanted), strict=True))
    got = {name: values[others] for name, values in found.items()}
    compare(got, expected, data, TOLERANCES["jax", "float32"])
    assert np.isnan(found["mean"][~others]).all()


@pytest.mark.parametrize("fit", ["sample", "all"])
def test_counts_and_inertia_of_a_stream_are_of_the_returned_centroids(fit, data):
    """The iterations were stopped: those of the centroids before would be others."""
    options = {"init": data.x[: drivers.N_DRAWN], "max_iter": 1, "fit": fit, "chunk_rows": 7}
    key = jax.random.key(0)
    found = streaming.kmeans([data.x], drivers.N_DRAWN, key=key, sample_size=50, **options)
    assert not found.converged
    to = distances(data.x, found.centroids)
    assert (to.possible.sum(1) == 1).all()
    labels = to.squared.argmin(1)
    assert (labels != distances(data.x, options["init"]).squared.argmin(1)).any()
    np.testing.assert_array_equal(found.counts, np.bincount(labels, minlength=drivers.N_DRAWN))
    np.testing.assert_allclose(found.inertia, to.squared.min(1).sum(), rtol=4e-6)


def test_fewer_rows_than_devices(results, data):
    few = drivers.load(results / "few.npz")["moments"]
    expected = reference.moments(data.x[:3].astype(np.float64))._asdict()
    compare(few, expected, data, TOLERANCES["jax", "float32"])


def test_training_does_not_depend_on_the_number_of_devices(results):
    one, four = json.loads((results / "one" / "training.json").read_text()).values()
    np.testing.assert_allclose(four["losses"], one["losses"], rtol=1e-5)
    assert len(set(one["losses"])) > 1
    for name in ("gradient", "params"):
        a, b = np.array(one[name]), np.array(four[name])
        assert np.linalg.norm(a - b) <= 1e-5 * np.linalg.norm(a), name
    np.testing.assert_allclose(four["embedded"], one["embedded"], rtol=0, atol=3e-6)

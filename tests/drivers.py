"""Every driver on one problem: in memory, over chunks, over a mesh, over two processes.

Run as a script it is one process of a test; its arguments are a mode and a folder.
"""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
N, CUT = 101, 43  # rows: a prime; where the first of the two shards ends
SEED, N_INIT, N_DRAWN = 3, 2, 5
CHUNKS = {"chunks of 1": 1, "chunks of 7": 7, "one chunk": N}
DEVICES, DRAWN = (1, 3, 8), (3,)  # meshes; those of them on which centroids are drawn


def inputs():
    """Return the problem's data in float32."""
    from jaxgeom.testing import Problem

    problem = Problem("drivers", "an offset, a gap", N, 8, 3, 2, 8.0, 1.0, 2.0)
    given = problem.inputs()
    arrays = [np.asarray(a, np.float32) for a in (given.x, given.centroids, given.directions)]
    return given._replace(**dict(zip(("x", "centroids", "directions"), arrays, strict=True)))


def in_memory(ops, a):
    """Return every quantity, from `jaxgeom` or `jaxgeom.reference`."""
    labels = ops.assign(a.x, a.centroids)
    fit = ops.fit_removal(a.x, labels, n_clusters=a.n_clusters, n_directions=a.n_directions)
    centred = ops.isotropy(ops.zero_mean(a.x))
    n_segments = int(a.segment_ids.max()) + 1
    return gathered(
        ops.moments(a.x),
        ops.pca(a.x, a.n_directions),
        ops.log_partition(a.x, a.directions),
        [
            ops.log_isotropy(ops.isotropy(a.x).log_partition),
            ops.log_isotropy(centred.log_partition),
        ],
        ops.kmeans(a.x, a.n_clusters, init=a.centroids),
        ops.cluster_moments(a.x, labels, n_clusters=a.n_clusters),
        ops.apply_removal(a.x, fit, labels),
        ops.segment_mean(a.x, a.segment_ids, num_segments=n_segments),
    )


def streamed(source, a, folder, chunk_rows):
    """Return every quantity from chunks of a source."""
    import jax

    import jaxgeom as jg
    from jaxgeom import streaming as ops

    how = {"chunk_rows": chunk_rows}
    fit = ops.fit_removal(source, a.centroids, n_directions=a.n_directions, **how)
    changed = Path(folder) / "changed.npy"
    ops.apply_removal(source, fit, changed, a.centroids, **how)
    mean = ops.fit_removal(source, **how)
    fits = [ops.isotropy(source, **how), ops.isotropy(source, removal=mean, **how)]
    options = {"key": jax.random.key(0), "init": a.centroids, "fit": "all"}
    n_segments = int(a.segment_ids.max()) + 1
    return gathered(
        ops.moments(source, **how),
        ops.pca(source, a.n_directions, **how),
        ops.log_partition(source, a.directions, **how),
        [jg.log_isotropy(np.asarray(fit.log_partition)) for fit in fits],
        ops.kmeans(source, a.n_clusters, sample_size=50, **options, **how),
        ops.cluster_moments(source, a.centroids, **how),
        np.load(changed),
        ops.segment_mean(source, a.segment_ids, num_segments=n_segments, **how),
    )


def sharded(x, a, mesh, local=slice(None)):
    """Return every quantity from the devices of a mesh; `x` are this process's rows."""
    import jaxgeom as jg
    from jaxgeom import sharded as ops

    rows = ops.shard_rows(x, mesh)
    labels = ops.assign(rows, a.centroids)
    options = {"n_clusters": a.n_clusters, "n_directions": a.n_directions}
    fit = ops.fit_removal(rows, labels, **options)
    centred = ops.apply_removal(rows, ops.fit_removal(rows))
    fits = [ops.isotropy(rows), ops.isotropy(centred)]
    n_segments = int(a.segment_ids.max()) + 1
    ids = ops.shard_labels(a.segment_ids[local], rows, n_segments)
    return gathered(
        ops.moments(rows),
        ops.pca(rows, a.n_directions),
        ops.log_partition(rows, a.directions),
        [jg.log_isotropy(fit.log_partition) for fit in fits],
        ops.kmeans(rows, a.n_clusters, init=a.centroids),
        ops.cluster_moments(rows, labels, n_clusters=a.n_clusters),
        of_all(ops.local_rows(ops.apply_removal(rows, fit, labels).x, rows)),
        ops.segment_mean(rows, ids, num_segments=n_segments),
    )


def gathered(moments, pca, log_f, isotropies, clustering, clusters, changed, pooled):
    """Return operations' outputs as `jaxgeom.testing.compare` reads them."""
    of_kmeans = {
        "count": clustering.counts,
        "mean": clustering.centroids,
        "inertia": clustering.inertia,
    }
    return {
        "moments": {"count": moments.count, "mean": moments.mean, "scatter": moments.scatter},
        "pca": {
            "mean": pca.mean,
            "explained_variance": pca.explained_variance,
            "projector": pca.components.T @ pca.components,
        },
        "log_partition": {"log_partition": log_f},
        "isotropy": {"log_isotropy": np.stack([np.asarray(v) for fit in isotropies for v in fit])},
        "kmeans": of_kmeans,
        "cluster_moments": {
            "count": clusters.count,
            "mean": clusters.mean,
            "cluster_scatter": clusters.scatter,
        },
        "apply_removal": {"changed": changed},
        "segment_mean": {"mean": pooled},
    }


def stopped(a, mesh):
    """Return the labels and the counts of iterations over a mesh that were stopped early."""
    from jaxgeom import sharded as ops

    rows = ops.shard_rows(a.x, mesh)
    fit = ops.kmeans(rows, N_DRAWN, init=a.x[:N_DRAWN], max_iter=1)
    return {"labels": ops.local_rows(fit.labels, rows), "count": fit.counts}


def spoiled(a, mesh):
    """Return clusters' moments over a mesh where the first row, holds NaN."""
    from jaxgeom import sharded as ops

    x = a.x.copy()
    x[0] = np.nan
    rows = ops.shard_rows(x, mesh)
    labels = ops.shard_labels(a.labels, rows, a.n_clusters)
    found = ops.cluster_moments(rows, labels, n_clusters=a.n_clusters)
    return {"count": found.count, "mean": found.mean, "cluster_scatter": found.scatter}


def of_all(rows):
    """Return the rows of all processes, which hold CUT and N - CUT."""
    from jaxgeom import distributed

    padded = np.zeros((N, *rows.shape[1:]), rows.dtype)
    padded[: len(rows)] = rows
    parts = distributed.gather(padded)
    return rows if len(parts) == 1 else np.concatenate([parts[0][:CUT], parts[1][: N - CUT]])


def starts(a):
    """Return the first centroids of every restart that `drawn` makes."""
    import jax
    import jax.numpy as jnp

    from jaxgeom.kernels._seeding import seed_centroids

    options = {"n_clusters": N_DRAWN, "n_init": N_INIT, "chunk_size": None}
    for init in ("k-means++", "random"):
        yield from seed_centroids(jnp.asarray(a.x), jax.random.key(SEED), init=init, **options)


def drawn(a, mesh=None):
    """Return a clustering from a key, in memory or over a mesh: the centroids and their inertia.

    One of the restarts is better than the other by 2 %.
    """
    import jax

    import jaxgeom as jg
    from jaxgeom import sharded as ops

    key = jax.random.key(SEED)
    found = {}
    for init in ("k-means++", "random"):
        options = {"key": key, "init": init, "n_init": N_INIT}
        if mesh is None:
            fit = jg.kmeans(a.x, N_DRAWN, **options)
        else:
            fit = ops.kmeans(ops.shard_rows(a.x, mesh), N_DRAWN, **options)
        found[init] = {"mean": fit.centroids, "inertia": fit.inertia, "count": fit.counts}
    return found


def save(path, outputs):
    flat = {f"{op}/{name}": v for op, group in outputs.items() for name, v in group.items()}
    np.savez(path, **{name: np.asarray(value) for name, value in flat.items()})


def load(path):
    outputs = {}
    with np.load(path) as stored:
        for name, value in stored.items():
            op, quantity = name.split("/")
            outputs.setdefault(op, {})[quantity] = value
    return outputs


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def start(*args, devices=1, environment=None, **options):
    """Start a Python process with so many virtual devices."""
    cache = ("JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("JAX_") or k.startswith(cache)}
    flags = os.environ.get("XLA_FLAGS", "")
    kept["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={devices}"
    kept["PYTHONPATH"] = f"{ROOT}{os.pathsep}{ROOT / 'tests'}"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
    command = [sys.executable, *map(str, args)]
    return subprocess.Popen(command, env=kept | (environment or {}), **(pipes | options))


def start_two(*args, by="flags", **options):
    """Start two processes of one run on this machine, which they learn by flags or variables."""
    address, processes = f"127.0.0.1:{free_port()}", []
    for i in range(2):
        flags, environment = (), {}
        if by == "flags":
            flags = ("--coordinator", address, "--num-processes", 2, "--process-id", i)
        else:
            values = {"COORDINATOR_ADDRESS": address, "NUM_PROCESSES": "2", "PROCESS_ID": str(i)}
            environment = {f"JAX_{name}": value for name, value in values.items()}
        processes.append(start(*args, *flags, environment=environment, **options))
    return processes


@contextmanager
def ended(processes):
    """Kill and reap, in the end, whatever still runs."""
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def wait_for(condition, process, seconds=300):
    """Wait until something has happened, the process being alive."""
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[1][-2000:]
        assert time.monotonic() < end
        time.sleep(0.05)


def reads(process, path):
    """Whether a process has a file open."""
    opened = Path(f"/proc/{process.pid}/fd").iterdir()
    return any(os.path.realpath(link) == str(path) for link in opened)


def finish(process, timeout=600):
    """Return what a process printed; it must have ended well."""
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err[-3000:]
    return out


def over_meshes(folder):
    """One process, eight devices: meshes of 1, 3 and 8, training, few rows, and chunks on 8."""
    import jax
    from data_parallel import training

    from jaxgeom import sharded as ops

    a = inputs()
    for devices in DEVICES:
        mesh = ops.row_mesh(jax.devices()[:devices])
        found = sharded(a.x, a, mesh) | (drawn(a, mesh) if devices in DRAWN else {})
        found |= {"stopped": stopped(a, mesh), "spoiled": spoiled(a, mesh)}
        save(folder / f"mesh of {devices}.npz", found)
    save(folder / "few.npz", {"moments": ops.moments(ops.shard_rows(a.x[:3], mesh))._asdict()})
    save(folder / "chunks on 8 devices.npz", streamed([a.x], a, folder, 50))
    (folder / "training.json").write_text(json.dumps(training()))


def as_one_of_two(folder, coordinator, process_id):
    """Each process holds a shard; process 0 writes what both found."""
    from jaxgeom import distributed
    from jaxgeom import sharded as ops

    with distributed.session(coordinator, 2, process_id):
        a = inputs()
        local = (slice(CUT), slice(CUT, None))[process_id]
        over_mesh = sharded(a.x[local], a, ops.row_mesh(), local)
        from_disk = streamed(folder / "shards", a, folder, 50)
        if distributed.is_writer():
            save(folder / "two processes, a mesh.npz", over_mesh)
            save(folder / "two processes, chunks.npz", from_disk)


if __name__ == "__main__":
    import jax

    jax.config.update("jax_numpy_rank_promotion", "raise")
    if sys.argv[1] == "meshes":
        over_meshes(Path(sys.argv[2]))
    else:
        as_one_of_two(Path(sys.argv[2]), sys.argv[4], int(sys.argv[8]))

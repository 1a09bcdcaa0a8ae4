"""The driver from disk: chunks of rows through accumulators, on all devices of this process.

Each device keeps a state of its own in float32. After at most 2^20 rows the states go to the host
and are merged there in float64 and int64: a float32 count would stop at 2^24, and float32 sums
would drift. What the processes of a run found is merged likewise.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Bool, Float
from tqdm import tqdm

from jaxgeom import _checks, distributed
from jaxgeom._mesh import COMMON, ROWS, row_mesh
from jaxgeom.kernels._accumulate import Accumulator, default_chunk_size, fold, to_host
from jaxgeom.kernels._arrays import compute_dtype
from jaxgeom.kernels._removal import Change
from jaxgeom.streaming._read_ahead import read_ahead
from jaxgeom.streaming._sources import AnySource

SUPER_CHUNK = 1 << 20  # rows
_CHUNK_BYTES = 32 << 20  # of each of the two buffers


class Job(NamedTuple):
    """A statistic of the rows, or of what a removal leaves of them."""

    accumulator: Accumulator[Any]
    change: Change | None = None


class Options(NamedTuple):
    """How a pass is made; it changes rounding alone."""

    chunk_rows: int | None = None  # rows read at once; by default 32 MiB of them
    progress: bool = True  # whether a bar is shown, where there is a terminal to show it on


DEFAULTS = Options()
Watcher = Callable[[np.ndarray, int], None]  # sees each chunk on the host, and its first row


def fold_source(
    source: AnySource,
    jobs: Sequence[Job],
    *,
    name: str,
    options: Options = DEFAULTS,
    watch: Watcher | None = None,
) -> list[Any]:
    """Return the state of every job over all rows of all processes: one pass.

    Args:
        source: the rows of all processes; each reads its share.
        jobs: what is accumulated.
        name: of the pass, for the bar.
        options: how the pass is made.
        watch: is shown every chunk of this process.

    Returns:
        A state in float64 and int64 for each job, the same on every process.

    Raises:
        ValueError, OSError, TypeError: what cannot be read; on every process.
    """
    jobs = tuple(jobs)
    own = distributed.together(lambda: _fold_own(source, jobs, name, options, watch))
    states = distributed.gather(own)
    return [_merged(job.accumulator, [state[i] for state in states]) for i, job in enumerate(jobs)]


def _fold_own(
    source: AnySource,
    jobs: tuple[Job, ...],
    name: str,
    options: Options,
    watch: Watcher | None,
) -> list[Any]:
    """Return the states over this process's rows."""
    mesh = local_mesh()
    totals = [jax.tree.map(lambda a: a[0], s) for s in to_host(_start(jobs, source, mesh))]
    states, rows, seen = None, 0, 0
    for x, mask, chunk in chunks(source.shard(), mesh, name, options):
        if states is None:
            states = _start(jobs, source, mesh)
        states = _update(jobs, states, x, mask, mesh=mesh) if jobs else states
        if watch is not None:  # while the devices are at work
            watch(chunk, seen)
        jax.block_until_ready(states)
        rows, seen = rows + len(chunk), seen + len(chunk)
        if rows + len(x) > SUPER_CHUNK:
            totals, states, rows = _flushed(jobs, totals, states), None, 0
    return totals if states is None else _flushed(jobs, totals, states)


def chunks(
    own: AnySource, mesh: Mesh, name: str, options: Options
) -> Iterator[tuple[Array, Bool[np.ndarray, " b"] | None, np.ndarray]]:
    """Yield rows chunk by chunk: on this process's devices, which of them count, on the host.

    The rows on the devices may share the host's memory, which the next chunk's rows go into: all
    that is computed from them must be ready before the next is asked for.
    """
    rows = chunk_rows(own, mesh.size, options.chunk_rows)
    hidden = None if options.progress and distributed.is_writer() else True
    with tqdm(
        desc=name, total=own.n_rows, unit="row", unit_scale=True, leave=False, disable=hidden
    ) as bar:
        for buffer, n in read_ahead(own, rows):
            x = jax.device_put(buffer, NamedSharding(mesh, ROWS))
            mask = None if n == rows else np.arange(rows) < n
            yield x, mask, buffer[:n]
            bar.update(n)


def chunk_rows(source: AnySource, n_devices: int, asked: int | None) -> int:
    """Return how many rows are read at once: a multiple of the devices, at most a super-chunk."""
    if asked is None:
        slices = default_chunk_size(source.n_features) * n_devices
        row = source.n_features * source.dtype.itemsize
        asked = max(_CHUNK_BYTES // row // slices, 1) * slices
    asked = min(_checks.integer("chunk_rows", asked, 1), SUPER_CHUNK)
    if source.n_rows is not None:
        asked = max(min(asked, source.n_rows), 1)
    return -(-asked // n_devices) * n_devices


def local_mesh() -> Mesh:
    """Return the mesh of this process's devices."""
    return row_mesh(jax.local_devices())


@partial(jax.jit, static_argnames="mesh")
def _update(
    jobs: tuple[Job, ...],
    states: tuple[Any, ...],
    x: Float[Array, "n d"],
    mask: Bool[Array, " n"] | None,
    *,
    mesh: Mesh,
) -> tuple[Any, ...]:
    """Add each device's rows to its states, which have an axis of devices in front."""

    def on_device(jobs: Any, states: Any, x: Array, mask: Array | None) -> tuple[Any, ...]:
        return tuple(_added(job, state, x, mask) for job, state in zip(jobs, states, strict=True))

    specs = (COMMON, ROWS, ROWS, ROWS)
    run = jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=ROWS, check_vma=False)
    return run(jobs, states, x, mask)


def _added(job: Job, state: Any, x: Array, mask: Array | None) -> Any:
    """Return one job's state with one device's rows added."""
    x = x if job.change is None else job.change(x)
    state = fold(job.accumulator, jax.tree.map(lambda a: a[0], state), x, mask)
    return jax.tree.map(lambda a: a[None], state)


def _start(jobs: tuple[Job, ...], source: AnySource, mesh: Mesh) -> tuple[Any, ...]:
    """Return the states of no rows on every device."""
    dtype = compute_dtype(np.zeros((), source.dtype))
    states = tuple(job.accumulator.init(source.n_features, dtype) for job in jobs)
    states = jax.tree.map(lambda a: jnp.broadcast_to(a[None], (mesh.size, *a.shape)), states)
    return jax.device_put(states, NamedSharding(mesh, ROWS))


def _flushed(jobs: tuple[Job, ...], totals: list[Any], states: tuple[Any, ...]) -> list[Any]:
    """Return the host's totals with the states of all devices merged in."""
    merged = []
    for job, total, state in zip(jobs, totals, to_host(states), strict=True):
        of_device = [jax.tree.map(lambda a, i=i: a[i], state) for i in range(_length(state))]
        merged.append(_merged(job.accumulator, [total, *of_device]))
    return merged


def _merged(accumulator: Accumulator[Any], states: Sequence[Any]) -> Any:
    """Return the state of the rows of all states."""
    total = states[0]
    for state in states[1:]:
        total = accumulator.merge(total, state)
    return total


def _length(tree: Any) -> int:
    """Return the length of the leading axis of a tree's arrays."""
    return len(jax.tree.leaves(tree)[0])

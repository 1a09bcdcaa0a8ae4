"""Several processes, on one machine or many: how they find each other, agree, and share results.

JAX's own distributed runtime does the work. Every process runs the same program on its own share of
the rows; what all of them must know travels through `gather`; process 0 alone writes.
"""

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from jaxgeom import _checks
from jaxgeom._roll_call import end_after, meet

T = TypeVar("T")

HEARTBEAT_SECONDS = 30  # without a sign of life for so long, a process is taken for dead
JOIN_SECONDS = 45  # so long the processes wait for each other before the run begins
MISTAKES = (ValueError, TypeError, OSError, ImportError)  # of a user, or of the machine
_ALARM_SECONDS = 60  # JAX's own end of waiting, a stack trace, comes so much later than ours
_LAST_WORDS_SECONDS = 2  # process 0 is who the others talk through: they may finish first
_MESSAGE_BYTES = 2048  # of an error that is told to the other processes
_VARIABLES = {
    "coordinator": "JAX_COORDINATOR_ADDRESS",
    "num_processes": "JAX_NUM_PROCESSES",
    "process_id": "JAX_PROCESS_ID",
}
_JOIN_VARIABLE = "JAXGEOM_JOIN_TIMEOUT"
_BIND_VARIABLE = "JAX_COORDINATOR_BIND_ADDRESS"
# Launchers that JAX reads everything else from, and what tells that they started several processes.
_LAUNCHERS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")


def initialize(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    heartbeat_timeout_seconds: int = HEARTBEAT_SECONDS,
    join_timeout_seconds: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> bool:
    """Join the other processes of a run; call it before anything is computed.

    What is not given is read from JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID.
    Under `srun`, `mpirun` or on a TPU slice of several hosts JAX finds it all by itself.

    Args:
        coordinator: HOST:PORT at which process 0 listens.
        num_processes: processes of the run.
        process_id: number of this one, from 0 on.
        heartbeat_timeout_seconds: a process silent for so long ends the run: all others stop with
            a status that is not 0 and say why on standard error.
        join_timeout_seconds: how long the processes wait for each other; if not given,
            JAXGEOM_JOIN_TIMEOUT says it, or else it is `JOIN_SECONDS`. Where JAX finds everything
            by itself, a process that has waited in vain prints one line and exits with 2: JAX's
            own joining cannot be interrupted.
        environment: where variables are read; that of the process by default.

    Returns:
        Whether there are several processes; if there is one, nothing was done.

    Raises:
        TimeoutError: some processes did not come in time; the message names them.
        ValueError: some of coordinator, number and id are known and others are not, or they do not
            fit together; the waiting time is no whole number from 1 on.
    """
    environment = os.environ if environment is None else environment
    given = {"coordinator": coordinator, "num_processes": num_processes, "process_id": process_id}
    known = _known(given, environment)
    if not known and not _launched_together(environment):
        return False
    seconds = _join_seconds(join_timeout_seconds, environment)
    if known:
        coordinator, num_processes, process_id = _check(known)
        meet(coordinator, num_processes, process_id, seconds, port=_own_port(environment))
    with end_after(seconds):
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            initialization_timeout=seconds + _ALARM_SECONDS,
            heartbeat_timeout_seconds=heartbeat_timeout_seconds,
        )
    return True


@contextmanager
def session(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    heartbeat_timeout_seconds: int = HEARTBEAT_SECONDS,
    join_timeout_seconds: int | None = None,
) -> Iterator[None]:
    """Join the other processes for a block; see `initialize`.

    One of several processes that fails says why and ends at once: the usual way out would wait for
    the others, who may be waiting for it. They notice within the heartbeat's time at the latest.
    """
    several = initialize(
        coordinator,
        num_processes,
        process_id,
        heartbeat_timeout_seconds=heartbeat_timeout_seconds,
        join_timeout_seconds=join_timeout_seconds,
    )
    try:
        yield
    except BaseException as error:
        if not several:
            raise
        _leave(error)


def _leave(error: BaseException) -> NoReturn:
    """End this process with what went wrong."""
    status = 130 if isinstance(error, KeyboardInterrupt) else 1
    if isinstance(error, MISTAKES):
        status = 2
        print(f"error: {error}", file=sys.stderr)
    else:
        traceback.print_exception(error)
    sys.stdout.flush()
    sys.stderr.flush()
    if is_writer():
        time.sleep(_LAST_WORDS_SECONDS)
    os._exit(status)


def process_index() -> int:
    """Return the number of this process; 0 where there is one alone, and JAX is left asleep."""
    return jax.process_index() if jax.distributed.is_initialized() else 0


def process_count() -> int:
    """Return the number of processes."""
    return jax.process_count() if jax.distributed.is_initialized() else 1


def is_writer() -> bool:
    """Whether this is the process that writes: number 0."""
    return process_index() == 0


def share(length: int, index: int | None = None, count: int | None = None) -> range:
    """Return which of `length` items, in order, are this process's: shares differ by one at most.

    Args:
        length: number of items.
        index: number of the process; this one's by default.
        count: number of processes; that of the run by default.

    Example:
        >>> [share(7, i, 3) for i in range(3)]
        [range(0, 2), range(2, 4), range(4, 7)]
    """
    index = process_index() if index is None else index
    count = process_count() if count is None else count
    return range(length * index // count, length * (index + 1) // count)


def gather(tree: T) -> list[T]:
    """Return what each process holds, in the order of the processes.

    Args:
        tree: NumPy arrays in a pytree, of the same shapes and dtypes on every process.

    Returns:
        One tree a process, bit for bit as it was: float64 stays float64.
    """
    leaves, structure = jax.tree.flatten(tree)
    if process_count() == 1 or not leaves:
        return [tree] * process_count()
    leaves = [np.asarray(leaf) for leaf in leaves]
    # As bytes: without x64, JAX would cut float64 down on the way.
    sent = np.frombuffer(b"".join(leaf.tobytes() for leaf in leaves), np.uint8)
    received = np.asarray(multihost_utils.process_allgather(sent))
    ends = np.cumsum([leaf.nbytes for leaf in leaves])[:-1]

    def unpack(row: np.ndarray) -> T:
        parts = zip(np.split(row, ends), leaves, strict=True)
        arrays = [part.copy().view(leaf.dtype).reshape(leaf.shape) for part, leaf in parts]
        return jax.tree.unflatten(structure, arrays)

    return [unpack(row) for row in received]


def together(work: Callable[[], T]) -> T:
    """Return what `work` makes; where it fails on one process, it fails on all of them.

    Args:
        work: what this process does alone.

    Raises:
        ValueError, OSError, TypeError, ImportError: its own mistake on the process that made it;
            on the others a `ValueError` that names that process and its message.
    """
    result, error = None, None
    try:
        result = work()
    except MISTAKES as mistake:
        error = mistake
    if process_count() > 1:
        _tell(error)
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # None only where `work` returns it


def on_writer(work: Callable[[], Any]) -> None:
    """Do `work` on process 0 alone, the others waiting; its mistake is one on all of them."""
    together(work if is_writer() else lambda: None)


def agreed(value: bool) -> bool:
    """Return what process 0 says; it is about its files, which the others may see later."""
    return bool(gather(np.asarray(value))[0])


def barrier() -> None:
    """Wait until every process is here."""
    gather(np.zeros(1, np.uint8))


def _tell(error: Exception | None) -> None:
    """Tell the others of a mistake; raise where one of them made one."""
    message = "" if error is None else str(error) or type(error).__name__
    text = message.encode()[:_MESSAGE_BYTES].ljust(_MESSAGE_BYTES)
    for process, told in enumerate(gather(np.frombuffer(text, np.uint8))):
        heard = told.tobytes().decode(errors="replace").strip()
        if heard and error is None:
            raise ValueError(f"process {process} stopped: {heard}")


def _known(given: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what the arguments and the environment say of the run."""
    named = {name: environment.get(variable) for name, variable in _VARIABLES.items()}
    return {
        name: value
        for name, value in (named | {k: v for k, v in given.items() if v is not None}).items()
        if value is not None
    }


def _check(known: Mapping[str, Any]) -> tuple[str, int, int]:
    """Return coordinator, number and id, which must be there and fit together."""
    missing = [name for name in _VARIABLES if name not in known]
    if missing:
        names = ", ".join(f"{name} ({_VARIABLES[name]})" for name in missing)
        raise ValueError(f"{names} must be given too, got {', '.join(known)} only")
    host, _, port = str(known["coordinator"]).rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"coordinator must be HOST:PORT, got {known['coordinator']!r}")
    for name in ("num_processes", "process_id"):
        if not str(known[name]).isdigit():
            raise ValueError(f"{name} must be a whole number, got {known[name]!r}")
    n = _checks.integer("num_processes", int(known["num_processes"]), 1)
    i = _checks.integer("process_id", int(known["process_id"]), 0, n - 1, "num_processes - 1")
    return known["coordinator"], n, i


def _join_seconds(given: int | None, environment: Mapping[str, str]) -> int:
    """Return how long the processes wait for each other."""
    if given is not None:
        return _checks.integer("join_timeout_seconds", given, 1)
    text = environment.get(_JOIN_VARIABLE, str(JOIN_SECONDS))
    if not text.isdigit():
        raise ValueError(f"{_JOIN_VARIABLE} must be a whole number of seconds, got {text!r}")
    return _checks.integer(_JOIN_VARIABLE, int(text), 1)


def _own_port(environment: Mapping[str, str]) -> int | None:
    """Return the port that JAX is told to listen at on process 0, where it is another."""
    port = environment.get(_BIND_VARIABLE, "").rpartition(":")[2]
    return int(port) if port.isdigit() else None


def _launched_together(environment: Mapping[str, str]) -> bool:
    """Whether a launcher that JAX knows started several processes."""
    hosts = environment.get("TPU_WORKER_HOSTNAMES", "").split(",")
    sizes = [environment.get(name, "1") for name in _LAUNCHERS]
    return len(hosts) > 1 or any(size.isdigit() and int(size) > 1 for size in sizes)

"""Who has come to a run of several processes: asked before JAX joins them.

Where one of them does not come, JAX's own joining ends the others with a stack trace that does not
say who it was. So they meet first, at the same address: process 0 listens there until each of the
others has called, or time is up, and tells those on the line who is missing.
"""

import contextlib
import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from threading import Timer

_GREETING = re.compile(rb"jaxgeom (\d+) of (\d+)\n")
_PATIENCE_SECONDS = 2  # for a word on a line that is open
_VERDICT_SECONDS = 5  # those on the line wait so much longer: process 0 may have begun later
_RETRY_SECONDS = 0.1


def meet(coordinator: str, n: int, index: int, seconds: int, *, port: int | None = None) -> None:
    """Return when all processes of a run have come.

    Args:
        coordinator: HOST:PORT at which process 0 can be reached.
        n: processes of the run.
        index: number of this one.
        seconds: how long the others are waited for.
        port: where process 0 listens, if it is another port that HOST:PORT leads to.

    Raises:
        TimeoutError: some did not come; the message names them.
        OSError: process 0 cannot listen.
    """
    host, _, called = coordinator.rpartition(":")
    deadline = time.monotonic() + seconds
    if index == 0:
        missing = _receive(port or int(called), n, deadline)
    else:
        missing = _call((host.strip("[]"), int(called)), n, index, deadline)
    if missing:
        one, many = f"number {missing[0]} is", f"numbers {', '.join(map(str, missing))} are"
        raise TimeoutError(
            f"{n} processes were to meet at {coordinator}, and after {seconds} seconds "
            f"{one if len(missing) == 1 else many} not there; JAXGEOM_JOIN_TIMEOUT=SECONDS makes "
            "the others wait longer"
        )


@contextlib.contextmanager
def end_after(seconds: int) -> Iterator[None]:
    """End the process with one line, unless the block is left in time: JAX cannot be stopped."""

    def end() -> None:
        print(f"error: the processes did not join within {seconds} seconds", file=sys.stderr)
        sys.stderr.flush()
        os._exit(2)

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _receive(port: int, n: int, deadline: float) -> list[int]:
    """Take the others' calls; return who is missing in the end."""
    callers: dict[int, socket.socket] = {}
    with contextlib.ExitStack() as lines, _server(port, n) as server:
        while True:
            callers = {i: caller for i, caller in callers.items() if not _is_gone(caller)}
            missing = [i for i in range(1, n) if i not in callers]
            if not missing or time.monotonic() >= deadline:
                _tell(callers, "stop" if missing else "go", missing)
                _wait_for_the_end(callers)
                return missing
            _tell(callers, "wait", missing)
            callers |= _next_caller(server, n, deadline, lines)


def _server(port: int, n: int) -> socket.socket:
    """Listen on all interfaces, as JAX will."""
    if socket.has_dualstack_ipv6():
        family = socket.AF_INET6
        return socket.create_server(("", port), family=family, backlog=n, dualstack_ipv6=True)
    return socket.create_server(("", port), backlog=n)


def _next_caller(
    server: socket.socket, n: int, deadline: float, lines: contextlib.ExitStack
) -> dict[int, socket.socket]:
    """Return the number and the line of who calls next; none if it is too late, or a stranger."""
    server.settimeout(_left(deadline))
    try:
        caller = lines.enter_context(server.accept()[0])
        caller.settimeout(_PATIENCE_SECONDS)
        with caller.makefile("rb") as words:
            greeting = _GREETING.fullmatch(words.readline(99))
    except OSError:  # TimeoutError is one
        return {}
    if greeting is None or int(greeting[2]) != n or not 0 < int(greeting[1]) < n:
        caller.close()
        return {}
    return {int(greeting[1]): caller}


def _is_gone(caller: socket.socket) -> bool:
    """Whether a line is dead; those who wait say nothing."""
    caller.setblocking(False)
    try:
        caller.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _tell(callers: Mapping[int, socket.socket], word: str, missing: Sequence[int]) -> None:
    """Tell all who have called who is missing, and whether to wait, to stop or to go on."""
    line = f"{word} {','.join(map(str, missing))}\n".encode()
    for caller in callers.values():
        caller.settimeout(_PATIENCE_SECONDS)
        with contextlib.suppress(OSError):  # who is gone is found missing, here or by JAX
            caller.sendall(line)


def _wait_for_the_end(callers: Mapping[int, socket.socket]) -> None:
    """Let the others hang up first, which leaves the port free for JAX at once."""
    for caller in callers.values():
        with contextlib.suppress(OSError):
            caller.recv(1)


def _call(address: tuple[str, int], n: int, index: int, deadline: float) -> list[int]:
    """Call process 0 until it is there; return who is missing in the end, by its word."""
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(address, timeout=_left(deadline)) as line:
                line.sendall(b"jaxgeom %d of %d\n" % (index, n))
                missing = _verdict(line, deadline + _VERDICT_SECONDS)
        except OSError:  # nobody listens yet, or who did is gone
            missing = None
        if missing is not None:
            return missing
        time.sleep(_RETRY_SECONDS)
    return [0]


def _verdict(line: socket.socket, deadline: float) -> list[int] | None:
    """Return who is missing when process 0 ends the waiting; None if it hung up without a word."""
    missing = None
    with line.makefile("rb") as words:
        while True:
            line.settimeout(_left(deadline))
            try:
                word, _, numbers = words.readline().decode(errors="replace").strip().partition(" ")
            except TimeoutError:
                return missing
            if word not in ("wait", "stop", "go"):
                return None
            missing = [int(number) for number in numbers.split(",") if number]
            if word != "wait":
                return missing


def _left(deadline: float) -> float:
    """Return the seconds until a point in time, a little at least: 0 would not wait at all."""
    return max(deadline - time.monotonic(), 0.01)

"""Settings of a whole process, for commands and the benchmark suite; importing sets nothing."""

import ctypes
import os
import platform
from pathlib import Path

import jax

# Options of glibc's mallopt, from malloc.h, and what they are set to: one arena, no block that is
# mapped alone however large, and nothing given back to the system below 2 GiB.
_MALLOPT = {-8: 1, -4: 0, -1: 2**31 - 1}


def enable_compilation_cache() -> None:
    """Keep compiled programs in the user's cache folder, unless the environment names another."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        jax.config.update("jax_compilation_cache_dir", str(Path(root) / "jaxgeom" / "xla"))


def keep_freed_memory() -> None:
    """Have the C library keep freed memory for the next call, where it is glibc.

    The temporaries of a compiled program, 600 MB in a training step, are otherwise mapped, zeroed
    page by page and unmapped in every call: on two cores a fifth of the time.
    """
    if platform.libc_ver()[0] == "glibc":
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in _MALLOPT.items():
            mallopt(option, value)

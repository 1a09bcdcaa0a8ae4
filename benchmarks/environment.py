"""Where the numbers were taken: versions, device, threads, BLAS kernels, rates of the machine."""

import os
import platform
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_info

from jaxgeom._versions import versions

CRIPPLING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
_PACKAGES = (
    "jaxgeom", "jax", "jaxlib", "flax", "numpy", "scipy", "scikit-learn", "faiss-cpu", "torch",
    "cupy-cuda13x", "sentence-transformers", "transformers",
)  # fmt: skip


def refusal(environ: Mapping[str, str]) -> str | None:
    """Return why speeds must not be compared under these variables, or None."""
    found = [name for name in CRIPPLING if environ.get(name)]
    if not found:
        return None
    unset = " ".join(f"-u {name}" for name in found)
    return (
        f"{' and '.join(found)} must not be set: a peer's BLAS would run kernels that are not "
        f"this processor's own. Run: env {unset} pytest benchmarks"
    )


def describe() -> dict[str, Any]:
    """Return versions, device, threads and BLAS kernels; peers' libraries where they are loaded."""
    device = jax.devices()[0]
    return {
        "python": platform.python_version(),
        "versions": {name: v for name, v in versions(_PACKAGES).items() if v},
        "device": device.device_kind if device.platform != "cpu" else _processor(),
        "platform": device.platform,
        "threads": len(os.sched_getaffinity(0)),
        "blas": blas_kernels(),
    }


def blas_kernels() -> list[str]:
    """Return the thread pools that are loaded, such as "openblas 0.3.30 SkylakeX, 2 threads"."""
    return sorted(
        {
            " ".join(
                filter(None, (pool["internal_api"], pool["version"], pool.get("architecture")))
            )
            + f", {pool['num_threads']} threads"
            for pool in threadpool_info()
        }
    )


@lru_cache(maxsize=1)
def rates() -> dict[str, float]:
    """Return what the device can do at best: matmul in GFLOP/s at full float32, copy in GB/s."""
    on_cpu = jax.default_backend() == "cpu"
    size, length = (2048, 1 << 26) if on_cpu else (8192, 1 << 30)
    square = jax.random.normal(jax.random.key(0), (size, size), jnp.float32)
    product = jax.jit(lambda a: jnp.matmul(a, a, precision=jax.lax.Precision.HIGHEST))
    seconds = best_of(lambda: product(square).block_until_ready())
    if on_cpu:  # whichever library has the faster product sets the mark
        host = np.asarray(square)
        seconds = min(seconds, best_of(lambda: host @ host))
    vector = jnp.ones(length // 4, jnp.float32)
    copy = jax.jit(lambda a: a + 1)
    copied = best_of(lambda: copy(vector).block_until_ready())
    return {"matmul_gflops": 2 * size**3 / seconds / 1e9, "copy_gbs": 2 * length / copied / 1e9}


@lru_cache(maxsize=1)
def half_rates() -> dict[str, float]:
    """Return the bfloat16 product's rate in GFLOP/s."""
    size = 1024 if jax.default_backend() == "cpu" else 8192
    square = jax.random.normal(jax.random.key(0), (size, size), jnp.bfloat16)
    product = jax.jit(lambda a: a @ a)
    seconds = best_of(lambda: product(square).block_until_ready())
    return {"bfloat16_gflops": 2 * size**3 / seconds / 1e9}


def best_of(call: Callable[[], Any], rounds: int = 7) -> float:
    """Return the shortest of some calls, after one that does not count."""
    call()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _processor() -> str:
    """Return the processor's name as Linux gives it, else as Python does."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as text:
            names = [
                line.split(":", 1)[1].strip() for line in text if line.startswith("model name")
            ]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()

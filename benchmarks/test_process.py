"""What a fresh process costs: the first answer, and the memory that an answer needs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.entries import Entry, clocked

ROOT = Path(__file__).parents[1]

FIRST = """
import numpy as np, jaxgeom as jg
x = np.random.default_rng(0).normal(size=(2000, 384)).astype(np.float32)
print(float(jg.isotropy(x).heavier))
"""

MEMORY = """
import json, os, resource, threading, time
import jax, jax.numpy as jnp, jaxgeom as jg
from jaxgeom.kernels._isotropy import _isotropy

def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def watch():
    while not done.is_set():
        peak[0] = max(peak[0], resident())
        time.sleep(0.002)

n, d = {n}, {d}
block = jax.random.normal(jax.random.key(0), (n // 100, d), jnp.float32)
x = jnp.tile(block, (100, 1)).block_until_ready()
compiled = _isotropy.lower(x).compile()
temporaries = compiled.memory_analysis().temp_size_in_bytes
del block
before, done, peak = resident(), threading.Event(), [0]
watcher = threading.Thread(target=watch)
watcher.start()
value = float(jg.isotropy(x).heavier)
done.set()
watcher.join()
print(json.dumps({{"temporaries": temporaries, "resident": peak[0] - before, "value": value}}))
"""


def _run(code: str, cache: Path) -> str:
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_import_and_first_isotropy(tmp_path, timed):
    cold, value = clocked(lambda: float(_run(FIRST, tmp_path)))
    assert 0 < value < 1
    call = lambda: _run(FIRST, tmp_path)  # noqa: E731
    entry = Entry(call, clocked(call)[0], {"backend": "jaxgeom", "first_call_s": cold})
    timed(entry, group="import")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc to read memory from")
def test_memory_of_isotropy(tmp_path, timed, benchmark):
    code = MEMORY.format(n=1_000_000, d=384)
    info = {"backend": "jaxgeom", "n": 1_000_000, "d": 384}
    out = json.loads(timed(Entry(lambda: _run(code, tmp_path), 0, info), "memory", rounds=1))
    assert 0 <= out["value"] <= 1
    benchmark.extra_info["analysed_mb"] = out["temporaries"] / 1e6
    benchmark.extra_info["resident_mb"] = out["resident"] / 1e6
    benchmark.extra_info["temporaries_mb"] = max(out["temporaries"], out["resident"]) / 1e6

"""Everything on one GPU in one run of at most five minutes, without network or data.

    python -m benchmarks.gpu --output gpu.json

Every kernel against the reference, the suite against torch and cupy, encoding and fine-tuning of a
BERT-base-sized model with random weights, and one Table 1 end to end. The results are written after
every stage; a stage that the time no longer allows is skipped and says so. `--small` does the same
at a small size, also on a CPU. The exit status is 1 where a check failed.
"""

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from benchmarks import environment
from benchmarks.gpu_stages import (
    LARGE_SCALE,
    SMALL_SCALE,
    Scale,
    encoding,
    finetuning,
    kernels,
    suite,
    table1,
)

# Seconds that a stage needs at full size, at the most; it is not begun with less left.
STAGES: tuple[tuple[str, Callable[[Scale, Path], Any], float], ...] = (
    ("kernels", kernels, 30),
    ("encoding", encoding, 25),
    ("finetuning", finetuning, 40),
    ("table1", table1, 60),
    ("suite", suite, 20),
)


def main(args: Sequence[str] | None = None) -> int:
    """Run the stages; return 1 where a check failed, else 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--small", action="store_true", help="a small size, for a CPU")
    parser.add_argument("--budget", type=float, default=285.0, help="seconds for everything")
    parser.add_argument("--output", type=Path, default=Path("gpu.json"))
    given = parser.parse_args(args)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        jax.config.update("jax_compilation_cache_dir", str(Path(scratch) / "xla"))
        document = run(
            SMALL_SCALE if given.small else LARGE_SCALE,
            Path(scratch),
            lambda: given.budget - (time.perf_counter() - start),
            lambda document: _write(given.output, document),
        )
    failed = [name for name, stage in document["stages"].items() if stage["status"] == "failed"]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def run(
    scale: Scale,
    scratch: Path,
    seconds_left: Callable[[], float],
    write: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Run every stage for which there is time; write the document after each."""
    machine = environment.describe() | environment.rates() | environment.half_rates()
    document: dict[str, Any] = {"schema": 1, "machine": machine, "stages": {}}
    for name, stage, needed in STAGES:
        if seconds_left() < needed * scale.patience:
            document["stages"][name] = {"status": "skipped", "reason": "no time left"}
        else:
            document["stages"][name] = _outcome(stage, scale, scratch)
        print(f"{name}: {json.dumps(document['stages'][name])[:2000]}", flush=True)
        write(document)
    return document


def _outcome(stage: Callable[[Scale, Path], Any], scale: Scale, scratch: Path) -> dict[str, Any]:
    """Return a stage's results and time; its error where it has one, so that the others run."""
    start = time.perf_counter()
    try:
        outcome = {"results": stage(scale, scratch)}
        status = "passed" if not _failures(outcome["results"]) else "failed"
    except Exception:  # a stage may fail in any way, and the others are still of use
        outcome, status = {"error": traceback.format_exc()}, "failed"
    return {"status": status, "seconds": round(time.perf_counter() - start, 2), **outcome}


def _failures(results: Any) -> list[Any]:
    """Return the entries that failed their check."""
    return [r for r in results if "failed" in r] if isinstance(results, list) else []


def _write(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

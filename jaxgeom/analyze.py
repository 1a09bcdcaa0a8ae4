"""The geometry of a matrix on disk, from the command line.

    python -m jaxgeom.analyze embeddings.npy
    python -m jaxgeom.analyze folder-of-shards --transform global --output changed.npy

Three passes over the rows print size, norms, isotropy with its range over signs, spectrum, leading
directions, clusters, and what each of the study's transforms would do to isotropy;
NAME.analysis.json receives the same. A fourth pass writes a transformed matrix. Neither the matrix
nor its labels are ever in memory. With several processes each reads its share (docs/scaling.md).
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import jax

from jaxgeom import distributed, streaming
from jaxgeom._files import write_json
from jaxgeom.streaming._driver import Options
from jaxgeom.streaming._overview import TRANSFORMS, Overview, overview
from jaxgeom.streaming._report import report, table
from jaxgeom.streaming._sources import AnySource
from jaxgeom.streaming._writing import require_output


def parser() -> argparse.ArgumentParser:
    """Return the flags."""
    flags = argparse.ArgumentParser(
        "python -m jaxgeom.analyze", description="Measure the geometry of a matrix on disk."
    )
    flags.add_argument(
        "input", type=Path, help=".npy, .safetensors, .parquet, .arrow, or a folder of one kind"
    )
    flags.add_argument("--key", help="the tensor or column, where a file has several")
    flags.add_argument("--clusters", type=int, default=27, help="of k-means (default 27)")
    flags.add_argument(
        "--directions", type=int, default=12, help="leading ones that transforms remove (12)"
    )
    flags.add_argument("--sample", type=int, default=1 << 16, help="rows k-means is fitted on")
    flags.add_argument("--seed", type=int, default=0, help="of the sample and k-means (0)")
    flags.add_argument("--chunk-rows", type=int, help="rows read at once (32 MiB of them)")
    flags.add_argument("--json", type=Path, help="where the JSON goes (./NAME.analysis.json)")
    flags.add_argument("--transform", choices=tuple(TRANSFORMS), help="write the changed matrix")
    flags.add_argument("--output", type=Path, help="the changed matrix, a .npy file")
    run = flags.add_argument_group("several processes", "or JAX_COORDINATOR_ADDRESS and so on")
    run.add_argument("--coordinator", metavar="HOST:PORT", help="where process 0 listens")
    run.add_argument("--num-processes", type=int, help="of the run")
    run.add_argument("--process-id", type=int, help="of this one, from 0 on")
    run.add_argument(
        "--heartbeat-timeout",
        type=int,
        default=distributed.HEARTBEAT_SECONDS,
        help="seconds of silence after which a process is taken for dead, and the run ends (30)",
    )
    run.add_argument(
        "--join-timeout",
        type=int,
        help="seconds that the processes wait for each other at the start (JAXGEOM_JOIN_TIMEOUT; "
        f"{distributed.JOIN_SECONDS})",
    )
    return flags


def main(args: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        args: the flags; those of the process where None.

    Returns:
        The exit status: 0, 2 after a user's mistake or a full disk, 130 after Ctrl-C.
    """
    options = parser().parse_args(args)
    try:
        with distributed.session(
            options.coordinator,
            options.num_processes,
            options.process_id,
            heartbeat_timeout_seconds=options.heartbeat_timeout,
            join_timeout_seconds=options.join_timeout,
        ):
            run(options)
    except KeyboardInterrupt:
        print("interrupted; nothing half-written is left", file=sys.stderr)
        return 130
    except distributed.MISTAKES as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def run(options: argparse.Namespace) -> None:
    """Measure, print and write; only process 0 does the latter two."""
    if (options.transform is None) != (options.output is None):
        raise ValueError("--transform and --output must be given together")
    source = distributed.together(lambda: streaming.open_source(options.input, key=options.key))
    if options.output is not None:
        require_output(options.output, source)
    settings = {
        "n_clusters": options.clusters,
        "n_directions": options.directions,
        "sample_size": options.sample,
    }
    key, passes = jax.random.key(options.seed), Options(options.chunk_rows)
    found = overview(source, key=key, options=passes, **settings)
    document = report(found, source, settings | {"seed": options.seed})
    path = options.json or Path(f"{options.input.resolve().name}.analysis.json")
    distributed.on_writer(lambda: write_json(path, document))
    if distributed.is_writer():
        print(table(document), end="")
        print(f"\nwritten: {path}")
    if options.transform is not None:
        _transform(source, found, options)


def _transform(source: AnySource, found: Overview, options: argparse.Namespace) -> None:
    """Write the matrix as one of the transforms leaves it."""
    clustered, _ = TRANSFORMS[options.transform]
    n = streaming.apply_removal(
        source,
        found.removals[options.transform],
        options.output,
        found.centroids if clustered else None,
        chunk_rows=options.chunk_rows,
    )
    if distributed.is_writer():
        print(f"written: {options.output} ({n:,} rows, {options.transform})")


if __name__ == "__main__":
    sys.exit(main())

"""A run of the suite as Markdown and plots: python -m benchmarks.report out.json --output report.

The first table holds the project's promises, losses included; the second, every entry: its ratio to
the reference and to the best peer, its share of the machine's limit (the rate of a large matrix
product or of a copy, whichever holds the call up longer), its error.
"""

import argparse
import itertools
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks import results
from benchmarks.results import Outcome, Run, Timing
from benchmarks.targets import LIMITS, TARGETS

_NOT_PEERS = ("jaxgeom", "reference", "isotropy", "13 calls")
_MARK = {True: "yes", False: "**no**", None: "not measured"}


def main(args: Sequence[str] | None = None) -> int:
    """Print the report, and write it with its plots where `--output` says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("json", type=Path, help="from pytest benchmarks --benchmark-json")
    parser.add_argument("--output", type=Path, help="folder for report.md and the plots")
    given = parser.parse_args(args)
    try:
        run = results.read(given.json)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = markdown(run)
    print(text)
    if given.output:
        given.output.mkdir(parents=True, exist_ok=True)
        plots = [path.name for path in plot(run, given.output)]
        shown = "\n".join(f"![]({name})" for name in plots)
        (given.output / "report.md").write_text(f"{text}\n\n{shown}\n", encoding="utf-8")
    return 0


def markdown(run: Run) -> str:
    """Return the whole report."""
    parts = [header(run), target_table(run), "## Every entry", *map(group_table, _groups(run))]
    return "\n\n".join(parts)


def header(run: Run) -> str:
    """Return where the numbers were taken."""
    m = run.machine
    versions = ", ".join(f"{name} {version}" for name, version in m["versions"].items())
    blas = sorted(set(m["blas"]).union(*(t.info.get("blas", ()) for t in run.timings.values())))
    return (
        f"# Benchmarks\n\n{m['device']} ({m['platform']}), {m['threads']} threads, "
        f"Python {m['python']}. {versions}.\n\nThread pools: {'; '.join(blas) or 'none'}. "
        f"Best float32 matrix product {m['matmul_gflops']:.0f} GFLOP/s, copy "
        f"{m['copy_gbs']:.1f} GB/s. Medians of one run; a ratio is the best peer's time over ours."
    )


def outcomes(run: Run) -> list[Outcome]:
    """Return every promise with what was measured."""
    return [
        *(results.against_peers(run, target) for target in TARGETS),
        *(results.under_limit(run, limit) for limit in LIMITS),
    ]


def target_table(run: Run) -> str:
    """Return the table of promises."""
    rows = [
        (o.work, o.ours, o.share, o.against, o.theirs, o.measured, o.target, _MARK[o.met])
        for o in outcomes(run)
    ]
    headers = ("Work", "jaxgeom", "Of the limit", "Best peer", "Its time", "Measured", "Target",
               "Met")  # fmt: skip
    return _table(headers, rows, "lrrlrrrl")


def _groups(run: Run) -> Iterable[tuple[Run, str]]:
    return ((run, group) for group in dict.fromkeys(t.group for t in run.timings.values()))


def group_table(of: tuple[Run, str]) -> str:
    """Return the entries of one group, fastest first."""
    run, group = of
    entries = run.of(group)
    headers = ("Backend", "Median", "IQR", "Rounds", "× reference", "× best peer", "GFLOP/s",
               "Of the limit", "First call", "Error / allowed")  # fmt: skip
    rows = [_row(run, entries, entry) for entry in entries]
    return f"### {group}\n\n{_table(headers, rows, 'l' + 'r' * (len(headers) - 1))}"


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> str:
    """Return a Markdown table; `align` has an l or an r for each column."""
    rules = ["---" if side == "l" else "--:" for side in align]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headers, rules, *rows))


def _row(run: Run, entries: list[Timing], entry: Timing) -> tuple[str, ...]:
    """Return one entry's cells."""
    reference = next((t for t in entries if t.backend == "reference"), None)
    peer = next((t for t in entries if t.backend not in _NOT_PEERS and t != entry), None)
    rate = entry.gflops
    return (
        entry.backend,
        results.seconds(entry.median),
        results.seconds(entry.spread),
        str(entry.rounds),
        _ratio(reference, entry),
        _ratio(peer, entry),
        "—" if rate is None else f"{rate:.0f}",
        results.share(run, entry),
        results.seconds(entry.info["first_call_s"]) if "first_call_s" in entry.info else "—",
        "—" if entry.worst_error is None else f"{entry.worst_error:.2g}",
    )


def _ratio(other: Timing | None, entry: Timing) -> str:
    """Return how many times faster an entry is than another one."""
    return "—" if other is None else f"{other.median / entry.median:.2f}×"


def plot(run: Run, folder: Path) -> list[Path]:
    """Draw the promises as bars, and every group's medians; return the files."""
    import matplotlib as mpl  # noqa: PLC0415  # the table needs none of it

    mpl.use("Agg")
    return [_plot_targets(run, folder / "targets.png"), _plot_groups(run, folder / "entries.png")]


def _plot_targets(run: Run, path: Path) -> Path:
    """Draw each measured ratio beside its target."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    rows = [(t, o) for t in TARGETS if (o := results.against_peers(run, t)).met is not None]
    figure = Figure(figsize=(8, 1 + 0.5 * max(len(rows), 1)), layout="constrained")
    axes = figure.subplots()
    for place, (target, outcome) in enumerate(rows):
        color, hatch = ("tab:blue", None) if outcome.met else ("tab:orange", "//")
        axes.barh(place, float(outcome.measured[:-1]), color=color, hatch=hatch, edgecolor="white")
        axes.plot([target.at_least] * 2, [place - 0.4, place + 0.4], color="black")
    axes.set_yticks(range(len(rows)), [target.work for target, _ in rows])
    axes.axvline(1, color="grey", linewidth=0.5)
    axes.invert_yaxis()
    axes.set_xlabel("times faster than the best peer (black: target)")
    figure.savefig(path, dpi=150)
    return path


def _plot_groups(run: Run, path: Path) -> Path:
    """Draw every entry's median, a colour for each backend."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    groups = [group for _, group in _groups(run)]
    figure = Figure(figsize=(9, 1 + 0.25 * max(len(groups), 1)), layout="constrained")
    axes = figure.subplots()
    backends = dict.fromkeys(t.backend for t in run.timings.values())
    for backend, marker in zip(backends, itertools.cycle("osD^vPX*<>"), strict=False):
        mine = [t for t in run.timings.values() if t.backend == backend]
        places = [groups.index(t.group) for t in mine]
        axes.plot([t.median for t in mine], places, marker, label=backend)
    axes.set_yticks(range(len(groups)), groups)
    axes.set_xscale("log")
    axes.set_xlabel("median seconds")
    axes.invert_yaxis()
    axes.grid(axis="x", linewidth=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=150)
    return path


if __name__ == "__main__":
    sys.exit(main())

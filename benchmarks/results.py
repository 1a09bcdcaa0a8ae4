"""The JSON of a run of the suite, as the report reads it."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.targets import Limit, Target


class Timing(NamedTuple):
    """One entry of the suite."""

    group: str
    backend: str
    median: float  # seconds
    spread: float  # interquartile range, seconds
    rounds: int
    info: dict[str, Any]

    @property
    def gflops(self) -> float | None:
        """Useful arithmetic a second, where the entry says how much there is."""
        return self.info["flops"] / self.median / 1e9 if "flops" in self.info else None

    def share_of_limit(self, machine: dict[str, Any]) -> tuple[float, str] | None:
        """Return which share of the machine's limit this is, and which limit: product or copy.

        No call can be over before its arithmetic is done at the rate of a large matrix product, nor
        before its arrays are read and written at that of a copy; the later one is the limit. None
        where the entry does not say what it needs.
        """
        needs = {
            "product": self.info.get("flops", 0.0) / machine["matmul_gflops"],
            "copy": self.info.get("bytes", 0.0) / machine["copy_gbs"],
        }
        limit = max(needs, key=lambda name: needs[name])
        return (needs[limit] / 1e9 / self.median, limit) if needs[limit] else None

    @property
    def worst_error(self) -> float | None:
        """The largest error, as a share of its tolerance."""
        errors = self.info.get("error") or {}
        return max(errors.values(), default=None)


class Run(NamedTuple):
    """All entries of a run, and where it ran."""

    machine: dict[str, Any]
    commit: str | None
    timings: dict[tuple[str, str], Timing]  # by group and backend

    def of(self, group: str) -> list[Timing]:
        """Return the entries that are compared with each other, fastest first."""
        return sorted(
            (t for t in self.timings.values() if t.group == group), key=lambda t: t.median
        )


class Outcome(NamedTuple):
    """A row of the table: what was measured, and how it stands to what was promised."""

    work: str
    ours: str
    share: str  # of the machine's limit
    against: str
    theirs: str
    measured: str
    target: str
    met: bool | None  # None: not measured


def read(path: Path) -> Run:
    """Read what `pytest benchmarks --benchmark-json` wrote.

    Raises:
        ValueError: the file is of something else.
    """
    document = json.loads(path.read_text(encoding="utf-8"))
    machine = document.get("machine_info", {}).get("jaxgeom")
    if machine is None:
        raise ValueError(f"{path}: not written by pytest benchmarks --benchmark-json")
    timings = (_timing(entry) for entry in document["benchmarks"])
    commit = document.get("commit_info", {}).get("id")
    return Run(machine, commit, {(t.group, t.backend): t for t in timings})


def _timing(entry: dict[str, Any]) -> Timing:
    stats, info = entry["stats"], entry["extra_info"]
    return Timing(
        entry["group"], info["backend"], stats["median"], stats["iqr"], stats["rounds"], info
    )


def against_peers(run: Run, target: Target) -> Outcome:
    """Return how our entry stands to the best of the peers' that were measured."""
    ours = run.timings.get((target.group, target.ours))
    peers = [t for name in target.against if (t := run.timings.get((target.group, name)))]
    best = min(peers, key=lambda t: t.median, default=None)
    wanted = f"≥ {target.at_least:g}×"
    if ours is None or best is None:
        shown = (seconds(ours.median), share(run, ours)) if ours else ("—", "—")
        return Outcome(target.work, *shown, ", ".join(target.against), "—", "—", wanted, None)
    ratio = best.median / ours.median
    return Outcome(
        target.work, seconds(ours.median), share(run, ours), best.backend, seconds(best.median),
        f"{ratio:.2f}×", wanted, ratio >= target.at_least,
    )  # fmt: skip


def under_limit(run: Run, limit: Limit) -> Outcome:
    """Return how our entry stands to its ceiling."""
    ours = run.timings.get((limit.group, "jaxgeom"))
    wanted = f"≤ {limit.at_most:g} {limit.unit}"
    if ours is None:
        return Outcome(limit.work, "—", "—", "—", "—", "—", wanted, None)
    value = ours.median if limit.quantity == "seconds" else ours.info[limit.quantity]
    shown = f"{value:.3g} {limit.unit}"
    return Outcome(limit.work, shown, "—", "—", "—", shown, wanted, value <= limit.at_most)


def share(run: Run, entry: Timing) -> str:
    """Return an entry's share of the machine's limit as it is read: 85 % product."""
    found = entry.share_of_limit(run.machine)
    return "—" if found is None else f"{found[0]:.0%} {found[1]}"


def seconds(value: float) -> str:
    """Return a duration as it is read: 12.3 ms, 4.56 s."""
    if value < 1e-3:
        return f"{value * 1e6:.3g} µs"
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"

"""Findings: each claim of the study, our numbers, and yes, no or within noise over seeds.

    python -m experiments.findings --output out

It reads what the other experiments left in OUTPUT (table1.json, table2.json, figure1.json,
figure2.json, directions.json) and measures nothing itself; a claim whose rows are missing is not
applicable. OUTPUT receives findings.json, .csv, .md and .tex.
"""

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.command.record import run_record
from experiments.command.stages import Stages
from experiments.command.start import main
from experiments.layout.findings import LEGEND, tables_of
from experiments.layout.publish import publish
from experiments.rows import paper
from experiments.rows.claims import BOTH, Claim, claims, claims_on_two
from experiments.rows.noise import answer, mean_of, same_sign
from experiments.rows.quantities import BySeed, Results
from experiments.rows.row import Row

SOURCES = ("table1", "table2", "figure1", "figure2", "directions")


@dataclass(frozen=True)
class Config:
    """Findings: the study's claims, answered from the results of the other experiments."""

    output: Path = Path("out")
    """Folder of the results of the other experiments, and of the findings."""


class Result(NamedTuple):
    """What a run gives back and writes."""

    rows: list[dict[str, Any]]  # one for each claim, model and protocol
    record: dict[str, Any]  # of run.json


def run(config: Config, *, sources: Sequence[str] = SOURCES) -> Result:
    """Answer every claim from the folder's results; write and print the tables.

    Args:
        config: the options.
        sources: the experiments whose results count; others that lie there may be of another run.

    Returns:
        The rows as in findings.json, and the record of the run.

    Raises:
        ValueError: no results in the folder, or a file that cannot be read; the message names it.
    """
    stages = Stages()
    with stages("read"):
        rows = findings(read_results(config.output, sources))
    record = run_record(config, stages.seconds, [])
    publish(config.output, "findings", rows, tables_of(rows), LEGEND, record)
    return Result(rows, record)


def read_results(folder: Path, sources: Sequence[str] = SOURCES) -> dict[str, list[Row]]:
    """Return the rows of each of `SOURCES` that is among `sources` and left some in `folder`."""
    found = {}
    for name in SOURCES:
        path = folder / f"{name}.json"
        if name in sources and path.exists():
            try:
                found[name] = json.loads(path.read_text(encoding="utf-8"))["rows"]
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path}: must hold the rows of {name} ({error!r})") from error
    if not found:
        names = ", ".join(f"{name}.json" for name in SOURCES)
        raise ValueError(f"{folder} must hold results, one or more of {names}")
    return found


def findings(results: Mapping[str, Sequence[Row]]) -> list[dict[str, Any]]:
    """Return a row for each claim, model and protocol.

    Args:
        results: the rows of each of `SOURCES`; any may be missing.

    Returns:
        As in findings.json.
    """
    every = [row for rows in results.values() for row in rows]
    models = list(dict.fromkeys(row["model"] for row in every))
    shares, targets = (_targets(results, quantity) for quantity in ("variance", "isotropy"))
    rows = []
    for protocol in dict.fromkeys(row["protocol"] for row in every):
        under = Results(results).of(protocol=protocol)
        for model in models:
            one = under.of(model=model)
            rows += [_finding(c, model, protocol, one, one) for c in claims(shares, targets)]
        sides = [under.of(model=model) for model in _berts(models)]
        rows += [_finding(claim, BOTH, protocol, *sides) for claim in claims_on_two()]
    return rows


def _targets(results: Mapping[str, Sequence[Row]], quantity: str) -> tuple[float, ...]:
    """Return for which shares or values directions were counted."""
    rows = [row for row in results.get("directions", ()) if row["quantity"] == quantity]
    return tuple(dict.fromkeys(row["target"] for row in rows))


def _berts(models: Sequence[str]) -> tuple[str, str]:
    """Return which models are the study's BERT and RoBERTa; names that are not there, if none."""
    by_name = {paper.MODELS[model]: model for model in models if model in paper.MODELS}
    return by_name.get("BERT", ""), by_name.get("RoBERTa", "")


def _finding(
    claim: Claim, model: str, protocol: str, before: Results, after: Results
) -> dict[str, Any]:
    """Return the row of one claim."""
    pairs = dict(_paired(claim.first.of(before), claim.second.of(after)))
    differences = [_difference(claim, *pair) for pair in pairs.values()]
    mean = mean_of(differences) if differences else None
    first, second = zip(*pairs.values(), strict=True) if pairs else ((), ())
    return {
        "claim": claim.name,
        "model": model,
        "protocol": protocol,
        "statement": claim.statement,
        "address": claim.address,
        "what": claim.what,
        "unit": claim.unit,
        "order": claim.order,
        "seeds": " ".join(map(str, pairs)),
        "first": statistics.fmean(first) if first else None,
        "second": statistics.fmean(second) if second else None,
        "difference": mean and mean.value,
        "half_width": mean and mean.half_width,
        **dict(_printed(claim, model)),
        "answer": _answer(claim, differences),
    }


def _paired(first: BySeed, second: BySeed) -> Iterator[tuple[int, tuple[float, float]]]:
    """Yield both numbers of each seed that has both."""
    for seed in sorted(first.keys() & second.keys()):
        yield seed, (first[seed], second[seed])


def _difference(claim: Claim, first: float, second: float) -> float:
    """Return second minus first, of isotropies in logarithms: their scale is one of powers."""
    if claim.unit != "isotropy":
        return second - first
    tiny = np.finfo(np.float64).tiny  # an isotropy that underflowed
    return float(np.log(max(second, tiny)) - np.log(max(first, tiny)))


def _answer(claim: Claim, differences: Sequence[float]) -> str:
    """Return whether the differences are as claimed."""
    if not differences:
        return "not applicable"
    if claim.order == "control":
        return "control"
    if claim.order == "same sign":
        return same_sign(differences)
    return answer([d if claim.order == "above" else -d for d in differences])


def _printed(claim: Claim, model: str) -> Iterator[tuple[str, float | None]]:
    """Yield what the study prints of both quantities, for each of its models, or of neither.

    Where one of its models stands against the other, the first number is BERT's alone.
    """
    sides = {"first": claim.first, "second": claim.second}
    owners = {"first": ("BERT",), "second": ("RoBERTa",)} if model == BOTH else {}
    for name in paper.MODELS.values():
        printed = {side: quantity.printed(name) for side, quantity in sides.items()}
        is_whole = printed["second"] and (printed["first"] or claim.first.is_bound)
        for side, value in printed.items():
            stands_here = is_whole and name in owners.get(side, (name,))
            yield f"{name.lower()}_{side}", value if stands_here else None


if __name__ == "__main__":
    sys.exit(main(Config, run, name="findings"))

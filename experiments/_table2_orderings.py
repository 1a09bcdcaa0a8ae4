"""Which values of I one choice of signs allows in Table 2, and whether the printed ones are.

The reasoning is `jaxgeom.study.orderings`; here it meets the numbers of a run and of the study.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from experiments._outputs import Row
from experiments._setting_tables import by_space, of_others, study_models, titled
from experiments._spaces import Space
from experiments._table2_layout import printed, study_least
from experiments._tables import NOTHING, Table, isotropy
from experiments.paper import MODELS
from jaxgeom.results import Isotropy, IsotropyCurve
from jaxgeom.study import SettingResult, orderings

THIS_RUN = "this run"
INSIDE = {
    (True, True): "both",
    (True, False): "first",
    (False, True): "second",
    (False, False): "neither",
}
KEPT = {True: "kept", False: "removed", None: "kept or removed, as the signs are,"}
LEGEND = (
    "Orders: how I of the first setting must stand to I of the second under one choice of signs, "
    "as computed from the run. equal: it must be equal and is, to the digits that are printed; "
    "allowed: nothing forbids the pair; impossible: no single choice of signs gives it. In our "
    "ranges: which of the two values lie in our range over all signs, each by itself."
)


class Pair(NamedTuple):
    """Two isotropies of one source, and whether each is inside our range over signs."""

    source: str  # this run, or one of the study's models
    first: float
    second: float
    inside: str | None = None  # both, first, second, neither; None for this run's own


def ordering_rows(
    space: Space,
    fit: Isotropy,
    ranges: IsotropyCurve,
    results: Mapping[tuple[str, int], SettingResult],
) -> list[dict[str, Any]]:
    """Return the pairs among I(zero-mean) and I(m least removed by Global), of the run and printed.

    Args:
        space: what was measured.
        fit: isotropy of the centred tokens.
        ranges: I after each number of least removals, from `isotropy_curve`.
        results: from `least_settings`, under the space's protocol.

    Returns:
        For each pair a row of this run, then, for a fine-tuned model, one for each of the study's
        models that its numbers can stand beside.
    """
    numbers = [m for setting, m in results if setting in ("zero_mean", "global")]
    log_f, count = np.asarray(fit.log_partition), int(fit.count)
    rows = []
    for first, second in combinations(numbers, 2):
        one, other = (results[_setting(m), m].isotropy.isotropy for m in (first, second))
        pairs = [Pair(THIS_RUN, one, other), *_printed_pairs(space, ranges, first, second)]
        allowed = orderings.bounds(log_f, count, first, second)
        facts = {
            "first": first,
            "second": second,
            "has_null_direction": orderings.has_null_direction(log_f, count),
            "heaviest_kept": orderings.heaviest_is_kept(log_f, count, second),
            "relation": orderings.relation(allowed),
            "log_ratio_low": allowed.low,
            "log_ratio_high": allowed.high,
        }
        rows += [_row(space, pair, facts, allowed) for pair in pairs]
    return rows


def ordering_tables(rows: Sequence[Row]) -> list[Table]:
    """Return one table of pairs for each model, state and protocol."""
    return [_table(group) for group in by_space(rows)]


def _setting(n_least: int) -> str:
    """Return the setting with one mean and one set of directions that removes so many."""
    return "global" if n_least else "zero_mean"


def _printed_pairs(space: Space, ranges: IsotropyCurve, first: int, second: int) -> Iterator[Pair]:
    """Yield the isotropies that the study prints for this pair, held against our ranges."""
    d = space.tokens.shape[1]
    for name in study_models(space.model):
        one, other = (
            printed(name, space.state, _setting(m), study_least(m, d)) for m in (first, second)
        )
        if one and other:
            held = (
                orderings.inside(cell.isotropy, float(ranges.low[m]), float(ranges.high[m]))
                for cell, m in ((one, first), (other, second))
            )
            yield Pair(name, one.isotropy, other.isotropy, INSIDE[next(held), next(held)])


def _row(
    space: Space, pair: Pair, facts: dict[str, Any], allowed: orderings.Bounds
) -> dict[str, Any]:
    """Return one pair as in table2.json."""
    is_printed = pair.source != THIS_RUN
    return {
        "model": space.model,
        "state": space.state,
        "seed": space.seed,
        "protocol": space.protocol,
        "source": pair.source,
        **facts,
        "isotropy_first": pair.first,
        "isotropy_second": pair.second,
        "mark": orderings.mark(pair.first, pair.second, allowed, printed=is_printed),
        "inside": pair.inside,
    }


def _table(rows: Sequence[Row]) -> Table:
    """Return the pairs of one model in one state, seed by seed."""
    several = len({row["seed"] for row in rows}) > 1
    lines = [
        [
            _label(row, several),
            isotropy(row["isotropy_first"]),
            row["relation"],
            isotropy(row["isotropy_second"]),
            row["mark"],
            row["inside"] or NOTHING,
        ]
        for row in rows
    ]
    first = rows[0]
    title = f"{titled(first)} · {first['state']} · orders of I · protocol {first['protocol']}"
    header = ["", "first", "must be", "second", "mark", "in our ranges"]
    return Table(title, header, lines, list(_notes(rows)))


def _label(row: Row, several: bool) -> str:
    """Return what a line is about."""
    if row["source"] != THIS_RUN:
        return f"  study, {row['source']}"
    first = f"{row['first']} least" if row["first"] else "zero-mean"
    seed = f", seed {row['seed']}" if several else ""
    return f"I({first}), I({row['second']} least){seed}"


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the facts that the orders follow from; once for the seeds that share them."""
    own = [row for row in rows if row["source"] == THIS_RUN]
    seeds_of: dict[str, list[str]] = {}
    for seed in dict.fromkeys(row["seed"] for row in own):
        facts = _facts([row for row in own if row["seed"] == seed])
        seeds_of.setdefault(facts, []).append(str(seed))
    for facts, seeds in seeds_of.items():
        yield f"{'Seed' if len(seeds) == 1 else 'Seeds'} {', '.join(seeds)}: {facts}."
    model = rows[0]["model"]
    if len(own) < len(rows) and model not in MODELS:
        yield of_others(model)


def _facts(rows: Sequence[Row]) -> str:
    """Say what holds of one space."""
    has = "has a" if rows[0]["has_null_direction"] else "has no"
    numbers: dict[str, list[str]] = {}
    for row in rows:
        what, m = KEPT[row["heaviest_kept"]], str(row["second"])
        numbers.setdefault(what, [])
        numbers[what] += [m] if m not in numbers[what] else []
    heaviest = "; ".join(f"{what} with {', '.join(m)} least removed" for what, m in numbers.items())
    return f"the centred data {has} null direction; the heaviest direction is {heaviest}"

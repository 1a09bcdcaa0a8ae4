"""Which values of I one choice of signs allows in Table 2, and whether the printed ones are.

The reasoning is `jaxgeom.study.orderings`; here it meets the numbers of a run and of the study.
"""

from collections.abc import Iterator, Sequence

from experiments.layout.settings import by_space, of_others, titled
from experiments.layout.tables import NOTHING, Table, isotropy
from experiments.rows.orderings import THIS_RUN
from experiments.rows.paper import MODELS
from experiments.rows.row import Row

KEPT = {True: "kept", False: "removed", None: "kept or removed, as the signs are,"}
LEGEND = (
    "Orders: how I of the first setting must stand to I of the second under one choice of signs, "
    "as computed from the run. equal: it must be equal and is, to the digits that are printed; "
    "allowed: nothing forbids the pair; impossible: no single choice of signs gives it. In our "
    "ranges: which of the two values lie in our range over all signs, each by itself."
)


def ordering_tables(rows: Sequence[Row]) -> list[Table]:
    """Return one table of pairs for each model, state and protocol."""
    return [_table(group) for group in by_space(rows)]


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

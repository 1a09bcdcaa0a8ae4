"""Findings laid out: a table for each model and protocol, a line for each claim."""

from collections.abc import Callable, Sequence
from typing import Any

from experiments.layout.tables import NOTHING, Table, correlation, isotropy
from experiments.rows import paper
from experiments.rows.claims import BOTH
from experiments.rows.paper import study_models
from experiments.rows.row import Row, grouped

LEGEND = (
    "Each claim of the study says how the second of two numbers stands to the first; both are "
    "means over the seeds that have both. Difference: the mean over seeds ± half of its 95 % "
    "confidence interval (Student's t); of isotropies it is that of ln I. yes, no: the interval is "
    "on the side that the study claims, or on the other; within noise: it holds 0; one seed: none, "
    "only whether the one number is as claimed or contrary; not applicable: a state, a model or a "
    "figure is missing. control: random weights, of which the study says nothing. Isotropy: the "
    "heavier-side reading (ours) or the solver's signs (authors). Layers and Figure 2: one seed. "
    "The study's own numbers stand where it prints them; of both its models where ours is another."
)
FACES: dict[str, Callable[[Any], str]] = {
    "isotropy": isotropy,
    "spearman": correlation,
    "nats": correlation,
    "layers": lambda value: f"{value:g}",
    "directions": lambda value: f"{value:g}",
    "rho": correlation,
}
HEADER = ("what the study says", "where", "here", "first → second", "difference", "study", "answer")


def tables_of(rows: Sequence[Row]) -> list[Table]:
    """Return one table a model and protocol."""
    return [_table(group) for group in grouped(rows, "model", "protocol")]


def _table(rows: Sequence[Row]) -> Table:
    """Return the table of one model under one protocol."""
    first = rows[0]
    lines = [
        [
            row["statement"],
            row["address"],
            row["what"],
            _pair(row["first"], row["second"], row["unit"]),
            _difference(row),
            _study(row),
            answer_of(row),
        ]
        for row in rows
    ]
    return Table(f"{first['model']} · findings · protocol {first['protocol']}", HEADER, lines)


def answer_of(row: Row) -> str:
    """Return the answer in words; one seed and a control say which way they go."""
    words = row["answer"]
    if row["difference"] is None or words not in ("one seed", "control"):
        return words
    if row["order"] in ("above", "below"):
        agrees = (row["difference"] > 0) == (row["order"] == "above") and row["difference"] != 0
        return f"{words}: {'as claimed' if agrees else 'contrary'}"
    way = "rises" if row["difference"] > 0 else "falls"
    return words if row["order"] == "same sign" else f"{words}: {_seen(row, way)}"


def _seen(row: Row, way: str) -> str:
    """Return which way a control goes, as far as its seeds show it."""
    if row["half_width"] is None:
        return f"{way} (one seed)"
    return way if abs(row["difference"]) > row["half_width"] else "within noise"


def _pair(first: float | None, second: float | None, unit: str) -> str:
    """Return two numbers of a unit."""
    if first is None or second is None:
        return NOTHING
    return f"{FACES[unit](first)} → {FACES[unit](second)}"


def _printed(first: float | None, second: float | None, unit: str) -> str:
    """Return the study's two numbers, or the second alone where the first is a bound of ours."""
    if first is None and second is not None:
        return FACES[unit](second)
    return _pair(first, second, unit)


def _difference(row: Row) -> str:
    """Return the difference with half the width of its interval."""
    if row["difference"] is None:
        return NOTHING
    sign = "ln " if row["unit"] == "isotropy" else ""
    half = "" if row["half_width"] is None else f" ± {row['half_width']:.2f}"
    return f"{sign}{row['difference']:+.2f}{half}"


def _study(row: Row) -> str:
    """Return the study's two numbers: of this model, or of both of its own."""
    if row["model"] == BOTH:
        return _pair(row["bert_first"], row["roberta_second"], row["unit"])
    names = study_models(row["model"])
    pairs = {
        name: _printed(row[f"{name.lower()}_first"], row[f"{name.lower()}_second"], row["unit"])
        for name in names
    }
    printed = {name: pair for name, pair in pairs.items() if pair != NOTHING}
    if not printed:
        return NOTHING
    own = row["model"] in paper.MODELS
    return "; ".join(pair if own else f"{name} {pair}" for name, pair in printed.items())

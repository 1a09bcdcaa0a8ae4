"""Table 2 laid out: each number of least directions beside the baseline, the study's below."""

from collections.abc import Sequence

from experiments import paper
from experiments._outputs import Row
from experiments._setting_tables import by_space, setting_table
from experiments._tables import Table

TITLES = {"baseline": "Baseline", "zero_mean": "Zero-mean"}
CHANGED = {"global": "Global", "cluster_based": "Cluster-based"}


def least_of(d: int) -> tuple[int, ...]:
    """Return the study's numbers of least directions at d features: the same shares, in 1..d - 1.

    Example:
        >>> least_of(768), least_of(384), least_of(2)
        ((100, 700), (50, 350), (1,))
    """
    return tuple(sorted({_share(m, d) for m in paper.LEAST}))


def study_least(m: int, d: int) -> int | None:
    """Return the study's number of least directions that m of d features stand for, if any."""
    if m == 0:
        return 0
    return next((theirs for theirs in paper.LEAST if _share(theirs, d) == m), None)


def printed(model: str, state: str, setting: str, theirs: int | None) -> paper.Printed | None:
    """Return what the study prints of its `model`, in the state `finetuned` alone.

    Args:
        model: the study's name for it.
        state: of our row.
        setting: "baseline", "zero_mean" (which stands in Table 1), "global" or "cluster_based".
        theirs: least directions removed in the study; 0 for the first two.
    """
    if state != "finetuned" or theirs is None:
        return None
    if setting == "zero_mean":
        return paper.TABLE1.get((model, state, setting))
    return paper.TABLE2.get((model, setting, theirs))


def tables_of(rows: Sequence[Row]) -> list[Table]:
    """Return one table for each model, state and protocol, in the order of the rows."""
    return [_table(group) for group in by_space(rows)]


def _table(rows: Sequence[Row]) -> Table:
    """Return the table of one model in one state over its seeds."""
    settings = list(dict.fromkeys((row["setting"], row["n_least"]) for row in rows))
    columns = [
        [row for row in rows if (row["setting"], row["n_least"]) == setting] for setting in settings
    ]
    return setting_table(columns, [_title(*setting) for setting in settings], _printed)


def _title(setting: str, n_least: int) -> str:
    """Return the title of a column."""
    return f"{CHANGED[setting]}, {n_least} least" if n_least else TITLES[setting]


def _printed(model: str, row: Row) -> paper.Printed | None:
    """Return what the study prints of its `model` where `row` stands."""
    return printed(model, row["state"], row["setting"], row["paper_n_least"])


def _share(m: int, d: int) -> int:
    """Return the share of d features that m are of the study's."""
    return min(max(round(m * d / paper.WIDTH), 1), d - 1)

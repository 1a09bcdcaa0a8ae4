"""Pairs of isotropies in Table 2: which values of I one choice of signs allows, ours and printed.

The reasoning is `jaxgeom.study.orderings`; here it meets the numbers of a run and of the study.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from experiments.rows.paper import printed_of_table2, study_least, study_models
from experiments.spaces.space import Space
from jaxgeom.results import Isotropy, IsotropyCurve
from jaxgeom.study import SettingResult, orderings

THIS_RUN = "this run"
INSIDE = {
    (True, True): "both",
    (True, False): "first",
    (False, True): "second",
    (False, False): "neither",
}


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


def _setting(n_least: int) -> str:
    """Return the setting with one mean and one set of directions that removes so many."""
    return "global" if n_least else "zero_mean"


def _printed_pairs(space: Space, ranges: IsotropyCurve, first: int, second: int) -> Iterator[Pair]:
    """Yield the isotropies that the study prints for this pair, held against our ranges."""
    d = space.tokens.shape[1]
    for name in study_models(space.model):
        one, other = (
            printed_of_table2(name, space.state, _setting(m), study_least(m, d))
            for m in (first, second)
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

"""Which values of I(W) one choice of signs allows before and after least directions are removed.

Take centred data of n rows and one sign for each of its d principal directions u. F(u) is at least
n (Jensen). Removing directions leaves F along the others alone and puts F = n in their place, so

    ln I(zero-mean) = min F - max F         and, for 1 <= m < d least directions removed,
    ln I(m)         = ln n  - max over the kept F,

with F for its logarithm. I(m) never falls in m, and it stays the same until the heaviest direction
itself goes. Against zero-mean it can fall by no more than min F / n: where the data has a null
direction (F = n on both sides), not at all. Every LayerNorm output has one, 1 / weight.

Here each statement is an interval: of ln I(second) - ln I(first) over all 2^d choices of signs, the
same choice for both. A printed pair outside it is not what the definition gives, whatever the
solver; a pair whose two values were read with different signs can lie outside it.
"""

import math
from typing import Literal, NamedTuple

import numpy as np

from jaxgeom import _checks

TOLERANCE = 2e-3  # of ln I: what float32 leaves open; the two digits that are printed hide it

Relation = Literal["=", "≤", "≥", "any"]
Mark = Literal["equal", "allowed", "impossible"]


class Bounds(NamedTuple):
    """The range of ln I(second) - ln I(first) over all choices of signs."""

    low: float
    high: float


def has_null_direction(log_partition: np.ndarray, count: int) -> bool:
    """Return whether centred data has a direction with F = n on both sides, within `TOLERANCE`.

    Args:
        log_partition: [2 d], ln F along the principal directions of centred data, on both sides.
        count: number of rows n.

    Example:
        >>> has_null_direction(np.log([[9.0, 4.0], [8.0, 4.0]]), 4)
        True
    """
    _, heavy = _sides(log_partition, count)
    return bool(heavy.min() - math.log(count) <= TOLERANCE)


def heaviest_is_kept(log_partition: np.ndarray, count: int, n_least: int) -> bool | None:
    """Return whether the direction of largest F is kept when the least ones are removed.

    Args:
        log_partition: [2 d], as of `has_null_direction`, directions of descending variance.
        count: number of rows n.
        n_least: number of least directions removed, in 0..d - 1.

    Returns:
        True or False where it is so for every choice of signs, None where that depends on it.
    """
    light, heavy, n_kept = *_sides(log_partition, count), _n_kept(log_partition, n_least)
    if n_least == 0 or light[:n_kept].max() >= heavy[n_kept:].max():
        return True
    return None if heavy[:n_kept].max() >= light[n_kept:].max() else False


def bounds(log_partition: np.ndarray, count: int, first: int, second: int) -> Bounds:
    """Return the range of ln I(second) - ln I(first) over all choices of signs.

    Args:
        log_partition: [2 d], as of `has_null_direction`, directions of descending variance.
        count: number of rows n.
        first: number of least directions removed, in 0..second - 1; 0 is zero-mean.
        second: number of least directions removed, in 1..d - 1.

    Returns:
        An interval that holds every choice of signs. (Its ends need not both be reached: they are
        taken for the smallest and for the largest F apart.)

    Raises:
        ValueError: a number out of range.

    Example:
        >>> log_f = np.log([[9.0, 5.0, 4.0], [8.0, 5.0, 4.0]])  # the last direction is null
        >>> bounds(log_f, 4, 0, 1)
        Bounds(low=0.0, high=0.0)
    """
    light, heavy = _sides(log_partition, count)
    before, after = _n_kept(log_partition, first), _n_kept(log_partition, second)
    _checks.integer("second", second, first + 1)
    # how far the heaviest kept F sinks from the first removal to the second
    low = max(0.0, light[after:before].max() - heavy[:after].max())
    high = max(0.0, heavy[after:before].max() - light[:after].max())
    if first == 0:  # then the lightest F gives way to n
        low += math.log(count) - heavy.min()
        high += math.log(count) - light.min()
    return Bounds(float(low), float(high))


def relation(allowed: Bounds) -> Relation:
    """Return how I(first) must stand to I(second): "=", "≤", "≥", or "any" where it need not."""
    not_falling, not_rising = allowed.low >= -TOLERANCE, allowed.high <= TOLERANCE
    if not_falling and not_rising:
        return "="
    if not_falling:
        return "≤"
    return "≥" if not_rising else "any"


def mark(first: float, second: float, allowed: Bounds, *, printed: bool) -> Mark:
    """Say whether one choice of signs can give a pair of isotropies.

    Args:
        first: I(first).
        second: I(second).
        allowed: from `bounds`.
        printed: whether they are rounded to what the study prints; then each stands for its range.

    Returns:
        "equal" where the pair must be equal and is, "allowed", or "impossible".
    """
    (low, high), (next_low, next_high) = (
        rounded(value) if printed else (value, value) for value in (first, second)
    )
    fell = _log_ratio(next_high, low) < allowed.low - TOLERANCE  # at whatever was rounded off
    rose = _log_ratio(next_low, high) > allowed.high + TOLERANCE
    if fell or rose:
        return "impossible"
    return "equal" if relation(allowed) == "=" else "allowed"


def inside(value: float, low: float, high: float) -> bool:
    """Return whether a printed isotropy can be the rounding of one in `low`..`high`."""
    least, most = rounded(value)
    return least <= high and low <= most


def rounded(value: float) -> tuple[float, float]:
    """Return the range of isotropies that the study prints as `value`: two digits, or 0.31.

    Example:
        >>> [round(end, 6) for end in rounded(2.2e-3)], [round(end, 6) for end in rounded(0.16)]
        ([0.00215, 0.00225], [0.155, 0.165])
    """
    unit = 0.01 if value >= 0.1 else 10.0 ** (math.floor(math.log10(value)) - 1)
    return value - unit / 2, value + unit / 2


def _sides(log_partition: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ln F [d] on each direction's lighter and heavier side; F >= n, but for rounding."""
    _, d = _checks.matrix("log_partition", log_partition, "2 d")
    _checks.shape("log_partition", log_partition, (2, d), "2 d")
    log_f = np.maximum(np.asarray(log_partition, np.float64), math.log(count))
    return log_f.min(axis=0), log_f.max(axis=0)


def _n_kept(log_partition: np.ndarray, n_least: int) -> int:
    """Return how many directions stay."""
    d = log_partition.shape[1]
    return d - _checks.integer("n_least", n_least, 0, d - 1, "d - 1")


def _log_ratio(numerator: float, denominator: float) -> float:
    """Return the logarithm of a quotient; isotropies that underflowed to 0 are equal."""
    if numerator == denominator:
        return 0.0
    tiny = np.finfo(np.float64).tiny
    return math.log(max(numerator, tiny)) - math.log(max(denominator, tiny))

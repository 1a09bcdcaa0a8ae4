"""Whether a difference is more than the seeds' own scatter.

A claim is answered by its difference over seeds: yes or no where the 95 % confidence interval of
the mean (Student's t on n - 1 degrees of freedom, the seeds being the sample) lies on one side of
0, and otherwise within noise. Two seeds make an interval of 12.7 standard errors: they can seldom
answer, as is right. One seed has no scatter at all and answers nothing.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple

from scipy.stats import t

CONFIDENCE = 0.95

Answer = Literal["yes", "no", "within noise", "one seed", "not applicable"]


class Mean(NamedTuple):
    """The mean over seeds and half the width of its confidence interval; None with one seed."""

    value: float
    half_width: float | None


def mean_of(differences: Sequence[float]) -> Mean:
    """Return the mean of one or more differences with its confidence interval.

    Example:
        >>> mean_of([1.0, 2.0, 3.0])
        Mean(value=2.0, half_width=2.484137711731939)
    """
    n = len(differences)
    value = statistics.fmean(differences)
    if n == 1:
        return Mean(value, None)
    error = statistics.stdev(differences) / math.sqrt(n)
    return Mean(value, float(t.ppf((1 + CONFIDENCE) / 2, n - 1)) * error)


def answer(differences: Sequence[float]) -> Answer:
    """Return whether the differences are above 0.

    Args:
        differences: one a seed; what was claimed makes them positive.

    Returns:
        "yes", "no" or "within noise", as the confidence interval lies; "one seed" and "not
        applicable" where there is one or none.

    Example:
        >>> answer([1.0, 1.2, 1.1]), answer([-1.0, -1.2, -1.1]), answer([1.0, 0.1, -0.3])
        ('yes', 'no', 'within noise')
    """
    if not differences:
        return "not applicable"
    mean = mean_of(differences)
    if mean.half_width is None:
        return "one seed"
    if abs(mean.value) <= mean.half_width:
        return "within noise"
    return "yes" if mean.value > 0 else "no"


def same_sign(differences: Sequence[float]) -> Answer:
    """Return whether no seed turns the difference around.

    Example:
        >>> same_sign([-1.0, -0.1]), same_sign([1.0, -0.1]), same_sign([1.0])
        ('yes', 'no', 'one seed')
    """
    if len(differences) < 2:
        return "one seed" if differences else "not applicable"
    agree = all(d > 0 for d in differences) or all(d < 0 for d in differences)
    return "yes" if agree else "no"

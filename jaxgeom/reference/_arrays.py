"""What every reference function does at its door: take arrays in, check them, go to float64."""

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import ArrayLike

from jaxgeom import _checks


def as_array(name: str, x: ArrayLike) -> np.ndarray:
    """Return `x` as a NumPy array; raise `TypeError` where it is no array of numbers."""
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise TypeError(f"{name} must be an array, got {type(x).__name__}") from error
    if array.dtype.kind in "OSU":
        raise TypeError(f"{name} must be an array, got {type(x).__name__}")
    return array


def as_matrix(name: str, x: ArrayLike, axes: str = "n d") -> Float64[np.ndarray, "n d"]:
    """Return `x` as a checked float64 matrix."""
    array = as_array(name, x)
    _checks.matrix(name, array, axes)
    return array.astype(np.float64)


def as_floating(name: str, x: ArrayLike) -> Float64[np.ndarray, "..."]:
    """Return `x` as a checked float64 array of any shape."""
    array = as_array(name, x)
    _checks.floating(name, array)
    return array.astype(np.float64)


def as_shape(
    name: str, x: ArrayLike, expected: tuple[int, ...], axes: str
) -> Float64[np.ndarray, "..."]:
    """Return `x` as a float64 array of exactly the `expected` shape."""
    array = as_array(name, x)
    _checks.shape(name, array, expected, axes)
    return array.astype(np.float64)


def mean_of_rows(x: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, " d"]:
    """Return the mean of the rows, zero where there are none.

    It is taken relative to the first row: a sum of equal rows is rounded, and constant data would
    have a scatter.
    """
    n, d = x.shape
    return x[0] + (x - x[:1]).mean(axis=0) if n else np.zeros(d)


def as_labels(name: str, x: ArrayLike, length: int, n_clusters: int) -> Int64[np.ndarray, " n"]:
    """Return `x` as checked int64 labels."""
    array = as_array(name, x)
    _checks.labels(name, array, length, n_clusters)
    return array.astype(np.int64)


def as_labels_or_zero(
    name: str, x: ArrayLike | None, length: int, n_clusters: int
) -> Int64[np.ndarray, " n"]:
    """Return `x` as checked int64 labels; None puts every row into the only cluster there is."""
    if x is None:
        _checks.labels_given(name, n_clusters)
        return np.zeros(length, np.int64)
    return as_labels(name, x, length, n_clusters)

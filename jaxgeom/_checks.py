"""Checks at the door: every public function calls these before it computes.

They read shapes and dtypes only, so they work on tracers under `jit`, `vmap` and `grad`. The one
exception, `labels`, reads values as well where there are any to read.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

FLOATS = ("float16", "bfloat16", "float32", "float64")


def floating(name: str, x: Any) -> None:
    """Raise `TypeError` unless `x` is an array of one of the floating dtypes."""
    dtype = getattr(x, "dtype", None)
    if dtype is None:
        raise TypeError(f"{name} must be an array, got {type(x).__name__}")
    if dtype.name not in FLOATS:
        raise TypeError(f"{name} must have one of the dtypes {', '.join(FLOATS)}, got {dtype}")


def matrix(name: str, x: Any, axes: str = "n d") -> tuple[int, int]:
    """Return the shape of `x`, a non-empty floating matrix; else raise."""
    floating(name, x)
    if x.ndim != 2:
        raise ValueError(f"{name} must be a matrix [{axes}], got shape {tuple(x.shape)}")
    if 0 in x.shape:
        raise ValueError(f"{name} [{axes}] must not be empty, got shape {tuple(x.shape)}")
    return x.shape


def shape(name: str, x: Any, expected: tuple[int, ...], axes: str) -> None:
    """Raise unless the floating array `x` has exactly the `expected` shape."""
    floating(name, x)
    if tuple(x.shape) != expected:
        raise ValueError(f"{name} must have shape [{axes}] = {expected}, got {tuple(x.shape)}")


def two_rows(name: str, x: Any) -> None:
    """Raise `ValueError` unless the matrix `x` has rows enough for a variance."""
    if x.shape[0] < 2:
        came = tuple(x.shape)
        raise ValueError(f"{name} must have at least 2 rows for a variance, got shape {came}")


def vector(name: str, x: Any, length: int, kind: str, axes: str = "n") -> None:
    """Raise unless `x` is a vector of `length` whose dtype is of `kind`: 'integer' or 'bool'."""
    dtype = getattr(x, "dtype", None)
    expected = np.integer if kind == "integer" else np.bool_
    if dtype is None or not np.issubdtype(dtype, expected):
        came = type(x).__name__ if dtype is None else dtype
        raise TypeError(f"{name} must be an array of {kind} dtype, got {came}")
    if tuple(x.shape) != (length,):
        raise ValueError(f"{name} must have shape [{axes}] = ({length},), got {tuple(x.shape)}")


def labels(name: str, x: Any, length: int, n_clusters: int) -> None:
    """Raise unless `x` holds `length` integers in 0..n_clusters - 1 (values: NumPy arrays only)."""
    vector(name, x, length, "integer")
    if isinstance(x, np.ndarray) and length and (x.min() < 0 or x.max() >= n_clusters):
        bad = int(np.flatnonzero((x < 0) | (x >= n_clusters))[0])
        raise ValueError(f"{name} must be in 0..{n_clusters - 1}, got {int(x[bad])} in row {bad}")


def labels_given(name: str, n_clusters: int) -> None:
    """Raise `ValueError` where `labels` is None although there are several clusters."""
    if n_clusters != 1:
        raise ValueError(f"{name} must be given for n_clusters = {n_clusters}")


def key_given(key: Any) -> None:
    """Raise `ValueError` where `key` is None although centroids are to be drawn."""
    if key is None:
        raise ValueError("key must be given unless init is an array of centroids")


def integer(name: str, value: Any, low: int, high: int | None = None, why: str = "") -> int:
    """Return `value` as an int in `low`..`high`; `why` names the upper bound in the message."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if value < low or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"in {low}..{high}"
        if why:
            bounds = f"in {low}..{why} = {low}..{high}"
        raise ValueError(f"{name} must be {bounds}, got {value}")
    return int(value)


def option(name: str, value: Any, options: Sequence[str]) -> None:
    """Raise `ValueError` unless `value` is one of `options`."""
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}, got {value!r}")


def chunk_size(value: Any) -> int | None:
    """Return `value` where it is None or a positive int; else raise."""
    return None if value is None else integer("chunk_size", value, 1)


def same_width(name: str, x: Any, other_name: str, other: Any) -> None:
    """Raise `ValueError` unless the last axes of two arrays have one length."""
    if x.shape[-1] != other.shape[-1]:
        raise ValueError(
            f"{name} must be as wide as {other_name}: d = {other.shape[-1]}, got {x.shape[-1]}"
        )


def directions(name: str, components: Any, n_features: int) -> None:
    """Raise unless `components` is floating [k d] with d = `n_features`; k may be 0."""
    floating(name, components)
    if components.ndim != 2 or components.shape[1] != n_features:
        came = tuple(components.shape)
        raise ValueError(f"{name} must have shape [k d] with d = {n_features}, got {came}")


def removal(fit: Any, n_features: int) -> tuple[int, int, int]:
    """Return (c, k, d) of a `Removal` whose fields fit together and data d wide; else raise."""
    floating("removal.components", fit.components)
    if fit.components.ndim != 3 or fit.components.shape[2] != n_features:
        came = tuple(fit.components.shape)
        raise ValueError(
            f"removal.components must have shape [c k d] with d = {n_features}, got {came}"
        )
    c, k, d = fit.components.shape
    shape("removal.means", fit.means, (c, d), "c d")
    for name in ("counts", "vanishes"):
        came = tuple(getattr(fit, name).shape)
        if came != (c,):
            raise ValueError(f"removal.{name} must have shape [c] = ({c},), got {came}")
    return c, k, d


def cluster_moments(name: str, fitted: Any, n_clusters: int, n_features: int) -> None:
    """Raise unless `fitted` are the `Moments` of so many clusters of data d wide."""
    c, d = n_clusters, n_features
    shape(f"{name}.mean", fitted.mean, (c, d), "c d")
    shape(f"{name}.scatter", fitted.scatter, (c, d, d), "c d d")
    vector(f"{name}.count", fitted.count, c, "integer", "c")


def scatter_and_components(scatter: Any, components: Any) -> None:
    """Raise unless the arrays have shapes [c d d] and [c k d]."""
    floating("clusters.scatter", scatter)
    floating("components", components)
    if scatter.ndim != 3 or scatter.shape[1] != scatter.shape[2]:
        raise ValueError(f"clusters.scatter must be [c d d], got shape {tuple(scatter.shape)}")
    c, d, _ = scatter.shape
    if components.ndim != 3 or (components.shape[0], components.shape[2]) != (c, d):
        came = tuple(components.shape)
        raise ValueError(f"components must be [c k d] with c = {c}, d = {d}, got shape {came}")


def non_negative(name: str, value: Any) -> None:
    """Raise unless `value` is a real number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if not value >= 0:
        raise ValueError(f"{name} must be at least 0, got {value}")

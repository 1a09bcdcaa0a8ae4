"""The two op sets as one test sees them, and the small data sets that such tests share."""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import jaxgeom
from jaxgeom import reference
from jaxgeom.kernels import _seeding
from jaxgeom.reference import _kmeans


@dataclass(frozen=True)
class OpSet:
    """A namespace of operations; `ops.moments` is the operation itself."""

    name: str
    module: ModuleType
    dtype: type  # that float64 data is computed in
    key: Callable[[int], Any]  # seed -> what its `kmeans` takes as a key
    starts: Callable[..., Any]  # (x, n_clusters, seed, n_init) -> k-means++ starts [r c d]
    drawn: Callable[..., Any]  # (x, uniforms) -> rows of x [c d] that k-means++ draws with them

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    @property
    def eps(self) -> float:
        """The relative spacing of the numbers computed with."""
        return float(np.finfo(self.dtype).eps)

    def assert_close(
        self, got: Any, expected: Any, roundings: float = 8, scale: float | None = None
    ) -> None:
        """Assert |got - expected| <= so many roundings of `scale`, by default the largest entry.

        A tolerance is a count of roundings, so that one number holds both op sets to account.
        """
        expected = np.asarray(expected, np.float64)
        scale = np.nanmax(np.abs(expected)) if scale is None else scale
        got = np.asarray(got, np.float64)
        assert got.shape == expected.shape
        assert_allclose(got, expected, rtol=0, atol=roundings * self.eps * scale)


class Scripted(np.random.Generator):
    """A generator whose uniform draws are written down beforehand."""

    def __init__(self, *uniforms: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.uniforms = list(uniforms)

    def random(self) -> float:
        return self.uniforms.pop(0)


def _reference_starts(x, n_clusters, seed, n_init):
    rng = np.random.default_rng(seed)
    return np.stack([_kmeans._plus_plus(x, n_clusters, rng) for _ in range(n_init)])


def _kernel_starts(x, n_clusters, seed, n_init):
    return _seeding.seed_centroids(
        jnp.asarray(x),
        jax.random.key(seed),
        n_clusters=n_clusters,
        n_init=n_init,
        init="k-means++",
        chunk_size=None,
    )


_rows_drawn = jax.jit(_seeding._plus_plus, static_argnums=2)


def _kernel_drawn(x, uniforms):
    return x[np.asarray(_rows_drawn(jnp.asarray(x), jnp.asarray([uniforms]), None)[0])]


REFERENCE = OpSet(
    "reference",
    reference,
    np.float64,
    int,
    _reference_starts,
    lambda x, uniforms: _kmeans._plus_plus(x, len(uniforms), Scripted(*uniforms)),
)
KERNELS = OpSet("kernels", jaxgeom, np.float32, jax.random.key, _kernel_starts, _kernel_drawn)

for_each_op_set = pytest.mark.parametrize("ops", [REFERENCE, KERNELS], ids=lambda ops: ops.name)


def column(*values):
    return np.array(values, np.float64)[:, None]


def anisotropic(n, d, seed=0):
    """Rows with a mean far from zero and eigenvalues over four decades, in a random basis."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return (rng.normal(size=(n, d)) * np.logspace(0, -2, d)) @ basis + 3 * rng.normal(size=d)


def blobs(n, d, c, seed=0):
    """Rows around `c` centres, and the centre each belongs to."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(c, size=n)
    return 4 * rng.normal(size=(c, d))[labels] + rng.normal(size=(n, d)), labels

"""torch and cupy, whose arrays speak nearly one language: products, exponentials, `eigh`.

On a GPU this is what one would write by hand: whole products instead of slices, no TF32.
"""

from types import ModuleType
from typing import Any

import numpy as np

from jaxgeom import reference
from jaxgeom.results import PCA, Isotropy, KMeans, Moments, Removal


class ArrayOps:
    """The operations over one array module, `torch` or `cupy`."""

    def __init__(self, xp: ModuleType) -> None:
        self.xp = xp

    def moments(self, x: Any) -> Moments:
        """Return count, mean and scatter about the mean."""
        mean = x.mean(0)
        centred = x - mean
        return Moments(len(x), mean, centred.T @ centred)

    def cluster_moments(self, x: Any, labels: Any, *, n_clusters: int) -> Moments:
        """Return the moments of each cluster, its rows taken out by a mask."""
        parts = [self.moments(x[labels == c]) for c in range(n_clusters)]
        counts = np.array([part.count for part in parts])
        return Moments(counts, *(self._stack([p[i] for p in parts]) for i in (1, 2)))

    def pca(self, x: Any, n_components: int) -> PCA:
        """Return the leading principal components."""
        m = self.moments(x)
        values, components = self._eigenbasis(m.scatter)
        values = values[:n_components]
        ratio = values / m.scatter.trace()
        return PCA(m.mean, components[:n_components], values / (len(x) - 1), ratio)

    def log_partition(self, x: Any, components: Any) -> Any:
        """Return ln F(+u) and ln F(-u), shifted by the largest exponents."""
        projected = x @ components.T
        rows = []
        for sign in (1, -1):
            shift = self.xp.amax(sign * projected, 0)
            total = self.xp.exp(sign * projected - shift).sum(0)
            rows.append(shift + self.xp.log(total))
        return self._stack(rows)

    def isotropy(self, x: Any) -> Isotropy:
        """Return the isotropy of the rows as they are."""
        values, components = self._eigenbasis(x.T @ x)
        log_f = self.log_partition(x, components)
        heavier, low, high, symmetric = map(np.exp, reference.log_isotropy(to_numpy(log_f)))
        return Isotropy(heavier, low, high, symmetric, len(x), log_f, values, components)

    def kmeans(self, x: Any, n_clusters: int, *, init: Any, max_iter: int = 300) -> KMeans:
        """Return Lloyd's iterations from given centroids."""
        centroids, labels, n_iter, still = init, None, 0, False
        while n_iter < max_iter and not still:
            before, labels = labels, self.assign(x, centroids)
            member = self._one_hot(labels, n_clusters, x)
            counts = member.sum(0)[:, None]
            moved = member.T @ x / self.xp.maximum(counts, self.xp.ones_like(counts))
            centroids = self.xp.where(counts > 0, moved, centroids)
            n_iter += 1
            still = before is not None and bool((before == labels).all())
        labels = self.assign(x, centroids)
        counts = self._one_hot(labels, n_clusters, x).sum(0)
        inertia = ((x - centroids[labels]) ** 2).sum()
        return KMeans(centroids, labels, counts, inertia, n_iter, still)

    def assign(self, x: Any, centroids: Any) -> Any:
        """Return each row's nearest centroid."""
        origin = centroids.mean(0)
        near = centroids - origin
        return ((x - origin) @ near.T - (near**2).sum(1) / 2).argmax(1)

    def fit_removal(
        self,
        x: Any,
        labels: Any = None,
        *,
        n_clusters: int = 1,
        n_directions: int = 0,
        which: str = "top",
    ) -> Removal:
        """Return each cluster's mean and directions."""
        parts = [x] if labels is None else [x[labels == c] for c in range(n_clusters)]
        fits = [
            self.moments(p) if n_directions else Moments(len(p), p.mean(0), None) for p in parts
        ]
        means = self._stack([fit.mean for fit in fits])
        components = means[:, None, :][:, :0]
        if n_directions:
            side = slice(n_directions) if which == "top" else slice(-n_directions, None)
            components = self._stack([self._eigenbasis(f.scatter)[1][side] for f in fits])
        counts = np.array([fit.count for fit in fits])
        return Removal(means, components, counts, np.zeros(len(fits), bool))

    def apply_removal(self, x: Any, removal: Removal, labels: Any = None) -> Any:
        """Return the rows less their cluster's mean and directions."""
        if labels is None:
            return self.remove_directions(x - removal.means[0], removal.components[0])
        changed = self.xp.empty_like(x)
        for c in range(len(removal.means)):
            rows = labels == c
            changed[rows] = self.remove_directions(
                x[rows] - removal.means[c], removal.components[c]
            )
        return changed

    def remove_directions(self, x: Any, components: Any) -> Any:
        """Return the rows less their share along the directions."""
        return x - (x @ components.T) @ components if len(components) else x

    def zero_mean(self, x: Any) -> Any:
        """Return the rows less their mean."""
        return x - x.mean(0)

    def _eigenbasis(self, scatter: Any) -> tuple[Any, Any]:
        """Return eigenvalues, descending, and eigenvectors as rows."""
        values, vectors = self.xp.linalg.eigh(scatter)
        return self.xp.flip(values, (0,)), self.xp.flip(vectors, (1,)).T

    def _one_hot(self, labels: Any, n_clusters: int, like: Any) -> Any:
        """Return [n c] with a 1 at each row's label, on the device of `like`."""
        return self.xp.diag(self.xp.ones_like(like[0, :1]).repeat(n_clusters))[labels]

    def _stack(self, parts: list[Any]) -> Any:
        """Return the arrays along a new first axis."""
        return self.xp.stack(parts)


def torch_ops() -> ArrayOps:
    """Return the operations over torch, without TF32."""
    import torch  # noqa: PLC0415  # an optional peer

    torch.set_float32_matmul_precision("highest")
    return ArrayOps(torch)


def cupy_ops() -> ArrayOps:
    """Return the operations over cupy."""
    import cupy  # noqa: PLC0415  # an optional peer

    return ArrayOps(cupy)


def to_numpy(x: Any) -> Any:
    """Return an array of torch, cupy, JAX or NumPy as one of NumPy."""
    x = x.detach() if hasattr(x, "detach") else x
    if hasattr(x, "cpu"):
        x = x.cpu()
    return x.get() if type(x).__module__.startswith("cupy") else np.asarray(x)

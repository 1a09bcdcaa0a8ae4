"""What settings have in common: moments, removals, and one isotropy for all of one mean.

Each setting's scatter is algebra on the moments of the clusters. Removing principal directions of
centred tokens leaves u.w along the others alone, so isotropy after every number of them is a
running maximum (`isotropy_curve`); and a mean of changed tokens is the changed mean, so sentence
vectors are changed instead of tokens.
"""

from functools import cached_property
from types import ModuleType
from typing import NamedTuple

import numpy as np

from jaxgeom.kernels._moments import moments_of_all, scatter_about_zero
from jaxgeom.results import Array, Isotropy, Moments, Removal
from jaxgeom.study._protocols import IsotropyRange


class Centred(NamedTuple):
    """Tokens less their mean, as far as the settings need them."""

    fit: Isotropy
    vectors: np.ndarray  # [s d]: the mean over each sentence's centred tokens
    n_tokens: int


class Changed(NamedTuple):
    """What a removal of directions makes of them."""

    vectors: np.ndarray  # [s d]
    isotropy: IsotropyRange


class Statistics:
    """Statistics of token embeddings; each is computed when it is first asked for, and kept."""

    def __init__(
        self, ops: ModuleType, tokens: Array, labels: Array, n_clusters: int, most_least: int
    ) -> None:
        """Take tokens [n d], their clusters [n], and the most least directions to be removed."""
        self._ops, self._tokens = ops, tokens
        self._labels, self._n_clusters = labels, n_clusters
        self._most_least = most_least
        self._fits: dict[tuple[bool, str, int], Removal] = {}

    @cached_property
    def clusters(self) -> Moments:
        """Moments of each cluster."""
        return self._ops.cluster_moments(self._tokens, self._labels, n_clusters=self._n_clusters)

    @cached_property
    def whole(self) -> Moments:
        """Moments of all tokens, as those of one cluster."""
        return Moments(*(field[None] for field in moments_of_all(self.clusters)))

    @cached_property
    def scatter(self) -> Array:
        """Scatter [d d] of the tokens about 0."""
        return scatter_about_zero(self.whole)[0]

    def centred(self, sentence_ids: Array, n_sentences: int) -> Centred:
        """Return the centred tokens' isotropy and sentence vectors."""
        rows = self._ops.zero_mean(self._tokens)
        vectors = self._ops.segment_mean(rows, sentence_ids, num_segments=n_sentences)
        fit = self._ops.isotropy(rows, scatter=self.whole.scatter[0])
        return Centred(fit, np.array(vectors), len(self._tokens))

    def removal(self, n_directions: int, which: str, *, in_clusters: bool) -> Removal:
        """Return the mean and the directions of all tokens, or of each cluster.

        The least directions are found for the largest number of them, and taken from those.
        """
        n_found = self._most_least if which == "least" else n_directions
        key = (in_clusters, which, n_found)
        if key not in self._fits:
            self._fits[key] = self._ops.fit_removal(
                self._tokens,
                self._labels if in_clusters else None,
                n_clusters=self._n_clusters if in_clusters else 1,
                n_directions=n_found,
                which=which,
                clusters=self.clusters if in_clusters else self.whole,
            )
        found = self._fits[key]
        return found._replace(components=found.components[:, n_found - n_directions :])

    def scatter_after(self, removal: Removal, *, in_clusters: bool) -> Array | None:
        """Return the scatter about 0 after a removal; None where the rows' own product costs less.

        c clusters without k directions each take 8 c k d^2 operations, n rows n d^2.
        """
        c, k, _ = removal.components.shape
        if 8 * c * k >= len(self._tokens):
            return None
        fitted = self.clusters if in_clusters else self.whole
        return self._ops.changed_scatter(fitted, removal.components)


def without(ops: ModuleType, given: Centred, which: str, m: int) -> Changed:
    """Return what is left without the m heaviest ("top") or lightest ("least") directions."""
    components = given.fit.components
    components = components[:m] if which == "top" else components[len(components) - m :]
    curve = ops.isotropy_curve(given.fit, which)
    ends = (float(np.exp(np.float64(f[m]))) for f in (curve.heavier, curve.low, curve.high))
    vectors = np.array(ops.remove_directions(given.vectors, components))
    return Changed(vectors, IsotropyRange(*ends))

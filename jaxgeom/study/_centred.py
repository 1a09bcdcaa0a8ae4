"""Zero-mean and what removes directions of all tokens: one isotropy for any number of directions.

Removing principal directions of centred tokens leaves u.w along the others alone, so isotropy after
every number of them is a running maximum (`isotropy_curve`); and a mean of changed tokens is the
changed mean, so sentence vectors are changed instead of tokens.
"""

from types import ModuleType
from typing import NamedTuple

import numpy as np

from jaxgeom.results import Array, Isotropy
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


def centred(ops: ModuleType, tokens: Array, sentence_ids: Array, n_sentences: int) -> Centred:
    """Return the centred tokens' isotropy and sentence vectors."""
    rows = ops.zero_mean(tokens)
    vectors = np.array(ops.segment_mean(rows, sentence_ids, num_segments=n_sentences))
    return Centred(ops.isotropy(rows), vectors, len(tokens))


def without(ops: ModuleType, given: Centred, which: str, m: int) -> Changed:
    """Return what is left without the m heaviest ("top") or lightest ("least") directions."""
    components = given.fit.components
    components = components[:m] if which == "top" else components[len(components) - m :]
    curve = ops.isotropy_curve(given.fit, which)
    ends = (float(np.exp(np.float64(f[m]))) for f in (curve.heavier, curve.low, curve.high))
    vectors = np.array(ops.remove_directions(given.vectors, components))
    return Changed(vectors, IsotropyRange(*ends))

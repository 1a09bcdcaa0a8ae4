"""How well the cosines of sentence pairs follow their gold scores, on the host in float64."""

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike
from scipy import stats


def cosine_scores(a: ArrayLike, b: ArrayLike) -> Float64[np.ndarray, " p"]:
    """Return the cosine of every pair of rows.

    Args:
        a: [p d] first vectors, any real dtype.
        b: [p d] second vectors.

    Returns:
        [p] float64; 0 where one of the two vectors is zero.

    Raises:
        ValueError: the arrays are no matrices of one shape.

    Numerics:
        Computed in float64. NaN in either row gives NaN.

    Example:
        >>> cosine_scores([[3.0, 4.0], [0.0, 0.0]], [[4.0, 3.0], [1.0, 2.0]]).tolist()
        [0.96, 0.0]
    """
    a, b = np.asarray(a).astype(np.float64), np.asarray(b).astype(np.float64)
    if a.ndim != 2 or a.shape != b.shape:
        raise ValueError(
            f"a and b must be matrices of one shape [p d], got {a.shape} and {b.shape}"
        )
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    dots = (a * b).sum(axis=1)
    return np.divide(dots, norms, out=np.zeros(len(a)), where=norms != 0)


def sts_scores(cosines: ArrayLike, gold: ArrayLike) -> dict[str, float]:
    """Return the Pearson and the Spearman correlation of cosines with gold scores.

    Args:
        cosines: [p] with p >= 2.
        gold: [p] gold scores, on any scale.

    Returns:
        {"pearson_cosine": ..., "spearman_cosine": ...}, each in -1..1 (not times 100).

    Raises:
        ValueError: the arrays are no vectors of one length, or shorter than 2.

    Numerics:
        Ties share their mean rank. NaN in, or one side constant: NaN out.

    Source:
        The names are those of sentence-transformers' EmbeddingSimilarityEvaluator.

    Example:
        >>> scores = sts_scores([0.1, 0.2, 0.9], [0.0, 1.0, 2.0])
        >>> {name: round(value, 3) for name, value in scores.items()}
        {'pearson_cosine': 0.918, 'spearman_cosine': 1.0}
    """
    x, y = np.asarray(cosines).astype(np.float64), np.asarray(gold).astype(np.float64)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 2:
        came = f"got {x.shape} and {y.shape}"
        raise ValueError(f"cosines and gold must be vectors of one length [p] >= 2, {came}")
    if np.ptp(x) == 0 or np.ptp(y) == 0:  # SciPy would warn
        return {"pearson_cosine": np.nan, "spearman_cosine": np.nan}
    return {
        "pearson_cosine": float(stats.pearsonr(x, y).statistic),
        "spearman_cosine": float(stats.spearmanr(x, y).statistic),
    }

"""End-to-end geometry: Tables 1 and 2, and the removal curve, from embeddings that are given."""

from types import ModuleType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from benchmarks.ops import BY_SIZE
from jaxgeom import study

N_PAIRS = 1500  # of STS-B dev
SEED = 0


class Space(NamedTuple):
    """Token embeddings of sentence pairs, and what the study does with them."""

    tokens: Any  # [n d] float32
    sentence_ids: np.ndarray  # [n] sorted
    scores: np.ndarray  # [p]
    labels: np.ndarray  # [n] a clustering for the checks; the timed calls make their own
    n_clusters: int
    n_directions: int
    n_least: tuple[int, ...]


def space(size: str) -> Space:
    """Return the problem of a size, its rows dealt out to sentences."""
    problem = BY_SIZE[size]
    drawn = problem.inputs()
    n_pairs = min(N_PAIRS, problem.n // 20)
    sentence_ids = (np.arange(problem.n) * 2 * n_pairs // problem.n).astype(np.int32)
    scores = np.random.default_rng(1).integers(0, 51, n_pairs) / 10
    least = tuple(round(problem.d * share) for share in (100 / 768, 700 / 768))
    return Space(
        drawn.x.astype(np.float32), sentence_ids, scores, drawn.labels,
        problem.n_clusters, problem.n_directions, least,
    )  # fmt: skip


def clustering(ops: ModuleType, given: Space) -> np.ndarray:
    """Return the study's clustering of the tokens."""
    return study.cluster(ops, given.tokens, n_clusters=given.n_clusters, seed=SEED)


def tables(ops: ModuleType, given: Space, labels: np.ndarray) -> dict[str, tuple[float, float]]:
    """Return ln I and Spearman of every distinct setting of Tables 1 and 2."""
    chosen = [*study.table1_settings(given.n_directions), *study.table2_settings(given.n_least)]
    results = study.measure_settings(
        ops,
        given.tokens,
        given.sentence_ids,
        2 * len(given.scores),
        labels,
        list(dict.fromkeys(chosen)),
        n_clusters=given.n_clusters,
    )
    named = {
        f"{s.name} least {s.n_directions}" if s.which == "least" else s.name: result
        for s, result in results.items()
    }
    return {
        name: (
            float(np.log(result.isotropy.isotropy)),
            study.spearman(result.vectors, given.scores),
        )
        for name, result in named.items()
    }


def curve(ops: ModuleType, given: Space) -> study.Curve:
    """Return isotropy and Spearman after every number of removed leading directions."""
    fit = study.centred_isotropy(ops, given.tokens)
    return study.removal_curve(
        ops, fit, given.tokens, given.sentence_ids, given.scores, which="top"
    )


def on_device(given: Space) -> Space:
    """Return the space with its tokens on JAX's device."""
    return given._replace(tokens=jnp.asarray(given.tokens))


def compare_tables(
    got: dict[str, tuple[float, float]],
    expected: dict[str, tuple[float, float]],
    n_pairs: int,
) -> dict[str, float]:
    """Return the largest errors of ln I and Spearman as shares of what is allowed.

    ln I may differ by 2e-3 (each side has its own eigenvectors) and 2e-5 of itself.

    Raises:
        AssertionError: a setting is missing, or differs by more.
    """
    assert set(got) == set(expected), (sorted(got), sorted(expected))
    log_i, correlation = 0.0, 0.0
    allowed = spearman_tolerance(n_pairs)
    for name, (wanted, wanted_s) in expected.items():
        ours, ours_s = got[name]
        log_i = max(log_i, abs(ours - wanted) / (2e-3 + 2e-5 * abs(wanted)))
        correlation = max(correlation, abs(ours_s - wanted_s) / allowed)
        assert log_i <= 1, f"{name}: ln I {ours}, expected {wanted}"
        assert correlation <= 1, f"{name}: Spearman {ours_s}, expected {wanted_s}"
    return {"log_isotropy": log_i, "spearman": correlation}


def spearman_tolerance(n_pairs: int) -> float:
    """Return by how much Spearman x 100 may differ: neighbouring cosines change places.

    One exchange moves it by up to 1200 / p^2, for scores at either end; of few pairs, two may.
    """
    return max(0.02, 2 * 1200 / n_pairs**2)

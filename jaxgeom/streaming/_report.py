"""What `python -m jaxgeom.analyze` says of a matrix: a JSON document, and the same as text."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from jaxgeom.kernels import log_isotropy
from jaxgeom.results import Isotropy
from jaxgeom.streaming._overview import Overview
from jaxgeom.streaming._sources import AnySource

SHARES = (0.5, 0.9, 0.99)  # of the variance
_FEATURES = 3  # named of each leading direction
Document = dict[str, Any]


def report(found: Overview, source: AnySource, options: Mapping[str, int]) -> Document:
    """Return the JSON document of a matrix.

    Args:
        found: what the passes told.
        source: the matrix.
        options: n_clusters, n_directions and whatever else shaped the numbers.

    Returns:
        A dictionary of JSON's types, with NumPy's among them.
    """
    return {
        "schema": 1,
        "source": source.name,
        "n_rows": int(found.moments.count),
        "n_features": len(found.moments.mean),
        "dtype": source.dtype.name,
        "options": dict(options),
        "norms": _norms(found),
        "isotropy": {name: _isotropy(fit) for name, fit in found.isotropies.items()},
        "spectrum": _spectrum(found.eigenvalues, int(found.moments.count)),
        "directions": _directions(found, options["n_directions"]),
        "clusters": _clusters(found),
    }


def _norms(found: Overview) -> Document:
    """Return the lengths of the rows and of their mean."""
    norms = found.norms
    mean_square = norms.total_of_squares / norms.n_rows
    return {
        "mean": norms.total / norms.n_rows,
        "min": norms.least,
        "max": norms.most,
        "root_mean_square": math.sqrt(mean_square),
        "of_the_mean": np.linalg.norm(found.moments.mean),
        # of two rows drawn at random, were all rows of one length
        "expected_cosine": np.square(found.moments.mean).sum() / mean_square if mean_square else 0,
    }


def _isotropy(fit: Isotropy) -> Document:
    """Return the headline and its range, out of logarithms: a float32 would underflow."""
    logs = log_isotropy(np.asarray(fit.log_partition, np.float32))
    values = {name: float(np.float64(value)) for name, value in logs._asdict().items()}
    return {name: math.exp(v) for name, v in values.items()} | {"log": values}


def _spectrum(eigenvalues: np.ndarray, count: int) -> Document:
    """Return the variances, and how many directions carry a share of them."""
    variances = eigenvalues.astype(np.float64) / (count - 1)
    total, d = variances.sum(), len(variances)
    running = np.cumsum(variances) / total if total else np.zeros(d)
    effective = total**2 / np.square(variances).sum() if total else 0.0
    return {
        "total_variance": total,
        "explained_variance": variances,
        "directions_for": {str(s): int(np.searchsorted(running, s - 1e-12)) + 1 for s in SHARES},
        "participation_ratio": effective,
        "isoscore": (effective - 1) / (d - 1) if d > 1 else 1.0,
    }


def _directions(found: Overview, n_directions: int) -> list[Document]:
    """Return the leading directions: their share of the variance and their heaviest features."""
    total = found.eigenvalues.sum()
    rows = zip(found.components, found.eigenvalues, strict=True)
    described = []
    for direction, eigenvalue in list(rows)[: max(n_directions, 1)]:
        heaviest = np.argsort(-np.abs(direction), kind="stable")[:_FEATURES]
        described.append(
            {
                "share": eigenvalue / total if total else 0.0,
                "features": [{"feature": int(i), "weight": direction[i]} for i in heaviest],
            }
        )
    return described


def _clusters(found: Overview) -> Document:
    """Return the clusters' sizes, and the share of the variance that lies within them."""
    counts = found.clusters.count
    within = np.trace(found.clusters.scatter, axis1=1, axis2=2)
    total = np.trace(found.moments.scatter)
    return {
        "counts": counts,
        "n_empty": int((counts == 0).sum()),
        "largest_share": counts.max() / counts.sum(),
        "inertia": within.sum(),
        "variance_within": within.sum() / total if total else 0.0,
        "norms_of_means": np.linalg.norm(found.clusters.mean, axis=1),
        "n_vanishing_rows": int(counts[np.asarray(found.removals["cluster_based"].vanishes)].sum()),
    }


def table(document: Document) -> str:
    """Return the document as text for a terminal."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: Document) -> Iterator[str]:
    """Yield the lines of the text."""
    norms, spectrum, clusters = (document[key] for key in ("norms", "spectrum", "clusters"))
    n, d = document["n_rows"], document["n_features"]
    yield f"{document['source']}: {n:,} x {d} {document['dtype']}"
    yield ""
    yield (
        f"norms       mean {norms['mean']:.4g}, {norms['min']:.4g} to {norms['max']:.4g}; "
        f"of the mean vector {norms['of_the_mean']:.4g}"
    )
    needed = ", ".join(f"{n} for {float(s):.0%}" for s, n in spectrum["directions_for"].items())
    yield f"spectrum    directions: {needed} of the variance; IsoScore {spectrum['isoscore']:.4g}"
    for i, direction in enumerate(document["directions"], 1):
        named = ", ".join(f"{f['feature']} ({f['weight']:+.2f})" for f in direction["features"])
        yield f"direction   {i:>3}  {direction['share']:>6.2%} of the variance; features {named}"
    counts = np.asarray(clusters["counts"])
    yield (
        f"clusters    {len(counts)} of {counts.min():,} to {counts.max():,} rows, "
        f"{clusters['n_empty']} empty; {clusters['variance_within']:.2%} of the variance within"
    )
    yield ""
    yield f"{'isotropy':<20}{'I':>10}   range over the signs of the directions"
    for name, fit in document["isotropy"].items():
        yield f"{name:<20}{fit['heavier']:>10.3g}   {fit['low']:.3g} to {fit['high']:.3g}"

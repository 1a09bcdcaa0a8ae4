"""Rows with NaN or infinity: found out afterwards, named exactly."""

import jax.numpy as jnp
import numpy as np

from jaxgeom import distributed
from jaxgeom.results import Moments
from jaxgeom.streaming._driver import Options, chunks, local_mesh
from jaxgeom.streaming._sources import AnySource


def require_finite(source: AnySource, fitted: Moments, options: Options) -> None:
    """Raise `ValueError` that names rows holding NaN or infinity, where moments show that some do.

    A sound matrix costs nothing; the rows of another one are read once more.
    """
    if np.isfinite(fitted.mean).all() and np.isfinite(fitted.scatter).all():
        return
    n_bad, where = distributed.together(lambda: _bad_rows(source, options))
    places = distributed.gather((np.asarray(n_bad), _fixed(where)))
    total = sum(int(n) for n, _ in places)
    if not total:
        raise ValueError(f"{source.name} must hold numbers whose squares fit into float32")
    first = next(_text(text) for n, text in places if n)
    raise ValueError(
        f"{source.name} must be finite, got {total} of {int(fitted.count)} rows with NaN or "
        f"infinity, the first is {first}"
    )


def _bad_rows(source: AnySource, options: Options) -> tuple[int, str]:
    """Return how many of this process's rows are not finite, and where the first one lies."""
    own, n_bad, first, row = source.shard(), 0, "", 0
    for _, _, chunk in chunks(own, local_mesh(), "search", options):
        bad = np.flatnonzero(~np.asarray(jnp.isfinite(chunk).all(1)))
        if bad.size and not n_bad:
            first = own.where(row + int(bad[0]))
        n_bad, row = n_bad + bad.size, row + len(chunk)
    return n_bad, first


def _fixed(text: str) -> np.ndarray:
    """Return a text as bytes of one length, to be gathered."""
    return np.frombuffer(text.encode()[-1024:].ljust(1024), np.uint8)


def _text(data: np.ndarray) -> str:
    """Return the text again."""
    return data.tobytes().decode(errors="replace").strip()

"""Matrix products at full precision, and eigenvectors with a fixed sign and a safe derivative."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

_MAX_ROUNDS = 60  # of subspace iteration: beyond, a full decomposition is the cheaper way
_REFINED = 32  # leading directions that get a second look; the others have small projections
_LARGEST_TURN = 1e-4  # in radians, up to which a first-order correction is exact to its square


def matmul(a: Float[Array, "*m a b"], b: Float[Array, "*m b c"]) -> Float[Array, "*m a c"]:
    """Return `a @ b` in full precision: a GPU's default is TF32, a TPU's bfloat16."""
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def gram(x: Float[Array, "n d"]) -> Float[Array, "d d"]:
    """Return x^T x."""
    return matmul(x.T, x)


def fix_signs(components: Float[Array, "k d"]) -> Float[Array, "k d"]:
    """Return the rows, each turned so that its entry of largest magnitude is positive."""
    largest = jnp.argmax(jnp.abs(components), axis=1, keepdims=True)
    return components * jnp.sign(jnp.take_along_axis(components, largest, axis=1))


@jax.custom_jvp
def eigenbasis(
    symmetric: Float[Array, "d d"],
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Return eigenvalues, descending, and the eigenvectors as rows with fixed signs."""
    eigenvalues, vectors = jnp.linalg.eigh(symmetric, symmetrize_input=False)
    eigenvalues = eigenvalues[::-1]
    return eigenvalues, fix_signs(_refined(vectors.T[::-1], eigenvalues, symmetric))


def _refined(
    components: Float[Array, "d d"],
    eigenvalues: Float[Array, " d"],
    symmetric: Float[Array, "d d"],
) -> Float[Array, "d d"]:
    """Return the eigenvectors, rows, with one first-order correction of the leading ones.

    A float32 `eigh` leaves them some five times further off than the rounding of the matrix does,
    and u.w, in the hundreds for long rows, is an exponent. Directions whose eigenvalues are too
    close to tell apart are made orthonormal only.

    Source:
        Ogita and Aishima (2018), "Iterative refinement for symmetric eigenvalue decomposition".
    """
    leading = components[:_REFINED]
    k, d = leading.shape
    product = _symmetric_head(matmul(matmul(leading, symmetric), components.T))
    lacking = jnp.eye(k, d, dtype=leading.dtype)
    lacking -= _symmetric_head(matmul(leading, components.T))
    gap = eigenvalues[:k, None] - eigenvalues[None, :]
    turn = (product + eigenvalues[:k, None] * lacking) / jnp.where(gap == 0, 1, gap)
    turn = jnp.where((gap != 0) & (jnp.abs(turn) < _LARGEST_TURN), turn, lacking / 2)
    rest = components[k:] + matmul((lacking - turn)[:, k:].T, leading)
    return jnp.concatenate([leading + matmul(turn, components), rest])


def _symmetric_head(rows: Float[Array, "k d"]) -> Float[Array, "k d"]:
    """Return rows whose square part is exactly symmetric: what two turn into each other cancels."""
    k = rows.shape[0]
    return rows.at[:, :k].set((rows[:, :k] + rows[:, :k].T) / 2)


@eigenbasis.defjvp
def _eigenbasis_jvp(primals: tuple, tangents: tuple) -> tuple:
    """Differentiate the basis; directions inside one (nearly) repeated eigenvalue do not mix."""
    (symmetric,), (tangent,) = primals, tangents
    eigenvalues, components = eigenbasis(symmetric)
    rotated = matmul(matmul(components, (tangent + tangent.T) / 2), components.T)
    gaps = eigenvalues[:, None] - eigenvalues[None, :]
    share = 1e-12 if symmetric.dtype == jnp.float64 else 1e-6
    apart = jnp.abs(gaps) > share * jnp.abs(eigenvalues).max()
    mixing = jnp.where(apart, rotated / jnp.where(apart, gaps, 1), 0)
    return (eigenvalues, components), (jnp.diagonal(rotated), matmul(mixing, components))


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def leading_eigenvectors(
    symmetric: Float[Array, "d d"], k: int
) -> tuple[Float[Array, " k"], Float[Array, "k d"]]:
    """Return the `k` largest eigenvalues, descending, and their eigenvectors as rows.

    For a positive semi-definite matrix. A few directions of many come from subspace iteration,
    which is checked by its residual and replaced by the full decomposition where it has not
    converged.
    """
    if 8 * k >= symmetric.shape[0]:
        return _leading_of_all(symmetric, k)
    found = _subspace_iteration(symmetric, k)
    return lax.cond(
        found.converged,
        lambda: _leading_of(found, k),
        lambda: _leading_of_all(symmetric, k),
    )


@leading_eigenvectors.defjvp
def _leading_eigenvectors_jvp(k: int, primals: tuple, tangents: tuple) -> tuple:
    """Differentiate the full decomposition: the directions left out take part in the derivative."""
    return jax.jvp(partial(_leading_of_all, k=k), primals, tangents)


def leading_eigenvectors_of_each(
    symmetric: Float[Array, "c d d"], k: int
) -> tuple[Float[Array, "c k"], Float[Array, "c k d"]]:
    """Return `leading_eigenvectors` of several matrices, whose rounds are made together.

    A matrix that has not converged by then is given a decomposition of its own.
    """
    if 8 * k >= symmetric.shape[-1]:
        return lax.map(partial(leading_eigenvectors, k=k), symmetric)
    return _leading_of_each(symmetric, k)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _leading_of_each(
    symmetric: Float[Array, "c d d"], k: int
) -> tuple[Float[Array, "c k"], Float[Array, "c k d"]]:
    """Iterate on all matrices until the last one has converged."""
    found = jax.vmap(partial(_subspace_iteration, k=k))(symmetric)
    leading = jax.vmap(partial(_leading_of, k=k))(found)

    def decompose_the_others() -> tuple[Float[Array, "c k"], Float[Array, "c k d"]]:
        return lax.map(
            lambda each: lax.cond(each[0], lambda: each[2], lambda: _leading_of_all(each[1], k)),
            (found.converged, symmetric, leading),
        )

    return lax.cond(found.converged.all(), lambda: leading, decompose_the_others)


@_leading_of_each.defjvp
def _leading_of_each_jvp(k: int, primals: tuple, tangents: tuple) -> tuple:
    """Differentiate the full decompositions."""
    return jax.jvp(jax.vmap(partial(_leading_of_all, k=k)), primals, tangents)


def _leading_of_all(
    symmetric: Float[Array, "d d"], k: int
) -> tuple[Float[Array, " k"], Float[Array, "k d"]]:
    """Return the first `k` of the whole eigenbasis."""
    eigenvalues, components = eigenbasis(symmetric)
    return eigenvalues[:k], components[:k]


class _Subspace(NamedTuple):
    """Ritz pairs of a block that is being turned towards the leading eigenvectors."""

    eigenvalues: Float[Array, " b"]
    vectors: Float[Array, "d b"]
    image: Float[Array, "d b"]  # the matrix times `vectors`
    converged: Bool[Array, ""]
    rounds: Int[Array, ""]


def _leading_of(found: _Subspace, k: int) -> tuple[Float[Array, " k"], Float[Array, "k d"]]:
    """Return the first `k` Ritz pairs, vectors as rows."""
    return found.eigenvalues[:k], fix_signs(found.vectors[:, :k].T)


def _subspace_iteration(symmetric: Float[Array, "d d"], k: int) -> _Subspace:
    """Return Ritz pairs whose first `k` have residuals near rounding, or `converged` false.

    Block power iteration with a Rayleigh-Ritz step each round (Rutishauser 1969), on a block wider
    than `k` so that convergence is set by eigenvalue k + 9 or later, not k + 1.
    """
    d, dtype = symmetric.shape[0], symmetric.dtype
    start = jax.random.normal(jax.random.key(0), (d, k + max(8, k // 2)), dtype)
    tolerance = 8 * jnp.finfo(dtype).eps

    def ritz(block: Float[Array, "d b"], rounds: Int[Array, ""] | int) -> _Subspace:
        basis = jnp.linalg.qr(block)[0]
        image = matmul(symmetric, basis)
        eigenvalues, rotation = jnp.linalg.eigh(matmul(basis.T, image))
        rotation = rotation[:, ::-1]
        vectors, image = matmul(basis, rotation), matmul(image, rotation)
        residual = jnp.linalg.norm(image - vectors * eigenvalues[None, ::-1], axis=0)[:k]
        # Written so that a NaN counts as converged: the full decomposition could not mend it.
        converged = ~(residual.max() > tolerance * jnp.abs(eigenvalues).max())
        return _Subspace(eigenvalues[::-1], vectors, image, converged, jnp.asarray(rounds))

    return lax.while_loop(
        lambda s: ~s.converged & (s.rounds < _MAX_ROUNDS),
        lambda s: ritz(s.image, s.rounds + 1),
        ritz(start, 0),
    )

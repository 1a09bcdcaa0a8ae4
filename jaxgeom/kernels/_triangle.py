"""A symmetric product from its upper blocks: five eighths of the arithmetic of the whole.

x^T x over four blocks of columns needs the blocks on and above the diagonal alone. They are kept
apart while slices of rows are added, and put together once at the end.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgeom.kernels._linalg import matmul

_BLOCKS = 4  # more would save little and make each product too narrow
_LEAST_WIDTH = 384  # features under which one product is the faster way


class Triangle:
    """How a [d d] symmetric matrix is cut into rows of upper blocks."""

    def __init__(self, n_features: int) -> None:
        # A GPU runs one large product better than ten small ones.
        cut = jax.default_backend() == "cpu" and n_features >= _LEAST_WIDTH
        n_blocks = _BLOCKS if cut else 1
        self.edges = [n_features * i // n_blocks for i in range(n_blocks + 1)]

    def gram(self, x: Float[Array, "b d"]) -> tuple[Array, ...]:
        """Return the upper blocks of xᵀx, one array [w, d - start] for each row of blocks."""
        return tuple(
            matmul(x[:, start:end].T, x[:, start:])
            for start, end in zip(self.edges, self.edges[1:], strict=False)
        )

    def cut(self, symmetric: Float[Array, "d d"]) -> tuple[Array, ...]:
        """Return the upper blocks of a matrix."""
        return tuple(
            symmetric[start:end, start:]
            for start, end in zip(self.edges, self.edges[1:], strict=False)
        )

    def whole(self, parts: tuple[Array, ...]) -> Float[Array, "d d"]:
        """Return the matrix that the upper blocks belong to."""
        if len(parts) == 1:
            return parts[0]
        padded = [
            jnp.pad(part, ((0, 0), (start, 0)))
            for part, start in zip(parts, self.edges, strict=False)
        ]
        upper = jnp.triu(jnp.concatenate(padded))
        return upper + jnp.triu(upper, 1).T

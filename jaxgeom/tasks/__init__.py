"""Tasks that embeddings are judged by: sentence pairs with gold scores, and their scores."""

from jaxgeom.tasks.scores import cosine_scores, sts_scores
from jaxgeom.tasks.sts import DataError, StsPairs, read_sts

__all__ = ["DataError", "StsPairs", "cosine_scores", "read_sts", "sts_scores"]

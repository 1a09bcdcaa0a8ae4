"""The whole op set in NumPy float64: the oracle that every kernel is measured against.

The same names, arguments and results as the kernels have, written from the formulas: no jax and no
code of theirs, plain loops wherever they are clearer. Input of any floating dtype is computed in
float64. Where the two differ is said with the function: `kmeans` takes a NumPy seed as its key.
"""

from jaxgeom.reference._curves import isotropy_curve, similarity_curve
from jaxgeom.reference._isotropy import isotropy, log_isotropy, log_partition
from jaxgeom.reference._kmeans import assign, kmeans
from jaxgeom.reference._moments import cluster_moments, moments, segment_mean
from jaxgeom.reference._pca import pca
from jaxgeom.reference._removal import (
    apply_removal,
    changed_scatter,
    cluster_zero_mean,
    fit_removal,
    remove_directions,
    zero_mean,
)

__all__ = [
    "apply_removal",
    "assign",
    "changed_scatter",
    "cluster_moments",
    "cluster_zero_mean",
    "fit_removal",
    "isotropy",
    "isotropy_curve",
    "kmeans",
    "log_isotropy",
    "log_partition",
    "moments",
    "pca",
    "remove_directions",
    "segment_mean",
    "similarity_curve",
    "zero_mean",
]

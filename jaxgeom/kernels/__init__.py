"""The kernels: checked at the door, jit-compiled inside, safe under vmap and grad."""

from jaxgeom.kernels._curves import isotropy_curve as isotropy_curve
from jaxgeom.kernels._curves import similarity_curve as similarity_curve
from jaxgeom.kernels._isotropy import isotropy as isotropy
from jaxgeom.kernels._isotropy import log_isotropy as log_isotropy
from jaxgeom.kernels._kmeans import assign as assign
from jaxgeom.kernels._kmeans import kmeans as kmeans
from jaxgeom.kernels._log_partition import log_partition as log_partition
from jaxgeom.kernels._moments import cluster_moments as cluster_moments
from jaxgeom.kernels._moments import moments as moments
from jaxgeom.kernels._pca import pca as pca
from jaxgeom.kernels._pool import segment_mean as segment_mean
from jaxgeom.kernels._removal import apply_removal as apply_removal
from jaxgeom.kernels._removal import changed_scatter as changed_scatter
from jaxgeom.kernels._removal import cluster_zero_mean as cluster_zero_mean
from jaxgeom.kernels._removal import fit_removal as fit_removal
from jaxgeom.kernels._removal import remove_directions as remove_directions
from jaxgeom.kernels._removal import zero_mean as zero_mean

"""The geometry of embedding spaces in JAX: measure it, change it, watch fine-tuning change it."""

from jaxgeom.kernels import apply_removal as apply_removal
from jaxgeom.kernels import assign as assign
from jaxgeom.kernels import changed_scatter as changed_scatter
from jaxgeom.kernels import cluster_moments as cluster_moments
from jaxgeom.kernels import cluster_zero_mean as cluster_zero_mean
from jaxgeom.kernels import fit_removal as fit_removal
from jaxgeom.kernels import isotropy as isotropy
from jaxgeom.kernels import isotropy_curve as isotropy_curve
from jaxgeom.kernels import kmeans as kmeans
from jaxgeom.kernels import log_isotropy as log_isotropy
from jaxgeom.kernels import log_partition as log_partition
from jaxgeom.kernels import moments as moments
from jaxgeom.kernels import pca as pca
from jaxgeom.kernels import remove_directions as remove_directions
from jaxgeom.kernels import segment_mean as segment_mean
from jaxgeom.kernels import similarity_curve as similarity_curve
from jaxgeom.kernels import zero_mean as zero_mean
from jaxgeom.results import PCA as PCA
from jaxgeom.results import Isotropy as Isotropy
from jaxgeom.results import IsotropyCurve as IsotropyCurve
from jaxgeom.results import KMeans as KMeans
from jaxgeom.results import LogIsotropy as LogIsotropy
from jaxgeom.results import Moments as Moments
from jaxgeom.results import Removal as Removal

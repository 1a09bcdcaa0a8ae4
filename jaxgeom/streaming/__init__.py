"""The kernels over matrices that do not fit into memory: chunks from disk, merged in float64."""

from jaxgeom.streaming._clusters import cluster_moments as cluster_moments
from jaxgeom.streaming._clusters import fit_removal as fit_removal
from jaxgeom.streaming._clusters import kmeans as kmeans
from jaxgeom.streaming._pooling import segment_mean as segment_mean
from jaxgeom.streaming._sources import IterableSource as IterableSource
from jaxgeom.streaming._sources import Source as Source
from jaxgeom.streaming._sources import open_source as open_source
from jaxgeom.streaming._statistics import isotropy as isotropy
from jaxgeom.streaming._statistics import isotropy_curve as isotropy_curve
from jaxgeom.streaming._statistics import log_partition as log_partition
from jaxgeom.streaming._statistics import moments as moments
from jaxgeom.streaming._statistics import pca as pca
from jaxgeom.streaming._writing import apply_removal as apply_removal

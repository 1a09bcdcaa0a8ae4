"""The study on one set of token embeddings: settings, curves, orderings; no files, no printing.

`ops` is the set of operations to compute with: the module `jaxgeom` or, in NumPy float64,
`jaxgeom.reference`; both have the same names.
"""

from jaxgeom.study._curves import (
    Curve,
    centred_isotropy,
    explained_variance_ratio,
    isotropy_curve,
    n_directions_for_isotropy,
    n_directions_for_variance,
    removal_curve,
)
from jaxgeom.study._protocols import N_RESTARTS, PROTOCOLS, IsotropyRange, cluster
from jaxgeom.study._settings import (
    CLUSTERED,
    DIRECTED,
    SETTINGS,
    Setting,
    SettingResult,
    least_settings,
    measure,
    measure_settings,
    require_finite,
    settings,
    spearman,
    table1_settings,
    table2_settings,
)

__all__ = [
    "CLUSTERED",
    "DIRECTED",
    "N_RESTARTS",
    "PROTOCOLS",
    "SETTINGS",
    "Curve",
    "IsotropyRange",
    "Setting",
    "SettingResult",
    "centred_isotropy",
    "cluster",
    "explained_variance_ratio",
    "isotropy_curve",
    "least_settings",
    "measure",
    "measure_settings",
    "n_directions_for_isotropy",
    "n_directions_for_variance",
    "removal_curve",
    "require_finite",
    "settings",
    "spearman",
    "table1_settings",
    "table2_settings",
]

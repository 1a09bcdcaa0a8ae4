"""What the project promises: which rows of the suite are compared, and how they should come out."""

from typing import NamedTuple


class Target(NamedTuple):
    """A row of the table: our entry of a group against the best of the peers' entries."""

    work: str
    group: str
    against: tuple[str, ...]  # backends of the same group
    at_least: float  # times faster than the best of them
    ours: str = "jaxgeom"


class Limit(NamedTuple):
    """A row of the table that has a ceiling instead of a peer."""

    work: str
    group: str
    quantity: str  # "seconds", or a name in `extra_info`
    at_most: float
    unit: str


TARGETS = (
    Target("isotropy: Gram, eigenvectors, both signs", "isotropy_uncentred-paper", ("numpy",), 1.1),
    Target("12 leading directions", "pca-paper", ("scikit-learn",), 1.3),
    Target("k-means, 27 clusters, 25 iterations", "lloyd-paper", ("scikit-learn", "faiss"), 1.2),
    Target(
        "removal of 12 directions of each of 27 clusters",
        "cluster_based-paper",
        ("scikit-learn", "numpy"),
        4.0,
    ),
    Target("geometry of Tables 1 and 2", "tables-paper", ("numpy + scikit-learn",), 5.0),
    Target("removal curve, every k, against one isotropy", "curve-paper", ("isotropy",), 0.5),
    Target("13 layers in one call, against 13 calls", "layers", ("13 calls",), 1.0),
    Target("encode STS-B dev, MiniLM", "encode", ("sentence-transformers",), 2.5),
    Target("fine-tune MiniLM, 8 steps of 32 pairs", "finetune", ("sentence-transformers",), 2.5),
)

LIMITS = (
    Limit(
        "temporaries of isotropy, 1,000,000 × 384",
        "memory",
        "temporaries_mb",
        300.0,
        "MB",
    ),
    Limit("import and first isotropy, warm compilation cache", "import", "seconds", 2.0, "s"),
)

# Which backends a group is about; the default run times no others at the study's size.
COMPARED = {target.group: (target.ours, *target.against) for target in TARGETS}

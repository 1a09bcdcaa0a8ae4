"""The options that experiments share, their presets, and which of them are refused."""

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from jaxgeom.training.siamese import SiameseConfig

State = Literal["random", "pretrained", "finetuned", "random_finetuned"]
Protocol = Literal["ours", "authors"]
Preset = Literal["mini", "paper"]

MINIS = ("mini-bert", "mini-roberta")  # part of the package
RECIPE = ("lr", "epochs")  # what a preset says of fine-tuning
PRESETS: dict[Preset, dict[str, Any]] = {
    # a small model on few pairs learns little at the study's 7e-5, however long
    "mini": {"models": MINIS, "data": "mini-sts", "epochs": 1, "lr": 3e-4},
    "paper": {
        "models": ("bert-base-uncased", "roberta-base"),
        "data": "sentence-transformers/stsb",
        "split": "dev",
        "seeds": (0, 1, 2, 3, 4),
        "n_clusters": 27,
        "n_directions": 12,
        "lr": 7e-5,
        "epochs": 3,
        "batch_size": 32,
    },
}


@dataclass(frozen=True)
class Common:
    """Options that experiments share; `main` makes flags of them."""

    models: tuple[str, ...] = ()
    """Encoders: a folder, a built-in one, a Hub id or HUBID@REVISION, or NAME= one of these."""
    data: str | None = None
    """STS-B: a folder, a file, a Hub data set id or ID@REVISION; or mini-sts, which needs none."""
    train: str | None = None
    """STS-B to train on, where it is not in --data; only fine-tuning reads it."""
    split: str = "dev"
    """The part of the data that is analysed."""
    states: tuple[State, ...] = ("random", "pretrained", "finetuned")
    """random: fresh weights of the same config, a control; pretrained: the weights as they are;
    finetuned: trained on the training pairs first; random_finetuned: the control, trained alike."""
    seeds: tuple[int, ...] = (0,)
    """One row each: a seed drives random weights, fine-tuning and clustering."""
    n_clusters: int = 27
    """Clusters of Clustering+ZM and Cluster-based."""
    n_directions: int = 12
    """Leading directions removed by Global and, of each cluster, by Cluster-based."""
    pooling: Literal["mean", "cls"] = "mean"
    """mean: tokens, a sentence is their mean; cls: the space of the CLS vectors alone."""
    max_length: int = 128
    """Tokens a sentence may have, special ones included; the rest is cut off and counted."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """What the encoder computes in."""
    backend: Literal["jax", "numpy"] = "jax"
    """Geometry from the kernels, or from the float64 reference; the encoder is JAX either way."""
    protocol: tuple[Protocol, ...] = ("ours",)
    """Rows of each: ours; authors: SciPy's kmeans2, the sign NumPy's solver returns, default CSV
    quoting."""
    lr: float = SiameseConfig.learning_rate
    """Fine-tuning: highest learning rate of AdamW, after the warm-up."""
    epochs: int = SiameseConfig.epochs
    """Fine-tuning: passes over the training pairs."""
    batch_size: int = SiameseConfig.batch_size
    """Fine-tuning: pairs of a step; the last one of an epoch may have fewer."""
    weight_decay: float = SiameseConfig.weight_decay
    """Fine-tuning: of everything but biases and layer normalisation."""
    warmup: float = SiameseConfig.warmup
    """Fine-tuning: share of the steps over which the learning rate rises; then it falls to 0."""
    labels: Path | None = None
    """Folder of MODEL-STATE-SEED.npy to read instead of clustering; authors/ for that protocol."""
    output: Path = Path("out")
    """Folder of the results, the labels and the cached embeddings."""
    preset: Preset | None = None
    """What the other flags are where they are not given. mini: the built-in small models on
    mini-sts; paper: BERT and RoBERTa base and STS-B from the Hub, 5 seeds."""


C = TypeVar("C", bound=Common)


def of_preset(config_type: type[C], preset: Preset, *, without: Collection[str] = ()) -> C:
    """Return an experiment's options under a preset, for flags to change.

    Args:
        config_type: the dataclass of the experiment's options. Its own default for an option, where
            it is not the common one, stays.
        preset: one of `PRESETS`.
        without: options that keep their defaults.

    Returns:
        The options.
    """
    common = {field.name: field.default for field in dataclasses.fields(Common)}
    own = config_type()
    values = {
        name: value
        for name, value in PRESETS[preset].items()
        if name not in without and getattr(own, name) == common[name]
    }
    return dataclasses.replace(own, preset=preset, **values)


def require_valid(config: Common) -> None:
    """Raise `ValueError` for options that no run could use, before anything is read."""
    for name in ("states", "seeds", "protocol"):
        values = getattr(config, name)
        if not values or len(set(values)) < len(values):
            raise ValueError(f"--{name} must be one or more different values, got {list(values)}")
    for name, low in (("n_clusters", 1), ("n_directions", 0), ("max_length", 3)):
        if getattr(config, name) < low:
            flag = name.replace("_", "-")
            raise ValueError(f"--{flag} must be at least {low}, got {getattr(config, name)}")
    if min(config.seeds) < 0:
        raise ValueError(f"--seeds must be at least 0, got {min(config.seeds)}")

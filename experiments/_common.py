"""What every experiment has in common: its options, its stages, and how it starts and fails."""

import argparse
import ctypes
import dataclasses
import os
import platform
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import jax
from tqdm import tqdm

from jaxgeom import distributed
from jaxgeom._mesh import Mesh, row_mesh
from jaxgeom.training.siamese import SiameseConfig

# Options of glibc's mallopt, from malloc.h, and what they are set to: one arena, no block that is
# mapped alone however large, and nothing given back to the system below 2 GiB.
_MALLOPT = {-8: 1, -4: 0, -1: 2**31 - 1}

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
    """Encoders: NAME=FOLDER, a folder, a built-in one, or a Hub id."""
    data: str | None = None
    """STS-B: a folder, a file, or a Hub data set id; or mini-sts, which needs none."""
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
Options = TypeVar("Options")  # a frozen dataclass; not all commands share the common ones


class Stages:
    """Seconds spent by stage, summed over every time it was entered; a terminal sees its name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str, of: str = "") -> Iterator[None]:
        """Time the block as the stage `name` of something; it must wait for what it computes."""
        start = time.perf_counter()
        try:
            with tqdm(desc=f"{name} {of}", bar_format="{desc}", leave=False, disable=None):
                yield
        finally:
            elapsed = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + elapsed


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


def main(
    config_type: type[Options],
    run: Callable[[Options], object],
    *,
    name: str,
    args: Sequence[str] | None = None,
) -> int:
    """Run one experiment from the command line.

    `ValueError`, `OSError` and `ImportError` are what the library raises for a user's mistake:
    one line on standard error. Anything else is a defect of ours and keeps its traceback.

    Args:
        config_type: the dataclass of the experiment's options.
        run: the experiment.
        name: of the experiment's module.
        args: the flags; those of the process where None.

    Returns:
        The exit status: 0, 2 after a user's mistake, 130 after Ctrl-C.
    """
    try:
        import tyro  # noqa: PLC0415  # `run` works without it
    except ImportError:
        print("error: the command line needs pip install 'jaxgeom[experiments]'", file=sys.stderr)
        return 2
    prog = f"python -m experiments.{name}"
    config: Any
    if issubclass(config_type, Common):
        config = tyro.cli(config_type, args=args, prog=prog, default=_defaults(config_type, args))
    else:
        config = tyro.cli(config_type, args=args, prog=prog)
    enable_compilation_cache()
    keep_freed_memory()
    try:
        with distributed.session():
            run(config)
    except KeyboardInterrupt:
        print("interrupted; finished files are kept and reused", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if getattr(config, "models", None) == MINIS and distributed.is_writer():
        print(f"\nThe study itself: python -m experiments.{name} --preset paper --output paper")
    return 0


def _defaults(config_type: type[C], args: Sequence[str] | None) -> C:
    """Return the options under the preset that the flags name, by default the mini one.

    Embeddings of one's own take the place of models and data; models of one's own are trained as
    the study trains, unless a preset is asked for.
    """
    flags = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--preset", "--embeddings", "--models"):
        flags.add_argument(name, nargs="?")
    given, _ = flags.parse_known_args(args)
    preset: Preset = next((name for name in PRESETS if name == given.preset), "mini")
    without: tuple[str, ...] = ("models", "data") if given.embeddings else ()
    if given.models and not given.preset:
        without += RECIPE
    return of_preset(config_type, preset, without=without)


def mesh() -> Mesh | None:
    """Return the devices of all processes where there are several, to share encoding and training.

    The geometry of a few ten thousand tokens is each process's own.
    """
    return row_mesh() if jax.device_count() > 1 else None


def enable_compilation_cache() -> None:
    """Keep compiled programs in the user's cache folder, unless the environment names another."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        jax.config.update("jax_compilation_cache_dir", str(Path(root) / "jaxgeom" / "xla"))


def keep_freed_memory() -> None:
    """Have the C library keep freed memory for the next call, where it is glibc.

    The temporaries of a compiled program, 600 MB in a training step, are otherwise mapped, zeroed
    page by page and unmapped in every call: on two cores a fifth of the time.
    """
    if platform.libc_ver()[0] == "glibc":
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in _MALLOPT.items():
            mallopt(option, value)

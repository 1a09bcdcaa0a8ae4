"""The rows of every benchmark: jaxgeom, its reference, and the peers that are installed."""

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxgeom
from benchmarks.ops import LLOYD_TOLERANCES
from benchmarks.peers import arrays
from jaxgeom import reference
from jaxgeom.testing import TOLERANCES, Tolerance

_OURS = TOLERANCES["jax", "float32"] | LLOYD_TOLERANCES


def _same(x: Any) -> Any:
    """Return what there is to wait for: nothing."""
    return x


@dataclass(frozen=True)
class Backend:
    """An implementation: how it is loaded, fed, waited for and judged."""

    name: str
    packages: tuple[str, ...]  # what has to be installed; the first one's version is recorded
    load: Callable[[], Any]  # -> a set of operations under jaxgeom's names
    asarray: Callable[[np.ndarray], Any] = _same  # float32 or int32 -> an array on the device
    block: Callable[[Any], Any] = _same  # waits until a result is there
    tolerances: dict[str, Tolerance] = field(default_factory=lambda: _OURS)
    on_gpu: bool = False  # whether it runs nowhere else
    is_peer: bool = True

    def missing(self) -> str | None:
        """Return why this backend cannot run here, or None."""
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                return f"{package} is not installed"
        if self.on_gpu and jax.default_backend() != "gpu":
            return f"{self.name} needs a GPU"
        return None


def _module(name: str) -> Callable[[], Any]:
    return lambda: importlib.import_module(f"benchmarks.peers.{name}")


def _torch_device() -> str:
    return "cuda" if jax.default_backend() == "gpu" else "cpu"


def _to_torch(x: np.ndarray) -> Any:
    torch = importlib.import_module("torch")
    tensor = torch.asarray(x, device=_torch_device())
    return tensor if tensor.is_floating_point() else tensor.long()


def _wait_for_torch(x: Any) -> Any:
    torch = importlib.import_module("torch")
    if _torch_device() == "cuda":
        torch.cuda.synchronize()
    return x


def _to_cupy(x: np.ndarray) -> Any:
    return importlib.import_module("cupy").asarray(x)


def _wait_for_cupy(x: Any) -> Any:
    importlib.import_module("cupy").cuda.get_current_stream().synchronize()
    return x


BACKENDS = (
    Backend(
        "jaxgeom", ("jax",), lambda: jaxgeom, jnp.asarray, jax.block_until_ready, is_peer=False
    ),
    Backend(
        "reference",
        ("numpy",),
        lambda: reference,
        lambda x: x.astype(np.float64) if x.dtype.kind == "f" else x,
        is_peer=False,
    ),
    Backend("numpy", ("numpy", "scipy"), _module("numpy_careful")),
    Backend("scikit-learn", ("sklearn",), _module("scikit_learn")),
    Backend("faiss", ("faiss",), _module("faiss_library")),
    Backend("torch", ("torch",), arrays.torch_ops, _to_torch, _wait_for_torch),
    Backend("cupy", ("cupy",), arrays.cupy_ops, _to_cupy, _wait_for_cupy, on_gpu=True),
)

"""Training that is killed by the kernel at a chosen call, and what its folder is then asked for."""

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).parent

# A process of its own that trains into sys.argv[1] by the lines that follow, and is killed when it
# calls the function sys.argv[2] for the n-th time, n = sys.argv[3].
DEADLY = """
import importlib, os, signal, sys

folder, name, number = sys.argv[1:]
module, _, attribute = name.rpartition(".")
module = importlib.import_module(module)
function, calls = getattr(module, attribute), []

def deadly(*args, **kwargs):
    calls.append(args)
    if len(calls) == int(number):
        if attribute == "save_file":  # in the middle of it
            function(*args, **kwargs)
            os.truncate(args[1], os.path.getsize(args[1]) // 2)
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*args, **kwargs)

setattr(module, attribute, deadly)
"""


def train_until_killed(training: str, folder: Path, function: str, call: int) -> None:
    """Run lines that train into `folder` until a function is called for the n-th time."""
    child = subprocess.run(
        [sys.executable, "-c", DEADLY + training, folder, function, str(call)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr


def count_steps(loop: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that receives the number of each step that a loop takes, from 0 on."""
    taken: list[int] = []
    original = loop.train_step

    def counted(params, opt_state, batch, key, step, **static):
        taken.append(step)
        return original(params, opt_state, batch, key, step, **static)

    monkeypatch.setattr(loop, "train_step", counted)
    return taken


def sha256(model: Path) -> str:
    """Return the sha256 of a model folder's weights."""
    return hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()

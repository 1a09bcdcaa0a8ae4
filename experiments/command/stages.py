"""The time that each stage of a run takes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm


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

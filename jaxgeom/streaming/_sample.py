"""A uniform sample of the rows of a stream: the same rows whatever the chunks and the processes.

Every row has a pseudo-random priority that depends on its number and the key alone, and the rows of
the k smallest priorities are kept: a reservoir that needs no order, so that chunks may have any
size and the samples of several processes merge into the sample of all rows.
"""

import jax
import numpy as np
from jaxtyping import Array

from jaxgeom import distributed
from jaxgeom.streaming._sources import AnySource, Source

_NONE = np.iinfo(np.uint64).max  # the priority of an empty slot
_OWN_ROWS = 1 << 40  # where the next process's rows start, where nobody knows how many there are


class Sample:
    """The reservoir of one process; `see` is shown the chunks in order."""

    def __init__(self, source: AnySource, size: int, key: Array) -> None:
        own = source.shard()
        n = source.n_rows
        size = size if n is None else min(size, n)
        is_file = isinstance(source, Source)
        self.first = own.start if is_file else distributed.process_index() * _OWN_ROWS
        self.seed = _seed(key)
        self.priorities = np.full(size, _NONE)
        self.numbers = np.full(size, -1, np.int64)
        self.rows = np.empty((size, source.n_features), source.dtype)

    def see(self, chunk: np.ndarray, first: int) -> None:
        """Take over what belongs into the sample of rows `first` and on."""
        numbers = np.arange(self.first + first, self.first + first + len(chunk))
        self._admit(_priorities(numbers, self.seed), numbers, chunk)

    def _admit(self, priorities: np.ndarray, numbers: np.ndarray, rows: np.ndarray) -> None:
        """Keep the smallest priorities of those in the reservoir and those that come."""
        size = len(self.priorities)
        able = np.flatnonzero(priorities < self.priorities.max())
        if not able.size:
            return
        both = np.concatenate([self.priorities, priorities[able]])
        kept = np.argpartition(both, size - 1)[:size]
        entering = able[kept[kept >= size] - size]
        leaving = np.ones(size, bool)
        leaving[kept[kept < size]] = False
        self.priorities[leaving] = priorities[entering]
        self.numbers[leaving] = numbers[entering]
        self.rows[leaving] = rows[entering]

    def of_all_processes(self) -> np.ndarray:
        """Return the sample [k d] of the rows of all processes, in the order of the rows."""
        gathered = distributed.gather((self.priorities, self.numbers, self.rows.view(np.uint8)))
        for process, (priorities, numbers, rows) in enumerate(gathered):
            if process != distributed.process_index():
                self._admit(priorities, numbers, rows.view(self.rows.dtype))
        order = np.argsort(self.numbers)
        return self.rows[order[self.numbers[order] >= 0]]


def _seed(key: Array) -> np.uint64:
    """Return 64 bits of a typed key."""
    words = np.asarray(jax.random.key_data(key)).ravel().astype(np.uint64)
    return (words[0] << np.uint64(32)) ^ words[-1]


def _priorities(numbers: np.ndarray, seed: np.uint64) -> np.ndarray:
    """Return a 64-bit hash of each number: SplitMix64 (Steele, Lea and Flood 2014)."""
    z = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) ^ seed
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))

"""That an installed package works: two ranks of this process sum through its switch.

`--without-lock`: the threads must run without Python's global lock.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import tributary

RANKS, SUMS = 2, 20


def sums(switch: str, rank: int, begin: threading.Barrier) -> list[float]:
    """What one rank hears of its sums."""
    with tributary.connect(switch, job="two", rank=rank, world_size=RANKS) as group:
        begin.wait()
        return [float(group.all_reduce(np.full(10_000, rank + 1.0, np.float32)).max()) for _ in range(SUMS)]


def main() -> None:
    """Sum, and compare."""
    if "--without-lock" in sys.argv:
        assert not sys._is_gil_enabled(), "a module has turned the global lock on"
    begin = threading.Barrier(RANKS)
    with tributary.Switch("127.0.0.1:0") as switch, ThreadPoolExecutor(RANKS) as ranks:
        told = list(ranks.map(lambda rank: sums(switch.address, rank, begin), range(RANKS)))
    assert told == [[3.0] * SUMS] * RANKS, told


if __name__ == "__main__":
    main()

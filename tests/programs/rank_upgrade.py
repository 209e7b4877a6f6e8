"""What one rank does while the switch gets a new program."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import rank


def sum_until(number: int, world_size: int, switch: str, job: str, directory: str) -> int:
    """Sum without a pause until a file says that it is over; return how many sums there were."""
    folder, sums = Path(directory), 0
    with rank.connect(number, world_size, switch, job, timeout=60.0) as group:
        over = False
        while not over:
            # Whether it is over is summed, too, so that all ranks end after the same sum.
            data = np.ones(50_000, dtype=np.int32)
            data[0] = (folder / "over").exists()
            total = group.all_reduce(data)
            assert (total[1:] == world_size).all()
            over, sums = bool(total[0]), sums + 1
            (folder / f"sums{number}").write_text(str(sums))
    return sums

"""What one rank does with sparse arrays, in a process of its own; as a program, a rank of `tributary lab star`."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

import rank
import tributary
from tributary import _core

Array = npt.NDArray[Any]

#: Elements of the whole array, and how many of a million a rank brings.
CASES = [(0, 0), (1, 1_000_000), (5_000, 1_000_000), (65, 500_000), (100_003, 10_000), (1_000_007, 500)]
#: Whose jobs may be of sparse arrays.
PROTOCOL = next(name for name in _core.protocols() if _core.sparse_options(name, {}) is not None)
OPTIONS = _core.sparse_options(PROTOCOL, {}) or {}


@cache
def brought(own: int, size: int, ppm: int, dtype: Any) -> tuple[Array, Array]:
    """A rank's indices, and values whose sums of a few ranks every type holds exactly."""
    random = np.random.default_rng([own, size, ppm])
    indices = np.flatnonzero(random.random(size) * 1e6 < ppm)
    least = 0 if dtype == np.uint8 else -4
    return indices, random.integers(least, 5, indices.size).astype(dtype)


@cache
def right(world_size: int, size: int, ppm: int, dtype: Any, op: str) -> tuple[Array, Array]:
    """What all ranks' elements give: at each index the operator over the ranks that bring it."""
    combine = {"sum": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}[op]
    total: dict[int, Any] = {}
    for own in range(world_size):
        indices, values = brought(own, size, ppm, dtype)
        for index, value in zip(indices.tolist(), values.astype(np.float64).tolist(), strict=True):
            total[index] = combine(total[index], value) if index in total else value
    indices = np.array(sorted(total), dtype=np.int64)
    return indices, np.array([total[index] for index in sorted(total)], dtype=np.float64)


def wrong_results(group: tributary.Group, dtypes: list[Any], ops: list[str]) -> tuple[list[str], list[str]]:
    """Which results are not what they must be, and the bits of all."""
    wrong, digests = [], []
    for dtype in dtypes:
        for op in ops:
            for size, ppm in CASES:
                mine = brought(group.rank, size, ppm, dtype)
                indices, values = group.all_reduce_sparse(*mine, size, op=op)
                expected_indices, numbers = right(group.world_size, size, ppm, dtype, op)
                same = np.array_equal(indices, expected_indices) and np.array_equal(values.astype(np.float64), numbers)
                if not same or values.dtype != dtype or indices.dtype != np.int64:
                    wrong.append(f"{op} of {size} {np.dtype(dtype)}")
                digests.append(rank.digest(indices) + rank.digest(values))
    return wrong, digests


def every_type(own: int, world_size: int, switch: str, job: str, dtypes: list[Any], options: Any) -> tuple[Any, Any]:
    """Each type and operator of a job."""
    with rank.connect(own, world_size, switch, job, protocol=PROTOCOL, options=OPTIONS | options) as group:
        group.barrier()
        return wrong_results(group, dtypes, ["sum", "min", "max", "prod"])


def cancels(own: int, world_size: int, switch: str, job: str) -> tuple[list[int], list[float]]:
    """A sum that cancels to zero, beside an average, whose divisor is all ranks."""
    with rank.connect(own, world_size, switch, job, protocol=PROTOCOL, options=OPTIONS) as group:
        sums = group.all_reduce_sparse([3, 5 + own], [1.0 - 2.0 * own, 4.0], 9)
        averages = group.all_reduce_sparse([3, 5 + own], [1.0 - 2.0 * own, 4.0], 9, op="avg")
        assert np.array_equal(sums[0], averages[0])
        return sums[0].tolist(), [*sums[1].tolist(), *averages[1].tolist()]


def refused_first(own: int, world_size: int, switch: str, job: str, bad: list[Any]) -> tuple[list[str], int, float]:
    """Bring what is refused on rank 0 alone: the sentences, the packets sent meanwhile, and a sum afterwards."""
    sentences = []
    with rank.connect(own, world_size, switch, job, protocol=PROTOCOL, options=OPTIONS) as group:
        before = group.stats().packets_sent
        for indices, values, size in bad if own == 0 else []:
            try:
                group.all_reduce_sparse(indices, values, size)
            except (ValueError, TypeError) as error:
                sentences.append(f"{type(error).__name__}: {error}")
        sent = group.stats().packets_sent - before
        _, values = group.all_reduce_sparse([7], [1.0 + own], 10)
        return sentences, sent, float(values[0])


def main() -> None:
    """One rank of a star of lossy links."""
    own, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    resent: dict[str, Any] = {}
    for sparse in ("auto", "hash"):
        options = {"sparse": sparse, "hash_slots": 64, "spill": 8}
        job = f"lossy-{sparse}"
        with rank.connect(
            own, world_size, os.environ["TRIBUTARY_SWITCH"], job, 60.0, protocol=PROTOCOL, options=options
        ) as group:
            wrong, digests = wrong_results(group, [np.float32, np.int64], ["sum", "max"])
            assert wrong == [], wrong
            # All ranks have the same bits: a table of them, in a job that takes nothing else, is a sparse sum too.
            words = np.frombuffer(bytes.fromhex("".join(digests)), np.uint8)
            indices = np.arange(words.size)
            least, most = (group.all_reduce_sparse(indices, words, words.size, op=op)[1] for op in ("min", "max"))
            assert np.array_equal(least, most), "ranks have other bits"
            resent[sparse] = group.stats().retransmissions
    print(json.dumps(resent))


if __name__ == "__main__":
    main()

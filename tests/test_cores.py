"""A worker on several cores: the bits of one core, from arrays and from PyTorch's variables."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tributary
from tributary import _core

#: Protocols whose slots cores can divide, and one of the others.
DIVIDING = [protocol for protocol in _core.protocols() if _core.divides_slots(protocol, {})]
OTHER = next(protocol for protocol in _core.protocols() if protocol not in DIVIDING)
#: Two hundred blocks and one, more than the pool has.
ELEMENTS = 200 * 64 + 7


def summed(switch: str, job: str, cores: tuple[int, int]) -> list[npt.NDArray[Any]]:
    """Each rank's result, where ranks have this many cores."""

    def one(rank: int) -> npt.NDArray[Any]:
        sizes: dict[str, Any] = {"elements_per_packet": 64, "slots": 16, "cores": cores[rank]}
        with tributary.connect(switch, job=job, rank=rank, world_size=2, timeout=20.0, **sizes) as group:
            assert group.info.cores == cores[rank]
            data = np.sin(np.arange(ELEMENTS, dtype=np.float32) + rank)
            sums: npt.NDArray[Any] = group.all_reduce(data)
            group.barrier()
            return sums

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(one, range(2)))


def test_the_bits_are_the_same_on_any_number_of_cores() -> None:
    with tributary.Switch(cores=2) as switch:
        first = summed(switch.address, "one", (1, 1))
        for cores in ((2, 2), (3, 1), (4, 4)):
            for sums in summed(switch.address, f"cores{cores[0]}", cores):
                np.testing.assert_array_equal(sums.view(np.uint32), first[0].view(np.uint32))


@pytest.mark.parametrize(
    ("protocol", "cores", "match"),
    [
        (OTHER, 2, f"of {OTHER} has no slots that 2 cores can divide: take one core, or {' or '.join(DIVIDING)}"),
        (DIVIDING[0], 17, "17 cores are not possible; a worker has 1 to 16"),
        (DIVIDING[0], 0, "0 cores are not possible"),
    ],
)
def test_cores_that_do_not_work_are_refused(protocol: str, cores: int, match: str) -> None:
    with tributary.Switch() as switch, pytest.raises((ValueError, tributary.ConnectError), match=match):
        tributary.connect(switch.address, job="refused", rank=0, world_size=1, protocol=protocol, cores=cores)

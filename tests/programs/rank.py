"""What one rank does, in a process of its own: functions for the ``ranks`` fixture."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tributary
from tributary import _core

Array = npt.NDArray[Any]

SIZES = [0, 1, 63, 64, 65, 1_000_007]
DTYPES: dict[str, Any] = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i32": np.int32,
}
#: Distance from one to the next number.
EPSILON = {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}


def connect(
    rank: int, world_size: int, switch: str, job: str, timeout: float = 20.0, **options: Any
) -> tributary.Group:
    """Join with a timeout that fits tests."""
    return tributary.connect(switch, job=job, rank=rank, world_size=world_size, timeout=timeout, **options)


def data(rank: int, size: int, dtype: str) -> Array:
    """A rank's array: floats over many magnitudes, integers over their whole range."""
    random = np.random.default_rng([rank, size])
    if dtype == "i32":
        return random.integers(-(2**31), 2**31, size, dtype=np.int32)
    magnitudes = 2.0 ** random.integers(-12, 3, size)
    return np.asarray((random.standard_normal(size) * magnitudes).astype(DTYPES[dtype]))


@lru_cache(maxsize=4 * len(SIZES))
def totals(world_size: int, size: int, dtype: str) -> tuple[Array, Array, float]:
    """The exact sum, the sum of absolutes and the largest absolute: kept, as all protocols and operators need them."""
    arrays = [data(rank, size, dtype) for rank in range(world_size)]
    if dtype == "i32":
        whole = np.asarray(np.sum(np.array(arrays, dtype=np.int32), axis=0, dtype=np.int32))
        return whole, np.zeros(size), 0.0
    exact = np.array(arrays, dtype=np.float64)
    return exact.sum(axis=0), np.abs(exact).sum(axis=0), np.abs(exact).max(initial=0.0)


def expected(world_size: int, size: int, dtype: str, op: str) -> tuple[Array, Array]:
    """The exact result, and how far a rank's may be from it."""
    total, absolutes, largest = totals(world_size, size, dtype)
    divisor = world_size if op == "avg" else 1
    if dtype == "i32":
        return np.asarray(np.trunc(total / divisor).astype(np.int32)), absolutes
    # Theorem 1 with the largest input of the whole tensor, and f at least half of the paper's, whose 2^m is at most
    # twice the largest input; then the result's own rounding, or one for every hop of a ring.
    quantisation = 4 * world_size * world_size * largest / (2**31 - 1)
    epsilon = EPSILON[dtype]
    rounding = (world_size + 1) * epsilon * (absolutes + quantisation)
    return total / divisor, (quantisation + rounding) / divisor


def digest(array: Array) -> str:
    """The bits of an array."""
    return hashlib.sha256(array.tobytes()).hexdigest()


def sums(rank: int, world_size: int, switch: str, job: str, protocol: str) -> list[str]:
    """Every size, type and operator; check the values and return the bits."""
    digests = []
    with connect(rank, world_size, switch, job, protocol=protocol) as group:
        for size in SIZES:
            for dtype in DTYPES:
                for op in ("sum", "avg"):
                    x = data(rank, size, dtype)
                    before = digest(x)
                    result = group.all_reduce(x, op=op)
                    assert result.dtype == x.dtype
                    assert digest(x) == before, "the input was touched"
                    exact, bound = expected(world_size, size, dtype, op)
                    wrong = ~(np.abs(result.astype(np.float64) - exact.astype(np.float64)) <= bound)
                    assert not wrong.any(), (size, dtype, op, np.flatnonzero(wrong)[:5])
                    digests.append(digest(result))
        assert group.stats().in_network == (1.0 if _core.summed_by_switches(protocol) else 0.0)
    return digests


def shared_sums(rank: int, world_size: int, switch: str, job: str, protocol: str) -> list[str]:
    """Integers exactly, floats within four times the bound of Theorem 1; who sums depends on the switch's room."""
    digests = []
    with connect(rank, world_size, switch, job, protocol=protocol) as group:
        for size in (0, 1, 65, 200_003):
            integers = group.all_reduce(data(rank, size, "i32"), op="sum")
            assert np.array_equal(integers, expected(world_size, size, "i32", "sum")[0])
            floats = group.all_reduce(data(rank, size, "f32"), op="sum")
            exact, bound = expected(world_size, size, "f32", "sum")
            assert np.all(np.abs(floats.astype(np.float64) - exact) <= 4 * bound)
            digests += [digest(integers), digest(floats)]
        assert 0.0 <= group.stats().in_network <= 1.0
    return digests


def rooted(rank: int, world_size: int, switch: str, job: str, protocol: str) -> None:
    """A reduce to each rank, a broadcast from each, of every layout; a barrier."""
    with connect(rank, world_size, switch, job, protocol=protocol) as group:
        for root in range(world_size):
            for size in SIZES:
                x = data(rank, size, "i32")
                total = group.reduce(x, root)
                if rank == root:
                    np.testing.assert_array_equal(total, expected(world_size, size, "i32", "sum")[0])
                else:
                    assert total is None
                copy = np.asfortranarray(data(rank, 6 * size, "i32").astype(np.float64).reshape(2, 3, size))
                assert group.broadcast(copy, root) is copy
                np.testing.assert_array_equal(copy.ravel(), data(root, 6 * size, "i32").astype(np.float64))
        group.barrier()
        for wrong in (-1, world_size):
            with pytest.raises(
                ValueError, match=f"rank {wrong} cannot be the root: the job has ranks 0 to {world_size - 1}"
            ):
                group.broadcast(np.zeros(3), wrong)


def shards(rank: int, world_size: int, switch: str, job: str, protocol: str) -> None:
    """Reduce-scatters and all-gathers, some of them under way together, into new arrays and into the caller's."""
    with connect(rank, world_size, switch, job, protocol=protocol) as group:
        for size in (0, 1, 63, 10_001):
            x = data(rank, 3 * world_size * size, "i32").reshape(world_size * size, 3)
            mine = slice(rank * size, (rank + 1) * size)
            total = expected(world_size, 3 * world_size * size, "i32", "sum")[0].reshape(world_size * size, 3)
            shard = group.reduce_scatter(x)
            np.testing.assert_array_equal(shard, total[mine])
            np.testing.assert_array_equal(group.all_gather(shard), total)
            # Into the part of itself, in another order of memory, and of bytes that numbers do not have.
            started = group.reduce_scatter_async(np.asfortranarray(x), op="max", out=x[mine])
            names = np.array([[f"rank {rank}", str(i)] for i in range(size)], dtype="S9").reshape(size, 2)
            everybody = np.asfortranarray(np.empty((world_size * size, 2), dtype="S9"))
            assert group.all_gather_async(names, out=everybody).result() is everybody
            largest = np.max([data(other, 3 * world_size * size, "i32") for other in range(world_size)], axis=0)
            np.testing.assert_array_equal(started.result(), largest.reshape(world_size * size, 3)[mine])
            assert all(name == f"rank {i // size}".encode() for i, name in enumerate(everybody[:, 0]))
        floats = data(rank, 5 * world_size, "f32")
        np.testing.assert_array_equal(group.all_gather(group.reduce_scatter(floats)), group.all_reduce(floats))
        np.testing.assert_array_equal(group.all_gather(10 * rank), np.arange(world_size) * 10)


def large(rank: int, world_size: int, switch: str, job: str) -> str:
    """64 MiB at once."""
    with connect(rank, world_size, switch, job) as group:
        x = np.full(16 << 20, rank + 1, np.int32)
        group.all_reduce(x, out=x)
        assert (x == world_size * (world_size + 1) // 2).all()
        return digest(x)


def burst(rank: int, world_size: int, switch: str, job: str) -> list[str]:
    """Two hundred collectives of random sizes, many in flight."""
    random = np.random.default_rng(7)
    sizes = [int(size) for size in random.integers(0, 20_000, 200)]
    with connect(rank, world_size, switch, job) as group:
        handles = [group.all_reduce_async(data(rank, size, "i32")) for size in sizes]
        results = [handle.result() for handle in handles]
    for size, result in zip(sizes, results, strict=True):
        np.testing.assert_array_equal(result, expected(world_size, size, "i32", "sum")[0])
    return [digest(result) for result in results]


def failing(rank: int, world_size: int, switch: str, job: str, brings: list[dict[str, Any]]) -> tuple[str, str]:
    """Join and sum what this rank brings; return the error's type and sentence."""
    mine: dict[str, Any] = {"world_size": world_size, "size": 1000, "dtype": np.float32, "op": "sum"} | brings[rank]
    try:
        with connect(rank, mine["world_size"], switch, job, timeout=3.0) as group:
            group.all_reduce(np.ones(mine["size"], mine["dtype"]), op=mine["op"])
    except tributary.TributaryError as error:
        return type(error).__name__, str(error)
    return "", "nothing went wrong"


def bereaved(
    rank: int, world_size: int, switch: str, job: str, elements: int, protocol: str = "switchml", timeout: float = 3.0
) -> tuple[str, str, tuple[int, ...]]:
    """Sum until somebody is missed; return the error's type, its sentence, and who is missing."""
    with connect(rank, world_size, switch, job, timeout=timeout, protocol=protocol) as group:
        x = np.ones(elements, np.float32)
        try:
            while True:
                group.all_reduce(x)
        except tributary.CollectiveError as error:
            return type(error).__name__, str(error), getattr(error, "missing", ())

"""Arrays of every layout, in and out: two ranks as threads of this process, with a switch inside it."""

from __future__ import annotations

import gc
import threading
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tributary

Array = npt.NDArray[Any]
Both = Callable[[Callable[[tributary.Group], Any]], list[Any]]


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    """Call a function with each of two groups, at once."""
    with tributary.Switch() as switch, ThreadPoolExecutor(2) as threads:

        def join(rank: int) -> tributary.Group:
            return tributary.connect(switch.address, job="arrays", rank=rank, world_size=2, timeout=10.0)

        groups = list(threads.map(join, range(2)))
        # Two ranks wait for each other in one process: that works only because the interpreter is released meanwhile.
        yield lambda function: list(threads.map(function, groups))
        for group in groups:
            group.close()


def grid(group: tributary.Group) -> Array:
    """A small array that differs between ranks."""
    return (np.arange(24, dtype=np.float32) * (1 + group.rank)).reshape(2, 3, 4)


SUM = (np.arange(24, dtype=np.float32) * 3).reshape(2, 3, 4)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_result_keeps_shape_and_order(both: Both, order: Literal["C", "F"]) -> None:
    for result in both(lambda group: group.all_reduce(np.asarray(grid(group), order=order))):
        np.testing.assert_array_equal(result, SUM)
        assert result.flags[f"{order}_CONTIGUOUS"]


def test_ranks_with_different_orders_add_the_same_elements(both: Both) -> None:
    for result in both(lambda group: group.all_reduce(np.asarray(grid(group), order="C" if group.rank == 0 else "F"))):
        np.testing.assert_array_equal(result, SUM)


VIEWS: dict[str, Callable[[Array], Array]] = {
    "every other": lambda x: x[::2],
    "backwards": lambda x: x[:, ::-1, 1:3],
    "transposed": lambda x: x.transpose(2, 0, 1),
    "broadcast": lambda x: np.broadcast_to(x[0, 0, 0], (5, 5)),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_that_are_not_contiguous(both: Both, view: Callable[[Array], Array]) -> None:
    for result in both(lambda group: group.all_reduce(view(grid(group)))):
        np.testing.assert_array_equal(result, view(SUM))


def test_no_dimensions_and_no_elements(both: Both) -> None:
    for result in both(lambda group: group.all_reduce(np.float32(group.rank + 1))):
        assert result.shape == ()
        assert result == 3.0
    for result in both(lambda group: group.all_reduce(np.empty((3, 0, 2), np.int32))):
        assert result.shape == (3, 0, 2)


def test_foreign_byte_order(both: Both) -> None:
    for result in both(lambda group: group.all_reduce(np.arange(10, dtype=">i4"))):
        assert result.dtype == np.dtype(">i4")
        np.testing.assert_array_equal(result, np.arange(10) * 2)


def test_bfloat16(both: Both) -> None:
    for result in both(lambda group: group.all_reduce(np.array([1.5, -2.0], ml_dtypes.bfloat16))):
        assert result.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(result.astype(np.float32), [3.0, -4.0])


DTYPES = [
    np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.int32, np.int16, np.int8, np.uint8
]  # fmt: skip
#: What numpy makes of two arrays.
OPS: dict[str, Callable[[Array, Array], Array]] = {
    "sum": np.add,
    "avg": lambda a, b: np.trunc((a + b).astype(np.float64) / 2) if a.dtype.kind in "iu" else (a + b) / 2,
    "min": np.minimum,
    "max": np.maximum,
    "prod": np.multiply,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}


def small(rank: int, dtype: Any) -> Array:
    """Numbers whose sums and products every type holds exactly."""
    return np.random.default_rng(rank).integers(0, 12, 1001).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("op", OPS)
def test_every_operator_of_every_type_gives_what_numpy_gives(both: Both, dtype: Any, op: str) -> None:
    is_integer = np.dtype(dtype).kind in "iu"
    if not is_integer and op in ("band", "bor", "bxor"):

        def refuse(group: tributary.Group) -> None:
            with pytest.raises(tributary.UnsupportedError, match="band, bor and bxor are for integers"):
                group.all_reduce(small(0, dtype), op=op)

        both(refuse)
        return
    want = OPS[op](small(0, dtype), small(1, dtype)).astype(dtype)
    for result in both(lambda group: group.all_reduce(small(group.rank, dtype), op=op)):
        assert result.dtype == np.dtype(dtype)
        assert result.tobytes() == want.tobytes()


def test_integers_wrap_and_64_bits_keep_every_digit(both: Both) -> None:
    for result in both(lambda group: group.all_reduce(np.array([200, 100], np.uint8))):
        assert result.tolist() == [144, 200]
    for result in both(lambda group: group.all_reduce(np.array([2**62 + 1], np.int64))):
        assert result.tolist() == [-(2**63) + 2]
    for result in both(lambda group: group.all_reduce(np.array([1.0 + 2.0**-52]))):
        assert result.tolist() == [2.0 + 2.0**-51]


def test_floats_are_summed_as_floats_unless_fixed_point_is_chosen() -> None:
    sums = []
    for numbers in ("float", "fixed"):
        with tributary.Switch() as switch, ThreadPoolExecutor(2) as threads:

            def total(rank: int, address: str = switch.address, numbers: str = numbers) -> Array:
                options = {"numbers": numbers}
                with tributary.connect(
                    address, job="n", rank=rank, world_size=2, timeout=10.0, options=options
                ) as group:
                    if numbers == "fixed":
                        with pytest.raises(tributary.UnsupportedError, match="in fixed point: choose numbers=float"):
                            group.all_reduce(np.ones(3), op="max")
                    pairs = [[2.5, 1e9], [1e-4, 1e6]]
                    return np.array([group.all_reduce(np.array(pair, np.float32)) for pair in pairs])

            first, second = threads.map(total, range(2))
            assert first.tobytes() == second.tobytes()
            sums.append(first.tolist())
    # One exponent serves both elements of a pair: a step of the integers is 2 where the largest magnitude is near 2^30,
    # and 2^-9 where it is near 2^20 (docs/numerics.md has this table).
    assert sums[0] == [[5.0, 2e9], [float(np.float32(2e-4)), 2e6]]
    assert sums[1] == [[4.0, 2e9], [0.0, 2e6]]


@pytest.mark.parametrize(("down", "third"), [("8", 252.0), ("16", 253.0)])
def test_floats_travel_as_codes_of_eight_bits_where_a_group_says_so(down: str, third: float) -> None:
    with tributary.Switch() as switch, ThreadPoolExecutor(2) as threads:

        def total(rank: int) -> Array:
            options = {"numbers": "int8", "down": down}
            with tributary.connect(
                switch.address, job="n", rank=rank, world_size=2, timeout=10.0, options=options
            ) as group:
                # The range is 128, so that a code is worth 128/127: 128 is 127 codes, 127 is 126, and 0.5 is none.
                x = np.array([128.0, 0.5, 127.0 if rank else 128.0, np.inf if rank else 1.0], np.float32)
                return group.all_reduce(x)

        first, second = threads.map(total, range(2))
    assert first.tobytes() == second.tobytes()
    # In 8 bits a sum is a multiple of two codes, to nearest even.
    assert np.isnan(first[3])
    assert first[:3].tolist() == [256.0, 0.0, float(np.float32(third * 128 / 127))]


def test_a_width_of_sums_without_codes_is_refused() -> None:
    with pytest.raises(ValueError, match="down=16 is for sums of codes: add numbers=int8, or leave down out"):
        tributary.connect("127.0.0.1:9", job="n", rank=0, world_size=2, options={"down": "16"})


def test_infinities_and_nans_stay_where_they_are(both: Both) -> None:
    def reduce(group: tributary.Group) -> Array:
        x = np.ones(1000, np.float32)
        if group.rank == 0:
            x[[3, 500, 501]] = np.inf, -np.inf, np.nan
        return group.all_reduce(x)

    first, second = both(reduce)
    assert first.tobytes() == second.tobytes()
    assert np.flatnonzero(~np.isfinite(first)).tolist() == [3, 500, 501]


def test_out_takes_the_result(both: Both) -> None:
    def reduce(group: tributary.Group) -> None:
        for out in (
            np.empty((2, 3, 4), np.float32),
            np.empty((4, 3, 2), np.float32).T,
            np.empty((2, 6, 4), np.float32),
        ):
            target = out[:, ::2] if out.shape == (2, 6, 4) else out
            assert group.all_reduce(grid(group), out=target) is target
            np.testing.assert_array_equal(target, SUM)

    both(reduce)


def test_in_place(both: Both) -> None:
    def reduce(group: tributary.Group) -> None:
        x = grid(group)
        assert group.all_reduce(x, out=x) is x
        np.testing.assert_array_equal(x, SUM)
        view = grid(group)[:, 1]
        group.all_reduce(view, out=view)
        np.testing.assert_array_equal(view, SUM[:, 1])

    both(reduce)


def test_an_out_that_overlaps_the_input_elsewhere(both: Both) -> None:
    def reduce(group: tributary.Group) -> None:
        memory = np.arange(100_001, dtype=np.int32)
        group.all_reduce(memory[:-1], out=memory[1:])
        np.testing.assert_array_equal(memory[1:], np.arange(100_000) * 2)

    both(reduce)


def test_several_in_flight_come_back_in_any_order(both: Both) -> None:
    def reduce(group: tributary.Group) -> None:
        handles = [group.all_reduce_async(np.full(n, n, np.int32)) for n in (100_000, 1, 0, 5000)]
        for n, handle in zip((5000, 0, 1, 100_000), reversed(handles), strict=True):
            np.testing.assert_array_equal(handle.result(), np.full(n, 2 * n))
            assert handle.done()
            assert handle.result() is handle.result()

    both(reduce)


def test_memory_lives_until_a_forgotten_collective_has_ended(both: Both) -> None:
    def reduce(group: tributary.Group) -> Array:
        for n in range(50):
            group.all_reduce_async(np.full(100_000, n, np.int32))
            gc.collect()
        return group.all_reduce(np.ones(3, np.int32))

    gc.freeze()  # Else all modules are looked through a hundred times.
    try:
        for result in both(reduce):
            np.testing.assert_array_equal(result, [2, 2, 2])
    finally:
        gc.unfreeze()


def test_a_wait_that_is_too_short_can_be_repeated(both: Both) -> None:
    waited = threading.Event()

    def reduce(group: tributary.Group) -> Array:
        x = np.ones(10, np.int32)
        if group.rank == 1:
            waited.wait(10)
            return group.all_reduce(x)
        handle = group.all_reduce_async(x)
        with pytest.raises(TimeoutError, match="still under way"):
            handle.result(0.05)
        with pytest.raises(TimeoutError, match="still under way"):
            handle.result(timeout=0)
        waited.set()
        result: Array = handle.result()
        return result

    for result in both(reduce):
        np.testing.assert_array_equal(result, np.full(10, 2))


class Tensor:
    """What other libraries have: an object with DLPack's methods alone."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __dlpack__(self, **wishes: Any) -> Any:
        return self._array.__dlpack__(**wishes)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def test_tensors_and_buffers_of_other_libraries_are_summed_and_written_in_place(both: Both) -> None:
    def reduce(group: tributary.Group) -> Array:
        memory = np.full(5, group.rank + 1, np.float32)
        tensor: Any = Tensor(memory)
        buffer: Any = array("f", memory)
        np.testing.assert_array_equal(group.all_reduce(tensor), np.full(5, 3))
        np.testing.assert_array_equal(group.all_reduce(buffer), np.full(5, 3))
        assert group.all_reduce(buffer, out=tensor) is tensor
        assert group.all_reduce(memory, out=buffer) is buffer
        if group.rank == 0:
            buffer[0] = 7
        assert group.broadcast(buffer, root=0) is buffer
        with pytest.raises(TypeError, match="out is an array, a DLPack tensor or a buffer, not list"):
            group.all_reduce(memory, out=[0.0] * 5)
        return np.concatenate([memory, buffer])

    for result in both(reduce):
        np.testing.assert_array_equal(result, [3, 3, 3, 3, 3, 7, 6, 6, 6, 6])


def test_pytorchs_bfloat16_is_summed_and_written_into_itself(both: Both) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make test-torch` installs it (5 GB)")

    def reduce(group: tributary.Group) -> None:
        columns = torch.full((4, 2), 1.5, dtype=torch.bfloat16).t()
        result = group.all_reduce(columns)
        assert result.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(result.astype(np.float32), np.full((2, 4), 3))
        assert group.all_reduce(columns, out=columns) is columns
        assert torch.equal(columns, torch.full((2, 4), 3, dtype=torch.bfloat16))

    both(reduce)


@pytest.mark.parametrize("numbers", [{"rank": -1}, {"world_size": -1}, {"rank": 70_000}, {"slots": -1}, {"trees": -1}])
def test_numbers_that_cannot_count_ranks_or_slots_are_refused_by_name(numbers: dict[str, Any]) -> None:
    (name, value) = next(iter(numbers.items()))
    with pytest.raises(ValueError, match=f"{name} is a number from 0 to 65535, not {value}"):
        tributary.connect("127.0.0.1:9", job="none", **({"rank": 0, "world_size": 2} | numbers))


def test_what_cannot_be_summed_is_refused_before_anything_is_sent(both: Both) -> None:
    def refuse(group: tributary.Group) -> None:
        with pytest.raises(
            tributary.UnsupportedError, match=r"complex64 cannot be reduced; use float64, float32, float16"
        ):
            group.all_reduce(np.ones(2, np.complex64))
        with pytest.raises(tributary.UnsupportedError, match="no operator 'norm'; use sum, avg, min, max"):
            group.all_reduce(np.ones(1, np.float32), op="norm")
        with pytest.raises(tributary.UnsupportedError, match=r"switchml cannot do a bxor of 3 f64 .*for integers"):
            group.all_reduce([1.0, 2.0, 3.0], op="bxor")
        with pytest.raises(ValueError, match=r"out is float32\[3\] where the result is float32\[2\]"):
            group.all_reduce(np.ones(2, np.float32), out=np.ones(3, np.float32))
        with pytest.raises(
            ValueError, match=r"x is float32\[3, 2\], whose first axis cannot be cut into 2 shards of one"
        ):
            group.reduce_scatter(np.ones((3, 2), np.float32))
        with pytest.raises(ValueError, match=r"x is float64\[\], whose first axis"):
            group.reduce_scatter(1.0)
        with pytest.raises(ValueError, match=r"out is float32\[3\] where the result is float32\[4\]"):
            group.all_gather(np.ones(2, np.float32), out=np.ones(3, np.float32))
        with pytest.raises(TypeError, match="an all-gather is of numpy arrays of numbers"):
            group.all_gather(np.array([object()]))
        frozen = np.ones(2, np.float32)
        frozen.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            group.all_reduce(np.ones(2, np.float32), out=frozen)
        with pytest.raises(ValueError, match="seconds"):
            group.all_reduce(np.ones(2, np.float32), timeout=-1.0)
        np.testing.assert_array_equal(group.all_reduce(np.ones(2, np.float32)), [2, 2])

    both(refuse)


def test_a_group_reports_what_it_is_and_what_it_did() -> None:
    with tributary.Switch(cores=2) as switch:
        group = tributary.connect(switch.address, job="info", rank=0, world_size=1, elements_per_packet=64, slots=16)
        with group:
            group.all_reduce(np.ones(6400, np.float32))
            info, stats = group.info, group.stats()
            assert (info.switch, info.job, info.rank, info.world_size) == (switch.address, "info", 0, 1)
            assert (info.protocol, info.elements_per_packet, info.slots, info.shards) == ("switchml", 64, 16, 2)
            # Blocks of floats need no exponents.
            assert stats.packets_sent - stats.retransmissions == 100
            assert stats.in_network == 1.0
            assert "rank 0 of 1" in repr(group)
        with pytest.raises(tributary.ClosedError, match="was closed"):
            group.all_reduce(np.ones(1, np.float32))
        group.close()

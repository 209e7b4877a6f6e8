"""One worker of a job: :func:`connect` joins, :class:`Group` sums."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from tributary import _core
from tributary._arrays import Array, ArrayLike, Operands, as_target, check_op, gather_operands, reduce_operands
from tributary.info import GroupInfo, GroupStats
from tributary.operators import Operator, custom_operands
from tributary.sparse import SparseHandle, sparse_bytes

log = logging.getLogger("tributary")

#: What `connect` takes if no protocol is chosen, the first that has all that the job asks for: they sum at one switch.
_AUTO = [p for p in _core.protocols() if _core.summed_by_switches(p) and not _core.processed_at_every_hop(p)]


class Handle:
    """A collective under way. Leave its arrays alone until it is done."""

    def __init__(self, pending: _core.Pending, operands: Operands) -> None:
        self._pending = pending
        self._operands = operands
        self._result: Any = None

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result and return it (`out`, if there is one), as a `concurrent.futures.Future` does.

        Raises `TimeoutError` if `timeout` seconds pass first: the collective continues, and its own timeout still
        applies. Raises the collective's error if it failed.
        """
        if self._result is None:
            if not self._pending.wait(timeout):
                raise TimeoutError(f"the collective is still under way after {timeout} s; wait again")
            self._result = self._operands.finish()
        return self._result

    def done(self) -> bool:
        """Whether the collective has ended, successfully or not."""
        return self._pending.is_done()


class Group:
    """One worker of a job. Made by :func:`connect`; a context manager that leaves the job at its end.

    It belongs to the process that connected. In a fork every call is refused, and `close` does nothing.

    All ranks call the same collectives in the same order. Calls may come from several threads where the caller keeps
    that order.
    """

    def __init__(self, core: _core.Group, timeout: float) -> None:
        """Made by :func:`connect`."""
        self._core = core
        self._timeout = timeout
        self.info = GroupInfo(**core.info())

    @property
    def rank(self) -> int:
        """This worker, 0 to world_size - 1."""
        return self.info.rank

    @property
    def world_size(self) -> int:
        """Number of workers."""
        return self.info.world_size

    def all_reduce(
        self, x: ArrayLike, op: str | Operator = "sum", out: Any = None, timeout: float | None = None
    ) -> Array:
        """Make one array of all ranks', by default their sum, and return it, the same bits on every rank.

        What the job's protocol cannot do raises :class:`UnsupportedError`, before anything is sent.

        Args:
            x: an array, a DLPack tensor on the CPU, a buffer, or lists of numbers: float64, float32, float16, bfloat16
                (`ml_dtypes`), int64, int32, int16, int8 or uint8; any shape and memory layout. Ranks
                agree on the type and the number of elements; element i in C order meets element i in C order.
            op: "sum", "avg", "min", "max", "prod", and for integers "band", "bor" and "bxor". Integers wrap, and their
                averages round towards zero. Or an :class:`Operator` that the group was connected with; `x` then has
                elements of its type.
            out: where to put the result, which is then returned: an array, a DLPack tensor or a buffer, also `x`
                itself. A new array of x's layout if None.
            timeout: seconds until the other ranks are given up; the group's if None.

        """
        result: Array = self.all_reduce_async(x, op=op, out=out, timeout=timeout).result()
        return result

    def all_reduce_async(
        self, x: ArrayLike, op: str | Operator = "sum", out: Any = None, timeout: float | None = None
    ) -> Handle:
        """Start :meth:`all_reduce` and return at once. Several collectives under way are sent back to back."""
        operands = custom_operands(op, x, out) if isinstance(op, Operator) else reduce_operands(x, out)
        core_op = op._core if isinstance(op, Operator) else check_op(op)
        pending = self._core.all_reduce(
            operands.input, operands.output, operands.dtype, core_op, self._seconds(timeout)
        )
        return Handle(pending, operands)

    def all_reduce_sparse(
        self,
        indices: npt.ArrayLike,
        values: npt.ArrayLike,
        size: int,
        op: str = "sum",
        timeout: float | None = None,
    ) -> tuple[Array, Array]:
        """Make one sparse array of all ranks', and return its indices and values, the same bits on every rank.

        The result has every index that any rank brings, also where values cancel to zero, and at each the operator over
        the values of those ranks that bring it; averages are divided by all ranks. Only in a job of sparse arrays:
        `connect(..., protocol="flare", options={"sparse": "auto"})`, which takes no others.

        Args:
            indices: integers from 0 to `size` - 1, ascending, none twice: `numpy.unique` gives such ones. Anything else
                is a ValueError on this rank, before anything is sent.
            values: one for each index, of the types of :meth:`all_reduce`.
            size: elements of the whole array, the same on every rank.
            op: as for :meth:`all_reduce`.
            timeout: seconds until the other ranks are given up; the group's if None.

        """
        return self.all_reduce_sparse_async(indices, values, size, op=op, timeout=timeout).result()

    def all_reduce_sparse_async(
        self,
        indices: npt.ArrayLike,
        values: npt.ArrayLike,
        size: int,
        op: str = "sum",
        timeout: float | None = None,
    ) -> SparseHandle:
        """Start :meth:`all_reduce_sparse` and return at once."""
        brought, element = sparse_bytes(indices, values, size)
        pending, total = self._core.all_reduce_sparse(
            brought.indices, brought.values, brought.size, brought.dtype, check_op(op), self._seconds(timeout)
        )
        return SparseHandle(pending, total, element)

    def reduce(
        self,
        x: ArrayLike,
        root: int,
        op: str = "sum",
        out: Any = None,
        timeout: float | None = None,
    ) -> Array | None:
        """Do as :meth:`all_reduce` for rank `root` alone, which gets the result; the others get None.

        All ranks name the same root. Under Canary no sum travels back to the others; under the other protocols it does,
        and is ignored there. Arguments are those of :meth:`all_reduce`; `out` is for the root.
        """
        is_root = root == self.rank
        operands = reduce_operands(x, out if is_root else None)
        seconds, root = self._seconds(timeout), self._check_root(root)
        pending = self._core.all_reduce(
            operands.input, operands.output, operands.dtype, check_op(op), seconds, root=root
        )
        result = Handle(pending, operands).result()
        return result if is_root else None

    def broadcast(self, x: Any, root: int, timeout: float | None = None) -> Any:
        """Bring rank `root`'s array to all ranks, bit for bit, in place; returns `x`.

        Args:
            x: an array of any type without Python objects, a DLPack tensor on the CPU or a writable buffer, of the same
                number of bytes on every rank.
            root: whose it is, the same on every rank.
            timeout: seconds until the other ranks are given up; the group's if None.

        """
        array = as_target(x, "x")
        if array.dtype.hasobject:
            raise TypeError("a broadcast is of a numpy array of numbers, in place")
        is_root = self._check_root(root) == self.rank
        if not is_root and not array.flags.writeable:
            raise ValueError("x is read-only")
        flat = array if array.flags.c_contiguous else np.ascontiguousarray(array)
        self._core.broadcast(flat, root, self._seconds(timeout)).wait(None)
        if flat is not array and not is_root:
            np.copyto(array, flat)
        return x

    def reduce_scatter(self, x: ArrayLike, op: str = "sum", out: Any = None, timeout: float | None = None) -> Array:
        """Do as :meth:`all_reduce`, and give each rank its shard of the result alone.

        The shards are of one length, along the first axis: rank r gets the r-th. Under SwitchML, Flare, Canary and
        parameter servers nothing else of the result travels to it.

        Args:
            x: as for :meth:`all_reduce`, with a first axis that the number of ranks divides.
            op: as for :meth:`all_reduce`.
            out: where to put this rank's shard. A new array if None.
            timeout: seconds until the other ranks are given up; the group's if None.

        """
        result: Array = self.reduce_scatter_async(x, op=op, out=out, timeout=timeout).result()
        return result

    def reduce_scatter_async(
        self, x: ArrayLike, op: str = "sum", out: Any = None, timeout: float | None = None
    ) -> Handle:
        """Start :meth:`reduce_scatter` and return at once."""
        operands = reduce_operands(x, out, self.world_size)
        pending = self._core.reduce_scatter(
            operands.input, operands.output, operands.dtype, check_op(op), self._seconds(timeout)
        )
        return Handle(pending, operands)

    def all_gather(self, x: ArrayLike, out: Any = None, timeout: float | None = None) -> Array:
        """Bring every rank's array to every rank, bit for bit: one array, in the ranks' order along the first axis.

        Each rank sends its shard once, and the network copies it. `all_gather(reduce_scatter(x))` is `all_reduce(x)`.

        Args:
            x: an array of any type without Python objects, of one shape on every rank; or a number.
            out: where to put the result. A new array if None.
            timeout: seconds until the other ranks are given up; the group's if None.

        """
        result: Array = self.all_gather_async(x, out=out, timeout=timeout).result()
        return result

    def all_gather_async(self, x: ArrayLike, out: Any = None, timeout: float | None = None) -> Handle:
        """Start :meth:`all_gather` and return at once."""
        operands, shard = gather_operands(x, out, self.rank, self.world_size)
        return Handle(self._core.all_gather(operands.output, shard, self._seconds(timeout)), operands)

    def barrier(self, timeout: float | None = None) -> None:
        """Wait until every rank is here."""
        nothing = np.empty(0, dtype=np.int32)
        if self.info.sparse:
            self.all_reduce_sparse(nothing, nothing, 0, timeout=timeout)
        else:
            self.all_reduce(nothing, timeout=timeout)

    def _seconds(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else timeout

    def _check_root(self, root: int) -> int:
        if not 0 <= root < self.world_size:
            raise ValueError(f"rank {root} cannot be the root: the job has ranks 0 to {self.world_size - 1}")
        return root

    def stats(self) -> GroupStats:
        """The counts of this worker since it joined."""
        return GroupStats(**self._core.stats())

    def finish(self) -> None:
        """Wait until the collectives under way have ended, each with its result or its error; the handles have both."""
        self._core.finish()

    def close(self) -> None:
        """Leave the job. Collectives that are under way fail. Calling it again has no effect."""
        self._core.close()

    def abort(self) -> None:
        """Leave the job at once, without waiting for peers that still need something from this rank: they fail.

        For a job that is broken anyway.
        """
        self._core.abort()

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        info = self.info
        return f"<tributary.Group rank {info.rank} of {info.world_size} in job {info.job!r} at {info.switch}>"


def connect(
    switch: str,
    *,
    job: str,
    rank: int,
    world_size: int,
    timeout: float = 30.0,
    protocol: str = "auto",
    options: Mapping[str, str | int | bool] | None = None,
    elements_per_packet: int | None = None,
    slots: int | None = None,
    trees: int | None = None,
    cores: int | None = None,
    operators: Sequence[Operator] = (),
    check: Callable[[], object] | None = None,
) -> Group:
    """Join a job and wait for its other members.

    Args:
        switch: "HOST:PORT", or "HOST" for port 17777.
        job: the job's name, the same on every rank.
        rank: this worker, 0 to world_size - 1.
        world_size: number of workers.
        timeout: seconds until the other workers are given up, now and in every collective.
        protocol: "switchml", "flare" or "panama" (the switch sums), "canary", "atp" or "pa-atp" (the switches of a
            fabric, or one alone), "ring" or "sparcml" (the hosts), or "ps" (parameter servers: those on offer, or
            one beside each worker). "auto" is the first of these that has the job's options and operators.
        options: the protocol's options by name, the same on every rank; those left out have their defaults.
        elements_per_packet: as many as the path's MTU holds if None.
        slots: the switch's slots for this job; from the bandwidth-delay product if None.
        trees: aggregation trees of a fabric, each over switches of its own; fewer where it has no more. One if None.
        cores: threads that drive this worker, 1 to 16, each with a socket and a share of the switch's slots; the bits
            are the same. More than 1 for "switchml" and "flare" at switches outside fabrics. If None, one for each 20
            Gbit/s of the link, as far as half of the machine's processors go.
        operators: the job's custom operators, the same on every rank; for "flare". If one does not commute or
            associate, the option "reproducible" has the order that it needs unless you choose.
        check: called ten times a second until all members are there; an exception that it raises ends the wait.

    """
    sizes: dict[str, Any] = {"elements_per_packet": elements_per_packet, "slots": slots, "trees": trees}
    given = (options or {}).items()
    chosen = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given}
    custom = [operator._core for operator in operators]
    if protocol == "auto":
        protocol, why = _choose(chosen, has_operators=bool(operators))
        if rank == 0:
            log.info("job %s sums at %s by %s: %s", job, switch, protocol, why)
    core = _core.Group.connect(
        switch,
        job,
        rank,
        world_size,
        timeout,
        protocol,
        chosen,
        **sizes,
        cores=cores,
        operators=custom,
        check=check,
    )
    return Group(core, timeout)


def _choose(options: dict[str, str], *, has_operators: bool) -> tuple[str, str]:
    """A protocol for these options, and why: the same on all ranks, which bring the same options."""
    able = [protocol for protocol in _AUTO if _core.takes_operators(protocol) or not has_operators]
    first_error: ValueError | None = None
    for protocol in able:
        try:
            _core.check_options(protocol, options)
        except ValueError as error:
            first_error = first_error or error
            continue
        needed = [*(["operators of the job's own"] if has_operators else []), *options]
        return protocol, f"the first choice for {', '.join(needed)}" if needed else "the first choice at a switch"
    assert first_error is not None, "some protocol takes operators"
    raise first_error

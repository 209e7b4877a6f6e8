"""One worker of a job: :func:`connect` joins, :class:`Group` sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from tributary import _core
from tributary._arrays import Array, Flat, Gathered, check_op
from tributary.errors import ConfigError
from tributary.info import GroupInfo, GroupStats
from tributary.operators import Operator, OwnFlat
from tributary.sparse import SparseBytes, SparseHandle, sparse_bytes


@dataclass(frozen=True)
class Memory:
    """Elements in this process's memory, in C order: for libraries whose tensors are not NumPy arrays."""

    address: int
    elements: int
    #: A type of :meth:`Group.all_reduce`, by its name here: "f32", "bf16", "i64" ...
    dtype: str
    #: An object that lives until the collective has ended, and keeps the memory in place.
    owner: object


class Handle:
    """A collective under way. Leave its arrays alone until it is done."""

    def __init__(self, pending: _core.Pending, flat: Flat | Gathered | OwnFlat) -> None:
        self._pending = pending
        self._flat = flat
        self._result: Array | None = None

    def result(self, timeout: float | None = None) -> Array:
        """Wait for the result and return it, as a `concurrent.futures.Future` does.

        Raises `TimeoutError` if `timeout` seconds pass first: the collective continues, and its own timeout still
        applies. Raises the collective's error if it failed.
        """
        if self._result is None:
            if not self._pending.wait(timeout):
                raise TimeoutError(f"the collective is still under way after {timeout} s; wait again")
            self._result = self._flat.finish()
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

    def __init__(self, core: _core.Group, timeout: float, operators: Sequence[Operator] = ()) -> None:
        """Made by :func:`connect`."""
        self._core = core
        self._operators = [operator.sha256 for operator in operators]
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
        self, x: npt.ArrayLike, op: str | Operator = "sum", out: Array | None = None, timeout: float | None = None
    ) -> Array:
        """Make one array of all ranks', by default their sum, and return it, the same bits on every rank.

        What the job's protocol cannot do is :class:`UnsupportedError`, before anything is sent.

        Args:
            x: float64, float32, float16, bfloat16 (`ml_dtypes`), int64, int32, int16, int8 or uint8; any shape and
                memory layout. Ranks agree on the type and the number of elements; element i in C order meets element i
                in C order.
            op: "sum", "avg", "min", "max", "prod", and for integers "band", "bor" and "bxor". Integers wrap, and their
                averages round towards zero. Or an :class:`Operator` that the group was connected with; `x` then has
                elements of its type.
            out: where to put the result; may be `x` itself. A new array of x's layout if None.
            timeout: seconds until the other ranks are given up; the group's if None.

        """
        return self.all_reduce_async(x, op=op, out=out, timeout=timeout).result()

    def all_reduce_async(
        self, x: npt.ArrayLike, op: str | Operator = "sum", out: Array | None = None, timeout: float | None = None
    ) -> Handle:
        """Start :meth:`all_reduce` and return at once. Several collectives under way are sent back to back."""
        if isinstance(op, Operator):
            own = OwnFlat(op, x, out)
            number = self._number(op)
            pending = self._core.submit(own.bytes_in, own.bytes_out, own.dtype, number, self._seconds(timeout))
            return Handle(pending, own)
        flat = Flat(x, out)
        pending = self._core.submit(flat.input, flat.output, flat.dtype, check_op(op), self._seconds(timeout))
        return Handle(pending, flat)

    def _number(self, op: Operator) -> str:
        """Return the group's name for one of its own operators."""
        if op.sha256 not in self._operators:
            raise ConfigError(f"the group does not have {op!r}: give connect(..., operators=[op])")
        return f"own:{self._operators.index(op.sha256)}"

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
        return SparseHandle(*self.reduce_sparse_bytes(brought, op, timeout), element)

    def reduce_sparse_bytes(
        self, brought: SparseBytes, op: str = "sum", timeout: float | None = None
    ) -> tuple[_core.Pending, _core.SparseSum]:
        """Start :meth:`all_reduce_sparse` of values as bytes, for libraries whose tensors are no NumPy arrays.

        The bytes are copied. When the first of what is returned is done, the second has the result, in such bytes too.
        """
        seconds = self._seconds(timeout)
        return self._core.submit_sparse(
            brought.indices, brought.values, brought.size, brought.dtype, check_op(op), seconds
        )

    def reduce(
        self,
        x: npt.ArrayLike,
        root: int,
        op: str = "sum",
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Array | None:
        """Do as :meth:`all_reduce` for rank `root` alone, which gets the result; the others get None.

        All ranks name the same root. Under Canary no sum travels back to the others; under the other protocols it does,
        and is not looked at there. Arguments are those of :meth:`all_reduce`; `out` is for the root.
        """
        is_root = root == self.rank
        flat = Flat(x, out if is_root else None)
        pending = self._core.submit(
            flat.input, flat.output, flat.dtype, check_op(op), self._seconds(timeout), self._check_root(root)
        )
        result = Handle(pending, flat).result()
        return result if is_root else None

    def broadcast(self, x: Array, root: int, timeout: float | None = None) -> Array:
        """Bring rank `root`'s array to all ranks, bit for bit, in place; returns `x`.

        Args:
            x: an array of any type without Python objects, of as many bytes on every rank.
            root: whose it is, the same on every rank.
            timeout: seconds until the other ranks are given up; the group's if None.

        """
        if not isinstance(x, np.ndarray) or x.dtype.hasobject:
            raise TypeError("a broadcast is of a numpy array of numbers, in place")
        is_root = self._check_root(root) == self.rank
        if not is_root and not x.flags.writeable:
            raise ValueError("x is read-only")
        flat = x if x.flags.c_contiguous else np.ascontiguousarray(x)
        self._core.broadcast(flat, root, self._seconds(timeout), not is_root).wait(None)
        if flat is not x and not is_root:
            np.copyto(x, flat)
        return x

    def reduce_scatter(
        self, x: npt.ArrayLike, op: str = "sum", out: Array | None = None, timeout: float | None = None
    ) -> Array:
        """Do as :meth:`all_reduce`, and give each rank its part of the result alone.

        The parts are of one length, along the first axis: rank r gets the r-th. Under SwitchML, Flare and Canary
        nothing else of the result travels to it.

        Args:
            x: as for :meth:`all_reduce`, with a first axis that the number of ranks divides.
            op: as for :meth:`all_reduce`.
            out: where to put this rank's part. A new array if None.
            timeout: seconds until the other ranks are given up; the group's if None.

        """
        return self.reduce_scatter_async(x, op=op, out=out, timeout=timeout).result()

    def reduce_scatter_async(
        self, x: npt.ArrayLike, op: str = "sum", out: Array | None = None, timeout: float | None = None
    ) -> Handle:
        """Start :meth:`reduce_scatter` and return at once."""
        flat = Flat(x, out, self.world_size)
        seconds = self._seconds(timeout)
        return Handle(self._core.reduce_scatter(flat.input, flat.output, flat.dtype, check_op(op), seconds), flat)

    def all_gather(self, x: npt.ArrayLike, out: Array | None = None, timeout: float | None = None) -> Array:
        """Bring every rank's array to every rank, bit for bit: one array, in the ranks' order along the first axis.

        Each rank sends its part once, and the network copies it. `all_gather(reduce_scatter(x))` is `all_reduce(x)`.

        Args:
            x: an array of any type without Python objects, of one shape on every rank; or a number.
            out: where to put the result. A new array if None.
            timeout: seconds until the other ranks are given up; the group's if None.

        """
        return self.all_gather_async(x, out=out, timeout=timeout).result()

    def all_gather_async(self, x: npt.ArrayLike, out: Array | None = None, timeout: float | None = None) -> Handle:
        """Start :meth:`all_gather` and return at once."""
        gathered = Gathered(x, out, self.rank, self.world_size)
        return Handle(self._core.all_gather(gathered.output, gathered.part, self._seconds(timeout)), gathered)

    def reduce_memory(
        self,
        source: Memory,
        target: Memory,
        op: str | Operator = "sum",
        kept: tuple[int, int] | None = None,
        root: int | None = None,
        timeout: float | None = None,
    ) -> _core.Pending:
        """Start an all-reduce of memory, or with a `root` a reduce; return at once.

        Args:
            source: this rank's elements.
            target: where the elements `kept` of the result come to, first that of `kept[0]`; may be the source's part.
            op: as for :meth:`all_reduce`; the memory of an :class:`Operator`'s elements is of bytes, "u8".
            kept: from the first element that this rank wants to before the second; all if None.
            root: the one rank that gets the result.
            timeout: seconds until the other ranks are given up; the group's if None.

        """
        first, end = kept if kept is not None else (0, source.elements)
        if target.elements < end - first or target.dtype != source.dtype:
            raise ValueError(f"the target has to have {end - first} elements of {source.dtype}")
        if root is not None:
            self._check_root(root)
        return self._core.submit_raw(
            source.address,
            target.address,
            source.elements,
            source.dtype,
            self._number(op) if isinstance(op, Operator) else check_op(op),
            self._seconds(timeout),
            (source.owner, target.owner),
            (first, end),
            root,
        )

    def broadcast_memory(self, words: Memory, root: int, timeout: float | None = None) -> _core.Pending:
        """Start a broadcast of 8-bit words ("u8") in place, and return at once."""
        if words.dtype != "u8":
            raise ValueError(f"a broadcast is of bytes, 'u8', not of {words.dtype!r}")
        root = self._check_root(root)
        return self._core.broadcast_raw(words.address, words.elements, root, self._seconds(timeout), words.owner)

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
    protocol: str = "switchml",
    options: Mapping[str, str | int | bool] | None = None,
    elements_per_packet: int | None = None,
    slots: int | None = None,
    trees: int | None = None,
    operators: Sequence[Operator] = (),
) -> Group:
    """Join a job and wait for its other members.

    Args:
        switch: "HOST:PORT", or "HOST" for port 17777.
        job: the job's name, the same on every rank.
        rank: this worker, 0 to world_size - 1.
        world_size: number of workers.
        timeout: seconds until the other workers are given up, now and in every collective.
        protocol: "switchml", "flare" or "panama" (the switch sums), "canary", "atp" or "pa-atp" (the switches of a
            fabric, or one alone), "ring" (the hosts) or "ps" (parameter servers: those on offer, or one beside
            each worker).
        options: the protocol's options by name, the same on every rank; those left out have their defaults.
        elements_per_packet: as many as the path's MTU holds if None.
        slots: the switch's slots for this job; from the bandwidth-delay product if None.
        trees: aggregation trees of a fabric, each over switches of its own; fewer where it has no more. One if None.
        operators: operators of the job's own, the same on every rank; for "flare". Where one does not commute or
            associate, the option "reproducible" has the order that it needs unless you choose.

    """
    sizes: dict[str, Any] = {"elements_per_packet": elements_per_packet, "slots": slots, "trees": trees}
    given = (options or {}).items()
    chosen = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given}
    own = [operator._core for operator in operators]
    core = _core.Group.connect(switch, job, rank, world_size, timeout, protocol, chosen, **sizes, operators=own)
    return Group(core, timeout, operators)

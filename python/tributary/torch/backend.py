"""The c10d backend: every operation of ``torch.distributed``, through the network or over the host path."""

from __future__ import annotations

import atexit
import logging
import sys
import threading
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, ReduceOp

from tributary import _core
from tributary.errors import Closed, Unsupported
from tributary.torch import work_patch
from tributary.torch.host import HostPath
from tributary.torch.ledger import Ledger, Stats
from tributary.torch.network import Network
from tributary.torch.options import Options, effective_timeout
from tributary.torch.rendezvous import Rendezvous
from tributary.torch.tensors import (
    DTYPES,
    flat,
    flat_copy,
    in_order,
    refuse_unfit,
    size_in_bytes,
    words,
    write,
)
from tributary.torch.work import Completer, Finish, HostWork, NetworkWork

Tensors = list[torch.Tensor]
#: What goes into the network, and where the sum comes to.
Pair = tuple[torch.Tensor, torch.Tensor]

NAME = "tributary"

#: Why operations that move data without summing it take the host path.
MOVES = "moves data, sums nothing"

log = logging.getLogger("tributary.torch")

#: The groups of this process by name, until they are shut down.
_groups: dict[str, TributaryBackend] = {}


class TributaryBackend(Backend):
    """One process group. Made by PyTorch, through :func:`register`."""

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        size: int,
        *,
        name: str = "0",
        timeout: timedelta = timedelta(minutes=30),
        options: Options | None = None,
        global_ranks: Sequence[int] = (),
    ) -> None:
        super().__init__(rank, size)
        self._name = name
        self._ledger = Ledger()
        self._completer = Completer(f"tributary-{name}")
        self._chosen = options or Options.from_environment()
        self._options = Backend.Options(NAME, timeout=timeout)
        self._options.global_ranks_in_group = list(global_ranks)
        self._options.group_name = name
        #: Held while an operation is numbered and submitted: all ranks see one order.
        self._order = threading.Lock()
        self._number = 0
        self._closed = False
        self._rendezvous = Rendezvous(store, rank, size, name, self._chosen)
        try:
            self._host = HostPath(dist.PrefixStore(self._rendezvous.meeting.nonce, store), rank, size, self._options)
            self._network = self._connect() if size > 1 else None
        except BaseException:
            self._rendezvous.leave(orderly=False)
            raise
        self._rendezvous.all_have_met()

    def _connect(self) -> Network:
        meeting = self._rendezvous.meeting
        seconds = self._options._timeout.total_seconds()
        return Network(meeting, self.rank(), self.size(), seconds, self._chosen.protocol)

    # What c10d asks about the group.

    # Each must be answered here: c10d asks the class, and its own answer would ask it again, without end.
    supports_coalescing = False
    supports_splitting = False
    supports_shrinking = False
    supports_reconfigure = False
    supports_window = False
    _supports_time_estimate = False

    def getBackendName(self) -> str:  # noqa: N802 - c10d's name; without it the first barrier hits an assertion.
        """The name in ``init_process_group``."""
        return NAME

    @property
    def options(self) -> Backend.Options:
        """The options as c10d knows them."""
        return self._options

    def set_timeout(self, timeout: timedelta) -> None:
        """Change the timeout of operations to come."""
        self._options._timeout = timeout
        self._host.set_timeout(timeout)

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        """Nothing: every rank counts from zero."""

    def _get_sequence_number_for_group(self) -> int:
        return self._number

    # Reductions: in the network where it knows type and operator.

    def allreduce(self, tensors: Tensors, opts: Any) -> Any:
        """Sum or average over all ranks, in place."""
        return self._sum_everywhere("all_reduce", "allreduce", tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> Any:
        """As :meth:`allreduce`, of several tensors."""
        return self._sum_everywhere("all_reduce_coalesced", "allreduce_coalesced", tensors, opts)

    def _sum_everywhere(self, name: str, method: str, tensors: Tensors, opts: Any) -> Any:
        refuse_unfit(name, tensors)
        reason = self._why_not(name, tensors, opts.reduceOp)
        if reason:
            return self._over_host(name, reason, tensors, method, [tensors, opts], averaged=tensors)
        op, finishes, pairs = _op(opts.reduceOp), [], []
        for tensor in tensors:
            travelling, finish = _premultiplied(tensor, opts.reduceOp) or flat(tensor)
            pairs.append((travelling, travelling))
            finishes.append(finish)
        return self._through_network(name, tensors, pairs, op, in_order(finishes), opts)

    def allreduce_sparse(self, tensors: Tensors, opts: Any) -> Any:
        """Refused."""
        refuse_unfit("all_reduce", tensors)
        raise Unsupported("all_reduce of a sparse tensor is not supported; use tensor.to_dense()")

    def reduce(self, tensors: Tensors, opts: Any) -> Any:
        """Sum or average over all ranks, into the root's tensor; the others' stay as they are."""
        refuse_unfit("reduce", tensors)
        reason = self._why_not("reduce", tensors, opts.reduceOp)
        is_root = self.rank() == opts.rootRank
        if reason:
            averaged = tensors if is_root else []
            return self._over_host("reduce", reason, tensors, "reduce", [tensors, opts], averaged=averaged)
        finishes: list[Finish | None] = []
        pairs = []
        for tensor in tensors:
            travelling, finish = _premultiplied(tensor, opts.reduceOp) or flat(tensor)
            # The protocol tells everybody the sum; on the others it goes where nobody looks.
            pairs.append((travelling, travelling if is_root else torch.empty_like(travelling)))
            finishes.append(finish if is_root else None)
        return self._through_network("reduce", tensors, pairs, _op(opts.reduceOp), in_order(finishes), opts)

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Any:
        """Sum or average over all ranks; each keeps the part that is at its rank in the list."""
        everything = [*outputs, *(tensor for parts in inputs for tensor in parts)]
        refuse_unfit("reduce_scatter", everything)
        reason = self._why_not("reduce_scatter", everything, opts.reduceOp)
        if reason:
            arguments = [outputs, inputs, opts]
            return self._over_host("reduce_scatter", reason, everything, "reduce_scatter", arguments, averaged=outputs)
        pairs: list[Pair] = []
        finishes: list[Finish | None] = []
        for output, parts in zip(outputs, inputs, strict=True):
            together = torch.cat([part.detach().reshape(-1) for part in parts])
            start = sum(part.numel() for part in parts[: self.rank()])
            pair, finish = self._keep_part(together, together, start, output, opts.reduceOp)
            pairs.append(pair)
            finishes.append(finish)
        return self._through_network("reduce_scatter", outputs, pairs, _op(opts.reduceOp), in_order(finishes), opts)

    def reduce_scatter_single(self, output: torch.Tensor, source: torch.Tensor, opts: Any) -> Any:
        """As :meth:`reduce_scatter`, of parts that lie in one tensor."""
        return self._scatter_sums("reduce_scatter_single", [output], [source], opts, [output, source, opts])

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Any:
        """As :meth:`reduce_scatter_single`, of several tensors."""
        return self._scatter_sums("reduce_scatter_single_coalesced", outputs, inputs, opts, [outputs, inputs, opts])

    def _scatter_sums(self, name: str, outputs: Tensors, inputs: Tensors, opts: Any, arguments: list[Any]) -> Any:
        refuse_unfit(name, [*outputs, *inputs])
        reason = self._why_not(name, [*outputs, *inputs], opts.reduceOp)
        if reason:
            return self._over_host(name, reason, inputs, name, arguments, averaged=outputs)
        pairs: list[Pair] = []
        finishes: list[Finish | None] = []
        for output, source in zip(outputs, inputs, strict=True):
            if source.numel() != output.numel() * self.size():
                raise ValueError(
                    f"{name}: the input has {source.numel()} elements, which is not {self.size()} times the "
                    f"output's {output.numel()}"
                )
            travelling, _ = flat(source)
            start = self.rank() * output.numel()
            pair, finish = self._keep_part(travelling, torch.empty_like(travelling), start, output, opts.reduceOp)
            pairs.append(pair)
            finishes.append(finish)
        return self._through_network(name, inputs, pairs, _op(opts.reduceOp), in_order(finishes), opts)

    def _keep_part(
        self, source: torch.Tensor, target: torch.Tensor, start: int, output: torch.Tensor, reduce_op: Any
    ) -> tuple[Pair, Finish]:
        premultiplied = _premultiplied(source, reduce_op)
        if premultiplied:
            source = target = premultiplied[0]
        part = target.reshape(-1)[start : start + output.numel()].view(output.shape)
        kept = output.detach()
        return (source, target), partial(write, kept, part)

    # A sum of one rank's words and the others' zeros is a broadcast; a sum of nothing is a barrier.

    def broadcast(self, tensors: Tensors, opts: Any) -> Any:
        """Bring the root's tensor to every rank, whatever its type."""
        refuse_unfit("broadcast", tensors)
        if self._network is None:
            return self._over_host("broadcast", _ALONE, tensors, "broadcast", [tensors, opts])
        pairs, finishes = [], []
        for tensor in tensors:
            travelling, finish = words(tensor, keep=self.rank() == opts.rootRank)
            pairs.append((travelling, travelling))
            finishes.append(finish)
        return self._through_network("broadcast", tensors, pairs, "sum", in_order(finishes), opts)

    def barrier(self, opts: Any) -> Any:
        """Wait until every rank is here."""
        if self._network is None:
            return self._over_host("barrier", _ALONE, [], "barrier", [opts])
        return self._through_network("barrier", [], [], "sum", None, opts)

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        """As :meth:`barrier`, over the host path, with rank 0 asking everybody."""
        with self._order:
            title = self._next_title("monitored_barrier")
        self._ledger.host("monitored_barrier", "rank 0 asks every rank", 0)
        given = opts.timeout >= timedelta(0)  # Zero seconds are a timeout here.
        self._host.monitored_barrier(title, opts.timeout if given else self._options._timeout, wait_all_ranks)

    # What moves data without summing it: the host path.

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Any:
        """Every rank's tensor on every rank."""
        return self._over_host("all_gather", MOVES, inputs, "allgather", [outputs, inputs, opts])

    def all_gather_single(self, output: torch.Tensor, source: torch.Tensor, opts: Any) -> Any:
        """As :meth:`allgather`, into one tensor."""
        return self._over_host("all_gather_single", MOVES, [source], "all_gather_single", [output, source, opts])

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Any:
        """As :meth:`allgather`, of several tensors."""
        return self._over_host("all_gather_coalesced", MOVES, inputs, "allgather_coalesced", [outputs, inputs, opts])

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Any:
        """As :meth:`all_gather_single`, of several tensors."""
        name = "all_gather_single_coalesced"
        return self._over_host(name, MOVES, inputs, name, [outputs, inputs, opts])

    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Any:
        """Every rank's tensor on the root."""
        return self._over_host("gather", MOVES, inputs, "gather", [outputs, inputs, opts])

    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Any:
        """A part of the root's for every rank."""
        brought = [tensor for parts in inputs for tensor in parts]
        return self._over_host("scatter", MOVES, brought or outputs, "scatter", [outputs, inputs, opts])

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Any:
        """A part of every rank's for every rank."""
        return self._over_host("all_to_all", MOVES, inputs, "alltoall", [outputs, inputs, opts])

    def all_to_all_single(
        self, output: torch.Tensor, source: torch.Tensor, received: list[int], sent: list[int], opts: Any
    ) -> Any:
        """As :meth:`alltoall`, of parts that lie in one tensor."""
        arguments = [output, source, received, sent, opts]
        return self._over_host("all_to_all_single", MOVES, [source], "all_to_all_single", arguments)

    def send(self, tensors: Tensors, destination: int, tag: int) -> Any:
        """To one rank."""
        return self._over_host("send", MOVES, tensors, "send", [tensors, destination, tag])

    def recv(self, tensors: Tensors, source: int, tag: int) -> Any:
        """From one rank."""
        return self._over_host("recv", MOVES, tensors, "recv", [tensors, source, tag])

    def recv_anysource(self, tensors: Tensors, tag: int) -> Any:
        """From whichever rank sends."""
        return self._over_host("recv", MOVES, tensors, "recv_anysource", [tensors, tag])

    # The two ways.

    def _why_not(self, name: str, tensors: Tensors, reduce_op: Any) -> str | None:
        """Why the network cannot make this reduction; raises where that is to be an error."""
        if self._network is None:
            return _ALONE
        op = _op(reduce_op)
        dtypes = {tensor.dtype for tensor in tensors}
        reason = None
        if op not in ("sum", "avg"):
            reason = f"the network does not know the operator {op}"
        elif not dtypes <= DTYPES.keys():
            unknown = ", ".join(sorted(str(dtype) for dtype in dtypes - DTYPES.keys()))
            reason = f"the network cannot sum {unknown}"
        elif reduce_op.op == ReduceOp.PREMUL_SUM and torch.int32 in dtypes:
            reason = "the network does not scale integers"
        if reason and self._chosen.fallback == "error":
            raise Unsupported(
                f"{name}: {reason}; it sums and averages {', '.join(str(dtype) for dtype in DTYPES)}. "
                "TRIBUTARY_FALLBACK=gloo would send it over the host path"
            )
        return reason

    def _through_network(
        self,
        name: str,
        tensors: Tensors,
        pairs: list[Pair],
        op: str,
        finish: Finish | None,
        opts: Any,
    ) -> NetworkWork:
        timeout = self._timeout_of(opts).total_seconds()
        with self._order:
            title = self._next_title(name)
            assert self._network is not None, "groups of one rank take the host path"
            transfers: list[_core.Pending] = []
            try:
                for source, target in pairs:
                    transfers.append(self._network.submit(source, target, op, timeout))
                if not pairs:
                    transfers.append(self._network.submit_nothing(timeout))
            except Exception as error:
                error.args = (f"{title}: {error}", *error.args[1:])
                raise
        self._ledger.network(name, size_in_bytes(tensors))
        work = NetworkWork(title, tensors, transfers, finish, timeout, self._completer)
        if finish is not None and getattr(opts, "asyncOp", True):
            # The caller may look at the tensors after a later barrier, without ever waiting for this.
            self._completer.see_to(work)
        return work

    def _over_host(
        self,
        name: str,
        reason: str,
        tensors: Tensors,
        method: str,
        arguments: list[Any],
        averaged: Sequence[torch.Tensor] = (),
    ) -> HostWork:
        refuse_unfit(name, list(tensors))
        opts = arguments[-1]
        if hasattr(opts, "timeout"):
            opts.timeout = self._timeout_of(opts)
        with self._order:
            title = self._next_title(name)
            try:
                inner, finish = self._host.start(method, arguments, list(averaged))
            except RuntimeError as error:
                raise type(error)(f"{title}: {error}") from error
        self._ledger.host(name, reason, size_in_bytes(list(tensors)))
        return HostWork(title, list(tensors), inner, finish)

    def _next_title(self, name: str) -> str:
        if self._closed:
            raise Closed(f"{name}: the group {self._name} was shut down; make a new one")
        self._number += 1
        return f"{name} {self._number} of group {self._name}"

    def _timeout_of(self, opts: Any) -> timedelta:
        # An operation without a timeout of its own brings -1 ms.
        return opts.timeout if opts.timeout > timedelta(0) else self._options._timeout

    # The end.

    def stats(self) -> Stats:
        """What was summed where so far."""
        return self._ledger.stats(self._network.stats() if self._network else None)

    def shutdown(self) -> None:
        """Leave the job and say what was summed where. Harmless when called again."""
        self._end(orderly=True)

    def abort(self) -> None:
        """End what is under way: it fails on this rank, and times out on the others."""
        self._end(orderly=False)

    def _end(self, orderly: bool) -> None:
        with self._order:
            if self._closed:
                return
            self._closed = True
        if orderly and self.rank() == 0:
            self._report()
        if self._network is not None:
            self._network.close()
        self._completer.close()
        self._host.close(orderly)
        self._rendezvous.leave(orderly)
        _groups.pop(self._name, None)

    def _report(self) -> None:
        # The default group speaks up; groups of a mesh are many.
        level = logging.DEBUG if self._options.global_ranks_in_group else logging.INFO
        log.log(level, "group %s, rank 0 of %d: %s", self._name, self.size(), self.stats())


_ALONE = "a group of one rank has nothing to sum"

_OPS = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "avg",
    ReduceOp.PREMUL_SUM: "sum",
    ReduceOp.PRODUCT: "product",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
    ReduceOp.BAND: "bitwise and",
    ReduceOp.BOR: "bitwise or",
    ReduceOp.BXOR: "bitwise xor",
}


def _op(reduce_op: Any) -> str:
    """Our name of the operator."""
    return _OPS[reduce_op.op]


def _premultiplied(tensor: torch.Tensor, reduce_op: Any) -> tuple[torch.Tensor, Finish] | None:
    """For PREMUL_SUM, which FSDP2 uses: the tensor times the factor in memory of its own, and the way back."""
    if reduce_op.op != ReduceOp.PREMUL_SUM:
        return None
    kept = tensor.detach()
    scaled = flat_copy(kept).mul_(reduce_op.factor)
    return scaled, partial(write, kept, scaled)


def _create(opts: Any, pg_options: object | None) -> TributaryBackend:
    """What PyTorch calls for a new group."""
    if pg_options is not None and not isinstance(pg_options, Options):
        raise TypeError(f"pg_options of the tributary backend are tributary.torch.Options, not {type(pg_options)}")
    options = pg_options or Options.from_environment()
    default = next((group for group in _groups.values() if not group.options.global_ranks_in_group), None)
    if pg_options is None and default is not None:
        options = default._chosen
    backend = TributaryBackend(
        opts.store,
        opts.group_rank,
        opts.group_size,
        name=opts.group_id,
        timeout=effective_timeout(opts.timeout, options, default.options._timeout if default else None),
        options=options,
        global_ranks=opts.global_ranks_in_group,
    )
    _groups[opts.group_id] = backend
    return backend


def register() -> None:
    """Make the backend known to PyTorch, which calls this through the entry point. Harmless when called again."""
    if hasattr(dist.Backend, NAME.upper()):
        return
    work_patch.apply()
    if not log.hasHandlers():
        log.addHandler(logging.StreamHandler(sys.stderr))
        log.handlers[0].setFormatter(logging.Formatter("tributary: %(message)s"))
        log.setLevel(logging.INFO)
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
    atexit.register(_leave_all)


def _leave_all() -> None:
    """Leave the jobs of groups that nobody destroyed: no thread may wait in the network while Python goes down."""
    for group in list(_groups.values()):
        group.abort()


def stats(group: dist.ProcessGroup | None = None) -> Stats:
    """What this rank summed where in a group, by default the whole world's."""
    process_group = group or dist.group.WORLD
    if process_group is None:
        raise RuntimeError("there is no process group; call torch.distributed.init_process_group first")
    backend = _groups.get(process_group.group_name)
    if backend is None:
        raise ValueError(f"the group {process_group.group_name} has no tributary backend")
    return backend.stats()

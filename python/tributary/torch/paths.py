"""The two paths of an operation: through the network, or over the host path. What all operations share is here."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Backend

from tributary import Pending
from tributary.errors import Closed, Mismatch, Unsupported
from tributary.torch import operators
from tributary.torch.agreement import Agreement, said, words
from tributary.torch.callbacks import Callbacks, is_telling
from tributary.torch.lane import Lane
from tributary.torch.ledger import Ledger
from tributary.torch.network import Broadcast, Network, Transfer
from tributary.torch.options import Options
from tributary.torch.process import Home
from tributary.torch.sparse import SparseTransfer
from tributary.torch.staging import Staged
from tributary.torch.tensors import Tensors, refuse_unfit, size_in_bytes
from tributary.torch.transit import Finish, Transit, entitle
from tributary.torch.work import Completer, HostWork, NetworkWork

#: Why a group of one rank takes the host path.
ALONE = "a group of one rank has nothing to sum"


class Paths(Backend):
    """The state of one process group, and how its operations begin."""

    #: What the program itself starts.
    _main: Lane
    _chosen: Options
    _options: Backend.Options

    def __init__(self, rank: int, size: int, name: str) -> None:
        super().__init__(rank, size)
        self._home = Home()
        self._name = name
        self._ledger = Ledger()
        self._completer = Completer(f"tributary-{name}")
        self._callbacks = Callbacks(name)
        #: What callbacks start, by the group whose callbacks they are.
        self._lanes: dict[str, Lane] = {}
        #: Held while an operation is numbered and submitted: all ranks see one order.
        self._order = threading.Lock()
        self._closed = False
        #: What to add to errors.
        self._hints: dict[type[Exception], str] = {
            Mismatch: f"a sum of {size} i32 elements may stand for an operation that takes the host path"
        }

    @property
    def _network(self) -> Network | None:
        """The program's own way through the network; None in a group of one rank."""
        return self._main.network

    def _open_lane(self, callbacks: str) -> Lane:
        """Meet the other ranks for what the callbacks of a group start in this one."""
        raise NotImplementedError

    def _lane(self, name: str) -> Lane:
        """The lane of what this thread starts: callbacks do not wait for the program, nor for another group's."""
        self._refuse_fork(name)
        if is_telling():
            raise Unsupported(
                f"{name}: ranks would not agree on the order of collectives that are started in this callback; attach "
                "the callback with then() to the future of one operation"
            )
        callbacks = Callbacks.current()
        if callbacks is None or self.size() == 1:
            return self._main
        # Only the thread that calls these callbacks comes here.
        if callbacks.name not in self._lanes:
            self._refuse_closed(name)
            lane = self._open_lane(callbacks.name)
            with self._order:
                self._lanes[callbacks.name] = lane
            if self._closed:
                lane.leave()
                lane.host.close(orderly=False)
        return self._lanes[callbacks.name]

    def _why_not(self, name: str, tensors: Tensors, reduce_op: Any) -> str | None:
        """Why the network cannot make this reduction; raises where that is to be an error."""
        if self._network is None:
            return ALONE
        reason = operators.why_not(tensors, reduce_op, self._chosen)
        if reason and self._chosen.fallback == "error":
            raise Unsupported(f"{name}: {reason}; TRIBUTARY_FALLBACK=gloo would send it over the host path")
        return reason

    def _through_network(
        self,
        name: str,
        tensors: Tensors,
        transfers: Sequence[Transfer | Broadcast | SparseTransfer],
        op: str,
        finish: Finish | None,
        opts: Any,
    ) -> NetworkWork:
        lane = self._lane(name)
        assert lane.network is not None, "groups of one rank take the host path"
        timeout = self._timeout_of(opts).total_seconds()
        with _profiled(name) as profile:
            with self._order:
                title = self._next_title(name, lane)
                pending: list[Pending] = []
                try:
                    for transfer in transfers:
                        if isinstance(transfer, Broadcast):
                            pending += lane.network.submit_broadcast(transfer, timeout)
                        elif isinstance(transfer, SparseTransfer):
                            assert lane.sparse is not None, "the caller has opened it"
                            pending += lane.sparse.submit_sparse(transfer, op, timeout)
                        else:
                            pending += lane.network.submit(transfer, op, timeout)
                    if not transfers:
                        pending += lane.network.submit_nothing(timeout)
                except Exception as error:
                    entitle(error, title)
                    raise
            self._ledger.network(name, size_in_bytes(tensors))
            transit = Transit(title, pending, timeout, self._hints)
            work = NetworkWork(title, tensors, transit, finish, self._completer, self._callbacks)
            if profile is not None:
                profile._call_end_callbacks_on_future(work.get_future())
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
        is_fit: bool = False,
    ) -> HostWork:
        lane = self._lane(name)
        if not is_fit:
            refuse_unfit(name, list(tensors))
        opts = arguments[-1]
        if hasattr(opts, "timeout"):
            opts.timeout = self._timeout_of(opts)
        staged = Staged.of(arguments, averaged, brings_back=method != "send")
        with self._order:
            title = self._next_title(name, lane)
            agreement = self._say(name, tensors, opts, title, lane)
            try:
                inner, finish = lane.host.start(method, staged.arguments, staged.averaged)
            except RuntimeError as error:
                raise type(error)(f"{title}: {error}") from error
        self._ledger.host(name, reason, size_in_bytes(list(tensors)))
        last = staged.after(finish)
        give_up = lane.host.abort
        return HostWork(title, list(tensors), inner, last, self._completer, self._callbacks, agreement, give_up)

    def _say(self, name: str, tensors: Sequence[torch.Tensor], opts: Any, title: str, lane: Lane) -> Agreement | None:
        """Tell the other ranks what this one brings to the host path."""
        what = said(name, tensors, opts)
        if what is None or lane.network is None:
            return None
        timeout = self._timeout_of(opts).total_seconds()
        mine = words(what, self.rank(), self.size())
        try:
            pending = lane.network.submit(Transfer.of_all(mine), "sum", timeout)
        except Exception as error:
            entitle(error, title)
            raise
        return Agreement(Transit(title, pending, timeout, self._hints), mine, self.rank(), what)

    def _refuse_fork(self, name: str) -> None:
        self._home.refuse_fork(f"{name}: the group {self._name}")

    def _refuse_closed(self, name: str) -> None:
        if self._closed:
            raise Closed(f"{name}: the group {self._name} was shut down; make a new one")

    def _next_title(self, name: str, lane: Lane) -> str:
        self._refuse_closed(name)
        lane.number += 1
        return f"{name} {lane.number} {lane.place}"

    def _timeout_of(self, opts: Any) -> timedelta:
        # An operation without a timeout of its own brings -1 ms.
        return opts.timeout if opts.timeout > timedelta(0) else self._options._timeout


@contextmanager
def _profiled(name: str) -> Iterator[Any]:
    """An event of torch.profiler from the beginning of the operation to its end, which its future tells."""
    if not torch.autograd._profiler_enabled():
        yield None
        return
    event = torch.profiler.record_function(f"tributary:{name}")
    with event:
        yield event

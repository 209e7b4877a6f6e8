"""The host path: PyTorch's own Gloo, for operations that the network cannot sum or that only move data.

A Gloo group holds four descriptors and two threads, so a group of some ranks has none before an operation needs it. The
group of all ranks has one from the start: Gloo connects to all ranks before it receives from any, also to those that
begin nothing on the host path.
"""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, ReduceOp

from tributary.torch.host_work import StartOrder
from tributary.torch.late_peers import LatePeers
from tributary.torch.operands import exchange
from tributary.torch.transit import Finish


class HostPath:
    """A Gloo group of the same ranks."""

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        size: int,
        options: Backend.Options,
        patience: timedelta,
        address: str,
        *,
        is_lazy: bool,
    ) -> None:
        """Listen at this address, a lazy one from the first operation on.

        Two ranks connect, within `patience`, once they have something for each other.
        """
        self._store, self._rank, self._size = store, rank, size
        self._options, self._patience, self._address = options, patience, address
        self._timeout = options._timeout
        self._is_aborted = False
        #: The operations that are not started yet.
        self.order = StartOrder()
        self._making = threading.Lock()
        self._gloo: Any = None
        self._late = LatePeers(store, rank) if is_lazy else None
        if not is_lazy:
            self._made()

    def _made(self) -> Any:
        """The Gloo group, which is made if there is none yet."""
        with self._making:
            if self._gloo is None and self._is_aborted:
                raise RuntimeError("the group has ended")
            if self._gloo is None:
                gloo = dist.ProcessGroupGloo(
                    self._store, self._rank, self._size, _options(self._patience, self._address)
                )
                gloo.set_timeout(self._timeout)
                gloo.options.global_ranks_in_group = self._options.global_ranks_in_group
                gloo.options.group_name = self._options.group_name
                self._gloo = gloo
                if self._late is not None:
                    self._late.announce()
            return self._gloo

    def start(
        self, method: str, arguments: list[Any], scaled: list[torch.Tensor], op: Any = None
    ) -> tuple[Any, Finish | None]:
        """Call Gloo; return its work, and what remains to do after it.

        Gloo knows neither averages nor sums with a factor: `scaled` are the tensors of such a result.
        """
        gloo = self._made()
        if method in ("send", "recv", "recv_anysource") and self._late is not None:
            # Gloo connects to all ranks before it receives from any.
            peers = range(self._size) if method == "recv_anysource" else [arguments[1]]
            return self._late.start(peers, partial(getattr(gloo, method), *arguments), self._timeout), None
        if method == "alltoall":
            # Gloo's own takes tensors of one size only.
            slices, distribute = exchange(*arguments)
            return gloo.all_to_all_single(*slices), distribute
        if op is None:
            return getattr(gloo, method)(*arguments), None
        opts, finish = arguments[-1], self._scale(scaled, op)
        given = opts.reduceOp
        # With one rank the tensors are bytes.
        opts.reduceOp = ReduceOp(ReduceOp.SUM) if finish is not None or self._size == 1 else op
        try:
            return getattr(gloo, method)(*arguments), finish
        finally:
            # The caller may use the options again.
            opts.reduceOp = given

    def _scale(self, tensors: list[torch.Tensor], op: Any) -> Finish | None:
        def divide() -> None:
            for tensor in tensors:
                rounding = None if tensor.is_floating_point() or tensor.is_complex() else "trunc"
                tensor.div_(self._size, rounding_mode=rounding)

        def multiply() -> None:
            for tensor in tensors:
                tensor.mul_(op.factor)

        if op.op == ReduceOp.AVG and self._size > 1:
            return divide
        return multiply if op.op == ReduceOp.PREMUL_SUM else None

    def monitored_barrier(self, title: str, timeout: timedelta, wait_all_ranks: bool) -> None:
        """Wait until rank 0 has received a message from every rank."""
        self.order.start(None, timeout)
        try:
            self._made().monitored_barrier(timeout, wait_all_ranks)
        except RuntimeError as error:
            raise type(error)(f"{title}: {error}") from error

    def set_timeout(self, timeout: timedelta) -> None:
        """Change the timeout of later operations."""
        with self._making:
            self._timeout = timeout
            if self._gloo is not None:
                self._gloo.set_timeout(timeout)

    def abort(self) -> None:
        """Abort the operations under way, which fail."""
        self._end(orderly=False)

    def close(self, orderly: bool) -> None:
        """Close the connections."""
        self._end(orderly and not self._is_aborted)

    def _end(self, orderly: bool) -> None:
        with self._making:
            self._is_aborted = True
            # Its threads and descriptors go with the last reference, not with the abort.
            gloo, self._gloo = self._gloo, None
        if self._late is not None:
            self._late.close()
        if gloo is not None and orderly:
            gloo.shutdown()
        elif gloo is not None:
            gloo.abort()


def _options(patience: timedelta, address: str) -> Any:
    options = dist.ProcessGroupGloo._Options()
    options._timeout = patience
    # Operations of a group begin one after the other on all ranks, so a second thread would gain little.
    options._threads = 1
    # The variable is Gloo's own. Without it Gloo would listen at the address of the host's name, which may be loopback.
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    where = {"interface": interface.split(",")[0]} if interface else {"hostname": address}
    options._devices = [dist.ProcessGroupGloo.create_device(**where, lazy_init=True)]
    return options

"""The host path: PyTorch's own Gloo, for operations that the network cannot sum or that only move data."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, ReduceOp

from tributary.torch.host_work import StartOrder
from tributary.torch.operands import exchange
from tributary.torch.transit import Finish


class HostPath:
    """A Gloo group of the same ranks."""

    def __init__(
        self, store: dist.Store, rank: int, size: int, options: Backend.Options, patience: timedelta, address: str
    ) -> None:
        """Listen at this address; two ranks connect, within `patience`, once they have something for each other."""
        self._size = size
        self._is_aborted = False
        #: The operations that are not started yet.
        self.order = StartOrder()
        self._gloo = dist.ProcessGroupGloo(store, rank, size, _options(patience, address))
        self._gloo.set_timeout(options._timeout)
        self._gloo.options.global_ranks_in_group = options.global_ranks_in_group
        self._gloo.options.group_name = options.group_name

    def start(
        self, method: str, arguments: list[Any], scaled: list[torch.Tensor], op: Any = None
    ) -> tuple[Any, Finish | None]:
        """Call Gloo; return its work, and what remains to do after it.

        Gloo knows neither averages nor sums with a factor: `scaled` are the tensors of such a result.
        """
        if method == "alltoall":
            # Gloo's own takes tensors of one size only.
            slices, distribute = exchange(*arguments)
            return self._gloo.all_to_all_single(*slices), distribute
        if op is None:
            return getattr(self._gloo, method)(*arguments), None
        opts, finish = arguments[-1], self._scale(scaled, op)
        given = opts.reduceOp
        # With one rank the tensors are bytes.
        opts.reduceOp = ReduceOp(ReduceOp.SUM) if finish is not None or self._size == 1 else op
        try:
            return getattr(self._gloo, method)(*arguments), finish
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
            self._gloo.monitored_barrier(timeout, wait_all_ranks)
        except RuntimeError as error:
            raise type(error)(f"{title}: {error}") from error

    def set_timeout(self, timeout: timedelta) -> None:
        """Change the timeout of later operations."""
        self._gloo.set_timeout(timeout)

    def abort(self) -> None:
        """Abort the operations under way, which fail."""
        self._is_aborted = True
        self._gloo.abort()

    def close(self, orderly: bool) -> None:
        """Close the connections."""
        if orderly and not self._is_aborted:
            self._gloo.shutdown()
        else:
            self._gloo.abort()


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

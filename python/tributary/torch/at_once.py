"""Sums that have ended when their call returns: their callers wait at once, and they need nothing but memory.

Small ones take some microseconds in a host's memory, and what the usual way makes of each operation, so that it can be
waited for later, by others and with further steps, takes far longer.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import torch

from tributary.torch import profile, spread
from tributary.torch.callbacks import Callbacks, is_in_callback
from tributary.torch.network import Network
from tributary.torch.paths import Paths
from tributary.torch.tensors import Tensors, is_flat
from tributary.torch.work import DoneWork, GroupWork


class AtOnce(Paths):
    """The short way of one tensor's sum; whatever it does not take goes the usual way, and errors are said there."""

    def _sum_at_once(self, name: str, tensors: Tensors, opts: Any) -> GroupWork | None:
        """Sum over all ranks, in place, and wait for the end; None if the sum is one for the usual way."""
        members = self._members
        if opts.asyncOp or len(tensors) != 1 or members is None or profile.is_on() or not self._home.is_here():
            return None
        if self._health.lost_in is not None or is_in_callback() or Callbacks.current() is not None:
            return None
        [tensor], lane = tensors, members.main
        network = lane.network
        if network is None or tensor.layout != torch.strided or not is_flat(tensor):
            return None
        size = tensor.nbytes
        if not size or (size >= spread.LEAST_BYTES and not network.is_local):
            return None
        op = members.plain_sum(tensor, opts.reduceOp)
        if op is None:
            return None
        begun, timeout = time.monotonic(), self._timeout_of(opts).total_seconds()
        start = partial(Network.all_reduce, source=tensor, target=tensor, op=op)
        # Before it begins: where a switch is lost, whoever asks for the present members meets them again.
        codes = None if network.is_local else self._codes(tensors)
        sum_ = self._begin(name, members, lane, network, [start], timeout)
        self._ledger.network(name, size, network.is_local, codes)
        try:
            for handle in sum_.pending:
                handle.wait(None)
        except Exception:
            # A wait for this work raises it again, with all that is known of it.
            return self._work(name, tensors, opts, sum_, None)
        self._ledger.awaited(begun, time.monotonic())
        return DoneWork(sum_.title, self._callbacks, self._health, tensors)

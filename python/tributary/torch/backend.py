"""The c10d backend: one process group of ``torch.distributed``, from its rendezvous to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

import torch.distributed as dist
from torch._C._distributed_c10d import Backend

from tributary.errors import SwitchLost
from tributary.torch import sparse
from tributary.torch.host import HostPath
from tributary.torch.host_only import HostOnly
from tributary.torch.lane import Lane
from tributary.torch.ledger import Stats
from tributary.torch.network import Network, together
from tributary.torch.options import Options
from tributary.torch.reductions import Reductions
from tributary.torch.rendezvous import Rendezvous
from tributary.torch.untraced import untraced

NAME = "tributary"

log = logging.getLogger("tributary.torch")


@untraced
class TributaryBackend(Reductions, HostOnly):
    """One process group. Made by PyTorch, through :func:`tributary.torch.register`."""

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
        on_end: Callable[[bool], object] = lambda orderly: None,
    ) -> None:
        super().__init__(rank, size, name)
        self._on_end = on_end
        self._given = options or Options.from_environment()
        self._chosen = self._given.of_group(size)
        self._options = Backend.Options(NAME, timeout=timeout)
        self._options.global_ranks_in_group = list(global_ranks)
        self._options.group_name = name
        self._rendezvous = Rendezvous(store, rank, size, name, self._chosen)
        if self._rendezvous.meeting.embedded:
            self._hints[SwitchLost] = "the switch ran in the process of rank 0 of this group"
        try:
            self._store = dist.PrefixStore(self._rendezvous.meeting.nonce, store)
            host = HostPath(self._store, rank, size, self._options)
            self._main = Lane(self._connect(""), host, f"of group {name}", partial(self._connect_sparse, ""))
        except BaseException:
            self._rendezvous.leave(orderly=False)
            raise
        self._rendezvous.all_have_met()

    def _connect(self, suffix: str) -> Network | None:
        if self.size() == 1:
            return None
        meeting = self._rendezvous.meeting.named(suffix)
        seconds = self._options._timeout.total_seconds()
        options = self._chosen.protocol_options
        return Network(meeting, self.rank(), self.size(), seconds, self._chosen.protocol, options)

    def _connect_sparse(self, suffix: str) -> Network | None:
        options = sparse.options_of(self._chosen)
        if self.size() == 1 or options is None:
            return None
        meeting = self._rendezvous.meeting.named(f"{suffix}-sparse")
        seconds = self._options._timeout.total_seconds()
        return Network(meeting, self.rank(), self.size(), seconds, self._chosen.protocol, options)

    def _open_lane(self, callbacks: str) -> Lane:
        suffix = "-callbacks" if callbacks == self._name else f"-callbacks-{callbacks}"
        whose = f"callbacks of group {callbacks}"
        host = HostPath(dist.PrefixStore(suffix, self._store), self.rank(), self.size(), self._options)
        place = f"in {whose}" if callbacks == self._name else f"of group {self._name} in {whose}"
        return Lane(self._connect(suffix), host, place, partial(self._connect_sparse, suffix))

    # What c10d asks about the group.

    # Each must be answered here: c10d asks the class, and its own answer would ask it again, without end.
    supports_coalescing = False
    supports_splitting = False
    supports_shrinking = False
    supports_reconfigure = False
    supports_window = False
    _supports_time_estimate = False
    supports_time_estimate = False  # Its name in PyTorch 2.14.

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
        for lane in self._all_lanes():
            lane.host.set_timeout(timeout)

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        """Nothing: every rank counts from zero."""

    def _get_sequence_number_for_group(self) -> int:
        return self._main.number

    def _all_lanes(self) -> list[Lane]:
        with self._order:
            return [self._main, *self._lanes.values()]

    # The end.

    def stats(self) -> Stats:
        """What was summed where so far."""
        counted = [network.stats() for lane in self._all_lanes() for network in lane.networks()]
        known = [stats for stats in counted if stats is not None]
        return self._ledger.stats(together(known) if known else None)

    def shutdown(self) -> None:
        """Leave the job and say what was summed where. Harmless when called again."""
        self._end(orderly=True)

    def abort(self) -> None:
        """End what is under way: it fails on this rank, and times out on the others."""
        self._end(orderly=False)

    def _end(self, orderly: bool) -> None:
        if not self._home.is_here():
            return  # The group is the parent's, and goes on there.
        with self._order:
            if self._closed:
                return
            self._closed = True
        lanes = self._all_lanes()
        for lane in lanes:
            lane.leave()
        self._completer.close()
        for lane in lanes:
            lane.host.close(orderly)
        self._callbacks.close()
        self._rendezvous.leave(orderly)
        self._on_end(orderly)

    def is_default(self) -> bool:
        """Whether this is the group of all ranks that ``init_process_group`` made."""
        return not self._options.global_ranks_in_group

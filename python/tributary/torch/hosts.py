"""Groups that span hosts with several ranks each: ranks of a host sum in its memory, and one brings the sum to others.

The first rank of a host, its leader, is the host's member of a job at the switch, so that a link carries a tensor once
each way, whatever the number of ranks. The other ranks are connected to their leader alone: what ends an operation on
one host reaches the others through the leaders, with the reason in the group's store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

import tributary
from tributary import errors
from tributary._core import HostMemory, LocalGroup
from tributary.errors import CollectiveError, CollectiveTimeoutError, MismatchError, RankLostError
from tributary.torch.local import LocalNetwork
from tributary.torch.rendezvous import Rendezvous
from tributary.torch.switches import SwitchNetwork

T = TypeVar("T")

#: The most letters of a sentence that a leader says to the other ranks of its host, and the most ranks in it.
_LETTERS, _RANKS = 600, 32
#: What leaders agree on if one of them has failed.
_FAILED = 2


class HostsNetwork(LocalNetwork):
    """One rank's way to the others through its host's memory, and through its leader to other hosts."""

    is_local = False
    is_of_hosts = True

    def __init__(
        self, memory: HostMemory, rank: int, size: int, leading: SwitchNetwork | None, reports: Reports
    ) -> None:
        """Take over the memory, and on the leader its workers at the switches."""
        workers = [] if leading is None else [group._core for group in leading.groups]
        super().__init__(LocalGroup.span(memory, rank, workers, reports), size)
        self._leading = leading

    @property
    def leading(self) -> SwitchNetwork | None:
        """The network of the hosts' leaders; None on the other ranks."""
        return self._leading

    def agree(self, word: int, timeout: float) -> int:
        """A word that all leaders know, on every rank; the largest, if they bring different ones."""
        brought = torch.tensor([0 if self._leading is None else word])
        for pending in self.all_reduce(brought, brought, "max", timeout):
            pending.wait(None)
        return int(brought)

    def measure(self, hosts: Sequence[int], timeout: float) -> None:
        """Have the leaders measure switches and hosts, as :meth:`SwitchNetwork.measure` does."""
        self._lead(lambda leading: leading.measure(hosts, timeout), timeout)

    def spread(self, hosts: Sequence[int], timeout: float, *, reports: bool) -> str:
        """Share large sums of hosts out, as :meth:`SwitchNetwork.spread` does; the sentence is the leaders'."""
        sentence = self._lead(lambda leading: leading.spread(hosts, timeout, reports=reports), timeout)
        self.again_bytes = self.agree(0 if self._leading is None else self._leading.again_bytes, timeout)
        self.share_out()
        return sentence or ""

    def _lead(self, act: Callable[[SwitchNetwork], T], timeout: float) -> T | None:
        """Have each leader act, and tell every rank whether sums are spread; what this leader found, else None."""
        found, error = None, None
        if self._leading is not None:
            try:
                found = act(self._leading)
            except Exception as failure:
                # Other ranks learn in a sum what ended this one, or that something did.
                error = failure
        is_spread = self._leading is not None and self._leading.is_spread
        agreed = self.agree(_FAILED if error else int(is_spread), timeout)
        if agreed == _FAILED:
            raise error or CollectiveError("a leader could not measure switches and hosts; its error says why")
        self.is_spread = bool(agreed)
        return found

    def share_out(self) -> None:
        """Have the leader's workers take large sums in its network's shares."""
        if self._leading is not None:
            self.shares = self._leading.shares
            self._core.share_out(*self._leading.large_sums())

    def stats(self) -> tributary.GroupStats | None:
        """The counts of the leader's workers; None on the other ranks."""
        return None if self._leading is None else self._leading.stats()

    def close(self, orderly: bool = True) -> None:
        """Leave; operations under way fail. If orderly, the leader waits for hosts that still need something."""
        if self._leading is not None:
            self._leading.close(orderly)
        super().close(orderly)


class Reports:
    """What leaders say to each other and to the ranks of their hosts when an operation has failed."""

    def __init__(self, rendezvous: Rendezvous, rank: int, suffix: str) -> None:
        self._rendezvous, self._suffix = rendezvous, suffix
        self._hosts = rendezvous.meeting.hosts
        self._own = self._hosts[rank]

    def report(self, error: Exception, is_between_hosts: bool) -> bytes:
        """Say on this leader why an operation has failed: to the leaders of other hosts, and what to its own ranks."""
        if is_between_hosts:
            error = self._reason(error)
        concerned = getattr(error, "brought" if isinstance(error, MismatchError) else "missing", ())
        said = json.dumps([type(error).__name__, str(error.args[0])[:_LETTERS], concerned[:_RANKS]])
        self._rendezvous.say_failure(self._suffix, self._own, said)
        return said.encode()

    def reported(self, message: bytes) -> Exception:
        """The error that a leader has said."""
        if not message:
            return CollectiveError("the first rank of this host has given up; its error says why")
        name, sentence, concerned = json.loads(message)
        kind: type[Exception] = getattr(errors, name, CollectiveError)
        if issubclass(kind, RankLostError | CollectiveTimeoutError | MismatchError):
            return kind(sentence, concerned)
        return kind(sentence)

    def _reason(self, error: Exception) -> Exception:
        """Why another host is gone that is missing, as its leader has said; or the error itself."""
        for rank in getattr(error, "missing", ()):
            host = self._hosts[rank]
            said = None if host == self._own else self._rendezvous.failure_of(self._suffix, host)
            if said is not None:
                return self.reported(said.encode())
        return error

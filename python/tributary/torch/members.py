"""The ranks of a group between two changes of its membership: how they met, and what they share."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend

import tributary
from tributary import Operator
from tributary._core import HostMemory, LocalGroup
from tributary.errors import ConnectError, MismatchError, RankLostError, SwitchLostError
from tributary.torch import agreement, custom, operators, sparse
from tributary.torch.health import Health
from tributary.torch.host import HostPath
from tributary.torch.hosts import HostsNetwork, Reports
from tributary.torch.lane import Lane
from tributary.torch.local import LocalNetwork, Shared, share_memory
from tributary.torch.network import Network
from tributary.torch.options import AT_HOSTS, AUTO, REPLAN, Options
from tributary.torch.protocol_choice import choose, of_shared_links
from tributary.torch.rendezvous import Meeting, Rendezvous
from tributary.torch.replan import HINT, LOSSES, agree
from tributary.torch.switches import SwitchNetwork
from tributary.torch.transit import Hint

log = logging.getLogger("tributary.torch")

#: Why sums of a group that spans hosts go through the network.
OF_HOSTS = "the ranks run on several hosts; those of each sum in its memory first, and one of them in the network"


class Members:
    """The ranks of a group, of which this process is one: their switch, and the lanes of their operations."""

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        size: int,
        *,
        name: str,
        given: Options,
        common: Backend.Options,
        health: Health,
        patience: timedelta | None = None,
    ) -> None:
        """Meet the others in the store and join the group's job; `patience` is for that alone.

        Raises:
            ConnectError: when some do not come, differ, or the switch does not take the job.

        """
        self.rank, self.size = rank, size
        self._name, self._common, self._health = name, common, health
        self._given = given
        self._patience = patience or common._timeout
        self._rendezvous = Rendezvous(store, rank, size, name, given, self._patience)
        #: Sentences to add to errors.
        self._hints: dict[type[Exception], Hint] = {
            MismatchError: agreement.hint(size),
        }
        if self._rendezvous.meeting.embedded:
            self._hints[SwitchLostError] = "the switch ran in the process of rank 0 of this group"
        self._hints[RankLostError] = self._rendezvous.with_reasons
        if self.replans:
            self._hints |= dict.fromkeys(LOSSES, HINT)
        self._joining = threading.Lock()
        #: Why sums go through the network and not through this host's memory; None if they do not, or there are none.
        self.why_network: str | None = None
        #: The answers of :meth:`plain_sum` so far.
        self._plain_sums: dict[tuple[torch.dtype, Any], str | None] = {}
        #: Whether ranks of a host share its memory, which all lanes do or none.
        self._shares = False
        #: The lanes of operations that callbacks start, by the group to which the callbacks belong.
        self.lanes: dict[str, Lane] = {}
        try:
            self._store = dist.PrefixStore(self._rendezvous.meeting.nonce, store)
            memory = self._share_memory("")
            is_of_hosts = isinstance(memory, HostMemory)
            self.chosen = self._choose(is_of_hosts=is_of_hosts)
            #: How many ranks a member of the job in the network brings the sum of: those of a host, or one.
            self.ranks_of_a_sum = size // len(set(self._rendezvous.meeting.hosts)) if is_of_hosts else 1
            #: The lane of operations that the program itself starts.
            self.main = self._meet("", self._store, f"of group {name}", memory)
        except BaseException:
            self._rendezvous.leave(orderly=False)
            raise
        self._rendezvous.all_have_met()

    def _choose(self, *, is_of_hosts: bool) -> Options:
        """The options with a protocol, for ranks or for hosts as members."""
        hosts = self._rendezvous.meeting.hosts
        chosen, why = choose(self._given, sorted(set(hosts)) if is_of_hosts else hosts)
        if self.rank == 0:
            is_news = not self._common.global_ranks_in_group and len(set(hosts)) > 1
            level = logging.INFO if is_news else logging.DEBUG
            by = f"in hosts' memory first, then by {why}" if is_of_hosts else f"by {why}"
            log.log(level, "group %s, rank 0 of %d sums %s", self._name, self.size, by)
        return chosen

    @property
    def switches(self) -> list[str]:
        """The switches that this rank uses."""
        return self._rendezvous.meeting.switches

    @property
    def replans(self) -> bool:
        """Whether the group goes on without a switch or a parameter server that is lost: those of others alone."""
        return self._given.on_loss == REPLAN and not self._rendezvous.meeting.embedded

    def without_the_lost(self, title: str, patience: timedelta) -> tuple[dist.Store, Options]:
        """The store and the options with which the same ranks meet again after this operation failed."""
        left = agree(self._store, self.rank, self.size, self.switches, (title, self.main.number), patience)
        return dist.PrefixStore("again", self._store), replace(self._given, switch=",".join(left) or None)

    def open_lane(self, callbacks: str) -> Lane:
        """Meet the other ranks for operations in this group that callbacks of a group start."""
        suffix = "-callbacks" if callbacks == self._name else f"-callbacks-{callbacks}"
        whose = f"callbacks of group {callbacks}"
        title = f"in {whose}" if callbacks == self._name else f"of group {self._name} in {whose}"
        memory = self._share_memory(suffix)
        return self._meet(suffix, dist.PrefixStore(suffix, self._store), title, memory)

    def join_moves(self, lane: Lane) -> None:
        """Join a lane's job for operations that only move data, if it is not joined; all ranks call it then."""
        with self._joining:
            if lane.moves is None:
                suffix = f"{lane.suffix}-moves"
                memory = self._share_memory(suffix)
                lane.moves = self._rendezvous.join(suffix, self._way(suffix, memory), _close)

    def join_sparse(self, lane: Lane) -> None:
        """Do the same for sparse tensors, if the group's protocol has jobs for them."""
        options = sparse.options_of(self.chosen)
        with self._joining:
            if lane.sparse is None and options is not None:
                lane.sparse = self._join(f"{lane.suffix}-sparse", options)

    def join_custom(self, lane: Lane, op: Operator) -> None:
        """Do the same for a custom operator: all ranks must bring the same operator as their n-th here."""
        protocol, options = custom.protocol_of(self._given, self.chosen)
        with self._joining:
            if op.sha256 not in lane.custom:
                suffix = f"{lane.suffix}-custom{len(lane.custom)}"
                lane.custom[op.sha256] = self._join(suffix, options, protocol, [op])

    def may_spread(self, lane: Lane) -> bool:
        """Whether the ranks' own hosts may make a share of the lane's large sums."""
        ranks = Counter(self._rendezvous.meeting.hosts)
        if self._given.protocol != AUTO or not self._given.switches or len(ranks) < 2:
            return False
        # Hosts that sum in memory first bring a tensor each, however many ranks they have.
        are_alike = isinstance(lane.network, SwitchNetwork) and len(set(ranks.values())) == 1
        return are_alike or isinstance(lane.network, HostsNetwork)

    def spread(self, lane: Lane) -> str:
        """Measure how fast switches and hosts sum, and spread the lane's large sums over both; all ranks call it then.

        Returns the shares as a sentence.
        """
        assert isinstance(lane.network, SwitchNetwork | HostsNetwork), "other ways are not spread"
        network, timeout = lane.network, self._common._timeout.total_seconds()
        network.finish()
        self._hints[MismatchError] = agreement.hint(self.size, is_spread=True)
        # A rank that brings another operation does not measure: it would not come to what follows.
        for pending in network.barrier(timeout):
            pending.wait(None)
        if not network.has_hosts:
            self._join_hosts(lane, network, timeout)
        of_ranks = self._rendezvous.meeting.hosts
        hosts = sorted(set(of_ranks)) if network.is_of_hosts else of_ranks
        network.measure(hosts, timeout)
        if network.is_spread and not network.has_wide_switches:
            wide = self._join_beside(lane, "-switches")
            network.has_wide_switches = True
            if network.leading is not None and wide is not None:
                network.leading.replace_switches(wide)
        return network.spread(hosts, timeout, reports=self.rank == 0)

    def _join_hosts(self, lane: Lane, network: SwitchNetwork | HostsNetwork, timeout: float) -> None:
        """Join the job in which the ranks' own hosts sum; before it one at the first switch's servers, if any offer."""
        first, own = self._join_beside(lane, "-hosts", AT_HOSTS, at=self.switches[0]), None
        try:
            if network.agree(int(first is not None and bool(first.groups[0].info.servers)), timeout):
                # A switch gives all of its servers to each such job, so another one forms the job without.
                own = self._join_beside(lane, "-own", AT_HOSTS, at=self._rendezvous.own_switch())
        except BaseException:
            _close(first)
            raise
        network.has_hosts = True
        if network.leading is not None:
            network.leading.take_in(*(joined for joined in (first, own) if joined is not None))
        if isinstance(network, HostsNetwork):
            # Already, for the errors of measurements.
            network.share_out()

    def _join_beside(
        self, lane: Lane, ending: str, protocol: str | None = None, at: str | None = None
    ) -> SwitchNetwork | None:
        """Join a job for large sums as those join the lane's own job that are its members; None on the other ranks."""
        hosts, network = self._rendezvous.meeting.hosts, lane.network
        leads = not isinstance(network, HostsNetwork) or network.leading is not None
        members = (hosts[self.rank], len(set(hosts))) if isinstance(network, HostsNetwork) else None
        options = of_shared_links(self.chosen.protocol_options)

        def connect(meeting: Meeting, poll: Callable[[], None]) -> SwitchNetwork | None:
            there = meeting if at is None else replace(meeting, switches=[at])
            return self._connect(there, poll, options, protocol, members=members) if leads else None

        return self._rendezvous.join(f"{lane.suffix}{ending}", connect, _close)

    def _join(
        self,
        suffix: str,
        options: Mapping[str, str],
        protocol: str | None = None,
        operators: Sequence[Operator] = (),
    ) -> SwitchNetwork:
        """Join another job of the group, at all of its switches."""
        self._rendezvous.find_switch()

        def connect(meeting: Meeting, poll: Callable[[], None]) -> SwitchNetwork:
            return self._connect(meeting, poll, options, protocol, operators)

        return self._rendezvous.join(suffix, connect, _close)

    def _way(self, suffix: str, memory: Shared | None) -> Callable[[Meeting, Callable[[], None]], Network]:
        """What joins a job for dense tensors: of all ranks, or of hosts whose memory their ranks share."""
        if self.size > 1 and not isinstance(memory, LocalGroup):
            self._rendezvous.find_switch()

        def connect(meeting: Meeting, poll: Callable[[], None]) -> Network:
            if isinstance(memory, LocalGroup):
                return LocalNetwork(memory, self.size)
            if memory is None:
                return self._connect(meeting, poll, self.chosen.protocol_options)
            leading: SwitchNetwork | None = None
            try:
                if memory.leads():
                    members = meeting.hosts[self.rank], len(set(meeting.hosts))
                    leading = self._connect(meeting, poll, self.chosen.protocol_options, members=members)
                reports = Reports(self._rendezvous, self.rank, suffix)
                return HostsNetwork(memory, self.rank, self.size, leading, reports)
            except BaseException:
                memory.close()
                if leading is not None:
                    leading.close(orderly=False)
                raise

        return connect

    def _meet(self, suffix: str, store: dist.Store, title: str, memory: Shared | None) -> Lane:
        way = self._way(suffix, memory)

        def connect(meeting: Meeting, poll: Callable[[], None]) -> Lane:
            # The job first: its switch says why a rank cannot join, and Gloo only that a connection closed.
            network = way(meeting, poll) if self.size > 1 else None
            try:
                host = HostPath(
                    store,
                    self.rank,
                    self.size,
                    self._common,
                    self._patience,
                    meeting.address,
                    is_lazy=bool(suffix or self._common.global_ranks_in_group),
                )
            except BaseException:
                if network is not None:
                    network.close(orderly=False)
                raise
            return Lane(network, host, title, suffix, self._health, self._hints)

        return self._rendezvous.join(suffix, connect, Lane.abort)

    def _share_memory(self, suffix: str) -> Shared | None:
        """Meet the other ranks of this host in its memory, if all can; later lanes do as the first."""
        if self.size == 1 or (suffix and not self._shares):
            return None
        met = share_memory(self._rendezvous, suffix, self.rank, self.size, self._given, self._patience)
        if not isinstance(met, str):
            self._shares = True
            if isinstance(met, HostMemory):
                self.why_network = OF_HOSTS
            return met
        if suffix:
            raise ConnectError(f"the ranks share memory of this host already, and cannot share more of it: {met}")
        self.why_network = met
        return None

    @property
    def is_local(self) -> bool:
        """Whether the ranks sum in this host's memory."""
        return self.main.network is not None and self.main.network.is_local

    def plain_sum(self, tensor: torch.Tensor, reduce_op: Any) -> str | None:
        """The operator's name, if sums combine such elements as they are; None if not, or if one multiplies them first.

        Flags are not combined as they are.
        """
        key = tensor.dtype, reduce_op.op
        try:
            return self._plain_sums[key]
        except KeyError:
            options = None if self.is_local else self.chosen
            return self._plain_sums.setdefault(key, operators.plain_name(tensor, reduce_op, options))

    def _connect(
        self,
        meeting: Meeting,
        poll: Callable[[], None],
        options: Mapping[str, str],
        protocol: str | None = None,
        operators: Sequence[Operator] = (),
        members: tuple[int, int] | None = None,
    ) -> SwitchNetwork:
        """Join the meeting's job at its switches: this rank of all, or as one member of several."""
        rank, size = members or (self.rank, self.size)
        seconds = self._patience.total_seconds()
        # Where a host has several ranks, as many of them drive its link as pays.
        spoken, cores = protocol or self.chosen.protocol, self.chosen.cores or (1 if members else None)
        return SwitchNetwork(meeting, rank, size, seconds, spoken, options, operators, poll, cores)

    def all_lanes(self) -> list[Lane]:
        """The lanes of the program and of callbacks, as they are while no thread opens another."""
        return [self.main, *self.lanes.values()]

    def stats(self) -> list[tributary.GroupStats]:
        """The counts of the lanes' workers."""
        counted = [network.stats() for lane in self.all_lanes() for network in lane.networks()]
        return [stats for stats in counted if stats is not None]

    def finish(self) -> None:
        """Wait until the operations under way have ended: all ranks may have started them."""
        for lane in self.all_lanes():
            lane.finish()

    def everyones(self, lane: Lane, number: int, own: Callable[[], str]) -> str | None:
        """A sentence with what each rank brings to the lane's operation of this number, if all say so and differ."""
        if self.size == 2 or lane.network is None or lane.network.is_local:
            return None  # The error names all ranks.
        brought = self._rendezvous.say_and_ask(f"brought{lane.suffix}/{number}", own())
        return None if brought is None else agreement.disagreement(brought)

    def say_why(self, reason: str) -> None:
        """Say to the other ranks why this one leaves: "rank 1 " and the reason."""
        self._rendezvous.say_why(reason)

    def leave(self) -> None:
        """Leave the jobs; operations under way fail."""
        for lane in self.all_lanes():
            lane.leave()

    def close_hosts(self, orderly: bool) -> None:
        """Close the host path."""
        for lane in self.all_lanes():
            lane.host.close(orderly)

    def release_switch(self, orderly: bool) -> None:
        """Leave the switch of the rendezvous."""
        self._rendezvous.leave(orderly, self._health.lost)


def _close(network: Network | None) -> None:
    if network is not None:
        network.close(orderly=False)

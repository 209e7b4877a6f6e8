"""The network of a group: its workers at the switches, over which large tensors are spread."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tributary
from tributary import Operator, _core
from tributary._core import LEAST_CUT_ELEMENTS, cuts
from tributary.torch.network import Network
from tributary.torch.rendezvous import Meeting
from tributary.torch.spread import balance, measure, plan
from tributary.torch.transit import Handle

#: The most servers that a name of several has.
_MOST_NAMED = 8


class SwitchNetwork(Network):
    """One rank's workers: one at each switch, each in a job of the group's own."""

    def __init__(
        self,
        meeting: Meeting,
        rank: int,
        size: int,
        timeout: float,
        protocol: str,
        options: Mapping[str, str],
        operators: Sequence[Operator] = (),
        poll: Callable[[], None] | None = None,
        cores: int | None = None,
    ) -> None:
        """Join; `poll` is called while it waits for the others. Where slots cannot be divided, one core is enough."""
        super().__init__(size)
        if not _core.divides_slots(protocol, dict(options)):
            cores = 1
        self.groups: list[tributary.Group] = []
        try:
            for switch in meeting.switches:
                self.groups.append(
                    tributary.connect(
                        switch,
                        job=meeting.job,
                        rank=rank,
                        world_size=size,
                        timeout=timeout,
                        protocol=protocol,
                        options=options,
                        cores=cores,
                        operators=operators,
                        check=poll,
                    )
                )
        except BaseException:
            self.close()
            raise
        #: The switch of the next collective. All ranks start the same ones in the same order, so they choose alike.
        self._turn = 0
        #: The workers at the switches, which take small tensors and data that is only moved.
        self._at_switches = list(self.groups)
        #: The workers that make large sums, and which share each makes.
        self._summing, self._shares = list(self.groups), [1.0] * len(self.groups)
        self._last: tributary.GroupStats | None = None

    def go_on(self) -> None:
        """Do nothing: workers have threads of their own, whether anybody waits or not."""

    def _count(self) -> int:
        return len(self._at_switches)

    def _next(self) -> Any:
        group = self._at_switches[self._turn % len(self._at_switches)]
        self._turn += 1
        return group._core

    def _is_small(self, elements: int) -> bool:
        return elements < LEAST_CUT_ELEMENTS * len(self._shares)

    def _sums(self, elements: int) -> list[tuple[Any, int, int]]:
        """Who sums which of this many elements."""
        if self._is_small(elements):
            return [(self._next(), 0, elements)]
        workers, shares, block = self.large_sums()
        ranges = zip(workers, cuts(elements, shares, block), strict=True)
        return [(core, start, end) for core, (start, end) in ranges if start < end]

    def _scatters(self, elements: int) -> list[tuple[Any, int, int]]:
        return self._at_hosts(elements) or self._sums(elements)

    def _gathers(self, elements: int) -> list[tuple[Any, int, int]]:
        return self._at_hosts(elements) or super()._gathers(elements)

    def _at_hosts(self, elements: int) -> list[tuple[Any, int, int]]:
        """The worker of the job in which the ranks' own hosts sum, if these shards are brought from host to host."""
        if not self.has_shards_at_hosts or self._is_small(elements):
            return []
        return [(self._summing[-1]._core, 0, elements)]

    def _meet_others(self, elements: int, timeout: float) -> list[Handle]:
        """Start a sum of nothing where ranks would bring a small tensor instead: all learn at once that they differ."""
        return self.barrier(timeout) if self.has_hosts and not self._is_small(elements) else []

    @property
    def leading(self) -> SwitchNetwork:
        """The network of the job's members: this one."""
        return self

    def agree(self, word: int, timeout: float) -> int:
        """A word that every member of the job knows, on every rank."""
        return word

    def large_sums(self) -> tuple[list[Any], list[float], int]:
        """The workers of large sums, the share of each, and the elements of a block."""
        return [group._core for group in self._summing], self._shares, self.groups[0].info.elements_per_packet

    def take_in(self, *others: SwitchNetwork) -> None:
        """Take in the workers of jobs at servers, and last of the one in which the ranks' own hosts sum."""
        workers = [group for other in others for group in other.groups]
        self.groups += workers
        self._summing, self._shares = [*self._at_switches, *workers], [*self._shares, *[0.0] * len(workers)]

    def measure(self, hosts: Sequence[int], timeout: float) -> None:
        """Measure how fast switches and ranks' hosts sum, each way alone, and plan the shares of large sums."""
        *at_switches, own = measure(self._summing, timeout)
        self._planned = plan(hosts, at_switches, own)
        self.is_spread = self._planned.shares[-1] > 0

    def spread(self, hosts: Sequence[int], timeout: float, *, reports: bool) -> str:
        """Share large sums out as planned, and as they turn out together; the shares as a sentence.

        One rank reports them to the switches, for operators.
        """
        spread = balance(self._summing, hosts, self._planned, timeout)
        switches = [_name(group) for group in self._summing[:-1]]
        self._shares = spread.shares
        self.has_shards_at_hosts = spread.has_shards_at_hosts(len(self._at_switches), self.size)
        self.shares, self.again_bytes = spread.of_ways(switches), spread.again_bytes
        if reports:
            for group in self._at_switches:
                _core.report_large_sums(group._core, *spread.report(switches))
        return spread.sentence(switches)

    def replace_switches(self, at_switches: SwitchNetwork) -> None:
        """Make the switches' shares of large sums in other jobs there."""
        self.groups += at_switches.groups
        self._summing = [*at_switches.groups, *self._summing[len(self._at_switches) :]]

    def stats(self) -> tributary.GroupStats | None:
        """The workers' counts; after they are closed, their last counts."""
        with contextlib.suppress(tributary.TributaryError):  # After they are closed the last numbers stay.
            self._last = together([group.stats() for group in self.groups])
        return self._last

    def finish(self) -> None:
        """Wait until the operations under way have ended, successfully or not."""
        for group in self.groups:
            group.finish()

    def close(self, orderly: bool = True) -> None:
        """Leave the jobs; operations under way fail. If orderly, wait for peers that still need something."""
        if self.groups:
            self.stats()
        for group in self.groups:
            if orderly:
                group.close()
            else:
                group.abort()


def _name(group: tributary.Group) -> str:
    """Where a group's sums are made: at its servers, or at its switch."""
    servers = group.info.servers
    return ",".join([*servers[:_MOST_NAMED], *["..."] * (len(servers) > _MOST_NAMED)]) or group.info.switch


def _mean(shares: Sequence[float]) -> float | None:
    return sum(shares) / len(shares) if shares else None


def together(stats: Sequence[tributary.GroupStats]) -> tributary.GroupStats:
    """The joined counts of several workers."""
    drops: Counter[str] = Counter()
    for one in stats:
        drops.update(one.drops)
    received = sum(one.packets_received for one in stats)
    # Weighed by what each received: of blocks in the network only shares are known here.
    in_network = sum(one.in_network * one.packets_received for one in stats) / received if received else 0.0
    sentences = {one.where_summed for one in stats}
    orders = {one.order for one in stats}
    return tributary.GroupStats(
        packets_sent=sum(one.packets_sent for one in stats),
        retransmissions=sum(one.retransmissions for one in stats),
        packets_received=received,
        in_network=in_network,
        blocks_at_hosts=sum(one.blocks_at_hosts for one in stats),
        where_summed=sentences.pop() if len(sentences) == 1 else f"{in_network * 100:.1f} % of the blocks",
        contributed=_mean([one.contributed for one in stats if one.contributed is not None]),
        order=orders.pop() if len(orders) == 1 else None,
        drops=dict(drops),
    )

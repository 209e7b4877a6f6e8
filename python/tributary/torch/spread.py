"""Large sums over switches and the ranks' own hosts, in the shares that suit their links.

Rates are measured before the first large operation of a job, and again after some gigabytes, since links may have got
other traffic: how fast each switch alone, and all hosts together, sum a tensor. A plan follows from these rates, and
sums by the plan show what each way does beside the others. All ranks take part in a measurement, and all reckon with
the slowest rank's time, so that they cut tensors alike.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

import tributary
from tributary import _core
from tributary._core import cuts
from tributary.torch.ledger import Share
from tributary.torch.tensors import memory

#: Operations of at least this many bytes in a group are spread.
LEAST_BYTES = 1 << 20
#: From one measurement to the next: at least these bytes of such operations, and as many as fast links carry in these
#: seconds. A measurement takes some tenths of a second.
AGAIN_BYTES, _AGAIN_S = 2 << 30, 20
#: The first measured tensor's elements, and the most: it is doubled until a sum takes long enough.
_ELEMENTS, _MOST_ELEMENTS, _LONG_ENOUGH_S = 1 << 18, 1 << 22, 0.02
#: A plan that promises less than this over the best way alone is not worth a second way. Sums by it are given up only
#: if they are slower by as much, for they start more slowly.
_LEAST_GAIN = 1.05
#: How often all ways sum together, for how long as the plan says, and how much faster other shares must be.
_SUMS_TOGETHER, _TOGETHER_S, _LEAST_FASTER = 3, 0.1, 1.03
#: The least share that is worth a way.
_LEAST_SHARE = 0.05
#: From one poll of what has ended to the next.
_POLL_S = 0.0002


@dataclass(frozen=True)
class Shares:
    """How a group's large sums are spread."""

    #: The share of each switch, and last that of the ranks' own hosts.
    shares: list[float]
    #: Bits of a tensor in a second: each switch alone, and all hosts.
    rates: list[float]
    #: What the plan promises, or a trial of it has shown.
    expected: float
    #: How long each switch's link, and last those of the hosts, are busy, of the time that the busiest of them is.
    busy: list[float]
    #: Bits in a second over the link of a rank's host.
    link: float

    @property
    def again_bytes(self) -> int:
        """Bytes of large operations until the ways are measured again, the same on all ranks."""
        return max(AGAIN_BYTES, int(self.expected / 8 * _AGAIN_S))

    def has_shards_at_hosts(self, switches: int, size: int) -> bool:
        """Whether the shards of this many ranks go from host to host faster than through switches, which cut evenly.

        A step of FSDP gathers twice and scatters once, and one of the gathers goes along with the scatter: through
        switches a rank gets 2 + 1/n of a tensor, and from the ranks' hosts one and a half times what a sum takes.
        """
        through_switches = (2 + 1 / size) / min(self.link, switches * min(self.rates[:switches]))
        return 3 / 2 / self.rates[-1] < through_switches

    def of_ways(self, switches: Sequence[str]) -> list[Share]:
        """The share of each way, by what people call it."""
        ways = [*(f"at {switch}" for switch in switches), "at the ranks' own hosts"]
        of_each = zip(ways, self.shares, self.rates, self.busy, strict=True)
        return [Share(way, share, rate / 1e9, busy) for way, share, rate, busy in of_each]

    def report(self, switches: Sequence[str]) -> tuple[float, float, list[tuple[str | None, float, float, float]]]:
        """The shares as a switch is told: Gbit/s that are expected and of a host's link, and each way."""
        ways = [*switches, None]
        of_each = zip(ways, self.shares, self.rates, self.busy, strict=True)
        of_ways = [(way, share, rate / 1e9, min(busy, 1.0)) for way, share, rate, busy in of_each]
        return self.expected / 1e9, self.link / 1e9, of_ways

    def sentence(self, switches: Sequence[str]) -> str:
        """The shares as a sentence for people."""
        return _core.large_sums_sentence(*self.report(switches))


def plan(hosts: Sequence[int], at_switches: Sequence[float], at_hosts: float) -> Shares:
    """The shares for ranks on these hosts, each with equally many, from the rates at which each way sums alone."""
    size, ranks = len(hosts), Counter(hosts)
    own = ranks[hosts[0]]
    # What a host's link carries: its ranks' tensors to a switch, or all hosts' shares.
    link = max(at_hosts * 2 * own * (size - own) / size, own * max(at_switches))
    links = [(link, own, own, True) for _ in ranks] + [(size * rate, 0, 0, True) for rate in at_switches]
    planned = _core.plan_sums(links)
    rates = [*at_switches, at_hosts]
    best = max(rates)
    alone = [float(rate == best) for rate in rates]
    if planned is None or not planned[0] or 1 / planned[1] < _LEAST_GAIN * best:
        shares, expected = alone, best
    else:
        shares, kept = _worth([*planned[0][len(ranks) :], sum(planned[0][: len(ranks)])])
        expected = kept / planned[1]
    return Shares(shares, rates, expected, _busy(hosts, shares, rates, link), link)


def _busy(hosts: Sequence[int], shares: Sequence[float], rates: Sequence[float], link: float) -> list[float]:
    """How long each switch's link, and last those of the hosts, are busy, of the time that the busiest of them is."""
    size, ranks = len(hosts), Counter(hosts)
    own, at_a_host = ranks[hosts[0]], shares[-1] / len(ranks)
    carried = own * (1 - at_a_host) + (size - own) * at_a_host
    seconds = [*(share / rate for share, rate in zip(shares[:-1], rates, strict=False)), carried / link]
    return [one / max(seconds) for one in seconds]


def balance(groups: Sequence[tributary.Group], hosts: Sequence[int], planned: Shares, timeout: float) -> Shares:
    """The plan as sums by it turn out: each way's share is what it sums beside the others.

    The plan knows what links carry, and not who gets how much of a link on which several ways meet. So the way that is
    ready last gets less, and the fastest of some sums counts. Where one way alone is faster, it sums alone.
    """
    if max(planned.shares) == 1.0:
        return planned
    elements = min(max(int(planned.expected * _TOGETHER_S / 32), _ELEMENTS), _MOST_ELEMENTS)
    shares, fastest, rate = planned.shares, planned.shares, 0.0
    for _ in range(_SUMS_TOGETHER):
        seconds = _seconds_of_ways(groups, shares, elements, timeout)
        if 32 * elements / max(seconds) > _LEAST_FASTER * rate:
            fastest, rate = shares, 32 * elements / max(seconds)
        shares, _ = _worth([share / max(took, _POLL_S) for share, took in zip(shares, seconds, strict=True)])
    best = max(planned.rates)
    if rate * _LEAST_GAIN < best:
        fastest, rate = [float(alone == best) for alone in planned.rates], best
    return replace(planned, shares=fastest, expected=rate, busy=_busy(hosts, fastest, planned.rates, planned.link))


def _worth(shares: Sequence[float]) -> tuple[list[float], float]:
    """The shares without those that are not worth a way, all together 1; and how much of all they were."""
    kept = [share if share >= _LEAST_SHARE * sum(shares) else 0.0 for share in shares]
    return [share / sum(kept) for share in kept], sum(kept) / sum(shares)


def _seconds_of_ways(
    groups: Sequence[tributary.Group], shares: Sequence[float], elements: int, timeout: float
) -> list[float]:
    """The slowest rank's time for each way's share of a sum that all ranks begin together."""
    data, longest = torch.zeros(elements), torch.zeros(len(groups), dtype=torch.int64)
    ranges = cuts(elements, list(shares), groups[0].info.elements_per_packet)
    _meet(groups[0], longest, timeout)
    pending, failed, start = {}, None, time.monotonic()
    try:
        for way, (group, (first, end)) in enumerate(zip(groups, ranges, strict=True)):
            if first < end:
                share = memory(data, first, end)
                pending[way] = group._core.all_reduce(share, share, "f32", "sum", timeout)
    except tributary.TributaryError as error:
        failed = error
    # The data must stay until all sums have ended, whatever one of them ends with.
    while pending:
        for way in [way for way, sum_of_way in pending.items() if sum_of_way.is_done()]:
            try:
                pending.pop(way).wait(None)
            except tributary.TributaryError as error:
                failed = failed or error
            longest[way] = int((time.monotonic() - start) * 1e9)
        time.sleep(_POLL_S)
    if failed is not None:
        raise failed
    _meet(groups[0], longest, timeout)
    return [int(took) / 1e9 for took in longest]


def _meet(group: tributary.Group, words: torch.Tensor, timeout: float) -> None:
    """Wait for all ranks; each word becomes the largest that any of them brought."""
    group._core.all_reduce(memory(words), memory(words), "i64", "max", timeout).wait(None)


def measure(groups: Sequence[tributary.Group], timeout: float) -> list[float]:
    """How many bits of a tensor each of a rank's groups sums in a second, alone; the same on all ranks."""
    return [_rate(group, timeout) for group in groups]


def _rate(group: tributary.Group, timeout: float) -> float:
    elements = _ELEMENTS
    _seconds(group, elements, timeout)  # Windows open.
    while (seconds := _seconds(group, elements, timeout)) < _LONG_ENOUGH_S and elements < _MOST_ELEMENTS:
        elements *= 2
    # The faster of two counts: whatever else the machine does only makes them longer.
    return 32 * elements / min(seconds, _seconds(group, elements, timeout))


def _seconds(group: tributary.Group, elements: int, timeout: float) -> float:
    """The slowest rank's time for a sum that all ranks begin together."""
    return max(_seconds_of_ways([group], [1.0], elements, timeout)[0], 1e-9)

"""Large sums over switches and the ranks' own hosts, in the shares that suit their links.

Rates are measured before the first large operation of a job, and again after some gigabytes, since links may have got
other traffic: how fast each switch alone, and all hosts together, sum a tensor. All ranks take part in a measurement,
and all reckon with the slowest rank's time, so that they cut tensors alike.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

import tributary
from tributary import _core
from tributary.torch.ledger import Share
from tributary.torch.tensors import memory

#: Operations of at least this many bytes in a group are spread.
LEAST_BYTES = 1 << 20
#: Bytes of such operations from one measurement to the next: some seconds on most links, and many times what it costs.
AGAIN_BYTES = 2 << 30
#: The first measured tensor's elements, and the most: it is doubled until a sum takes long enough.
_ELEMENTS, _MOST_ELEMENTS, _LONG_ENOUGH_S = 1 << 18, 1 << 22, 0.02
#: A plan that promises less than this over the best way alone is not worth a second way.
_LEAST_GAIN = 1.05


@dataclass(frozen=True)
class Shares:
    """How a group's large sums are spread."""

    #: The share of each switch, and last that of the ranks' own hosts.
    shares: list[float]
    #: Bits of a tensor in a second: each switch alone, and all hosts.
    rates: list[float]
    #: What the plan promises.
    expected: float
    #: The share of the time of a sum for which each switch's link is busy, and last those of the hosts.
    busy: list[float]
    #: Bits in a second over the link of a rank's host.
    link: float

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
        shares, expected = [*planned[0][len(ranks) :], sum(planned[0][: len(ranks)])], 1 / planned[1]
    at_a_host = shares[-1] / len(ranks)
    carried = own * (1 - at_a_host) + (size - own) * at_a_host
    busy = [share * expected / rate for share, rate in zip(shares, at_switches, strict=False)]
    return Shares(shares, rates, expected, [*busy, carried * expected / link], link)


def measure(groups: Sequence[tributary.Group], timeout: float) -> list[float]:
    """How many bits of a tensor each of a rank's groups sums in a second, alone; the same on all ranks."""
    return [_rate(group, timeout) for group in groups]


def _rate(group: tributary.Group, timeout: float) -> float:
    elements = _ELEMENTS
    _seconds(group, elements, timeout)  # Windows open.
    while (seconds := _seconds(group, elements, timeout)) < _LONG_ENOUGH_S and elements < _MOST_ELEMENTS:
        elements *= 2
    return 32 * elements / seconds


def _seconds(group: tributary.Group, elements: int, timeout: float) -> float:
    """The slowest rank's time for a sum that all ranks begin together."""
    data, word = torch.zeros(elements), torch.zeros(1, dtype=torch.int64)
    group._core.all_reduce(memory(word), memory(word), "i64", "max", timeout).wait(None)
    start = time.monotonic()
    group._core.all_reduce(memory(data), memory(data), "f32", "sum", timeout).wait(None)
    word[0] = int((time.monotonic() - start) * 1e9)
    group._core.all_reduce(memory(word), memory(word), "i64", "max", timeout).wait(None)
    return max(int(word[0]), 1) / 1e9

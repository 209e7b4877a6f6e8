"""Which bytes were summed where, and why: the numbers behind :func:`tributary.torch.stats`."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tributary.info import GroupStats


@dataclass
class Entry:
    """Collectives of one kind."""

    collectives: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Share:
    """Where a share of each large sum is made."""

    #: "at HOST:PORT", a switch; or "at the ranks' own hosts".
    where: str
    #: 0.0 to 1.0; together 1.0.
    share: float
    #: Gbit/s of tensor that this way would sum alone, as measured.
    gbps: float
    #: The share of the time of a sum for which its link is busy: those that are busy all the time limit the sum.
    busy: float

    @property
    def is_limit(self) -> bool:
        """Whether a faster link here would make sums faster."""
        return self.busy > 0.98


@dataclass(frozen=True)
class Stats:
    """The operations of this rank in one group since it was made. Bytes are those of the rank's own tensors."""

    #: Operations that went through the network, by name.
    network: dict[str, Entry]
    #: Operations that went over the host path, by name and reason.
    host: dict[tuple[str, str], Entry]
    #: The counts of the network's worker: packets, retransmissions. None in a group of one rank.
    packets: GroupStats | None = field(default=None)
    #: Seconds that this rank's threads spent in waits for operations. DDP waits in C++, which is not counted here.
    waited_s: float = 0.0
    #: Seconds in which at least one operation was under way, from its call to when its end was noticed.
    under_way_s: float = 0.0
    #: Operations that stayed in the memory of this host, by name.
    memory: dict[str, Entry] = field(default_factory=dict)
    #: Those of `network` whose elements travelled as codes, by name and kind: ("all_reduce", "int8").
    codes: dict[tuple[str, str], Entry] = field(default_factory=dict)
    #: Why sums went through the network and not through this host's memory; None if they did not, or there were none.
    why_network: str | None = None
    #: Where large sums are made, if they are shared out between switches and the ranks' own hosts; else nothing.
    shares: Sequence[Share] = ()

    @staticmethod
    def of_all(groups: Sequence[Stats]) -> Stats:
        """The sum of several groups' numbers, without packets."""
        network: dict[str, Entry] = {}
        memory: dict[str, Entry] = {}
        host: dict[tuple[str, str], Entry] = {}
        codes: dict[tuple[str, str], Entry] = {}
        for stats in groups:
            for name, entry in stats.network.items():
                _add(network.setdefault(name, Entry()), entry.bytes, entry.collectives)
            for name, entry in stats.memory.items():
                _add(memory.setdefault(name, Entry()), entry.bytes, entry.collectives)
            for key, entry in stats.host.items():
                _add(host.setdefault(key, Entry()), entry.bytes, entry.collectives)
            for key, entry in stats.codes.items():
                _add(codes.setdefault(key, Entry()), entry.bytes, entry.collectives)
        waited = sum(stats.waited_s for stats in groups)
        return Stats(network, host, None, waited, sum(stats.under_way_s for stats in groups), memory, codes)

    @property
    def network_bytes(self) -> int:
        """Bytes that went through the network."""
        return sum(entry.bytes for entry in self.network.values())

    @property
    def memory_bytes(self) -> int:
        """Bytes that stayed in the memory of this host."""
        return sum(entry.bytes for entry in self.memory.values())

    @property
    def host_bytes(self) -> int:
        """Bytes that went over the host path."""
        return sum(entry.bytes for entry in self.host.values())

    @property
    def in_network(self) -> float:
        """The share of bytes that went through the network, 0.0 to 1.0; 1.0 where there were none."""
        return self._share(self.network_bytes)

    @property
    def all_bytes(self) -> int:
        """Bytes of all operations."""
        return self.network_bytes + self.memory_bytes + self.host_bytes

    def _share(self, count: int) -> float:
        return count / self.all_bytes if self.all_bytes else 1.0

    def __str__(self) -> str:
        """One line for people."""
        ways = [("in this host's memory", self.memory_bytes), ("in network", self.network_bytes)]
        if not self.network or not self.memory:
            ways = ways[:1] if self.memory else ways[1:]
        line = f"{', '.join(f'{way} {self._share(count):.1%}' for way, count in ways)} of {_size(self.all_bytes)}"
        by_kind: Counter[str] = Counter()
        for (_, kind), entry in self.codes.items():
            by_kind[kind] += entry.bytes
        if by_kind:
            line += f", {' and '.join(f'{_size(count)} of it as {kind}' for kind, count in by_kind.items())}"
        if not self.host:
            return line
        by_reason: Counter[str] = Counter()
        for (name, reason), entry in self.host.items():
            by_reason[f"{name}: {reason}"] += entry.bytes
        reasons = "; ".join(f"{reason} ({_size(count)})" for reason, count in by_reason.most_common(4))
        more = f"; and {len(by_reason) - 4} more" if len(by_reason) > 4 else ""
        return f"{line}, host path {self._share(self.host_bytes):.1%}, because {reasons}{more}"


class Ledger:
    """Counts; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._network: dict[str, Entry] = defaultdict(Entry)
        self._memory: dict[str, Entry] = defaultdict(Entry)
        self._host: dict[tuple[str, str], Entry] = defaultdict(Entry)
        self._codes: dict[tuple[str, str], Entry] = defaultdict(Entry)
        self._waited = 0.0
        self._under_way = 0.0
        #: Up to this time, by the monotonic clock, all seconds with operations under way are counted.
        self._counted_until = 0.0

    def network(self, name: str, count: int, is_local: bool = False, codes: str | None = None) -> None:
        """Count an operation of that many bytes that goes through the network, or stays in this host's memory.

        `codes` says as what its elements travel, if not as themselves.
        """
        with self._lock:
            _add((self._memory if is_local else self._network)[name], count)
            if codes is not None and not is_local:
                _add(self._codes[name, codes], count)

    def host(self, name: str, reason: str, count: int) -> None:
        """Count an operation of that many bytes that goes over the host path."""
        with self._lock:
            _add(self._host[name, reason], count)

    def waited(self, seconds: float) -> None:
        """Count a wait."""
        with self._lock:
            self._waited += seconds

    def ended(self, begun: float, ended: float) -> None:
        """Count an operation that was under way between these times; seconds of several operations count once."""
        with self._lock:
            self._count(begun, ended)

    def awaited(self, begun: float, ended: float) -> None:
        """Count an operation for whose end its caller waited from its beginning."""
        with self._lock:
            self._waited += ended - begun
            self._count(begun, ended)

    def _count(self, begun: float, ended: float) -> None:
        self._under_way += max(0.0, ended - max(begun, self._counted_until))
        self._counted_until = max(ended, self._counted_until)

    def stats(self, packets: GroupStats | None, why_network: str | None = None, shares: Sequence[Share] = ()) -> Stats:
        """The numbers so far."""
        with self._lock:
            return Stats(
                network={name: Entry(entry.collectives, entry.bytes) for name, entry in self._network.items()},
                host={key: Entry(entry.collectives, entry.bytes) for key, entry in self._host.items()},
                packets=packets,
                waited_s=self._waited,
                under_way_s=self._under_way,
                memory={name: Entry(entry.collectives, entry.bytes) for name, entry in self._memory.items()},
                codes={key: Entry(entry.collectives, entry.bytes) for key, entry in self._codes.items()},
                why_network=why_network,
                shares=tuple(shares),
            )


def _add(entry: Entry, count: int, collectives: int = 1) -> None:
    entry.collectives += collectives
    entry.bytes += count


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"

"""Ethernet frames with PANAMA's packets (docs/wire.md), and trees as tests install them: plain data, no simulator."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass, field, replace

MAGIC, VERSION, PROTOCOL = 0x5442, 2, 5
CONTRIBUTION, RESULT, LOST, GONE, BASE, REWIND, FIN = 16, 17, 18, 23, 25, 26, 28
PING = 0
NO_CAP = 0xFFFF
F32, I32 = 1, 4
SUM, AVG = 1, 2
NO_ROOT = 0xFFFF

OWN_MAC, OWN_IP, OWN_PORT = bytes.fromhex("02000000f000"), "10.0.0.254", 9001


@dataclass(frozen=True)
class Neighbour:
    """A host, or the parent switch."""

    mac: bytes
    ip: str
    port: int


def host(port: int) -> Neighbour:
    """The host behind a port."""
    return Neighbour(bytes([2, 0, 0, 0, 1, port]), f"10.0.1.{port + 1}", 40000 + 7 * port)


PARENT = Neighbour(bytes.fromhex("020000000900"), "10.0.9.1", 9000)


def ones_sum(data: bytes) -> int:
    """The sum of 16-bit words in ones' complement."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def frame(
    source: Neighbour, destination: Neighbour, payload: bytes, ecn: int = 2, dscp: int = 0, **other: int
) -> bytes:
    """An Ethernet frame around a UDP datagram; `other` sets fields of the IP header to what they should not be."""
    length = other.get("length", 28 + len(payload))
    head = struct.pack(
        ">BBHHHBBH4s4s",
        other.get("version", 0x45),
        dscp << 2 | ecn,
        length,
        0,
        other.get("fragment", 0x4000),
        64,
        other.get("protocol", 17),
        0,
        ipaddress.IPv4Address(source.ip).packed,
        ipaddress.IPv4Address(destination.ip).packed,
    )
    head = head[:10] + struct.pack(">H", 0xFFFF ^ ones_sum(head)) + head[12:]
    udp = struct.pack(">HHHH", source.port, destination.port, other.get("udp_length", 8 + len(payload)), 0)
    ethertype = struct.pack(">H", other.get("ethertype", 0x0800))
    return destination.mac + source.mac + ethertype + head + udp + payload


OWN = Neighbour(OWN_MAC, OWN_IP, OWN_PORT)


@dataclass(frozen=True)
class Packet:
    """A packet's fields; those of a worker's CONTRIBUTION of floats unless others are given."""

    job: int = 1
    key: int = 0x5EED
    vid: int = 0
    tid: int = 0
    wid: int = 0
    elements: int = 1
    vector: bytes = b""
    kind: int = CONTRIBUTION
    wnd_cap: int = NO_CAP
    epoch: int = 0
    contributors: int = 1
    dtype: int = F32
    op: int = SUM
    root: int = NO_ROOT
    flags: int = 0
    magic: int = MAGIC
    version: int = VERSION
    protocol: int = PROTOCOL

    def bytes(self) -> bytes:
        """The packet's bytes: the payload of a datagram."""
        common = struct.pack(">HBBBBHQ", self.magic, self.version, self.protocol, self.kind, 0, self.job, self.key)
        own = struct.pack(">IBBHHH", self.vid, self.tid, self.flags, self.wnd_cap, self.epoch, self.wid)
        spec = struct.pack(">IBBHH", self.elements, self.dtype, self.op, self.root, self.contributors)
        return common + own + spec + self.vector

    @staticmethod
    def parse(payload: bytes) -> Packet:
        """The fields of a packet."""
        magic, version, protocol, kind, _, job, key = struct.unpack(">HBBBBHQ", payload[:16])
        vid, tid, flags, wnd_cap, epoch, wid = struct.unpack(">IBBHHH", payload[16:28])
        elements, dtype, op, root, contributors = struct.unpack(">IBBHH", payload[28:38])
        return Packet(
            job, key, vid, tid, wid, elements, payload[38:], kind, wnd_cap, epoch, contributors,
            dtype, op, root, flags, magic, version, protocol,
        )  # fmt: skip

    def but(self, **fields: object) -> Packet:
        """The same packet with other fields."""
        return replace(self, **fields)  # type: ignore[arg-type]


@dataclass
class Tree:
    """A tree of a job, as it is installed in the accelerator and in the software switch."""

    index: int = 0
    job: int = 1
    key: int = 0x5EED
    tid: int = 0
    trees: int = 1
    capacity: int = 4
    #: Elements of a full packet.
    full: int = 4
    first: int = 0
    #: The port of each child, in the order of `wid`, and the ranks behind it.
    members: list[tuple[int, int]] = field(default_factory=lambda: [(port, 1) for port in range(4)])
    #: This switch's number at its parent; `None` at the root.
    child: int | None = None
    up_port: int = 0
    generation: int = 0

    def ranks(self) -> int:
        """How many ranks a complete sum has."""
        return sum(ranks for _, ranks in self.members)

    def line(self, parent_port: int) -> str:
        """The line that installs the tree in the software switch."""
        parent = f"{parent_port} {self.child}" if self.child is not None else "- 0"
        slots = self.capacity * self.trees
        members = " ".join(f"{port}:{ranks}" for port, ranks in self.members)
        head = f"tree {self.index} {self.job} {self.key} {self.tid} {self.trees} {slots} {self.full} {self.first}"
        return f"{head} {parent} {members}"

    def words(self, ports: int) -> list[tuple[int, int, int]]:
        """The words of the job table: port, word, data. The last one makes the tree valid."""
        words = [(31, 1, self.key >> 32), (31, 2, self.key & 0xFFFFFFFF), (31, 3, self.full << 16 | self.ranks())]
        words += [(31, 4, self.capacity << 16 | (self.child or 0)), (31, 5, 1 << self.up_port)]
        positions = {port: (wid, ranks) for wid, (port, ranks) in enumerate(self.members)}
        for port in range(ports + 1):
            neighbour = host(port) if port < ports else PARENT
            ip = ipaddress.IPv4Address(neighbour.ip).packed
            constant = struct.pack(">HHHHH4s4s", 0x4500, 0, 0x4000, 0x4011, 0, ipaddress.IPv4Address(OWN_IP).packed, ip)
            wid, ranks = positions.get(port, (0, 0))
            words.append((port, 0, int.from_bytes(neighbour.mac[:4], "big")))
            words.append((port, 1, int.from_bytes(neighbour.mac[4:], "big") << 16 | neighbour.port))
            words.append((port, 2, int.from_bytes(ip, "big")))
            words.append((port, 3, ones_sum(constant) << 16 | ranks))
            words.append((port, 4, wid << 16 | (port in positions)))
        first = self.job << 16 | self.tid << 8 | self.generation << 4 | (self.child is None) << 1 | 1
        return [*words, (31, 0, first)]

    def packet(self, port: int, vid: int, vector: bytes, **fields: object) -> Packet:
        """A correct CONTRIBUTION of the child behind a port."""
        wid, ranks = next((wid, ranks) for wid, (at, ranks) in enumerate(self.members) if at == port)
        made = Packet(self.job, self.key, (self.first + vid) % 2**32, self.tid, wid, len(vector) // 4, vector)
        return made.but(contributors=ranks, **fields)

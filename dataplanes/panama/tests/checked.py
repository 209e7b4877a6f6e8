"""Holds the accelerator against the software switch: every packet, in the order in which the accelerator decided."""

from __future__ import annotations

import os
import struct
import subprocess
from collections import deque

from bench import Bench, Event
from frames import (
    AVG,
    CONTRIBUTION,
    F32,
    I32,
    MAGIC,
    NO_ROOT,
    OWN,
    OWN_IP,
    OWN_MAC,
    OWN_PORT,
    PARENT,
    PROTOCOL,
    SUM,
    VERSION,
    Neighbour,
    Packet,
    Tree,
    frame,
    host,
    ones_sum,
)  # fmt: skip

#: Ports of the software switch that no host has: the parent switch, and addresses that nobody has.
PARENT_PORT, UNKNOWN_PORT = 100, 99


class Software:
    """The software switch (crates/proto/examples/panama_switch.rs), a line in and its answer out."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [os.environ["PANAMA_SWITCH"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send_line(self, line: str) -> None:
        """Says a line that has no answer."""
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> list[str]:
        """The words of the next line."""
        assert self.process.stdout
        return self.process.stdout.readline().split()

    def packet(self, tree: int, port: int, ecn: int, payload: bytes) -> tuple[list[str], list[list[str]]]:
        """What becomes of a packet, and what the switch says besides."""
        self.send_line(f"packet {tree} {port} {ecn} {payload.hex()}")
        verdict, notices = self.answer(), []
        while (line := self.answer()) != ["."]:
            notices.append(line[1:])
        return verdict, notices

    def state(self, tree: int) -> tuple[int, int, int]:
        """Expected VID, epoch, lost VIDs."""
        self.send_line(f"state {tree}")
        expected, epoch, lost = map(int, self.answer()[1:])
        return expected, epoch, lost

    def close(self) -> None:
        """Ends it."""
        assert self.process.stdin
        self.process.stdin.close()
        assert self.process.wait(10) == 0


def is_ours(data: bytes, dscp: int) -> bool:
    """True if the frame is addressed to the accelerator."""
    return (
        len(data) >= 42
        and data[12:15] == b"\x08\x00\x45"
        and data[15] >> 2 == dscp
        and data[23] == 17
        and int.from_bytes(data[20:22], "big") & 0x3FFF == 0
        and data[30:34] == bytes(map(int, OWN_IP.split(".")))
        and int.from_bytes(data[36:38], "big") == OWN_PORT
    )


class Checked(Bench):
    """The bench, whose outputs are compared with the software switch's."""

    def __init__(self, dut: object, seed: int = 0, dscp: int = 0) -> None:
        super().__init__(dut, seed)
        self.software, self.dscp = Software(), dscp
        self.trees: dict[int, Tree] = {}
        #: For each port the CONTRIBUTIONs that it was sent and that no event was about yet.
        self.sent: list[deque[tuple[int, bytes]]] = [deque() for _ in range(self.ports)]
        self.expected_sums: dict[str, list[list[tuple[int, bytes]]]] = {
            "host_tx": [[] for _ in range(self.ports)], "chip_tx": [[] for _ in range(self.ports)]
        }  # fmt: skip
        self.expected_passing: dict[str, list[list[bytes]]] = {
            "host_tx": [[] for _ in range(self.ports)], "chip_tx": [[] for _ in range(self.ports)]
        }  # fmt: skip
        self.expected_cpu: list[list[bytes]] = [[] for _ in range(self.ports)]
        self.reasons: dict[str, int] = {}
        self.lost_before = 0
        self.on_event = self._event

    async def add(self, tree: Tree) -> None:
        """Installs a tree here and there."""
        await self.install(tree)
        self.software.send_line(tree.line(PARENT_PORT))
        self.trees[tree.index] = tree

    async def drop(self, index: int) -> None:
        """Takes a tree out, here and there."""
        await self.write(index, 31, 0, 0)
        await self.command(index, 0, 0, False)
        self.lost_before += self.software.state(index)[2]
        del self.trees[index]

    def tree_of(self, data: bytes) -> Tree | None:
        """The tree by whose rules the accelerator decides about a frame; `None` if it does not."""
        payload = data[42:]
        if not is_ours(data, self.dscp) or len(payload) < 38:
            return None
        if len(data) != 14 + int.from_bytes(data[16:18], "big") or len(data) != 34 + int.from_bytes(data[38:40], "big"):
            return None
        packet = Packet.parse(payload)
        fixed = (packet.magic, packet.version, packet.protocol, packet.kind, packet.flags, packet.root)
        if fixed != (MAGIC, VERSION, PROTOCOL, CONTRIBUTION, 0, NO_ROOT):
            return None
        is_summed = packet.dtype == F32 or (packet.dtype == I32 and packet.elements == 0)
        for tree in self.trees.values():
            if (tree.job, tree.tid) == (packet.job, packet.tid):
                operators = (SUM,) if tree.child is None else (SUM, AVG)
                return tree if is_summed and packet.op in operators else None
        return None

    def send(self, port: int, data: bytes) -> None:
        """A frame from a host."""
        self.ins["host_rx"][port].frames.append(data)
        tree = self.tree_of(data)
        if tree is not None:
            self.sent[port].append((tree.index, data))
        elif is_ours(data, self.dscp):
            self.expected_cpu[port].append(data)
        else:
            self.expected_passing["chip_tx"][port].append(data)

    def contribute(self, port: int, packet: Packet, ecn: int = 2, source: Neighbour | None = None) -> None:
        """A packet for the accelerator from a port's host."""
        self.send(port, frame(source or host(port), OWN, packet.bytes(), ecn, self.dscp))

    def pass_down(self, port: int, data: bytes) -> None:
        """A frame from the switching chip."""
        self.ins["chip_rx"][port].frames.append(data)
        self.expected_passing["host_tx"][port].append(data)

    def _event(self, event: Event) -> None:
        index, data = self.sent[event.port].popleft()
        self.reasons[event.reason] = self.reasons.get(event.reason, 0) + 1
        if event.reason == "unknown_job":
            return
        known = data[26:30] == bytes(map(int, host(event.port).ip.split(".")))
        known = known and data[34:36] == struct.pack(">H", host(event.port).port)
        verdict, notices = self.software.packet(index, event.port if known else UNKNOWN_PORT, data[15] & 3, data[42:])
        if verdict[0] == "drop":
            assert event.reason == verdict[1], f"{event}: the software says {verdict}"
        else:
            assert event.reason == "accepted", f"{event}: the software says {verdict}"
        assert event.reason == "mismatch" or not notices, f"{event}: {notices}"
        if verdict[0] == "out":
            self._expect_sum(self.trees[index], verdict)

    def _expect_sum(self, tree: Tree, verdict: list[str]) -> None:
        what = int(verdict[2]), bytes.fromhex(verdict[3])
        if verdict[1] == "group":
            for port, _ in tree.members:
                self.expected_sums["host_tx"][port].append(what)
        else:
            assert int(verdict[1]) == PARENT_PORT
            self.expected_sums["chip_tx"][tree.up_port].append(what)

    async def finish(self) -> None:
        """Waits until all is done, and compares everything."""
        await self.drain()
        for port in range(self.ports):
            assert not self.sent[port], f"port {port}: {len(self.sent[port])} CONTRIBUTIONs without an event"
            for way in ("host_tx", "chip_tx"):
                self._compare(way, port)
        self.compare_cpu()
        lost = self.lost_before + sum(self.software.state(index)[2] for index in self.trees)
        assert self.lost_vids == lost, f"{self.lost_vids} VIDs are lost, and in the software {lost}"
        for index in self.trees:
            self.dut.state_tree.value = index
            await self.step()
            expected, epoch, _ = self.software.state(index)
            assert (int(self.dut.state_expected.value), int(self.dut.state_epoch.value)) == (expected, epoch)
        assert not any(self.no_buffer), f"packets found no buffer: {self.no_buffer}"
        self.software.close()

    def compare_cpu(self) -> None:
        """Compares what went to the control processor, port by port."""
        came: list[list[bytes]] = [[] for _ in range(self.ports)]
        for port, data in zip(self.cpu_ports, self.outs["cpu_tx"][0].got, strict=True):
            came[port].append(data)
        assert came == self.expected_cpu, "other frames for the control processor"

    def _compare(self, way: str, port: int) -> None:
        passing, sums = [], []
        for data in self.outs[way][port].got:
            (sums if data[6:12] == OWN_MAC else passing).append(data)
        assert passing == self.expected_passing[way][port], f"{way} {port}: frames that pass are other frames"
        neighbour = host(port) if way == "host_tx" else PARENT
        came = []
        for data in sums:
            ecn, payload = data[15] & 3, data[42:]
            assert ones_sum(data[14:34]) == 0xFFFF, "the IP checksum"
            right = bytearray(frame(OWN, neighbour, payload, ecn, self.dscp))
            assert data == bytes(right), f"{way} {port}: {data[:42].hex()} and not {bytes(right[:42]).hex()}"
            came.append((ecn, payload))
        wanted = self.expected_sums[way][port]
        for i, (mine, theirs) in enumerate(zip(came, wanted, strict=False)):
            assert mine == theirs, f"{way} {port}, sum {i}: {show(*mine)} and not {show(*theirs)}"
        assert len(came) == len(wanted), f"{way} {port}: {len(came)} sums and not {len(wanted)}"


def show(ecn: int, payload: bytes) -> str:
    """A packet for people."""
    return f"ecn {ecn} {Packet.parse(payload)}"

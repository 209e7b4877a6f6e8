"""The bench: cocotb drives the accelerator's streams, with random pauses, and records what comes out and when."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from cocotb.triggers import Timer
from frames import OWN_IP, OWN_MAC, OWN_PORT, Tree

REASONS = [
    "accepted", "unknown_job", "wrong_key", "not_a_member", "wrong_worker", "bad_field", "bad_length", "stale", "ahead",
    "duplicate", "overflow", "stale_epoch", "mismatch", "incomplete",
]  # fmt: skip


@dataclass
class Event:
    """What became of a CONTRIBUTION."""

    port: int
    tree: int
    vid: int
    reason: str


@dataclass
class Stream:
    """One direction of one port: frames that wait to go in, or frames that have come out with their cycles."""

    name: str
    port: int
    pause: float = 0.0
    frames: deque[bytes] = field(default_factory=deque)
    beats: list[tuple[int, int, int]] = field(default_factory=list)
    at: int = 0
    offered: bool = False
    #: When each frame's first and last beat went in or came out.
    times: list[tuple[int, int]] = field(default_factory=list)
    began: int = 0
    out: bytearray = field(default_factory=bytearray)
    got: list[bytes] = field(default_factory=list)
    #: Cycles between two frames: 10 Gbit/s on a faster bus.
    gap: float = 0.0
    idle_until: float = 0.0


class Bench:
    """The accelerator and the streams around it. One coroutine steps all of them, a cycle at a time."""

    def __init__(self, dut: Any, seed: int = 0) -> None:
        self.dut, self.random, self.cycle = dut, random.Random(seed), 0
        self.ports, self.width = int(dut.PORTS.value), int(dut.W.value)
        self.bytes = self.width // 8
        self.ins = {way: [Stream(way, p) for p in range(self.ports)] for way in ("host_rx", "chip_rx")}
        self.outs = {way: [Stream(way, p) for p in range(self.ports)] for way in ("host_tx", "chip_tx")}
        self.outs["cpu_tx"] = [Stream("cpu_tx", 0)]
        self.cpu_ports: list[int] = []
        self.events: list[Event] = []
        self.is_reset = True
        self.lost_vids = 0
        self.no_buffer = [0] * self.ports
        self.no_cpu_space = [0] * self.ports
        #: Called for each event, in the cycle in which it happens.
        self.on_event: Any = None

    async def start(self, dscp: int = 0) -> None:
        """Starts the clock and resets the accelerator."""
        dut = self.dut
        dut.own_mac.value = int.from_bytes(OWN_MAC, "big")
        dut.own_ip.value = int.from_bytes(bytes(map(int, OWN_IP.split("."))), "big")
        dut.own_port.value, dut.own_dscp.value = OWN_PORT, dscp
        dut.table_write.value = dut.command_valid.value = 0
        dut.state_tree.value = 0
        await self.reset()

    async def reset(self) -> None:
        """Resets it, with all that is under way; what waits to go in begins with a whole frame."""
        self.dut.rst.value, self.is_reset = 1, True
        for way in self.ins.values():
            for stream in way:
                stream.beats, stream.at, stream.offered = [], 0, False
        for way in self.outs.values():
            for stream in way:
                stream.out = bytearray()
        for name in self.ins:
            getattr(self.dut, f"{name}_tvalid").value = 0
        for name in self.outs:
            getattr(self.dut, f"{name}_tready").value = 0
            self.outs[name][0].at = 0
        for _ in range(3):
            await self._clock()
        self.dut.rst.value, self.is_reset = 0, False
        # The control logic clears its memory first.
        for _ in range(300):
            await self._clock()

    async def _clock(self) -> None:
        # Inputs change while the clock is low. What is valid and ready just before it rises passes.
        self.dut.clk.value = 0
        await Timer(2500, unit="ps")
        if not self.is_reset:
            self._watch()
        self.dut.clk.value = 1
        await Timer(2500, unit="ps")
        self.cycle += 1

    async def step(self, cycles: int = 1) -> None:
        """Runs a number of cycles."""
        for _ in range(cycles):
            for name, streams in self.ins.items():
                self._offer(name, streams)
            for name, streams in self.outs.items():
                ready = sum((s.pause == 0.0 or self.random.random() >= s.pause) << s.port for s in streams)
                getattr(self.dut, f"{name}_tready").value = ready
                streams[0].at = ready
            await self._clock()

    def _offer(self, name: str, streams: list[Stream]) -> None:
        valid = last = data = keep = 0
        for stream in streams:
            if not stream.beats and stream.frames and self.cycle >= stream.idle_until:
                stream.beats = self._beats(stream.frames.popleft())
                stream.at = 0
            if not stream.beats:
                stream.offered = False
                continue
            if not stream.offered and stream.pause and self.random.random() < stream.pause:
                continue
            stream.offered = True
            word, kept, is_last = stream.beats[stream.at]
            valid |= 1 << stream.port
            last |= is_last << stream.port
            data |= word << (self.width * stream.port)
            keep |= kept << (self.bytes * stream.port)
        dut = self.dut
        getattr(dut, f"{name}_tvalid").value = valid
        if valid:
            getattr(dut, f"{name}_tdata").value = data
            getattr(dut, f"{name}_tkeep").value = keep
            getattr(dut, f"{name}_tlast").value = last

    def _beats(self, frame: bytes) -> list[tuple[int, int, int]]:
        size = self.bytes
        chunks = [frame[i : i + size] for i in range(0, len(frame), size)]
        return [(int.from_bytes(p, "little"), (1 << len(p)) - 1, p is chunks[-1]) for p in chunks]

    def _watch(self) -> None:
        dut = self.dut
        for name, streams in self.ins.items():
            ready = int(getattr(dut, f"{name}_tready").value)
            for stream in streams:
                if stream.offered and ready >> stream.port & 1:
                    if stream.at == 0:
                        stream.began = self.cycle
                        stream.idle_until = max(stream.idle_until, float(self.cycle)) + stream.gap
                    stream.at += 1
                    stream.offered = False
                    if stream.at == len(stream.beats):
                        stream.times.append((stream.began, self.cycle))
                        stream.beats = []
        for name, streams in self.outs.items():
            passing = int(getattr(dut, f"{name}_tvalid").value) & streams[0].at
            if passing:
                self._take(name, streams, passing)
        self._note_events()

    def _take(self, name: str, streams: list[Stream], passing: int) -> None:
        dut = self.dut
        data, keep = int(getattr(dut, f"{name}_tdata").value), int(getattr(dut, f"{name}_tkeep").value)
        last = int(getattr(dut, f"{name}_tlast").value)
        for stream in streams:
            if not passing >> stream.port & 1:
                continue
            if not stream.out:
                stream.began = self.cycle
            word = data >> (self.width * stream.port) & ((1 << self.width) - 1)
            kept = keep >> (self.bytes * stream.port) & ((1 << self.bytes) - 1)
            stream.out += word.to_bytes(self.bytes, "little")[: kept.bit_length()]
            if last >> stream.port & 1:
                stream.got.append(bytes(stream.out))
                stream.times.append((stream.began, self.cycle))
                stream.out = bytearray()
                if name == "cpu_tx":
                    self.cpu_ports.append(int(dut.cpu_tx_tuser.value))

    def _note_events(self) -> None:
        dut = self.dut
        if int(dut.event_valid.value):
            event = Event(
                int(dut.event_port.value),
                int(dut.event_tree.value),
                int(dut.event_vid.value),
                REASONS[int(dut.event_reason.value)],
            )
            self.events.append(event)
            if self.on_event:
                self.on_event(event)
        self.lost_vids += int(dut.lost_vid.value)
        lost, full = int(dut.no_buffer.value), int(dut.no_cpu_space.value)
        if lost or full:
            for port in range(self.ports):
                self.no_buffer[port] += lost >> port & 1
                self.no_cpu_space[port] += full >> port & 1

    async def install(self, tree: Tree, epoch: int = 0, is_new: bool = True) -> None:
        """What the control processor does: the tree is taken out, its memory is cleared, its words are written."""
        await self.write(tree.index, 31, 0, 0)
        await self.command(tree.index, tree.first, epoch, is_new)
        for port, word, data in tree.words(self.ports):
            await self.write(tree.index, port, word, data)

    async def write(self, tree: int, port: int, word: int, data: int) -> None:
        """Writes a word of the job table."""
        dut = self.dut
        dut.table_tree.value, dut.table_port.value, dut.table_word.value = tree, port, word
        dut.table_data.value, dut.table_write.value = data, 1
        await self.step()
        dut.table_write.value = 0

    async def command(self, tree: int, vid: int, epoch: int, is_new: bool, port: int | None = None) -> None:
        """Begins the tree again at a VID; or, with a port, lets that port send again from the VID on."""
        dut = self.dut
        dut.command_tree.value, dut.command_vid.value, dut.command_epoch.value = tree, vid, epoch
        dut.command_is_new.value, dut.command_port.value = int(is_new), port or 0
        dut.command_is_restart.value, dut.command_valid.value = int(port is None), 1
        for _ in range(20000):
            await self.step()
            if int(dut.command_ready.value):
                break
        else:
            raise AssertionError("the command is never taken")
        await self.step()
        dut.command_valid.value = 0

    async def drain(self, limit: int = 200_000) -> None:
        """Runs until all that waits has gone in and nothing has come out for a while."""
        quiet = 0
        for _ in range(limit):
            before = len(self.events) + sum(len(s.got) + len(s.out) for way in self.outs.values() for s in way)
            await self.step()
            after = len(self.events) + sum(len(s.got) + len(s.out) for way in self.outs.values() for s in way)
            waits = any(s.frames or s.beats for way in self.ins.values() for s in way)
            quiet = 0 if waits or before != after else quiet + 1
            if quiet > 400:
                return
        raise AssertionError(f"not done after {limit} cycles")

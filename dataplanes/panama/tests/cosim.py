"""One switch of a simulated network is the design: the simulator says when which frame comes, and gets what goes out.

`crates/sim/tests/panama_accelerator.rs` starts this file and listens at the socket PANAMA_COSIM. It sends lines, and
each is answered by lines that end with `.`:

    install JOB KEY CAPACITY ELEMENTS PORT:RANKS ...    before the first frame
    frame CYCLE PORT ECN HEX                            a frame's payload, complete at this cycle
    run CYCLE                                           nothing comes before this cycle
    end                                                 everything is compared with the software switch

Answers are `sum PORT ECN HEX` for each frame that has left, and `busy` while something is under way.
"""

from __future__ import annotations

import os
import socket
from typing import IO

import cocotb
from checked import Checked
from frames import OWN, Tree, frame, host

#: After this many cycles without a sign nothing is under way: a division and a sum of 16 ports take fewer.
QUIET = 400


class Link:
    """The simulator's end of the socket, and the design behind it."""

    def __init__(self, bench: Checked, lines: IO[str]) -> None:
        self.bench, self.lines = bench, lines
        self.begin, self.active, self.seen = bench.cycle, bench.cycle, 0
        self.taken = [0] * bench.ports

    async def run_until(self, cycle: int) -> None:
        """Steps to a cycle of the simulator's."""
        bench = self.bench
        while bench.cycle - self.begin < cycle:
            await bench.step()
            signs = len(bench.events) + sum(len(s.got) + len(s.out) for s in bench.outs["host_tx"])
            if signs != self.seen:
                self.seen, self.active = signs, bench.cycle

    def answer(self) -> None:
        """Says what has left since the last answer."""
        bench = self.bench
        for port, stream in enumerate(bench.outs["host_tx"]):
            for data in stream.got[self.taken[port] :]:
                self.lines.write(f"sum {port} {data[15] & 3} {data[42:].hex()}\n")
            self.taken[port] = len(stream.got)
        waits = any(s.frames or s.beats for s in bench.ins["host_rx"])
        if waits or bench.cycle - self.active < QUIET:
            self.lines.write("busy\n")
        self.lines.write(".\n")
        self.lines.flush()

    async def serve(self) -> None:
        """Does what the lines say, until the last."""
        for line in self.lines:
            what, *words = line.split()
            if what == "install":
                job, key, capacity, full = map(int, words[:4])
                members = [(int(port), int(ranks)) for port, ranks in (word.split(":") for word in words[4:])]
                await self.bench.add(Tree(job=job, key=key, capacity=capacity, full=full, members=members))
                self.begin = self.active = self.bench.cycle
            elif what == "frame":
                cycle, port, ecn = map(int, words[:3])
                await self.run_until(cycle)
                self.bench.send(port, frame(host(port), OWN, bytes.fromhex(words[3]), ecn))
                self.active = self.bench.cycle
            elif what == "run":
                await self.run_until(int(words[0]))
            else:
                await self.bench.finish()
            self.answer()
            if what == "end":
                return


@cocotb.test()
async def simulated(dut: object) -> None:
    """The design is a switch of the network until the simulator says that it ends."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["PANAMA_COSIM"])
        bench = Checked(dut)
        await bench.start()
        with connection.makefile("rw") as lines:
            await Link(bench, lines).serve()
        assert bench.reasons == {"accepted": len(bench.events)}, bench.reasons
        assert not bench.outs["cpu_tx"][0].got, "nothing goes to the control processor in a network without losses"

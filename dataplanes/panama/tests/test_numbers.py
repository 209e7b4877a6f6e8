"""Latency and throughput of the design in cycles, beside the paper's tables 1 and figure 7. cocotb runs this file."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import cocotb
from checked import Checked
from frames import Tree, frame, host
from test_accelerator import begun, some_floats

#: Bytes of the frames of table 1.
SIZES = (512, 1024, 1500)
#: What a port of 10 Gbit/s needs besides a frame: checksum, preamble, gap.
BESIDES = 24
CLOCK_GHZ = 0.2


def note(name: str, value: object) -> None:
    """Adds a number to the file that the run writes, if there is one."""
    path = os.environ.get("PANAMA_NUMBERS")
    if path:
        known = json.loads(Path(path).read_text()) if Path(path).exists() else {}
        known[name] = value
        Path(path).write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    print(name, value)


@cocotb.test()
async def latency(dut: object) -> None:
    """Cycles from a frame's first beat in to its first and last beat out, with and without aggregation."""
    draw = random.Random(1)
    ports = int(dut.PORTS.value)  # type: ignore[attr-defined]
    for size in SIZES if ports == 4 else SIZES[:1]:
        full = (size - 80) // 4
        members = [(port, 1) for port in range(ports)]
        tree = Tree(full=full, members=members)
        bench = await begun(dut, tree)
        bench.send(0, frame(host(0), host(9), draw.randbytes(size - 42)))
        await bench.step(600)
        # The first packet of a collective waits until its shorter last block is known; the second does not.
        for vid in range(2):
            for port, _ in members:
                bench.contribute(port, tree.packet(port, vid, some_floats(draw, full)))
            await bench.step(900)
        # One rank is late: the headers of the others were taken long before.
        for port, _ in members[1:]:
            bench.contribute(port, tree.packet(port, 2, some_floats(draw, full)))
        await bench.step(900)
        bench.contribute(0, tree.packet(0, 2, some_floats(draw, full)))
        await bench.step(900)
        await bench.finish()
        begin, out = bench.ins["host_rx"][0].times, bench.outs
        passed, sums = out["chip_tx"][0].times[0], out["host_tx"][0].times
        cycles = {"passing_first": passed[0] - begin[0][0], "passing_last": passed[1] - begin[0][0] + 1}
        for vid, name in enumerate(("new", "sum", "late")):
            cycles[f"{name}_first"] = sums[vid][0] - begin[vid + 1][0]
            cycles[f"{name}_last"] = sums[vid][1] - begin[vid + 1][0] + 1
        note(f"latency_{bench.ports}x{bench.width}_{size}", cycles)
        assert cycles["passing_first"] < 16, "frames that pass are not stored"


@cocotb.test()
async def throughput(dut: object) -> None:
    """All ports full of packets of 1,500 bytes: at 10 Gbit/s nothing ever waits; and the most that the bus carries."""
    for name, gap in (("10g", (1500 + BESIDES) * 8 / 10 * CLOCK_GHZ), ("full", 0.0)):
        draw = random.Random(2)
        packets = 24
        ports = int(dut.PORTS.value)  # type: ignore[attr-defined]
        tree = Tree(full=355, capacity=16, members=[(port, 1) for port in range(ports)])
        bench: Checked = await begun(dut, tree)
        vectors = [some_floats(draw, 355) for _ in range(ports)]
        for port in range(ports):
            bench.ins["host_rx"][port].gap = gap
            for vid in range(packets):
                bench.contribute(port, tree.packet(port, vid, vectors[port]))
        await bench.finish()
        times = bench.outs["host_tx"][0].times
        assert len(times) == packets
        into, out = bench.ins["host_rx"][0].times, [end for _, end in times]
        delays = [end - begin for (begin, _), end in zip(into, out, strict=True)][1:]
        gbps = (packets - 2) * 1500 * 8 * CLOCK_GHZ / (out[-1] - out[1])
        note(
            f"throughput_{ports}x{bench.width}_{name}",
            {"gbps": round(gbps, 3), "least": min(delays), "most": max(delays)},
        )
        if name == "10g":
            assert max(delays) - min(delays) <= 4, "queues grow at line rate"

"""The control processor's two commands, given where the software switch takes the same step: recovery is its work."""

from __future__ import annotations

import cocotb
from checked import Checked
from frames import BASE, GONE, I32, LOST, Packet, Tree
from test_accelerator import begun, floats

RESEND, SYNC, REWIND = 21, 24, 26


async def question(
    bench: Checked, tree: Tree, port: int, kind: int, vid: int, epoch: int
) -> list[tuple[int, int, int]]:
    """A packet for the control processor, which is the software switch here: kind, VID and epoch of what it answers."""
    packet = tree.packet(port, vid, b"").but(kind=kind, epoch=epoch, dtype=I32, contributors=0)
    before = len(bench.outs["cpu_tx"][0].got)
    bench.contribute(port, packet)
    await bench.drain()
    came = bench.outs["cpu_tx"][0].got[before:]
    assert [data[42:] for data in came] == [packet.bytes()]
    verdict, notices = bench.software.packet(tree.index, port, 2, came[0][42:])
    assert verdict == ["consume"]
    answers = [Packet.parse(bytes.fromhex(data)) for _, _, data in notices]
    return [(answer.kind, answer.vid, answer.epoch) for answer in answers]


@cocotb.test()
async def a_tree_goes_back_and_sums_again(dut: object) -> None:
    """A result is lost: a new epoch begins, older packets are dropped, and all continue from the first lost VID."""
    tree = Tree(full=1, members=[(0, 1), (1, 1)])
    bench = await begun(dut, tree)
    for vid in range(3):
        for port in (0, 1):
            bench.contribute(port, tree.packet(port, vid, floats(vid + port)))
    # It waits when the tree goes back, and its buffer is free afterwards.
    bench.contribute(0, tree.packet(0, 3, floats(7)))
    await bench.drain()
    assert await question(bench, tree, 0, GONE, 1, 0) == [(SYNC, 0, 1)]
    await bench.command(0, 3, 1, False)
    bench.contribute(1, tree.packet(1, 3, floats(9)))
    await bench.drain()
    assert bench.events[-1].reason == "stale_epoch"
    await question(bench, tree, 1, BASE, 3, 1)
    assert (REWIND, 1, 1) in await question(bench, tree, 0, BASE, 1, 1)
    await bench.command(0, 1, 1, False)
    for vid in range(1, 6):
        for port in (0, 1):
            bench.contribute(port, tree.packet(port, vid, floats(vid + port)).but(epoch=1))
        await bench.drain()
    await bench.finish()
    assert len(bench.expected_sums["host_tx"][0]) == 3 + 5


@cocotb.test()
async def what_is_sent_again_is_added_once(dut: object) -> None:
    """A lost packet is sent again, and all behind it: what is here already only joins its port's queue again."""
    tree = Tree(full=1, members=[(0, 1), (1, 1)])
    bench = await begun(dut, tree)
    bench.contribute(0, tree.packet(0, 1, floats(10)))
    await bench.drain()
    assert await question(bench, tree, 0, LOST, 0, 0) == [(RESEND, 0, 0)]
    await bench.command(0, 0, 0, False, port=0)
    for port, vid, value in [(1, 0, 2.0), (1, 1, 20.0), (0, 0, 1.0)]:
        bench.contribute(port, tree.packet(port, vid, floats(value)))
        await bench.drain()
    assert await question(bench, tree, 0, LOST, 1, 0) == [(RESEND, 1, 0)]
    await bench.command(0, 1, 0, False, port=0)
    bench.contribute(0, tree.packet(0, 1, floats(10)))
    await bench.finish()
    sums = [Packet.parse(data[42:]).vector for data in bench.outs["host_tx"][1].got]
    assert sums == [floats(3), floats(30)]

"""The accelerator against the software switch under traffic: random, hostile, with pauses, jobs that come and go."""

from __future__ import annotations

import os
import random

import cocotb
from checked import Checked
from frames import AVG, GONE, LOST, OWN, PING, Neighbour, Tree, frame, host
from test_accelerator import begun, floats, some_floats

#: How long the random tests are.
LENGTH = int(os.environ.get("PANAMA_LENGTH", "1"))


@cocotb.test()
async def what_is_not_ours_passes_untouched_and_in_order(dut: object) -> None:
    """Both ways, of any length and content, beside aggregation, with pauses everywhere."""
    tree = Tree(full=20)
    bench = await begun(dut, tree, seed=5)
    draw = random.Random(5)
    for way in (*bench.ins.values(), *bench.outs.values()):
        for stream in way:
            stream.pause = draw.choice([0.0, 0.2, 0.6])
    for vid in range(12 * LENGTH):
        for port in range(4):
            for _ in range(draw.randint(0, 3)):
                bench.send(port, stray(draw, port, tree, bench.dscp))
                bench.pass_down(port, draw.randbytes(draw.randint(1, 200)))
            bench.contribute(port, tree.packet(port, vid, some_floats(draw, 20)))
        await bench.step(400)
    await bench.finish()
    assert bench.reasons == {"accepted": 48 * LENGTH}


def stray(draw: random.Random, port: int, tree: Tree, dscp: int) -> bytes:
    """A frame that is not for the accelerator, however similar to one of ours."""
    right = tree.packet(port, 0, floats(1.0)).bytes()
    other = [
        {"ethertype": 0x86DD}, {"version": 0x46}, {"version": 0x65}, {"protocol": 6}, {"fragment": 0x2000},
        {"fragment": 0x4001},
    ]  # fmt: skip
    how = draw.randrange(5)
    if how == 0:
        return draw.randbytes(draw.choice([1, 7, 8, 14, 37, 38, 41, 60, 64, 150]))
    if how == 1:
        return frame(host(port), OWN, right, dscp=draw.choice([d for d in (0, 1, 55, 56) if d != dscp]))
    if how == 2:
        return frame(host(port), Neighbour(OWN.mac, "10.0.0.253", OWN.port), right)
    if how == 3:
        return frame(host(port), Neighbour(OWN.mac, OWN.ip, OWN.port ^ 256), right)
    return frame(host(port), OWN, right, dscp=dscp, **draw.choice(other))


def hostile(draw: random.Random, tree: Tree, port: int, vid: int) -> bytes:
    """A packet for the accelerator with something wrong, or with anything at all."""
    packet = tree.packet(port, vid, some_floats(draw, tree.full))
    fields: list[dict[str, object]] = [
        {"magic": 0x5443}, {"version": 1}, {"protocol": 1}, {"kind": draw.choice([PING, LOST, GONE, 17, 99])},
        {"job": 77}, {"tid": 9}, {"key": packet.key ^ 1 << draw.randrange(64)}, {"flags": 1},
        {"wid": draw.choice([packet.wid ^ 1, 0xFFFF])},
        {"root": 0}, {"dtype": draw.choice([0, 2, 4, 99])}, {"op": draw.choice([0, AVG, 3, 200])}, {"contributors": 0},
        {"elements": draw.getrandbits(32)}, {"vector": packet.vector[:-4]}, {"vector": packet.vector + b"\0" * 4},
        {"vector": packet.vector[:-1]}, {"epoch": draw.choice([1, 0x7FFF, 0x8000, 0xFFFF])},
        {"vid": (packet.vid + draw.choice([-1, 4, 99, 2**31, 2**31 - 1])) % 2**32}, {"elements": 0, "vector": b""},
    ]  # fmt: skip
    how = draw.randrange(10)
    if how == 0:
        return frame(host(port), OWN, packet.bytes()[: draw.randrange(60)])
    if how == 1:
        return frame(host(port), OWN, packet.bytes(), length=draw.choice([27, 60, 2000]))
    if how == 2:
        return frame(host(port), OWN, packet.bytes(), udp_length=draw.choice([7, 40, 2000]))
    if how == 3:
        return frame(host(draw.choice([port ^ 1, 9])), OWN, packet.bytes())
    return frame(host(port), OWN, packet.but(**draw.choice(fields)).bytes())


@cocotb.test()
async def random_traffic_of_several_jobs(dut: object) -> None:
    """Trees of several jobs at once, packets lost, doubled, late and hostile, with pauses everywhere."""
    for seed in range(2 * LENGTH):
        draw = random.Random(seed)
        trees = [
            Tree(index=0, job=1, tid=0, trees=2, capacity=4, full=9),
            Tree(index=1, job=1, tid=1, trees=2, capacity=4, full=9),
            Tree(index=2, job=2, key=draw.getrandbits(64), capacity=3, full=30, members=[(3, 1), (1, 2), (0, 1)]),
            Tree(
                index=3, job=300, capacity=6, full=2, members=[(2, 1)], child=3, up_port=3, first=draw.getrandbits(32)
            ),
        ]
        bench = await begun(dut, *trees, seed=seed)
        for way in (*bench.ins.values(), *bench.outs.values()):
            for stream in way:
                stream.pause = draw.choice([0.0, 0.1, 0.5])
        await random_rounds(bench, draw, trees, 30 * LENGTH)
        await bench.finish()
        assert bench.reasons["accepted"] > 100, bench.reasons
        assert bench.lost_vids > 0


async def random_rounds(bench: Checked, draw: random.Random, trees: list[Tree], rounds: int) -> None:
    """A number of VIDs of each tree, each port at its own pace within several VIDs of the others."""
    for vid in range(rounds):
        for tree in trees:
            elements = draw.choice([tree.full, 2 * tree.full + 1])
            size = draw.choice([tree.full, 1]) if elements > tree.full else tree.full
            for port, _ in draw.sample(tree.members, len(tree.members)):
                packet = tree.packet(port, vid, some_floats(draw, size)).but(elements=elements)
                if draw.random() < 0.05:
                    bench.send(port, hostile(draw, tree, port, vid))
                if draw.random() < 0.04:
                    continue
                for _ in range(1 + (draw.random() < 0.03)):
                    bench.contribute(port, packet, draw.choice([0, 1, 2, 2, 2, 3]))
                if draw.random() < 0.1:
                    bench.send(port, stray(draw, port, tree, bench.dscp))
        await bench.step(draw.choice([0, 50, 200]))
        # Senders keep within their windows: what has not been decided is at most several VIDs.
        while max(len(sent) for sent in bench.sent) > 12:
            await bench.step(20)


@cocotb.test()
async def a_reset_in_the_middle_leaves_nothing_behind(dut: object) -> None:
    """After a reset at any time, jobs that are installed again sum as after power-up."""
    for seed in range(6):
        draw = random.Random(seed)
        tree = Tree(full=12)
        bench = await begun(dut, tree, seed=seed)
        for port in range(4):
            for vid in range(3):
                bench.contribute(port, tree.packet(port, vid, some_floats(draw, 12)))
        await bench.step(draw.randrange(10, 160))
        bench.software.close()
        fresh = Checked(dut, seed)
        await fresh.start()
        again = Tree(job=5, key=99, full=12, generation=1)
        await fresh.add(again)
        for vid in range(3):
            for port in range(4):
                fresh.contribute(port, again.packet(port, vid, some_floats(draw, 12)))
        await fresh.finish()
        assert fresh.reasons == {"accepted": 12}


@cocotb.test()
async def jobs_come_and_go(dut: object) -> None:
    """A job takes a tree that another has left, while packets of both and of a third one are under way."""
    draw = random.Random(1)
    stays = Tree(index=0, job=1, full=5)
    bench = await begun(dut, stays, seed=1)
    vid = 0
    for turn in range(4 * LENGTH):
        guest = Tree(index=1, job=2 + turn % 2, key=turn, capacity=2 + turn % 3, full=3 + turn, generation=turn % 16)
        await bench.add(guest)
        for step in range(5):
            for port in draw.sample(range(4), 4):
                bench.contribute(port, stays.packet(port, vid, some_floats(draw, 5)))
                if step < 4 or port != 2:
                    bench.contribute(port, guest.packet(port, step, some_floats(draw, guest.full)))
            vid += 1
            await bench.step(150)
        # Its last VID waits for port 2 when it leaves; another packet of it comes too late, and goes to the processor.
        await bench.drop(1)
        bench.contribute(2, guest.packet(2, 4, some_floats(draw, guest.full)))
        await bench.step(100)
    await bench.finish()
    assert len(bench.outs["cpu_tx"][0].got) == 4 * LENGTH


@cocotb.test()
async def what_is_dropped_frees_its_buffer(dut: object) -> None:
    """More packets than there are slots, none of which is ever summed: the last one finds space as the first did."""
    tree = Tree(full=1, members=[(0, 1), (1, 1)])
    bench = await begun(dut, tree)
    slots = int(dut.SLOTS.value)  # type: ignore[attr-defined]
    for vid in range(0, 2 * slots + 8, 2):
        bench.contribute(0, tree.packet(0, vid, floats(1.0)))
        bench.contribute(0, tree.packet(0, vid, floats(1.0)))
        bench.contribute(1, tree.packet(1, vid + 1, floats(1.0)))
        await bench.step(60)
    await bench.finish()
    assert bench.lost_vids > slots

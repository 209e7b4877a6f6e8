"""The accelerator against the software switch, case by case: to the bit, in order, for the same reasons."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import cocotb
from checked import Checked
from frames import CONTRIBUTION, I32, NO_CAP, OWN, Packet, Tree, frame, host

GOLDEN = Path(os.environ["PANAMA_GOLDEN"])
RECORDED = Path(__file__).parent / "recorded.txt"


def floats(*values: float) -> bytes:
    """Floats as they travel."""
    return struct.pack(f">{len(values)}f", *values)


def golden(name: str) -> list[tuple[str, bytes]]:
    """The packets of a golden file, each with the line before it."""
    packets: list[tuple[str, bytes]] = []
    for line in (GOLDEN / f"{name}.hex").read_text().splitlines():
        if line.startswith("#"):
            packets.append((line[2:], b""))
        else:
            packets[-1] = (packets[-1][0], packets[-1][1] + bytes.fromhex(line))
    return packets


def some_floats(draw: random.Random, count: int) -> bytes:
    """Floats of all kinds: ordinary ones, any bits, and those that additions get wrong."""
    special = [
        0,
        1 << 31,
        1,
        0x807FFFFF,
        0x00800000,
        0x7F7FFFFF,
        0xFF7FFFFF,
        0x7F800000,
        0xFF800000,
        0x7FC00001,
        0xFFA00000,
    ]
    words = []
    for _ in range(count):
        how = draw.random()
        if how < 0.6:
            words.append(struct.unpack(">I", struct.pack(">f", draw.uniform(-1, 1) * 10.0 ** draw.randint(-3, 3)))[0])
        elif how < 0.8:
            words.append(draw.getrandbits(32))
        else:
            words.append(draw.choice(special))
    return struct.pack(f">{count}I", *words)


async def begun(dut: object, *trees: Tree, seed: int = 0) -> Checked:
    """An accelerator with these trees."""
    bench = Checked(dut, seed)
    await bench.start()
    for tree in trees:
        await bench.add(tree)
    return bench


@cocotb.test()
async def figure_6a(dut: object) -> None:
    """The golden trace: four ports, bitmap 1111, VID 0. The sum goes to all ports, and VID 1 is expected."""
    packets = golden("panama_fig6a")
    first = Packet.parse(packets[0][1])
    tree = Tree(job=first.job, key=first.key, capacity=2, full=4)
    bench = await begun(dut, tree)
    for port, (what, payload) in enumerate(packets[:4]):
        assert what == f"port {port} in"
        bench.send(port, frame(host(port), OWN, payload))
    await bench.finish()
    for port in range(4):
        assert [data[42:] for data in bench.outs["host_tx"][port].got] == [packets[4][1]]
    assert int(dut.state_expected.value) == 1


@cocotb.test()
async def other_kinds_of_the_golden_packets_go_to_the_processor(dut: object) -> None:
    """Every kind but CONTRIBUTION, as the machines write them, goes up untouched."""
    packets = golden("panama")
    first = Packet.parse(packets[0][1])
    bench = await begun(dut, Tree(job=first.job, key=first.key, capacity=2, full=4, members=[(0, 1), (1, 1)]))
    for what, payload in packets:
        if not what.startswith("CONTRIBUTION"):
            bench.send(1, frame(host(1), OWN, payload))
    await bench.finish()
    assert len(bench.outs["cpu_tx"][0].got) == sum(not what.startswith("CONTRIBUTION") for what, _ in packets)
    assert not bench.events


@cocotb.test()
async def sums_are_in_the_order_of_positions_whatever_the_order_of_arrival(dut: object) -> None:
    """Another order of adding gives other bits; where a child's position is not its port, too."""
    values = {0: 16777216.0, 1: 1.0, 2: 1.0, 3: -16777216.0}
    bench = await begun(dut)
    for index, members in enumerate([[0, 1, 2, 3], [3, 1, 0, 2], [2, 0, 3]]):
        tree = Tree(index=index, job=index + 1, full=1, members=[(port, 1) for port in members])
        await bench.add(tree)
        for vid, order in enumerate([members, members[::-1], members[1:] + members[:1]]):
            for port in order:
                bench.contribute(port, tree.packet(port, vid, floats(values[port])))
                await bench.step(60)
    await bench.finish()


@cocotb.test()
async def a_port_that_is_not_in_the_bitmap_is_bypassed(dut: object) -> None:
    """-0 of all members is -0: nothing is added for the others. One port alone gives back what it brings, a NaN too."""
    bench = await begun(dut)
    for index, members in enumerate([[2], [1, 3], [0, 1, 3], [0, 1, 2, 3]]):
        tree = Tree(index=index, job=index + 1, full=3, members=[(port, 1) for port in members])
        await bench.add(tree)
        for port in members:
            vector = struct.pack(">III", 0x80000000, 0xFFA12345, 0x00000001)
            bench.contribute(port, tree.packet(port, 0, vector))
    await bench.finish()
    alone = Packet.parse(bench.outs["host_tx"][2].got[0][42:])
    assert alone.vector == struct.pack(">III", 0x80000000, 0xFFA12345, 0x00000001)


@cocotb.test()
async def lost_late_doubled_and_far_packets_are_dropped_by_name(dut: object) -> None:
    """Each row of the switch's decisions (docs/protocols/panama.md), one packet after the other."""
    tree = Tree(members=[(0, 1), (1, 1)], full=1)
    bench = await begun(dut, tree)
    one = floats(1.0)
    rows: list[tuple[int, int, dict[str, int]]] = [
        (0, 9, {}), (0, 0, {}), (0, 1, {}), (1, 1, {}), (1, 0, {}), (0, 1, {}), (0, 2, {}), (0, 4, {}), (0, 3, {}),
        (1, 3, {}), (0, 6, {}), (0, 8, {}), (0, 9, {}), (1, 4, {"epoch": 1}), (1, 4, {"epoch": 0xFFFF}),
        (1, 4, {"contributors": 2}),
        (1, 4, {"wid": 0}), (1, 4, {"key": 7}), (1, 4, {"elements": 0}), (1, 5, {}), (1, 6, {}),
    ]  # fmt: skip
    for port, vid, fields in rows:
        bench.contribute(port, tree.packet(port, vid, one).but(**fields))
        await bench.step(60)
    bench.contribute(1, tree.packet(1, 8, one), source=host(2))
    bench.contribute(2, tree.packet(1, 8, one))
    bench.contribute(0, tree.packet(0, 7, one).but(vector=one + one))
    await bench.finish()
    wanted = {
        "ahead", "accepted", "stale", "duplicate", "overflow", "stale_epoch", "bad_field", "wrong_worker", "wrong_key",
        "bad_length", "incomplete", "not_a_member",
    }  # fmt: skip
    assert set(bench.reasons) == wanted, f"{set(bench.reasons) ^ wanted}"


@cocotb.test()
async def ranks_that_disagree_stop_the_sum(dut: object) -> None:
    """A MISMATCH is noticed, the VID never leaves, and later VIDs wait behind it."""
    tree = Tree(members=[(0, 1), (1, 1)], full=2)
    bench = await begun(dut, tree)
    for port, vid, vector, elements in [(0, 0, floats(1, 2), 2), (1, 0, floats(1, 2), 4), (1, 0, floats(1, 2), 2),
                                        (0, 1, floats(3, 4), 2), (1, 1, floats(3, 4), 2), (0, 2, floats(5), 3),
                                        (1, 2, floats(5, 6), 3)]:  # fmt: skip
        bench.contribute(port, tree.packet(port, vid, vector).but(elements=elements))
        await bench.step(120)
    await bench.finish()
    assert (bench.reasons["mismatch"], bench.reasons["bad_length"]) == (2, 1)


@cocotb.test()
async def marks_and_capacities_are_joined(dut: object) -> None:
    """Marks that four ports can bring, with both codes of "capable"; the least capacity, the own one and 0 too."""
    tree = Tree(capacity=4, full=1)
    bench = await begun(dut, tree)
    draw = random.Random(3)
    rows = [[(mark >> (2 * port)) & 3 for port in range(4)] for mark in draw.sample(range(256), 40)]
    rows += [[1, 2, 1, 2], [2, 2, 2, 1], [0, 1, 0, 0]]
    for vid, marks in enumerate(rows):
        for port in draw.sample(range(4), 4):
            cap = draw.choice([NO_CAP, 0, 1, 3, 4, 5, 40])
            bench.contribute(port, tree.packet(port, vid, floats(port)).but(wnd_cap=cap), marks[port])
        await bench.step(40)
    await bench.finish()


@cocotb.test()
async def vids_go_on_where_32_bits_end(dut: object) -> None:
    """Nothing special happens between VIDs 2^32 - 1 and 0."""
    tree = Tree(first=2**32 - 3, full=1)
    bench = await begun(dut, tree)
    for vid in range(8):
        for port in range(4):
            bench.contribute(port, tree.packet(port, vid, floats(vid + port)))
        await bench.step(60)
    await bench.finish()
    assert bench.reasons == {"accepted": 32}


@cocotb.test()
async def below_another_switch_sums_go_up_and_results_pass(dut: object) -> None:
    """The sum of ranks and switches leaves as a CONTRIBUTION of all of them; averages, too, are sums there."""
    tree = Tree(child=5, up_port=2, members=[(0, 1), (1, 3), (3, 1)], full=3)
    bench = await begun(dut, tree)
    for vid in range(6):
        for port, _ in tree.members:
            made = tree.packet(port, vid, floats(port, vid, 0.1)).but(elements=3 if vid < 5 else 0, op=1 + vid % 2)
            bench.contribute(port, made.but(vector=b"", dtype=I32, op=1) if vid == 5 else made)
        bench.pass_down(0, frame(host(9), host(0), Packet(kind=17, vid=vid, vector=floats(1, 2, 3)).bytes()))
        await bench.step(60)
    await bench.finish()
    assert len(bench.expected_sums["chip_tx"][2]) == 6


@cocotb.test()
async def packets_of_a_real_job_give_the_results_of_the_real_switch(dut: object) -> None:
    """Two collectives of four workers: the recorded RESULTs to the bit, except for the capacity, which is ours."""
    rows = [line.split() for line in RECORDED.read_text().splitlines() if not line.startswith("#")]
    sent = [(int(port), int(ecn), bytes.fromhex(data)) for port, way, ecn, data in rows if way == "in"]
    first = next(Packet.parse(data) for _, _, data in sent if data[4] == CONTRIBUTION)
    tree = Tree(job=first.job, key=first.key, capacity=16, full=358)
    bench = await begun(dut, tree)
    for port, ecn, data in sent:
        bench.send(port, frame(host(port), OWN, data, ecn))
        # In the order of the recording.
        while bench.ins["host_rx"][port].frames or bench.ins["host_rx"][port].beats:
            await bench.step(10)
    await bench.finish()
    wanted = [
        (int(ecn), Packet.parse(bytes.fromhex(data)).but(wnd_cap=16)) for _, way, ecn, data in rows if way == "out"
    ]
    came = [(data[15] & 3, Packet.parse(data[42:])) for data in bench.outs["host_tx"][0].got]
    assert len(wanted) == 6
    assert came == wanted

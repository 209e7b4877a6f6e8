"""Training steps from other programs' traces: PyTorch's ExecutionTraceObserver, Chakra and GOAL."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tributary
from tributary import _core, sim

#: Any that sums in the network.
PROTOCOL = _core.protocols()[0]


def run(traced: sim.TracedStep, hosts: int) -> dict[str, Any]:
    """The step's report. Each of its collectives is checked."""
    network = {"star": {"hosts": hosts}, "rate": "10 Gbit/s"}
    return dict(sim.run({"network": network, "step": [traced.step]}).check().report["steps"][0])


def error_of(path: Path, **keys: Any) -> str:
    with pytest.raises(tributary.ConfigError) as error:
        sim.step_of_trace(path, ranks=2, protocol=PROTOCOL, **keys)
    assert "\n" not in str(error.value)
    assert path.name in str(error.value)
    return str(error.value)


# ExecutionTraceObserver


def operator(number: int, name: str, shapes: list[Any] | None = None, kinds: list[str] | None = None) -> dict[str, Any]:
    return {"id": number, "name": name, "ctrl_deps": 1, "inputs": {"shapes": shapes or [], "types": kinds or []}}


#: Three operators, of which one runs inside of another; a sum; the optimizer with one operator.
OBSERVED = [
    operator(2, "aten::linear"),
    operator(3, "aten::addmm") | {"ctrl_deps": 2},
    operator(4, "aten::mul"),
    operator(5, "c10d::allreduce_", [[[30, 10]], []], ["GenericList[Tensor(c10::BFloat16)]", "Object"]),
    operator(6, "c10d::send", [[[3]]]),
    operator(8, "aten::add_"),
    operator(7, "Optimizer.step#SGD.step"),
    operator(9, "aten::add_"),
]


def test_an_execution_trace_has_no_times_and_its_operators_share_what_is_given(tmp_path: Path) -> None:
    file = tmp_path / "et.json"
    file.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": OBSERVED}))
    assert "has no times: give compute" in error_of(file)
    assert "compute=-1 is not a number of seconds" in error_of(file, compute=-1)
    traced = sim.step_of_trace(file, ranks=2, protocol=PROTOCOL, compute=0.004)
    assert [node.get("compute") or node["bytes"] for node in traced.step["node"]] == [
        "2000.000000 us",
        600,
        "0.000000 us",
        "2000.000000 us",
    ]
    assert traced.step["node"][-1]["after"] == ["all_reduce 0"]
    assert traced.not_modelled == {"c10d::send": 1}
    assert "each of its 4 operators takes the same share of 0.004 s" in traced.notes[-1]
    assert run(traced, 2)["computed_seconds"] == pytest.approx(0.004)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"nodes": []}', "has no schema"),
        ('{"schema": "1", "nodes": [{"id": "x"}]}', "a node has no id or no name"),
        ('{"schema": "1", "nodes": [{"id": 1, "name": "c10d::a", "inputs": {"shapes": 3}}]}', "no shapes and types"),
        ('{"schema": "1", "nodes": [{"id', "cut off"),
    ],
)
def test_bad_execution_traces_end_in_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "et.json"
    file.write_text(text)
    assert sentence in error_of(file, compute=1.0)


OBSERVE = """
import sys, torch, torch.distributed as dist
from torch.profiler import ExecutionTraceObserver

dist.init_process_group("gloo", init_method="file://" + sys.argv[1] + ".store", rank=0, world_size=1)
layers = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(3)])
model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.02)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
observer = ExecutionTraceObserver().register_callback(sys.argv[1])
for number in range(3):
    if number == 2:
        observer.start()
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
observer.stop()
observer.unregister_callback()
"""


def test_an_all_gather_has_lists_of_lists_of_tensors(tmp_path: Path) -> None:
    """As in the published 1.0.2-chakra.0.0.4.json: first the tensors that come, of each rank, then those that go."""
    file = tmp_path / "et.json"
    kinds = ["GenericList[GenericList[Tensor(float),Tensor(float)]]", "GenericList[Tensor(float)]", "Object", "Int"]
    gather = operator(3, "c10d::allgather_", [[[[5], [5]]], [[5]], [], []], kinds)
    file.write_text(json.dumps({"schema": "1.0.2-chakra.0.0.4", "nodes": [operator(2, "aten::mul"), gather]}))
    traced = sim.step_of_trace(file, ranks=4, protocol=PROTOCOL, compute=0.001)
    gathered = next(node for node in traced.step["node"] if "collective" in node)
    # The whole of 40 bytes, in equal shares of whole elements.
    assert (gathered["collective"], gathered["bytes"]) == ("all_gather", 48)
    assert traced.not_modelled == {}


def test_an_execution_trace_that_pytorch_has_written_is_read(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "et.json"
    subprocess.run([sys.executable, "-c", OBSERVE, str(file)], check=True, timeout=300, capture_output=True)
    traced = sim.step_of_trace(file, ranks=2, protocol=PROTOCOL, compute=0.002)
    assert sum(node.get("bytes", 0) for node in traced.step["node"]) == 4 * 3 * (64 * 64 + 64)
    assert run(traced, 2)["computed_seconds"] == pytest.approx(0.002)


# Chakra


def varint(number: int) -> bytes:
    low, high = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(high) if high else bytes([low])


def of_field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def chakra_node(number: int, name: str, kind: int, after: list[int], microseconds: int = 0, **attributes: int) -> bytes:
    made = of_field(1, number) + of_field(2, name) + of_field(3, kind) + of_field(7, microseconds)
    made += of_field(5, b"".join(map(varint, after)))
    for key, value in attributes.items():
        # A bool, and integers of 64 bits.
        made += of_field(10, of_field(1, key) + of_field(27 if key == "is_cpu_op" else 9, value))
    # A field of a later version.
    return made + of_field(99, "later")


def chakra(*nodes: bytes) -> bytes:
    return b"".join(varint(len(message)) + message for message in [of_field(1, "0.0.4"), *nodes])


#: The sum stands before what it waits for; the metadata node in between stands for the computation.
CHAKRA = chakra(
    chakra_node(4, "sum", 7, [3], comm_type=0, comm_size=4000),
    chakra_node(1, "forward", 4, [], 300, is_cpu_op=0),
    chakra_node(2, "launch", 4, [1], 900, is_cpu_op=1),
    chakra_node(3, "shapes", 1, [1]),
    chakra_node(5, "gather", 7, [4], comm_type=2, comm_size=100),
    chakra_node(6, "tokens", 5, [4], comm_size=8),
    chakra_node(7, "scattered", 7, [4], comm_type=4, comm_size=8),
    chakra_node(8, "optimizer", 4, [5, 6], 20, is_cpu_op=0),
)


def test_a_chakra_trace_is_read_in_the_order_of_what_waits(tmp_path: Path) -> None:
    file = tmp_path / "rank.0.et"
    file.write_bytes(CHAKRA)
    traced = sim.step_of_trace(file, ranks=8, protocol=PROTOCOL)
    nodes = {node["name"]: node for node in traced.step["node"]}
    assert list(nodes) == ["1 forward", "2 launch", "4 sum", "5 gather", "8 optimizer"]
    assert nodes["4 sum"] == {"name": "4 sum", "collective": "all_reduce", "after": ["1 forward"], "bytes": 4000}
    assert nodes["5 gather"]["bytes"] == 800
    assert nodes["8 optimizer"]["after"] == ["5 gather", "4 sum"]
    assert traced.not_modelled == {"metadata": 1, "send": 1, "scatter": 1}
    assert traced.notes == [
        "a recording of 1 rank stands for 8 ranks: each computes what that one did",
        "operators of the processor take no time, since the GPU's are in the trace, too",
    ]
    assert run(traced, 8)["computed_seconds"] == pytest.approx(320e-6)


def test_a_chakra_node_does_not_wait_for_its_caller(tmp_path: Path) -> None:
    """Chakra's converter writes the operator that called as `ctrl_deps`, even if it waits for what it called."""
    file = tmp_path / "rank.0.et"
    called = chakra_node(1, "kernel", 4, [], 20) + of_field(4, 2) + of_field(4, bytes([77, 78]))
    file.write_bytes(chakra(called, chakra_node(2, "operator", 4, [1], 30)))
    traced = sim.step_of_trace(file, ranks=1, protocol=PROTOCOL)
    assert [(node["name"], node["after"]) for node in traced.step["node"]] == [
        ("1 kernel", []),
        ("2 operator", ["1 kernel"]),
    ]
    assert traced.notes == ["nothing waits for its 3 control dependencies, which say what called what"]


def test_a_chakra_trace_of_a_gpu_has_launches_without_sizes_and_may_be_json(tmp_path: Path) -> None:
    """As in the published traces, whose `c10d::broadcast_` on the processor has the type of the kernel it starts."""
    launch = {"Id": 1, "Name": "c10d::broadcast_", "NodeType": 7, "runtime": 85, "data_deps": [], "is_cpu_op": True}
    kernel = {"Id": 2, "Name": "ncclKernel", "NodeType": 7, "ctrlDeps": [1], "data_deps": [1], "is_cpu_op": False}
    sized = kernel | {"Id": 3, "data_deps": [2], "comm_type": 5, "comm_size": 4000}
    work = {"Id": 4, "Name": "gemm", "NodeType": 4, "runtime": 20, "data_deps": [3], "is_cpu_op": False}
    file = tmp_path / "rank.0.json"
    file.write_text(json.dumps({"workload_graph": [launch, kernel, sized, work]}))
    binary = tmp_path / "rank.0.et"
    launched, started = chakra_node(1, "c10d::broadcast_", 7, [], 85, is_cpu_op=1), {"is_cpu_op": 0}
    binary.write_bytes(
        chakra(
            launched,
            chakra_node(2, "ncclKernel", 7, [1], **started) + of_field(4, 1),
            chakra_node(3, "ncclKernel", 7, [2], **started, comm_type=5, comm_size=4000) + of_field(4, 1),
            chakra_node(4, "gemm", 4, [3], 20, **started),
        )
    )
    traced, same = (sim.step_of_trace(path, ranks=2, protocol=PROTOCOL) for path in (file, binary))
    assert traced == same
    assert traced.step["node"] == [
        {"name": "1 c10d::broadcast_", "compute": "0 us", "after": []},
        {"name": "3 ncclKernel", "collective": "broadcast", "after": ["1 c10d::broadcast_"], "bytes": 4000},
        {"name": "4 gemm", "compute": "20 us", "after": ["3 ncclKernel"]},
    ]
    assert traced.not_modelled == {"collective without comm_type": 1}


@pytest.mark.parametrize(
    "graph", [3, [3], [{"Id": 1}], [{"Id": 1, "Name": "a", "NodeType": "x"}], [{"Id": 1, "Name": "a", "NodeType": []}]]
)
def test_bad_json_of_chakra_ends_in_one_sentence(tmp_path: Path, graph: Any) -> None:
    file = tmp_path / "rank.0.json"
    file.write_text(json.dumps({"workload_graph": graph}))
    assert "not as Chakra writes nodes" in error_of(file)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (CHAKRA[:-3], "cut off: as Chakra, a message is longer than the file"),
        (CHAKRA + b"\xff", "cut off: as Chakra, a number has no end"),
        (b"", "it is empty"),
        (b"\x02\x0f\x0f", "wire type 7 does not exist"),
        (chakra(chakra_node(1, "a", 4, [2]), chakra_node(2, "b", 4, [1])), "1 a is in a circle of nodes that wait"),
        (chakra(chakra_node(1, "a", 4, [9])), "1 a waits for node 9, which is not in the trace"),
        (chakra(chakra_node(1, "a", 7, [], comm_type=12)), "1 a has comm_type 12, which is not a collective"),
        (chakra(chakra_node(1, "a", 4, []), chakra_node(1, "b", 4, [])), "two nodes of Chakra have one id"),
    ],
)
def test_bad_chakra_traces_end_in_one_sentence(tmp_path: Path, data: bytes, sentence: str) -> None:
    file = tmp_path / "rank.0.et"
    file.write_bytes(data)
    assert sentence in error_of(file)


# GOAL

#: Two ranks that exchange messages, each before it waits for the other's, and a computation behind both.
GOAL = """// two ranks
num_ranks 2
rank 0 {
l1: calc 1000 cpu 0
l2: send 4000b to 1 tag 7
l3: recv 800b from 1 tag 8 cpu 1
l4: calc 500
l2 requires l1
l3 requires l2
l4 requires l3
}
rank 1 { /* it
answers */
a: send 800b to 0 tag 8
b: recv 4000b from 0 tag 7
b requires a
c: calc 300
c irequires b
}
"""


def test_goal_has_all_ranks_and_messages_meet(tmp_path: Path) -> None:
    file = tmp_path / "two.goal"
    file.write_text(GOAL)
    traced = sim.step_of_trace(file, ranks=2, protocol=PROTOCOL)
    nodes = {node["name"]: node for node in traced.step["node"]}
    assert nodes["0.l2"] == {
        "name": "0.l2",
        "collective": "send",
        "bytes": 4000,
        "pairs": [[0, 1]],
        "after": ["0.l1"],
    }
    assert nodes["1.a"]["after"] == []
    # What waits for a message also waits for what its receive requires.
    assert sorted(nodes["0.l4"]["after"]) == ["0.l2", "1.a"]
    assert nodes["1.c"] == {"name": "1.c", "compute": "300 ns", "ranks": [1], "after": ["1.a"]}
    assert traced.not_modelled == {"irequires": 1, "cpu 1": 1}
    assert run(traced, 2)["completed"] == 1
    with pytest.raises(tributary.ConfigError, match="has 2 ranks, each with its own operations, and not 4"):
        sim.step_of_trace(file, ranks=4, protocol=PROTOCOL)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("l1: calc 1000 cpu 0", "l1: dance", "line 4: 'l1: dance' is neither calc, send, recv nor requires"),
        ("num_ranks 2", "num_ranks 3", "has num_ranks 3, and no rank 2"),
        ("num_ranks 2", "num_ranks 1", "has num_ranks 1, and a rank 1"),
        ("l2 requires l1", "l2 requires l9", "names an operation that its rank does not have"),
        ("l2 requires l1", "l1 requires l1", "0.l1 is in a circle of nodes that wait for each other"),
        ("b: recv 4000b", "b: recv 5b", "1.b waits for 5 B, and 4000 come"),
        ("b: recv 4000b from 0 tag 7", "b: recv 4000b from 0 tag 6", "1.b waits for a message that rank 0 never sends"),
        ("b: recv 4000b from 0 tag 7", "b: calc 1", "nobody receives the message 0.l2"),
        ("to 1 tag 7", "to 5 tag 7", "0.l2 sends to rank 5"),
        ("l4: calc 500", "l1: calc 500", "two operations of a rank are called l1"),
        ("cpu 1", "cpu 1 gpu 2", "'gpu 2' is not known"),
        ("rank 1 {", "rank 0 {", "rank 0 begins inside of a rank, or a second time"),
        ("c irequires b\n}", "", "is cut off: a rank has no end"),
        ("rank 0 {\n", "", "'l1: calc 1000 cpu 0' is outside of a rank"),
    ],
)
def test_bad_goal_ends_in_one_sentence(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    file = tmp_path / "two.goal"
    assert old in GOAL
    file.write_text(GOAL.replace(old, new, 1))
    assert sentence in error_of(file)

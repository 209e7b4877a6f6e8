"""What one rank does in a group that spans hosts with several ranks each: functions for the ``ranks`` fixture."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

import torch_rank_local
import tributary.torch
from program import last_json, run
from torch_groups import default_group, digest, planned
from torch_rank import FLOATS
from torch_rank_local import in_memory
from tributary.torch import addresses
from tributary.torch.hosts import HostsNetwork
from tributary.torch.plugin import backend_of
from tributary.torch.spread import Shares
from tributary.torch.switches import SwitchNetwork


@contextmanager
def host(number: int) -> Iterator[None]:
    """As if this process were on the host of this number, where no other host's processes share its memory."""
    with (
        mock.patch.object(addresses, "own_network", return_value=f"host {number}"),
        mock.patch.object(addresses, "is_loopback", return_value=False),
    ):
        yield


def on_hosts(rank: int, size: int, hosts: list[int], function: Callable[..., Any], *arguments: Any) -> Any:
    """Call another test's function on the rank's host, with hosts' memory switched on."""
    with host(hosts[rank]):
        return in_memory(function, rank, size, *arguments)


def every_operation(rank: int, size: int, meet: str, switch: str | None) -> tuple[str | None, list[str], bool]:
    """All types of all operations; why the network sums, what it summed, and whether here."""
    with default_group(rank, size, meet, local="on", switch=switch):
        torch_rank_local.operations(rank, size)
        stats = tributary.torch.stats()
        return stats.why_network, sorted(stats.network), stats.packets is not None


def meshes(rank: int, size: int, meet: str) -> list[str | None]:
    """Why the network sums in the groups of a mesh, of two dimensions: across hosts, and within one."""
    with default_group(rank, size, meet, local="on"):
        mesh = dist.init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("across", "within"))
        reasons = []
        for name in ("across", "within"):
            group = mesh.get_group(name)
            dist.all_reduce(tensor := torch.full((5,), float(rank)), group=group)
            assert tensor.tolist() == [float(sum(dist.get_process_group_ranks(group)))] * 5
            reasons.append(tributary.torch.stats(group).why_network)
        return reasons


def rounded(rank: int, size: int, meet: str, switch: str) -> list[str]:
    """The bits of sums that are rounded, which all ranks must have."""
    seen = []
    with default_group(rank, size, meet, local="on", switch=switch):
        for dtype in FLOATS:
            draw = torch.Generator().manual_seed(rank)
            for op in ("SUM", "AVG", "PRODUCT"):
                for elements in (3001, 1_200_003):
                    tensor = torch.randn(elements, generator=draw).to(dtype)
                    dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
                    seen.append(digest(tensor))
    return seen


def leaves(rank: int, size: int, meet: str, leaver: int) -> str:
    """A rank destroys the group before an operation of the others; what they learn."""
    with default_group(rank, size, meet, timeout=60.0, local="on"):
        dist.all_reduce(torch.ones(4))
        if rank == leaver:
            return ""
        try:
            dist.all_reduce(torch.ones(4))
        except RuntimeError as error:
            return f"{type(error).__name__}: {error}"
    return "nothing went wrong"


def bereaved(
    rank: int, size: int, hosts: list[int], meet: str, elements: int, switch: str | None
) -> tuple[str, str, float]:
    """Sum until a rank is missed; every sum before is right. The error."""
    with host(hosts[rank]):
        return torch_rank_local.bereaved(rank, size, meet, elements, switch=switch)


def on_link() -> tuple[int, int]:
    """Bytes that this host has sent and received."""
    with open("/proc/self/net/dev", encoding="ascii") as file:
        line = next(line for line in file if line.strip().startswith(os.environ["GLOO_SOCKET_IFNAME"]))
    counts = line.split(":")[1].split()
    return int(counts[8]), int(counts[0])


def _packets() -> int:
    """Packets that this host's member of the job has sent, each once."""
    packets = tributary.torch.stats().packets
    return 0 if packets is None else packets.packets_sent - packets.retransmissions


def _job() -> dict[str, Any]:
    """What this host's member of the job was granted, if it is one."""
    members = backend_of()._members
    assert members is not None
    network = members.main.network
    if isinstance(network, HostsNetwork):
        network = network._leading
    if not isinstance(network, SwitchNetwork):
        return {}
    info = network.groups[0].info
    return {"protocol": info.protocol, "elements_per_packet": info.elements_per_packet, "slots": info.slots}


def _at_switch() -> int:
    """Bytes of packets that the switch has received."""
    status = last_json(run("status", "--switch", os.environ["TRIBUTARY_SWITCH"], "--json"))
    return sum(int(shard["rx_bytes"]) for shard in status["switch"]["shards"])


def shared_out(share: float, elements: int, times: int) -> dict[str, Any]:
    """Sums of a rank of several hosts, of which the switch makes this share; what came to the switch meanwhile, what
    the host's link carried, and the bits of sums whose order matters."""
    torch.set_num_threads(1)
    dist.init_process_group("tributary")
    rank, size = dist.get_rank(), dist.get_world_size()
    shares = Shares([share, 1 - share], [1e9, 1e9], 1e9, [1.0, 1.0], 1e9)
    draw = torch.Generator().manual_seed(rank)
    rounded = torch.randn(elements, generator=draw)
    with planned(lambda *_: shares):
        dist.all_reduce(rounded)
    dist.barrier()
    # Other ranks wait in a barrier while the first asks.
    at_switch = _at_switch() if rank == 0 else 0
    dist.barrier()
    before, again = on_link(), sent_again()
    for step in range(times):
        tensor = torch.full((elements,), float(rank + step))
        dist.all_reduce(tensor)
        assert tensor.min() == tensor.max() == sum(range(size)) + size * step
    dist.barrier()
    sent, received = (late - early for early, late in zip(before, on_link(), strict=True))
    stats = tributary.torch.stats()
    found: dict[str, Any] = {"sent": sent, "received": received, "again": sent_again() - again}
    found |= {"digest": digest(rounded), "shares": [way.share for way in stats.shares]}
    found |= {"at_switch": _at_switch() - at_switch if rank == 0 else 0}
    dist.all_reduce(of_all := torch.tensor([float(found["again"])]))
    found |= {"again_of_all": of_all.item()}
    dist.barrier()
    dist.destroy_process_group()
    return found


def sent_again() -> int:
    """Packets that this host's member of the job has sent again."""
    packets = tributary.torch.stats().packets
    return 0 if packets is None else packets.retransmissions


def over_links(elements: int, times: int) -> dict[str, Any]:
    """Sums of a rank of several hosts, each of which is right; what its host sent and received meanwhile."""
    torch.set_num_threads(1)
    dist.init_process_group("tributary")
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.all_reduce(torch.ones(elements))
    dist.barrier()
    before, packets, seconds = on_link(), _packets(), []
    for step in range(times):
        tensor = torch.full((elements,), float(rank + step))
        dist.barrier()
        begun = time.monotonic()
        dist.all_reduce(tensor)
        seconds.append(time.monotonic() - begun)
        assert tensor.min() == tensor.max() == sum(range(size)) + size * step
    sent, received = (late - early for early, late in zip(before, on_link(), strict=True))
    stats = tributary.torch.stats()
    again = 0 if stats.packets is None else stats.packets.retransmissions
    found: dict[str, Any] = {
        "sent": sent,
        "received": received,
        "again": again,
        "why": stats.why_network,
        "fastest": min(seconds),
    }
    found |= {"packets": _packets() - packets, "job": _job()}
    dist.destroy_process_group()
    return found


if __name__ == "__main__":
    # One host of a star, with several ranks: this process, and one for each other.
    number, per_host, words = int(os.environ["RANK"]), int(sys.argv[1]), sys.argv[2:]
    environment = os.environ | {"WORLD_SIZE": str(int(os.environ["WORLD_SIZE"]) * per_host)}
    others = [
        subprocess.Popen(
            [sys.executable, __file__, "0", *words], env=environment | {"RANK": str(number * per_host + index)}
        )
        for index in range(1, per_host)
    ]
    if per_host:
        os.environ.update(environment, RANK=str(number * per_host))
    counts = [int(word) for word in words[-2:]]
    found = over_links(*counts) if len(words) == 2 else shared_out(float(words[0]), *counts)
    # Only the first rank of a host counts packets, so that it alone reports.
    if per_host:
        print(json.dumps(found))
    for other in others:
        assert other.wait(100) == 0

"""The description of a group, and its counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GroupInfo:
    """What the members of a job agreed on."""

    switch: str
    job: str
    rank: int
    world_size: int
    protocol: str
    #: Slots of the switch that the job holds, over all shards.
    slots: int
    #: Elements that one packet carries.
    elements_per_packet: int
    #: Bytes that the path to the switch carries in one IP packet.
    mtu: int
    #: Threads of the switch that serve the job.
    shards: int
    #: Threads that drive this worker, each with a share of the slots.
    cores: int
    #: The UDP addresses of the job's servers on hosts of their own, by number: they sum the blocks that no switch sums.
    #: Empty where the job has none, and where each rank is a server besides.
    servers: tuple[str, ...]
    #: Whether the job's tensors are sparse, all of them.
    sparse: bool


@dataclass(frozen=True)
class GroupStats:
    """The counts of this worker since it joined."""

    packets_sent: int
    retransmissions: int
    packets_received: int
    #: The share of blocks that were summed in the network, 0.0 to 1.0.
    in_network: float
    #: Blocks whose sum was made at hosts: the ranks' own, or those of servers.
    blocks_at_hosts: int
    #: One line for people: which share of the blocks the network has summed, where the others were summed, and why.
    where_summed: str
    #: The share of ranks whose data is in the results, 0.0 to 1.0, in a job whose averages need not wait for all ranks.
    #: None in other jobs, and before the first result.
    contributed: float | None
    #: A hash, in hexadecimal digits, of the expression by which the last block was summed: the same in two runs whose
    #: sums have the same bits for the same inputs. None if the expression depends on arrival, or the protocol names
    #: none.
    order: str | None
    #: Dropped packets, by reason.
    drops: dict[str, int]

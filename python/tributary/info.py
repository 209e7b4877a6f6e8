"""What a group is, and what it has counted."""

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
    #: Whether the job's tensors are sparse, all of them.
    sparse: bool


@dataclass(frozen=True)
class GroupStats:
    """What this worker counted since it joined."""

    packets_sent: int
    retransmissions: int
    packets_received: int
    #: The share of blocks whose sum was made in the network, 0.0 to 1.0.
    in_network: float
    #: The share of ranks whose data is in the results, 0.0 to 1.0, of a job whose averages need not wait for all ranks.
    #: None of any other, and before the first result.
    contributed: float | None
    #: The expression that the last block was summed by, as a hash in hexadecimal digits: the same in two runs whose
    #: sums have the same bits for the same inputs. None where arrival decides, or the protocol names none.
    order: str | None
    #: Packets of no use, by reason.
    drops: dict[str, int]

"""What a group does that has lost a switch or a parameter server, if TRIBUTARY_ON_LOSS=replan.

The operation under way fails on every rank: its tensors may hold a part of the result. Before the next operation the
same ranks meet again, as the members of an elastic group do, without the switches that no longer answer. Every rank
must have come equally far: if the operation ended on some ranks and failed on others, their next operations differ, and
the group gives up on all of them.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from datetime import timedelta

import torch.distributed as dist

from tributary.errors import ConnectError, ServerLostError, SwitchLostError
from tributary.torch.join_steps import JoinSteps

#: The errors of an operation whose aggregator is lost.
LOSSES = (SwitchLostError, ServerLostError)
#: What is added to them.
HINT = "TRIBUTARY_ON_LOSS=replan: the next operation does without it; bring this one again"
#: Seconds in which a switch that is there takes a connection.
_ANSWERS_S = 3.0


def agree(
    store: dist.Store, rank: int, size: int, switches: Sequence[str], progress: Sequence[object], patience: timedelta
) -> list[str]:
    """Meet the other ranks, which must have made the same progress; this rank's switches that all ranks still reach.

    Raises:
        ConnectError: when some do not come, or have come less far.

    """
    steps = JoinSteps(store, "replan", rank, size, patience, ("progress",))
    with steps.in_common():
        own = {"progress": list(progress), "reached": [is_there(switch) for switch in switches]}
        steps.publish(f"rank/{rank}", json.dumps(own))
        steps.gather("progress")
        ranks = [json.loads(steps.published(f"rank/{other}") or "{}") for other in range(size)]
        for other, said in enumerate(ranks):
            if said["progress"] != ranks[0]["progress"]:
                raise ConnectError(
                    f"rank 0 has failed in {_words(ranks[0]['progress'])}, and rank {other} in "
                    f"{_words(said['progress'])}: their next operations would not be the same"
                )
    reached = zip(*(said["reached"] for said in ranks), strict=True)
    return [switch for switch, by_ranks in zip(switches, reached, strict=True) if all(by_ranks)]


def _words(progress: Sequence[object]) -> str:
    title, number = progress
    return f"{title} after starting {number} operations"


def is_there(switch: str) -> bool:
    """Whether something takes connections at "HOST:PORT"."""
    host, _, port = switch.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _ANSWERS_S):
            return True
    except (OSError, ValueError):
        return False

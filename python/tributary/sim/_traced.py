"""What the readers of traces share: the step that they make, files and sentences about them."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tributary.errors import ConfigError

#: A step of one rank has some MB. A longer recording holds many steps.
MOST_BYTES = 512 << 20

#: What moves the shares of all ranks: its bytes are divided among them.
SHARED = {"reduce_scatter", "all_gather", "all_to_all"}


@dataclass(frozen=True)
class TracedStep:
    """A step of one rank, ready for a simulation."""

    #: A table for the list `step` of an experiment.
    step: dict[str, Any]
    #: What the trace has and the step lacks: how often, by name.
    not_modelled: dict[str, int]
    #: What was assumed, a sentence each.
    notes: list[str] = field(default_factory=list)
    #: How many ranks the recording had.
    recorded_ranks: int = 1


def read(path: Path) -> bytes:
    """The bytes of a trace."""
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise ConfigError(f"{path} has {size >> 20} MiB, and at most {MOST_BYTES >> 20} are read: record one step")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror} (os error {error.errno})") from error


def collective(name: str, kind: str, size: int, ranks: int, after: Sequence[str]) -> dict[str, Any]:
    """A node that all ranks take part in."""
    node: dict[str, Any] = {"name": name, "collective": kind, "after": list(after)}
    if kind != "barrier":
        node["bytes"] = -(-size // (4 * ranks)) * 4 * ranks if kind in SHARED else size
    return node


def stretched(recorded: int, ranks: int) -> list[str]:
    """A note, where one rank's recording stands for more ranks than it was made with."""
    if recorded == ranks:
        return []
    return [f"a recording of {number(recorded)} stands for {number(ranks)}: each computes what that one did"]


def number(ranks: int) -> str:
    """Ranks, counted."""
    return "1 rank" if ranks == 1 else f"{ranks} ranks"


def in_order(path: Path, after: Mapping[str, Sequence[str]]) -> list[str]:
    """Nodes, each behind those that it waits for, else in the order given. A circle is an error."""
    position = {name: index for index, name in enumerate(after)}
    followers: dict[str, list[str]] = {name: [] for name in after}
    missing = {name: len(before) for name, before in after.items()}
    for name, before in after.items():
        for earlier in before:
            if earlier not in followers:
                raise ConfigError(f"{path}: {name} waits for {earlier}, which is not in the trace")
            followers[earlier].append(name)
    ready = [(position[name], name) for name, count in missing.items() if count == 0]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, name = heapq.heappop(ready)
        ordered.append(name)
        for follower in followers[name]:
            missing[follower] -= 1
            if missing[follower] == 0:
                heapq.heappush(ready, (position[follower], follower))
    if len(ordered) < len(after):
        done = set(ordered)
        waits = next(name for name in after if name not in done)
        raise ConfigError(f"{path}: {waits} is in a circle of nodes that wait for each other")
    return ordered

"""GOAL text (LogGOPSim): what each rank computes, sends and receives, and what waits for what."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tributary.errors import ConfigError
from tributary.sim._profile import Traced
from tributary.sim._traced import in_order, number

_COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*|#[^\n]*", re.DOTALL)
_RANKS = re.compile(r"num_ranks\s+(\d+)")
_RANK = re.compile(r"rank\s+(\d+)\s*\{")
_WORK = re.compile(r"(\w+)\s*:\s*(?:calc\s+(\d+)|(send|recv)\s+(\d+)b\s+(?:to|from)\s+(\d+)(?:\s+tag\s+(\d+))?)(.*)")
_WAITS = re.compile(r"(\w+)\s+(i?requires)\s+(\w+)")
_ON = re.compile(r"\b(cpu|nic)\s+(\d+)")


@dataclass
class _Operation:
    """A line of a rank."""

    calc: int | None
    bytes: int
    peer: int
    tag: int
    requires: list[str] = field(default_factory=list)
    #: The node that stands for it.
    node: str = ""


def is_goal(begins: bytes) -> bool:
    """Whether a file that begins like this is GOAL text."""
    return _COMMENTS.sub("", begins.decode("utf-8", "replace")).lstrip().startswith("num_ranks")


def nodes(path: Path, data: bytes, ranks: int) -> Traced:
    """All ranks' operations: a node for each computation, and for each message."""
    missing: Counter[str] = Counter()
    all_ranks = _parse(path, data.decode("utf-8", "replace"), missing)
    if len(all_ranks) != ranks:
        raise ConfigError(f"{path} has {number(len(all_ranks))}, each with its own operations, and not {ranks}")
    made = _messages(path, all_ranks)
    after: dict[str, list[str]] = {}
    for rank, operations in enumerate(all_ranks):
        for label, operation in operations.items():
            if operation.calc is not None:
                operation.node = f"{rank}.{label}"
                made[operation.node] = {"compute": f"{operation.calc} ns", "ranks": [rank]}
    for operations in all_ranks:
        behind = {label: _behind(label, operations) for label in operations}
        for label, operation in operations.items():
            # A message goes when its sender is ready; what waits for a receive waits for what that requires, too.
            if operation.calc is not None or operation.bytes >= 0:
                after[operation.node] = behind[label]
    ordered = in_order(path, after)
    return [{"name": name, **made[name], "after": after[name]} for name in ordered], missing, [], len(all_ranks)


def _parse(path: Path, text: str, missing: Counter[str]) -> list[dict[str, _Operation]]:
    count: int | None = None
    all_ranks: dict[int, dict[str, _Operation]] = {}
    inside: dict[str, _Operation] | None = None
    soft: list[tuple[dict[str, _Operation], str, str]] = []
    for line_number, line in enumerate(_COMMENTS.sub(lambda of: "\n" * of[0].count("\n"), text).splitlines(), 1):
        line = line.strip()
        where = f"{path}, line {line_number}"
        if not line:
            continue
        if found := _RANKS.fullmatch(line):
            count = int(found[1])
        elif found := _RANK.fullmatch(line):
            if inside is not None or int(found[1]) in all_ranks:
                raise ConfigError(f"{where}: rank {found[1]} begins inside of a rank, or a second time")
            inside = all_ranks[int(found[1])] = {}
        elif line == "}" and inside is not None:
            inside = None
        elif inside is None:
            raise ConfigError(f"{where}: '{line[:60]}' is outside of a rank")
        elif found := _WORK.fullmatch(line):
            _add(where, inside, found, missing)
        elif found := _WAITS.fullmatch(line):
            label, how, before = found.groups()
            if label not in inside or before not in inside:
                raise ConfigError(f"{where}: '{line[:60]}' names an operation that its rank does not have")
            if how == "requires":
                inside[label].requires.append(before)
            else:
                missing["irequires"] += 1
                soft.append((inside, label, before))
        else:
            raise ConfigError(f"{where}: '{line[:60]}' is neither calc, send, recv nor requires")
    if count is None or inside is not None:
        raise ConfigError(f"{path} is cut off: a rank has no end" if count else f"{path} has no num_ranks")
    wrong = sorted(all_ranks.keys() ^ set(range(count)))
    if wrong:
        raise ConfigError(f"{path} has num_ranks {count}, and {'no' if wrong[0] < count else 'a'} rank {wrong[0]}")
    # It may begin when the other one may.
    for operations, label, before in soft:
        operations[label].requires.extend(operations[before].requires)
    return [all_ranks[rank] for rank in range(count)]


def _add(where: str, inside: dict[str, _Operation], found: re.Match[str], missing: Counter[str]) -> None:
    label, calc, kind, size, peer, tag, rest = found.groups()
    if label in inside:
        raise ConfigError(f"{where}: two operations of a rank are called {label}")
    if unknown := _ON.sub("", rest).strip():
        raise ConfigError(f"{where}: '{unknown[:60]}' is not known")
    missing.update(f"{unit} {which}" for unit, which in _ON.findall(rest) if int(which) > 0)
    is_send = kind == "send"
    if calc is not None:
        inside[label] = _Operation(int(calc), 0, 0, 0)
    else:
        # What is received is negative until its sender is known.
        inside[label] = _Operation(None, int(size) if is_send else ~int(size), int(peer), int(tag or 0))


def _messages(path: Path, all_ranks: list[dict[str, _Operation]]) -> dict[str, dict[str, Any]]:
    """A node for each send, which is its receive's, too: they meet by ranks, tag and order."""
    made: dict[str, dict[str, Any]] = {}
    under_way: dict[tuple[int, int, int], deque[_Operation]] = defaultdict(deque)
    for rank, operations in enumerate(all_ranks):
        for label, operation in operations.items():
            if operation.calc is None and operation.bytes >= 0:
                if operation.peer >= len(all_ranks) or operation.peer == rank:
                    raise ConfigError(f"{path}: {rank}.{label} sends to rank {operation.peer}")
                operation.node = f"{rank}.{label}"
                # An empty message still takes a packet.
                pairs = [[rank, operation.peer]]
                made[operation.node] = {"collective": "send", "bytes": max(1, operation.bytes), "pairs": pairs}
                under_way[rank, operation.peer, operation.tag].append(operation)
    for rank, operations in enumerate(all_ranks):
        for label, operation in operations.items():
            if operation.calc is None and operation.bytes < 0:
                sent = under_way[operation.peer, rank, operation.tag]
                if not sent:
                    raise ConfigError(
                        f"{path}: {rank}.{label} waits for a message that rank {operation.peer} never sends"
                    )
                if sent[0].bytes != ~operation.bytes:
                    raise ConfigError(
                        f"{path}: {rank}.{label} waits for {~operation.bytes} B, and {sent[0].bytes} come"
                    )
                operation.node = sent.popleft().node
    left = next((sent[0] for sent in under_way.values() if sent), None)
    if left is not None:
        raise ConfigError(f"{path}: nobody receives the message {left.node}")
    return made


def _behind(label: str, operations: dict[str, _Operation]) -> list[str]:
    """The nodes that an operation waits for: of a receive, its message and what the receive requires."""
    found: dict[str, None] = {}
    seen: set[str] = set()
    waiting = list(operations[label].requires)
    while waiting:
        before = waiting.pop()
        if before in seen:
            continue
        seen.add(before)
        found[operations[before].node] = None
        if operations[before].calc is None and operations[before].bytes < 0:
            waiting.extend(operations[before].requires)
    return list(found)

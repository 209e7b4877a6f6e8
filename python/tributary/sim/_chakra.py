"""Chakra execution traces (MLCommons), one file for each rank: protobuf, each message behind its length, or JSON.

The fields that count are read here, by the numbers of `schema/protobuf/et_def.proto` and the names of
`src/feeder/json_node.cpp`; others are skipped, as protobuf has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tributary.errors import ConfigError
from tributary.sim._profile import Traced
from tributary.sim._traced import collective, in_order, stretched

#: `NodeType`: nodes that compute, and collectives. The others are counted.
_TYPES = {
    0: "invalid", 1: "metadata", 2: "memory load", 3: "memory store", 4: "compute", 5: "send", 6: "receive",
    7: "collective", 8: "storage", 9: "batch", 10: "checkpoint",
}  # fmt: skip
_COMPUTES = {2, 3, 4}
_COLLECTIVE = 7
#: `CollectiveCommType`; without the name of a `[[step.node]]` where that has none.
_COLLECTIVES = {
    0: "all_reduce", 1: "reduce", 2: "all_gather", 3: None, 4: None, 5: "broadcast", 6: "all_to_all",
    7: "reduce_scatter", 8: "reduce_scatter", 9: "barrier",
}  # fmt: skip
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
#: `AttributeProto`: integers as they are, integers in zigzag, a bool, a string.
_INTEGERS, _ZIGZAG, _BOOL, _STRING = {7, 9, 11, 13}, {15, 17}, 27, 29


@dataclass
class _Node:
    name: str = ""
    type: int = 0
    after: list[int] = field(default_factory=list)
    #: Control dependencies, which name callers; Chakra's own feeder waits for data dependencies alone, too.
    callers: int = 0
    microseconds: int = 0
    attributes: dict[str, int | str] = field(default_factory=dict)


def nodes(path: Path, data: bytes, ranks: int) -> Traced:
    """One rank's nodes, in protobuf."""
    try:
        messages = list(_messages(memoryview(data)))
        # The first one says which version it is.
        versions = [list(_fields(message)) for message in messages[:1]]
        read = dict(map(_node, messages[1:]))
    except (ValueError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a trace that is known, or it is cut off: as Chakra, {error}") from error
    if not versions or len(read) < len(messages) - 1:
        raise ConfigError(f"{path}: {'two nodes of Chakra have one id' if versions else 'it is empty'}")
    return _step(path, read, ranks)


def nodes_of_json(path: Path, trace: Mapping[str, Any], ranks: int) -> Traced:
    """One rank's nodes, in JSON."""
    try:
        read = dict(map(_node_of_json, trace["workload_graph"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: a node of workload_graph is not as Chakra writes nodes: {error!r}") from error
    if len(read) < len(trace["workload_graph"]):
        raise ConfigError(f"{path}: two nodes of Chakra have one id")
    return _step(path, read, ranks)


def _node_of_json(of: Mapping[str, Any]) -> tuple[int, _Node]:
    attributes = {key: int(of[key]) for key in ("is_cpu_op", "comm_type", "comm_size") if key in of}
    after = list(dict.fromkeys(map(int, of.get("data_deps", []))))
    callers = len(of.get("ctrlDeps", []))
    node = _Node(str(of["Name"]), int(of["NodeType"]), after, callers, int(of.get("runtime", 0)), dict(attributes))
    return int(of["Id"]), node


def _step(path: Path, read: dict[int, _Node], ranks: int) -> Traced:
    """The nodes of a step."""
    missing: Counter[str] = Counter()
    notes = stretched(1, ranks)
    after = {_label(number, node): [_label(of, read.get(of)) for of in node.after] for number, node in read.items()}
    by_label = {_label(number, node): node for number, node in read.items()}
    of_gpu = any(node.type == 4 and node.attributes.get("is_cpu_op") == 0 for node in read.values())
    made = []
    # What nobody models lets those behind it wait for those before it.
    stands: dict[str, list[str]] = {}
    for label in in_order(path, after):
        node = by_label[label]
        before = list(dict.fromkeys(name for earlier in after[label] for name in stands[earlier]))
        one = _made(path, label, node, before, ranks, missing)
        stands[label] = before if one is None else [label]
        if one is not None and of_gpu and "compute" in one and node.attributes.get("is_cpu_op") == 1:
            one["compute"] = "0 us"
        made += [] if one is None else [one]
    if of_gpu:
        notes.append("operators of the processor take no time, since the GPU's are in the trace, too")
    callers = sum(node.callers for node in read.values())
    if callers:
        notes.append(f"nothing waits for its {callers} control dependencies, which say what called what")
    groups = {node.attributes["pg_name"] for node in read.values() if "pg_name" in node.attributes}
    if len(groups) > 1:
        notes.append(f"its {len(groups)} process groups all count as the group of all ranks")
    return made, missing, notes, 1


def _label(number: int, node: _Node | None) -> str:
    return f"{number} {node.name}" if node is not None else f"node {number}"


def _made(
    path: Path, label: str, node: _Node, before: list[str], ranks: int, missing: Counter[str]
) -> dict[str, Any] | None:
    """The node of a step; None where it has none, which is counted."""
    launches = node.type == _COLLECTIVE and node.attributes.get("is_cpu_op") == 1 and "comm_type" not in node.attributes
    if node.type in _COMPUTES or launches:
        # What calls a GPU's kernel has the kernel's type, and no size.
        return {"name": label, "compute": f"{node.microseconds} us", "after": before}
    if node.type != _COLLECTIVE:
        missing[_TYPES.get(node.type, f"node type {node.type}")] += 1
        return None
    kind, size = node.attributes.get("comm_type"), node.attributes.get("comm_size", 0)
    if kind is None:
        missing["collective without comm_type"] += 1
        return None
    if kind not in _COLLECTIVES or not isinstance(size, int):
        raise ConfigError(f"{path}: {label} has comm_type {kind}, which is not a collective of Chakra's")
    name = _COLLECTIVES[int(kind)]
    if name is None or (size <= 0 and name != "barrier"):
        missing[("gather", "scatter")[int(kind) - 3] if name is None else f"{name} without comm_size"] += 1
        return None
    whole = size * ranks if name == "all_gather" else size
    return collective(label, name, whole, ranks, before)


def _messages(data: memoryview) -> Iterator[memoryview]:
    """Messages, each behind its length."""
    at = 0
    while at < len(data):
        length, at = _varint(data, at)
        if at + length > len(data):
            raise ValueError("a message is longer than the file")
        yield data[at : at + length]
        at += length


def _node(message: memoryview) -> tuple[int, _Node]:
    number, node = 0, _Node()
    for name, value in _fields(message):
        match name, value:
            case 1, int():
                number = value
            case 2, memoryview():
                node.name = str(value, "utf-8")
            case 3, int():
                node.type = value
            case 4, int():
                node.callers += 1
            case 4, memoryview():
                node.callers += len(_packed(value))
            case 5, int():
                node.after.append(value)
            case 5, memoryview():
                node.after += _packed(value)
            case 7, int():
                node.microseconds = value
            case 10, memoryview():
                _attribute(value, node.attributes)
    node.after = list(dict.fromkeys(node.after))
    return number, node


def _attribute(message: memoryview, attributes: dict[str, int | str]) -> None:
    key = ""
    found: int | str | None = None
    for name, value in _fields(message):
        match name, value:
            case 1, memoryview():
                key = str(value, "utf-8")
            case _, int() if name in _INTEGERS or name == _BOOL:
                # Negative numbers have all 64 bits.
                found = value - (1 << 64) if value >> 63 else value
            case _, int() if name in _ZIGZAG:
                found = (value >> 1) ^ -(value & 1)
            case _, memoryview() if name == _STRING:
                found = str(value, "utf-8")
    if found is not None:
        attributes[key] = found


def _packed(data: memoryview) -> list[int]:
    numbers, at = [], 0
    while at < len(data):
        number, at = _varint(data, at)
        numbers.append(number)
    return numbers


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Fields with their numbers, in protobuf's wire format."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire = key & 7
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if wire == _BYTES:
            length, at = _varint(message, at)
        elif wire in (_FIXED32, _FIXED64):
            length = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire} does not exist")
        if at + length > len(message):
            raise ValueError("a field is longer than its message")
        yield key >> 3, message[at : at + length]
        at += length


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 70:
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return number, at
    raise ValueError("a number has no end")

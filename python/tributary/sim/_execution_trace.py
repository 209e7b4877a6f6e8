"""JSON of PyTorch's ExecutionTraceObserver: operators with shapes and types, and without times."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tributary.errors import ConfigError
from tributary.sim._profile import Traced, elements_of, nodes_of


def nodes(path: Path, trace: Mapping[str, Any], ranks: int, compute: float | None) -> Traced:
    """The whole trace as one step, whose operators take equal shares of the time that the rank computes."""
    if not isinstance(trace.get("schema"), str) or not isinstance(trace["nodes"], list):
        raise ConfigError(f"{path} has no schema: it is not a trace of PyTorch's ExecutionTraceObserver")
    if compute is None:
        raise ConfigError(f"{path} has no times: give compute, the seconds that the rank computes in the step")
    if not 0 <= compute < float("inf"):
        raise ConfigError(f"{path}: compute={compute} is not a number of seconds")
    for node in trace["nodes"]:
        if (
            not isinstance(node, Mapping)
            or not isinstance(node.get("id"), int)
            or not isinstance(node.get("name"), str)
        ):
            raise ConfigError(f"{path}: a node has no id or no name: {json.dumps(node)[:80]}")
    ordered = sorted(trace["nodes"], key=lambda node: node["id"])
    # An operator that others run in is an operator that waits for them.
    callers = {node.get("ctrl_deps") for node in ordered}
    leaves = {node["id"] for node in ordered if node["name"].startswith("aten::") and node["id"] not in callers}
    each, at = 1e6 * compute / max(1, len(leaves)), 0.0
    events, types = [], {}
    for node in ordered:
        takes = each if node["id"] in leaves else 0.0
        shapes, kinds = _inputs(path, node)
        event = {"name": node["name"], "ts": at, "dur": takes, "args": {"Input Dims": shapes}}
        events.append(event | ({"cat": "cpu_op"} if node["id"] in leaves else {}))
        if node["name"].startswith("c10d::"):
            types.update(_types(shapes, kinds))
        at += takes
    made, missing, notes, recorded = nodes_of(events, types, (0.0, at), (1, ranks))
    notes.append(f"the trace has no times: each of its {len(leaves)} operators takes the same share of {compute} s")
    return made, missing, notes, recorded


def _inputs(path: Path, node: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    inputs = node.get("inputs", {})
    # Before schema 1.0.3 they were beside each other.
    if isinstance(inputs, Mapping):
        shapes, kinds = inputs.get("shapes", []), inputs.get("types", [])
    else:
        shapes, kinds = node.get("input_shapes", []), node.get("input_types", [])
    if not isinstance(shapes, list) or not isinstance(kinds, list):
        raise ConfigError(f"{path}: node {node['id']} has no shapes and types of its inputs")
    return shapes, kinds


def _types(shapes: list[Any], kinds: list[Any]) -> dict[int, str]:
    """Types of tensors by their number of elements: "Tensor(float)", "GenericList[Tensor(float)]"."""
    types = {}
    for shape, kind in zip(shapes, kinds, strict=False):
        if "Tensor(" in str(kind):
            types[elements_of(shape)] = str(kind).split("Tensor(")[1].split(")")[0]
    return types

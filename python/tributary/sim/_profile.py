"""A Chrome trace of PyTorch's profiler: what one rank computed, and the collectives that it started."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from tributary.errors import ConfigError
from tributary.sim._traced import collective, stretched

#: What PyTorch's profiler calls a collective when a rank starts it, and what a `[[step.node]]` calls it.
COLLECTIVES = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "broadcast_": "broadcast",
    "reduce_": "reduce",
    "barrier": "barrier",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
}

#: What `tributary.torch.record_step` calls a wait for a collective.
WAIT = "tributary::wait"

SIZES = {
    "float": 4, "double": 8, "c10::Half": 2, "c10::BFloat16": 2, "int": 4, "long int": 8, "unsigned char": 1,
    "signed char": 1, "bool": 1,
}  # fmt: skip


#: The nodes of a step, what is not modelled, notes, and the ranks of the recording.
Traced = tuple[list[dict[str, Any]], Counter[str], list[str], int]


def nodes(path: Path, trace: Any, ranks: int) -> Traced:
    """The last whole step of a trace."""
    events = _events(path, trace)
    recorded = trace.get("distributedInfo", {}).get("world_size", 1)
    recorded = recorded if isinstance(recorded, int) else 1
    begin, end = _bounds(events, path)
    inside = [event for event in events if begin <= event["ts"] < end]
    return nodes_of(inside, _types(inside), (begin, end), (recorded, ranks))


def nodes_of(
    inside: list[dict[str, Any]], types: Mapping[int, str], bounds: tuple[float, float], ranks: tuple[int, int]
) -> Traced:
    """The nodes of a step's events, between two times; the ranks of the recording, and those of the step."""
    missing: Counter[str] = Counter()
    starts = [event for event in inside if _is_collective(event, missing)]
    notes = stretched(*ranks)
    waits = _optimizer(inside, bounds[1])
    if waits is None:
        notes.append("the trace has no Optimizer.step, so nothing in the step waits for the collectives")
    made, unknown = _nodes(inside, starts, types, (*bounds, waits), ranks[1])
    missing.update(unknown)
    guesses = [node.pop("guessed", False) for node in made]
    if any(guesses):
        notes.append("some collectives have no type in the trace, and count as float32")
    return made, missing, notes, ranks[0]


def _events(path: Path, trace: Any) -> list[dict[str, Any]]:
    """Whole events with times, in order of time."""
    events = trace.get("traceEvents") if isinstance(trace, Mapping) else None
    if not isinstance(events, list):
        raise ConfigError(f"{path} has no traceEvents: it is not a Chrome trace of PyTorch's profiler")
    whole = [event for event in events if isinstance(event, Mapping) and event.get("ph") == "X"]
    for event in whole:
        times = (event.get("ts"), event.get("dur", 0))
        if not isinstance(event.get("name"), str) or not all(isinstance(time, (int, float)) for time in times):
            raise ConfigError(f"{path}: an event has no name or no time: {json.dumps(event)[:80]}")
    plain = [{**event, "ts": float(event["ts"]), "dur": float(event.get("dur", 0))} for event in whole]
    return sorted(plain, key=lambda event: event["ts"])


def _bounds(events: Iterable[Mapping[str, Any]], path: Path) -> tuple[float, float]:
    steps = [event for event in events if event["name"].startswith("ProfilerStep#")]
    if not steps:
        raise ConfigError(f"{path} has no ProfilerStep#: call `profiler.step()` after each step")
    last = steps[-1]
    return last["ts"], last["ts"] + last["dur"]


def _is_collective(event: Mapping[str, Any], missing: Counter[str]) -> bool:
    """True for the start of a collective that is modelled; others of c10d are counted."""
    if event.get("cat") in {"gpu_memcpy", "gpu_memset"}:
        missing[event["cat"]] += 1
    if not event["name"].startswith("c10d::"):
        return False
    known = event["name"].removeprefix("c10d::") in COLLECTIVES
    if not known:
        missing[event["name"]] += 1
    return known


def _types(events: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """Types by the number of elements, from the backend's own events, as gloo:all_reduce: c10d's have none."""
    types = {}
    for event in events:
        args = event.get("args", {})
        dims, kinds = args.get("Input Dims"), args.get("Input type")
        of_backend = ":" in event["name"] and "::" not in event["name"]
        if of_backend and dims and kinds and isinstance(dims[0], list) and all(isinstance(of, int) for of in dims[0]):
            types[prod(dims[0])] = kinds[0]
    return types


def _optimizer(events: Iterable[Mapping[str, Any]], end: float) -> float | None:
    starts = [event["ts"] for event in events if event["name"].startswith("Optimizer.step") and event["ts"] < end]
    return min(starts, default=None)


def _nodes(
    events: list[dict[str, Any]],
    starts: list[dict[str, Any]],
    types: Mapping[int, str],
    times: tuple[float, float, float | None],
    ranks: int,
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Computations and collectives in turn; at last what the optimizer computes."""
    begin, end, waits = times
    busy = _busy(events, begin, end)
    nodes: list[dict[str, Any]] = []
    unknown: Counter[str] = Counter()
    collectives: list[str] = []
    computed = 0
    at = begin
    open_ones: list[str] = []
    awaited: list[str] = []

    def compute(until: float) -> str:
        nonlocal at, computed
        node = {"name": f"compute {computed}", "compute": _time(busy, at, until)}
        nodes.append(node | ({"after": awaited.copy()} if awaited else {}))
        awaited.clear()
        at, computed = until, computed + 1
        return str(node["name"])

    for number, start in enumerate(sorted([*starts, *_waits(events)], key=lambda event: event["ts"])):
        before = compute(start["ts"])
        kind = COLLECTIVES.get(start["name"].removeprefix("c10d::"))
        if kind is None:
            if open_ones:
                awaited.append(open_ones.pop(-1 if _is_at_once(events, starts, start) else 0))
            continue
        size, guessed = _size(start, types)
        if size == 0 and kind != "barrier":
            unknown[f"{start['name']} without sizes: record with record_shapes=True"] += 1
            continue
        name = f"{kind} {number}"
        collectives.append(name)
        open_ones.append(name)
        nodes.append(collective(name, kind, size, ranks, [before]) | {"guessed": guessed and kind != "barrier"})
    compute(end if waits is None else max(at, waits))
    if waits is not None:
        nodes.append({"name": "optimizer", "compute": _time(busy, at, end), "after": collectives})
    return nodes, unknown


def _waits(events: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """When the rank waited for a collective: as `record_step` notes it, else where FSDP2 takes what was gathered."""
    noted = [event for event in events if event["name"] == WAIT]
    return noted or [event for event in events if event["name"].startswith("FSDP::all_gather_copy_out")]


def _is_at_once(
    events: Iterable[Mapping[str, Any]], starts: Iterable[Mapping[str, Any]], wait: Mapping[str, Any]
) -> bool:
    """True if nothing began between the start of the last collective and the wait, which is for that one then."""
    last = max((start["ts"] + start["dur"] for start in starts if start["ts"] <= wait["ts"]), default=0.0)
    between = (event for event in events if last <= event["ts"] < wait["ts"])
    return wait["name"] == WAIT and not any(event.get("cat") in {"cpu_op", "user_annotation"} for event in between)


def _size(event: Mapping[str, Any], types: Mapping[int, str]) -> tuple[int, bool]:
    """The bytes of a collective's whole tensor, and whether its type is a guess."""
    elements = max((elements_of(dims) for dims in event.get("args", {}).get("Input Dims", [])), default=0)
    known = types.get(elements)
    return elements * SIZES.get(known or "float", 4), known is None


def elements_of(dims: Any) -> int:
    """Elements of a tensor, or of a list of tensors, as the profiler writes shapes."""
    if not isinstance(dims, list) or not dims:
        return 0
    if all(isinstance(size, int) for size in dims):
        return prod(dims)
    return sum(elements_of(inner) for inner in dims)


def _busy(events: Iterable[Mapping[str, Any]], begin: float, end: float) -> list[tuple[float, float]]:
    """When the rank computed: kernels if it has a GPU, else operators, without the collectives that these start.

    Where waits are noted, all else that a rank without a GPU does is its own time: Python's, too.
    """
    kernels = [event for event in events if event.get("cat") == "kernel" and "nccl" not in event["name"]]
    if kernels:
        return _union(kernels)
    starts = [event for event in events if event.get("cat") == "cpu_op" and event["name"].startswith("c10d::")]
    waits = [event for event in events if event["name"] == WAIT]
    if waits:
        return _without([(begin, end)], _union([*starts, *waits]))
    operators = [event for event in events if event.get("cat") == "cpu_op" and event not in starts]
    return _without(_union(operators), _union(starts))


def _union(events: Iterable[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """The times in which at least one of them lasts."""
    union: list[tuple[float, float]] = []
    for start, end in sorted((event["ts"], event["ts"] + event["dur"]) for event in events):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


def _without(times: Iterable[tuple[float, float]], others: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The times, without those of the others; both are disjoint and in order."""
    left = []
    for start, end in times:
        at = start
        for begin, until in others:
            if begin < end and until > at:
                left.append((at, max(at, begin)))
                at = max(at, min(until, end))
        left.append((at, end))
    return left


def _time(busy: Iterable[tuple[float, float]], begin: float, end: float) -> str:
    """How long the rank computed between two times in microseconds, as a quantity."""
    us = sum(max(0.0, min(end, until) - max(begin, start)) for start, until in busy)
    return f"{us:.6f} us"

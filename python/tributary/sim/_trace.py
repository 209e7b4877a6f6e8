"""A training step from PyTorch's profiler: what one rank computed, and the collectives that it started."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from tributary.errors import ConfigError

#: A step of one rank has some MB. A longer recording holds many steps.
MOST_BYTES = 512 << 20

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

#: What moves the shares of all ranks: its bytes are divided among them.
SHARED = {"reduce_scatter", "all_gather", "all_to_all"}

SIZES = {
    "float": 4, "double": 8, "c10::Half": 2, "c10::BFloat16": 2, "int": 4, "long int": 8, "unsigned char": 1,
    "signed char": 1, "bool": 1,
}  # fmt: skip


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


def step_of_trace(trace: str | os.PathLike[str], *, ranks: int, protocol: str, **keys: Any) -> TracedStep:
    """Read a Chrome trace of PyTorch's profiler as a training step of `ranks` data-parallel ranks.

    A recording of one rank, whose group may have no other::

        from torch.profiler import profile, schedule

        with profile(schedule=schedule(wait=1, warmup=1, active=1), record_shapes=True) as profiler:
            for _ in range(3):
                train_step()
                profiler.step()
        profiler.export_chrome_trace("rank0.json")

    The step is the last whole `ProfilerStep#` of the trace. What the rank computed between the starts of two
    collectives is one computation; waits inside of collectives do not count, so a slow network under the recording does
    no harm. The optimizer waits for all collectives. `keys` are further keys of the `[[step]]`.
    """
    events, recorded = _read(Path(trace))
    begin, end = _bounds(events, trace)
    inside = [event for event in events if begin <= event["ts"] < end]
    missing: Counter[str] = Counter()
    starts = [event for event in inside if _is_collective(event, missing)]
    types = _types(inside)
    notes = []
    if recorded != ranks:
        notes.append(f"a recording of {_number(recorded)} stands for {_number(ranks)}: each computes what that one did")
    waits = _optimizer(inside, end)
    if waits is None:
        notes.append("the trace has no Optimizer.step, so nothing in the step waits for the collectives")
    nodes, unknown = _nodes(inside, starts, types, (begin, end, waits), ranks)
    missing.update(unknown)
    if any(node.pop("guessed", False) for node in nodes):
        notes.append("some collectives have no type in the trace, and count as float32")
    step = {"kind": "graph", "protocol": protocol, "hosts": ranks, "node": nodes, **keys}
    return TracedStep(step, dict(missing), notes, recorded)


def _read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Whole events with times, in order of time, and the number of ranks."""
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise ConfigError(f"{path} has {size >> 20} MiB, and at most {MOST_BYTES >> 20} are read: record one step")
        trace = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror} (os error {error.errno})") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not a whole Chrome trace, perhaps because it is cut off: {error}") from error
    events = trace.get("traceEvents") if isinstance(trace, Mapping) else None
    if not isinstance(events, list):
        raise ConfigError(f"{path} has no traceEvents: it is not a Chrome trace of PyTorch's profiler")
    whole = [event for event in events if isinstance(event, Mapping) and event.get("ph") == "X"]
    for event in whole:
        times = (event.get("ts"), event.get("dur", 0))
        if not isinstance(event.get("name"), str) or not all(isinstance(time, (int, float)) for time in times):
            raise ConfigError(f"{path}: an event has no name or no time: {json.dumps(event)[:80]}")
    ranks = trace.get("distributedInfo", {}).get("world_size", 1) if isinstance(trace, Mapping) else 1
    plain = [{**event, "ts": float(event["ts"]), "dur": float(event.get("dur", 0))} for event in whole]
    return sorted(plain, key=lambda event: event["ts"]), ranks if isinstance(ranks, int) else 1


def _bounds(events: Iterable[Mapping[str, Any]], trace: str | os.PathLike[str]) -> tuple[float, float]:
    steps = [event for event in events if event["name"].startswith("ProfilerStep#")]
    if not steps:
        raise ConfigError(f"{os.fspath(trace)} has no ProfilerStep#: call `profiler.step()` after each step")
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
    busy = _busy(events)
    nodes: list[dict[str, Any]] = []
    unknown: Counter[str] = Counter()
    collectives: list[str] = []
    at = begin
    for number, start in enumerate(starts):
        kind = COLLECTIVES[start["name"].removeprefix("c10d::")]
        size, guessed = _size(start, types)
        before = f"compute {number}"
        nodes.append({"name": before, "compute": _time(busy, at, start["ts"])})
        at = start["ts"]
        if size == 0 and kind != "barrier":
            unknown[f"{start['name']} without sizes: record with record_shapes=True"] += 1
            continue
        name = f"{kind} {number}"
        collectives.append(name)
        node: dict[str, Any] = {"name": name, "collective": kind, "after": [before]}
        if kind != "barrier":
            node |= {"bytes": -(-size // (4 * ranks)) * 4 * ranks if kind in SHARED else size, "guessed": guessed}
        nodes.append(node)
    middle = end if waits is None else max(at, waits)
    nodes.append({"name": f"compute {len(starts)}", "compute": _time(busy, at, middle)})
    if waits is not None:
        nodes.append({"name": "optimizer", "compute": _time(busy, middle, end), "after": collectives})
    return nodes, unknown


def _size(event: Mapping[str, Any], types: Mapping[int, str]) -> tuple[int, bool]:
    """The bytes of a collective's whole tensor, and whether its type is a guess."""
    elements = max((_elements(dims) for dims in event.get("args", {}).get("Input Dims", [])), default=0)
    known = types.get(elements)
    return elements * SIZES.get(known or "float", 4), known is None


def _elements(dims: Any) -> int:
    """Elements of a tensor, or of a list of tensors, as the profiler writes shapes."""
    if not isinstance(dims, list) or not dims:
        return 0
    if all(isinstance(size, int) for size in dims):
        return prod(dims)
    return sum(_elements(inner) for inner in dims)


def _busy(events: Iterable[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """When the rank computed: kernels if it has a GPU, else operators, without the collectives that these start."""
    kernels = [event for event in events if event.get("cat") == "kernel" and "nccl" not in event["name"]]
    operators = [event for event in events if event.get("cat") == "cpu_op"]
    starts = [event for event in operators if event["name"].startswith("c10d::")]
    busy = _union(kernels or [event for event in operators if not event["name"].startswith("c10d::")])
    return busy if kernels else _without(busy, _union(starts))


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


def _number(ranks: int) -> str:
    return "1 rank" if ranks == 1 else f"{ranks} ranks"

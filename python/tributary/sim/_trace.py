"""A training step from a trace, in any of four formats."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tributary.errors import ConfigError
from tributary.sim import _chakra, _execution_trace, _goal, _profile
from tributary.sim._traced import TracedStep, read


def step_of_trace(
    trace: str | os.PathLike[str], *, ranks: int, protocol: str, compute: float | None = None, **keys: Any
) -> TracedStep:
    """Read one rank's trace as a training step of `ranks` data-parallel ranks.

    *PyTorch's profiler* writes Chrome traces. `tributary.torch.record_step(train_step, "rank0.json")` makes one; so
    does the profiler by itself::

        from torch.profiler import profile, schedule

        with profile(schedule=schedule(wait=1, warmup=1, active=1), record_shapes=True) as profiler:
            for _ in range(3):
                train_step()
                profiler.step()
        profiler.export_chrome_trace("rank0.json")

    The step is the last whole `ProfilerStep#` of the trace. What the rank computed between the starts of two
    collectives is one computation; waits inside of collectives do not count, so a slow network under the recording does
    no harm. What it computes after a wait that `record_step` noted waits in the simulation, too, for the collective
    that was started just before, else for the oldest; without such notes, FSDP2's layers wait for their parameters. The
    optimizer waits for all collectives.

    *PyTorch's ExecutionTraceObserver* writes no times: give `compute`, the seconds that the rank computes in the step,
    which is what the trace holds. They are divided evenly among its operators.

    *Chakra* (MLCommons) has one file of protobuf or JSON for each rank; this reads one. Nodes wait for data
    dependencies alone, as in Chakra's own feeder. A collective's `comm_size` is what a
    rank brings. Sends and receives are counted, and not modelled.

    *GOAL* (LogGOPSim) has all ranks in one text, which must be `ranks`. A receive is complete once its message is there
    and what it requires is; `irequires` waits for what the other operation requires.

    `keys` are further keys of the `[[step]]`.
    """
    path = Path(trace)
    data = read(path)
    begins = data[:4096].lstrip()
    if _goal.is_goal(begins):
        nodes, missing, notes, recorded = _goal.nodes(path, data, ranks)
    elif begins[:1] in (b"{", b"["):
        read_trace = _json(path, data)
        if isinstance(read_trace, Mapping) and "nodes" in read_trace:
            nodes, missing, notes, recorded = _execution_trace.nodes(path, read_trace, ranks, compute)
        elif isinstance(read_trace, Mapping) and "workload_graph" in read_trace:
            nodes, missing, notes, recorded = _chakra.nodes_of_json(path, read_trace, ranks)
        else:
            nodes, missing, notes, recorded = _profile.nodes(path, read_trace, ranks)
    else:
        nodes, missing, notes, recorded = _chakra.nodes(path, data, ranks)
    step = {"kind": "graph", "protocol": protocol, "hosts": ranks, "node": nodes, **keys}
    return TracedStep(step, dict(missing), notes, recorded)


def _json(path: Path, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not a whole Chrome trace, perhaps because it is cut off: {error}") from error

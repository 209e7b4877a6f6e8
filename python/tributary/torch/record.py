"""One training step of a rank, recorded with PyTorch's profiler for ``tributary.sim.step_of_trace``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch._C._distributed_c10d import Work
from torch.profiler import profile, record_function, schedule

from tributary.sim._profile import WAIT


def record_step(step: Callable[[], object], trace: str | os.PathLike[str], *, warmup: int = 2) -> Path:
    """Run a training step some times, and write the last one's trace, for `tributary.sim.step_of_trace`.

    One rank is enough, on a machine without a network. DDP takes a group of one; FSDP2 has collectives only among more
    ranks, and PyTorch has a group for that whose other ranks are made up::

        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
        tributary.torch.record_step(train_step, "rank0.json")

    `warmup` steps come before. Beside what the profiler records, the trace has when the rank waited for a collective.
    """
    path = Path(trace)
    with _noting_waits(), profile(schedule=schedule(wait=warmup, warmup=1, active=1), record_shapes=True) as profiler:
        for _ in range(warmup + 2):
            step()
            profiler.step()
    profiler.export_chrome_trace(str(path))
    return path


@contextmanager
def _noting_waits() -> Iterator[None]:
    """Annotate each wait that is called from Python. Those of DDP's reducer come before the optimizer."""
    original = Work.wait

    def wait(self: Any, *args: Any, **keys: Any) -> Any:
        with record_function(WAIT):
            return original(self, *args, **keys)

    Work.wait = wait  # type: ignore[method-assign]
    try:
        yield
    finally:
        Work.wait = original  # type: ignore[method-assign]

"""What one rank does with PyTorch where something goes wrong: functions for the ``ranks`` fixture."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import tributary
from torch_groups import default_group


def missing(rank: int, size: int, meet: str, absent: int) -> tuple[str, str]:
    """A rank does not come to the third collective: what the others learn."""
    learnt = [Path(f"{meet}-{other}") for other in range(size) if other != absent]
    with default_group(rank, size, meet, timeout=2.0):
        dist.all_reduce(torch.ones(4))
        dist.barrier()
        if rank == absent:
            # It leaves once the others know: otherwise they would learn that.
            deadline = time.monotonic() + 60
            while not all(path.exists() for path in learnt) and time.monotonic() < deadline:
                time.sleep(0.05)
            return "", ""
        try:
            dist.all_reduce(torch.ones(4))
        except RuntimeError as error:
            Path(f"{meet}-{rank}").touch()
            return type(error).__name__, str(error)
    return "nothing", "went wrong"


def missing_on_the_host_path(rank: int, size: int, meet: str) -> tuple[str, str]:
    """As :func:`missing`, of a type that fixed point does not know."""
    with default_group(rank, size, meet, timeout=2.0, options="numbers=fixed"):
        dist.all_reduce(torch.ones(4, dtype=torch.float64))
        if rank == size - 1:
            time.sleep(3.5)
            return "", ""
        try:
            dist.all_reduce(torch.ones(4, dtype=torch.float64))
        except RuntimeError as error:
            return type(error).__name__, str(error)
    return "nothing", "went wrong"


def differing(rank: int, size: int, meet: str, brings: list[tuple[str, str, str]], how: str) -> tuple[str, str]:
    """Every rank brings its own of these, by operation, type and operator; what it hears.

    In fixed point, which leaves float64 and MAX to the host path.
    """
    name, dtype, op = brings[rank]
    tensor = torch.ones(1000, dtype=getattr(torch, dtype))
    # Nobody waits for this timeout in a test that passes.
    with default_group(rank, size, meet, timeout=500.0, options="numbers=fixed"):
        try:
            if name == "all_gather":
                work = dist.all_gather([torch.empty_like(tensor) for _ in range(size)], tensor, async_op=True)
            else:
                work = dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op), async_op=True)
            assert work is not None
            if how == "future":
                work.get_future().wait()
            else:
                work.wait()
        except RuntimeError as error:
            return type(error).__name__, str(error)
    return "nothing", "went wrong"


def impatient(rank: int, size: int, meet: str) -> None:
    """A wait that is shorter than the collective can be repeated; NaNs and infinities arrive."""
    with default_group(rank, size, meet):
        dist.barrier()
        if rank == 1:
            time.sleep(0.6)
        tensor = torch.tensor([1.0, float("inf"), float("nan")])
        handle = dist.all_reduce(tensor, async_op=True)
        assert handle is not None
        if rank == 0:
            with pytest.raises(RuntimeError, match="all_reduce 2 of group 0 is still under way"):
                handle.wait(timedelta(milliseconds=50))
        handle.wait()
        assert tensor.tolist()[:2] == [size, float("inf")]
        assert tensor[2].isnan()


def adding_up(rank: int, size: int, meet: str) -> list[str]:
    """Sum in subgroups alone; what the log tells at the end."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("tributary.torch")
    log.addHandler(handler)
    try:
        with default_group(rank, size, meet):
            both = [dist.new_group(), dist.new_group()]
            dist.all_reduce(torch.ones(1024), group=both[0])
            dist.all_reduce(torch.ones(2048), group=both[1])
            dist.destroy_process_group(both[0])
    finally:
        log.removeHandler(handler)
    return lines


def strict(rank: int, size: int, meet: str) -> None:
    """TRIBUTARY_FALLBACK=error."""
    with default_group(rank, size, meet, fallback="error"):
        dist.all_reduce(torch.ones(3))
        for tensor, op, words in [
            (torch.ones(3), dist.ReduceOp.BAND, ["a band of f32", "TRIBUTARY_FALLBACK=gloo"]),
            (torch.ones(3).to(torch.uint16), dist.ReduceOp.MAX, ["torch.uint16", "the host path does not reduce"]),
        ]:
            try:
                dist.all_reduce(tensor, op=op)
            except tributary.UnsupportedError as error:
                assert all(word in str(error) for word in words)
            else:
                raise AssertionError("it was summed")
        dist.all_gather_object([None] * size, "moves, sums nothing")


def refusals(rank: int, size: int, meet: str) -> None:
    """What goes neither way."""
    with default_group(rank, size, meet):
        try:
            dist.all_reduce(torch.eye(3).to_sparse())
        except tributary.UnsupportedError as error:
            assert "to_dense" in str(error)
        else:
            raise AssertionError("it was summed")
        dist.barrier()


def nonfinite(rank: int, size: int, meet: str) -> list[list[bool]]:
    """One rank's NaN and infinity reach all."""
    with default_group(rank, size, meet):
        gradient = torch.ones(1000)
        if rank == 1:
            gradient[3], gradient[500] = float("nan"), float("inf")
        dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
    return [gradient.isfinite().tolist()]


def bereaved(rank: int, size: int, meet: str, switch: str | None) -> tuple[str, str]:
    """Train with DDP until somebody is missed; the error's type and sentence."""
    try:
        # Nobody waits for this timeout in a test that passes.
        with default_group(rank, size, meet, timeout=500.0, switch=switch):
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 8))
            print("training", flush=True)
            while True:
                model(torch.randn(8, 32)).square().mean().backward()
    except RuntimeError as error:
        return type(error).__name__, str(error)

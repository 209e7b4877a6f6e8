"""What every rank's function begins with: a group that meets in a file, and data whose sums are exact."""

from __future__ import annotations

import gc
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from tributary.torch import Options, switches
from tributary.torch.spread import Shares


def begin_group(rank: int, size: int, meet: str, timeout: float, options: Options | None) -> None:
    """Make a default group that meets in a file; its end is the caller's."""
    dist.init_process_group(
        "tributary",
        init_method=f"file://{meet}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout),
        pg_options=options,
    )


def options_of(**given: Any) -> Options:
    """The options that a test gives, in place of all variables but the one that says whether ranks share memory."""
    return Options(**{"local": os.environ["TRIBUTARY_LOCAL"]} | given)


@contextmanager
def default_group(rank: int, size: int, meet: str, timeout: float = 20.0, **options: Any) -> Iterator[None]:
    """A default group that meets in a file."""
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    begin_group(rank, size, meet, timeout, options_of(**options) if options else None)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def planned(plan: Callable[..., Shares]) -> Iterator[None]:
    """Large sums are shared out as `plan` says, whatever links carry and sums by the plan take."""

    def as_planned(_groups: object, _hosts: object, shares: Shares, _timeout: float) -> Shares:
        return shares

    with mock.patch.object(switches, "plan", plan), mock.patch.object(switches, "balance", as_planned):
        yield


def digest(*tensors: torch.Tensor) -> str:
    """The bits of tensors."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def data(rank: int, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """A rank's tensor: small integers, whose sums every type holds exactly."""
    draw = torch.Generator().manual_seed(100 + rank)
    return torch.randint(1, 5, shape, generator=draw).to(dtype)


def datas(size: int, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """All ranks' tensors, stacked."""
    return torch.stack([data(rank, dtype, *shape) for rank in range(size)])


def open_descriptors() -> Counter[str]:
    """This process's descriptors by their kinds, without those of garbage that earlier groups have left."""
    gc.collect()
    kinds: Counter[str] = Counter()
    for descriptor in Path("/proc/self/fd").iterdir():
        # The one that lists them is closed again.
        with suppress(OSError):
            kinds[str(descriptor.readlink()).split(":")[0]] += 1
    return kinds

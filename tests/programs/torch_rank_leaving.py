"""What one rank does with PyTorch as its groups end: functions for the ``ranks`` fixture."""

from __future__ import annotations

import gc
import os
import time
import weakref
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist

import tributary
from torch_groups import begin_group, options_of
from tributary.torch import rendezvous
from tributary.torch.backend import TributaryBackend
from tributary.torch.work import IDLE_S


def group_of_all(rank: int, size: int, meet: str, options: str = "", timeout: float = 60.0) -> None:
    """A default group, whose end is the caller's."""
    begin_group(rank, size, meet, timeout, options_of(listen="127.0.0.1", options=options))


def destroys_with_work_pending(rank: int, size: int, meet: str, options: str) -> list[float]:
    """The sums of operations that are under way when the group is destroyed; the ranks are not equally fast."""
    group_of_all(rank, size, meet, options)
    tensors = [torch.full((100_000,), rank + 1.0) for _ in range(50)]
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
        if rank == size - 1:
            time.sleep(0.002)
    dist.destroy_process_group()
    return [tensor[-1].item() for tensor in tensors]


def destroys_with_work_of_its_own(rank: int, size: int, meet: str) -> list[str]:
    """What the first rank hears of an operation that the other has not started when it destroys the group."""
    group_of_all(rank, size, meet)
    dist.all_reduce(torch.ones(10))
    errors = []
    if rank == 0:
        work = dist.all_reduce(torch.ones(10), async_op=True)
        assert work is not None
        dist.destroy_process_group()
        try:
            work.wait()
        except RuntimeError as error:
            errors.append(f"{type(error).__name__}: {error}")
    else:
        dist.destroy_process_group()
    return errors


def open_now() -> tuple[int, Counter[str]]:
    """How many descriptors this process has, and its threads by their names."""
    names: Counter[str] = Counter()
    for task in Path("/proc/self/task").iterdir():
        # A thread may end meanwhile.
        with suppress(OSError):
            names[(task / "comm").read_text().strip()] += 1
    return len(os.listdir("/proc/self/fd")), names


def idle_groups(rank: int, size: int, meet: str, count: int, local: str) -> tuple[int, list[str]]:
    """More descriptors, and the names of more threads, with this many idle groups more; they have summed."""

    def used_group() -> dist.ProcessGroup:
        group = dist.new_group()
        for async_op in (False, True):
            work = dist.all_reduce(tensor := torch.ones(100), group=group, async_op=async_op)
            if work is not None:
                work.get_future().wait()
            assert tensor.tolist() == [size] * 100
        return group

    begin_group(rank, size, meet, 60.0, options_of(listen="127.0.0.1", local=local))
    first = used_group()
    descriptors, threads = open_now()
    groups = [used_group() for _ in range(count)]
    # Threads that had something to do end soon.
    last, deadline = open_now(), time.monotonic() + 60.0
    while time.monotonic() < deadline:
        time.sleep(1.5 * IDLE_S)
        now = open_now()
        if now == last:
            break
        last = now
    descriptors, more = last[0] - descriptors, last[1] - threads
    for group in [first, *groups]:
        dist.destroy_process_group(group)
    dist.destroy_process_group()
    return descriptors, sorted(more.elements())


def fails(rank: int, size: int, meet: str, way: str, turns: int) -> tuple[int, list[str], int]:
    """More descriptors, names of more threads, and tensors that are left, once groups have failed and ended."""
    tensors: list[weakref.ref[torch.Tensor]] = []

    def turn(number: int) -> None:
        group_of_all(rank, size, f"{meet}-{number}")
        tensor = torch.ones(100 + rank)
        tensors.append(weakref.ref(tensor))
        try:
            work = dist.all_reduce(tensor, async_op=way != "at once")
            if work is not None:
                (work.get_future() if way == "future" else work).wait()
        except tributary.MismatchError:
            dist.destroy_process_group()
        else:
            raise AssertionError("ranks with different sizes had a sum")

    turn(0)
    gc.collect()
    descriptors, threads = open_now()
    for number in range(turns):
        turn(1 + number)
    deadline = time.monotonic() + 20.0
    while True:
        gc.collect()
        now, left = open_now(), sum(tensor() is not None for tensor in tensors)
        more, names = now[0] - descriptors, sorted((now[1] - threads).elements())
        # A goodbye may hold a socket for a moment yet, and threads that had something to do end soon.
        if (more <= 0 and not names and left == 0) or time.monotonic() > deadline:
            return more, names, left
        time.sleep(0.1)


def sends_before_others_receive(rank: int, size: int, meet: str) -> list[float]:
    """What this rank receives of the first, which sends and then sums, before the others receive."""
    group_of_all(rank, size, meet)
    group = dist.new_group()
    received: list[float] = []
    works = []
    if rank == 0:
        works = [dist.isend(torch.tensor([value]), to, group=group) for to, value in [(1, 7.0), (2, 9.0), (1, 8.0)]]
    dist.all_reduce(torch.ones(1), group=group)
    for _ in range([0, 2, 1][rank]):
        # The second rank receives from any.
        dist.recv(tensor := torch.zeros(1), 0 if rank == 2 else None, group=group)
        received += tensor.tolist()
    for work in works:
        assert work is not None
        work.wait()
    dist.destroy_process_group()
    return received


def receives_from_any_while_others_only_sum(rank: int, size: int, meet: str) -> list[float]:
    """What the first rank of a default group receives from any; the last one uses no host path before it sums."""
    group_of_all(rank, size, meet)
    received: list[float] = []
    if rank == 0:
        source = dist.recv(tensor := torch.zeros(1))
        received = [source, *tensor.tolist()]
    elif rank == 1:
        dist.send(torch.tensor([7.0]), 0)
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()
    return received


def receives_from_a_rank_that_never_comes(rank: int, size: int, meet: str) -> str:
    """The error of a receive in a group whose other rank begins nothing on the host path."""
    group_of_all(rank, size, meet)
    group = dist.new_group(timeout=timedelta(seconds=60 if rank else 0.2))
    sentence = ""
    if rank == 0:
        try:
            dist.recv(torch.zeros(1), 1, group=group)
        except RuntimeError as error:
            sentence = str(error)
    dist.barrier()
    dist.destroy_process_group()
    return sentence


def leaves_a_dead_rank(rank: int, size: int, meet: str) -> str:
    """The last rank dies without a word; the others lose it and leave."""
    with mock.patch.object(rendezvous, "GRACE_S", 3600.0):
        backend = TributaryBackend(
            dist.FileStore(meet, size), rank, size, timeout=timedelta(hours=1), options=options_of(listen="127.0.0.1")
        )
        opts = dist.AllreduceOptions()
        backend.allreduce([torch.ones(10)], opts).wait()
        if rank == size - 1:
            assert backend._members is not None
            backend._members.main.abort()
            return "dead"
        try:
            backend.allreduce([torch.ones(10)], opts).wait()
        except tributary.RankLostError:
            backend.shutdown()
            return "left"
    return "nothing went wrong"

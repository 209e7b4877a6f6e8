"""What one process does whose group changes its members: functions for the ``ranks`` fixture.

The scenarios are those of PyTorch's own suite for backends that can be reconfigured, and more.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType

import tributary.torch
from torch_groups import open_descriptors, options_of

#: Of everything that is waited for in vain only where a test fails.
LONG = timedelta(seconds=60)


class Process:
    """One process of a group that can be reconfigured, and the store by which a test's processes hear of each other."""

    def __init__(self, number: int, count: int, meet: str) -> None:
        self.number, self.count = number, count
        self.store = dist.FileStore(meet, -1)
        self.store.set_timeout(LONG)

    @contextmanager
    def group(self, **options: Any) -> Iterator[None]:
        """Make the group, without members yet; destroy it in the end."""
        torch.set_num_threads(1)
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        dist.init_process_group(
            "tributary",
            store=self.store,
            rank=self.number,
            world_size=self.count,
            timeout=LONG,
            pg_options=options_of(**options) if options else None,
            enable_reconfigure=True,
        )
        assert dist._supports_reconfigure()
        try:
            yield
        finally:
            dist.destroy_process_group()

    def all_handles(self, key: str) -> list[str]:
        """Every process's handle, in the order of processes."""
        self.store.set(f"{key}-{self.number}", dist._get_reconfigure_handle())
        return [self.store.get(f"{key}-{number}").decode() for number in range(self.count)]

    def handles(self, key: str, of: list[int]) -> list[str]:
        """The handles of some processes, in this order."""
        self.store.set(f"{key}-{self.number}", dist._get_reconfigure_handle())
        return [self.store.get(f"{key}-{number}").decode() for number in of]

    def wait_for_all(self, key: str) -> None:
        """Wait until every process has come here."""
        self.store.set(f"{key}-{self.number}", "here")
        for number in range(self.count):
            self.store.get(f"{key}-{number}")


def reconfigure(uuid: int, handles: list[str] | set[str], timeout: timedelta = LONG) -> None:
    """Have these members."""
    dist._reconfigure(uuid, handles, timeout=timeout).wait()


def check(rank: int, size: int) -> None:
    """This process is that rank of this many, and all that members do together works."""
    assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
    group = dist.group.WORLD
    assert group is not None
    assert (group.rank(), group.size()) == (rank, size)
    mine = torch.full((1000,), rank + 1.0)
    dist.all_reduce(mine)
    assert mine.unique().tolist() == [size * (size + 1) / 2]
    word = torch.full((4,), 42.0 if rank == 0 else 0.0)
    dist.broadcast(word, group_src=0)
    assert word.tolist() == [42.0] * 4
    gathered = [torch.zeros(3) for _ in range(size)]
    dist.all_gather(gathered, torch.full((3,), float(rank)))
    assert [one[0].item() for one in gathered] == list(range(size))
    if size > 1:
        came = torch.zeros(2)
        works = [
            dist.isend(torch.full((2,), float(rank)), group_dst=(rank + 1) % size),
            dist.irecv(came, group_src=(rank - 1) % size),
        ]
        for work in works:
            assert work is not None
            work.wait()
        assert came.tolist() == [float((rank - 1) % size)] * 2
    dist.barrier()
    assert error() == ErrorType.SUCCESS


def backend() -> Any:
    """The group's backend."""
    return dist.get_backend_impl(dist.group.WORLD, torch.device("cpu"))


def error() -> ErrorType:
    """What the group says of itself."""
    kind: ErrorType = backend().get_error()
    return kind


def sentence(what: Callable[[], object]) -> str:
    """How it fails."""
    try:
        what()
    except Exception as failed:
        return f"{type(failed).__name__}: {failed}"
    raise AssertionError("nothing went wrong")


def changing(number: int, count: int, meet: str, switch: str | None, protocol: str) -> None:
    """All of the ways in which members change, one after the other in one group."""
    process = Process(number, count, meet)
    last, middle = count - 1, count // 2
    with process.group(protocol=protocol, **({"switch": switch} if switch else {})):
        assert "has no members yet" in sentence(lambda: dist.all_reduce(torch.ones(1)))
        # Everybody.
        everybody = process.all_handles("first")
        reconfigure(1, everybody)
        check(number, count)
        # The same once more, with the same handles.
        reconfigure(2, everybody)
        check(number, count)
        # Without the last.
        if number != last:
            reconfigure(3, everybody[:last])
            check(number, last)
        process.wait_for_all("without the last")
        # The last comes back.
        reconfigure(4, everybody)
        check(number, count)
        # Without the one in the middle, and it comes back as the last.
        rest = [other for other in range(count) if other != middle]
        if number != middle:
            reconfigure(5, [everybody[other] for other in rest])
            check(rest.index(number), count - 1)
        order = [*rest, middle]
        reconfigure(6, [everybody[other] for other in order])
        check(order.index(number), count)
        # Each alone, and together again.
        reconfigure(10 + number, [everybody[number]])
        check(0, 1)
        reconfigure(7, everybody)
        check(number, count)
        # Split in two, and merged; a set is in the order of the first ranks.
        half = everybody[:middle] if number < middle else everybody[middle:]
        reconfigure(20 + (number < middle), half)
        check(half.index(everybody[number]), len(half))
        reconfigure(8, set(everybody))
        check(number, count)
        # In the opposite order: another process is rank 0, which runs the switch where nobody else does.
        reconfigure(9, everybody[::-1])
        check(count - 1 - number, count)
    process.wait_for_all("the end")


def after_failures(number: int, count: int, meet: str) -> None:
    """An abort and a timeout are reported as what they are, and the group goes on after either."""
    process = Process(number, count, meet)
    called: list[str] = []
    with process.group():
        group = dist.group.WORLD
        assert group is not None
        assert group.supports_abort_hooks
        group.register_abort_hook(1, lambda: called.append("first"))
        group.register_abort_hook(2, lambda: called.append("second"))
        group.unregister_abort_hook(1)
        handles = process.all_handles("first")
        reconfigure(1, handles)
        check(number, count)
        # An abort while something is under way.
        waiting = dist.all_reduce(torch.ones(4), async_op=True) if number else None
        backend().abort()
        assert error() == ErrorType.COMM_ERROR
        assert called == ["second"]
        if waiting is not None:
            failed = sentence(waiting.wait)
            assert re.search("all_reduce.*(aborted|gone)", failed), failed
        assert "has no members since it was aborted" in sentence(lambda: dist.all_reduce(torch.ones(1)))
        process.wait_for_all("aborted")
        reconfigure(2, handles)
        check(number, count)
        # A timeout: nobody else comes.
        backend().set_timeout(timedelta(milliseconds=200))
        if number == 1:
            failed = sentence(lambda: dist.all_reduce(torch.ones(4)))
            assert re.search("timed out, after a timeout of 0.2 s", failed), failed
            assert error() == ErrorType.TIMEOUT
            assert called == ["second", "second"]
        backend().set_timeout(LONG)
        process.wait_for_all("timed out")
        reconfigure(3, handles)
        check(number, count)
        # Members that never come are named, and it goes on after that.
        if number == 0:
            failed = sentence(lambda: reconfigure(4, handles, timedelta(milliseconds=500)))
            away = "rank 1 has" if count == 2 else f"ranks {', '.join(map(str, range(1, count)))} have"
            begin = f"reconfiguration 4 of group 0, rank 0 of {count}"
            assert f"{begin}: timed out after 0.5 s: {away} not come, of {count}" in failed, failed
            assert "has no members since reconfiguration 4 failed" in sentence(lambda: dist.all_reduce(torch.ones(1)))
        process.wait_for_all("nobody came")
        reconfigure(5, handles)
        check(number, count)
    process.wait_for_all("the end")


def bad_use(number: int, count: int, meet: str) -> None:
    """What cannot be is a sentence, and changes nothing."""
    process = Process(number, count, meet)
    with process.group():
        handles = process.all_handles("first")
        mine = handles[number]
        reconfigure(1, handles)
        process.wait_for_all("together")
        other = mine[:-16] + "0" * 16
        for uuid, given, words in [
            (1, handles, "number was already used"),
            (2, handles[:number] + handles[number + 1 :], "this process's handle is not among the"),
            (2, [mine, mine], "a handle is there twice"),
            (2, [mine, "gloo:1:2"], "'gloo:1:2' is not a handle of a tributary group"),
            (2, [mine, other], "of a process that uses another store"),
            (2, [], "this process's handle is not among the 0"),
        ]:
            failed = sentence(partial(reconfigure, uuid, given))
            assert words in failed, failed
            assert f"reconfiguration {uuid}: " in failed
        check(number, count)
        # The others have a number already that is new to this process.
        if number:
            reconfigure(3, handles[1:])
        process.wait_for_all("used")
        if number == 0:
            failed = sentence(lambda: reconfigure(3, handles))
            assert "the number was already used for other members" in failed, failed
        reconfigure(4, handles)
        check(number, count)
    process.wait_for_all("the end")


def keeping(rank: int, size: int, meet: str) -> str:
    """A group that was made without the flag keeps its members."""
    dist.init_process_group("tributary", store=dist.FileStore(meet, size), rank=rank, world_size=size, timeout=LONG)
    try:
        assert not dist._supports_reconfigure()
        return sentence(dist._get_reconfigure_handle)
    finally:
        dist.destroy_process_group()


def bereaved(number: int, count: int, meet: str, switch: str | None) -> tuple[float, float, str]:
    """Sum until another process is killed; go on without it.

    Seconds from the last sum until it fails, and until there is a sum again; and the sentence.
    """
    process = Process(number, count, meet)
    with process.group(**({"switch": switch} if switch else {})):
        reconfigure(1, process.all_handles("first"))
        check(number, count)
        if number == count - 1:
            print("summing", flush=True)
        error_sentence = ""
        while not error_sentence:
            begun = time.monotonic()
            try:
                dist.all_reduce(torch.ones(1 << 16))
            except RuntimeError as failed:
                error_sentence = f"{type(failed).__name__}: {failed}"
        failed_s = time.monotonic() - begun
        assert error() == ErrorType.COMM_ERROR
        rest = [other for other in range(count) if other != count - 1]
        reconfigure(2, process.handles("second", rest))
        dist.all_reduce(torch.ones(1 << 16))
        again_s = time.monotonic() - begun
        check(number, count - 1)
    return failed_s, again_s, error_sentence


def orphaned(number: int, count: int, meet: str, switch: str) -> tuple[str, str]:
    """The switch is killed, and later another takes over its address. What a sum and a reconfiguration say."""
    process = Process(number, count, meet)
    with process.group(switch=switch):
        handles = process.all_handles("first")
        reconfigure(1, handles)
        check(number, count)
        process.store.add("summing", 1)
        process.store.get("killed")
        of_sum = sentence(lambda: dist.all_reduce(torch.ones(4)))
        assert error() == ErrorType.COMM_ERROR
        of_change = sentence(lambda: reconfigure(2, handles, timedelta(seconds=5)))
        process.store.add("failed", 1)
        process.store.get("started")
        reconfigure(3, handles)
        check(number, count)
    return of_sum, of_change


def refused(number: int, count: int, meet: str, switch: str, times: int) -> list[str]:
    """There is no switch. What each attempt to have members says."""
    process = Process(number, count, meet)
    sentences = []
    with process.group(switch=switch):
        handles = process.all_handles("first")
        for uuid in range(1, times + 1):
            sentences.append(sentence(partial(reconfigure, uuid, handles, timedelta(seconds=5))))
            process.wait_for_all(f"attempt {uuid}")
    return sentences


def interrupted(number: int, count: int, meet: str, switch: str) -> str:
    """The switch says nothing from before a reconfiguration, and is killed in it. What each process says of that."""
    process = Process(number, count, meet)
    with process.group(switch=switch):
        handles = process.all_handles("first")
        reconfigure(1, handles)
        check(number, count)
        process.store.add("summed", 1)
        process.store.get("stopped")
        process.store.add("on the way", 1)
        failed = sentence(lambda: reconfigure(2, handles, timedelta(seconds=20)))
        process.store.add("failed", 1)
        process.store.get("started")
        reconfigure(3, handles)
        check(number, count)
    return failed


def over_lossy_links(number: int, count: int, meet: str, times: int) -> int:
    """Change members many times on a host whose links lose packets; the packets that were sent again."""
    process = Process(number, count, meet)
    again = 0
    with process.group():
        handles = process.all_handles("first")
        for turn in range(times):
            without = turn % count
            members = [*handles[without + 1 :], *handles[: without + (turn % 2)]]
            if handles[number] not in members:
                continue
            reconfigure(turn, members)
            check(members.index(handles[number]), len(members))
            many = torch.full((1 << 18,), members.index(handles[number]) + 1.0)
            dist.all_reduce(many)
            assert many.unique().tolist() == [len(members) * (len(members) + 1) / 2]
            packets = tributary.torch.stats().packets
            again += packets.retransmissions if packets is not None else 0
    process.wait_for_all("the end")
    return again


def often(number: int, count: int, meet: str, switch: str, times: int) -> tuple[int, list[str]]:
    """Change members many times; threads, and kinds of descriptors, that are more in the end than in the beginning."""
    process = Process(number, count, meet)

    with process.group(switch=switch, job="changes-often"):
        handles = process.all_handles("first")
        reconfigure(1, handles)
        check(number, count)
        before = threading.active_count(), open_descriptors()
        for turn in range(2, times):
            reconfigure(turn, handles[turn % count :] + handles[: turn % count])
            mine = torch.ones(16)
            dist.all_reduce(mine)
            assert mine.tolist() == [count] * 16
        reconfigure(times, handles)
        check(number, count)
        deadline = time.monotonic() + 10
        while True:
            after = threading.active_count(), open_descriptors()
            threads, descriptors = after[0] - before[0], sorted((after[1] - before[1]).elements())
            # A goodbye may hold a socket for a moment yet; what leaks stays.
            if (threads <= 0 and not descriptors) or time.monotonic() > deadline:
                return threads, descriptors
            time.sleep(0.1)


if __name__ == "__main__":
    # One host of a star of lossy links.
    own, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    print(json.dumps({"again": over_lossy_links(own, world_size, sys.argv[1], int(sys.argv[2]))}))

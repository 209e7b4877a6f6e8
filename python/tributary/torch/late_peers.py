"""Sends and receives of a host path that not every rank has yet.

A group's Gloo exists on a rank once an operation there needs it. Gloo's own send would block in its start until the
other rank's exists, and a program may start a send long before the other rank receives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

import torch.distributed as dist

#: How often to look in the store for the other ranks, while some are late.
_GLANCE_S = 0.005


class LatePeers:
    """Which ranks have the host path, and what waits for those that do not."""

    def __init__(self, store: dist.Store, rank: int) -> None:
        self._store, self._rank = store, rank
        self._changed = threading.Condition()
        self._here: set[int] = set()
        #: In the order of the program, each with the ranks that it needs.
        self._waiting: list[LateWork] = []
        self._thread: threading.Thread | None = None
        self._closed = False

    def announce(self) -> None:
        """Say that this rank has the host path."""
        self._store.set(_key(self._rank), "1")

    def start(self, peers: Collection[int], begin: Callable[[], Any], timeout: timedelta) -> Any:
        """Begin an operation with these ranks, now or once all have the host path; Gloo's work, or a stand-in."""
        late = LateWork(frozenset(peers) - {self._rank}, begin, timeout)
        with self._changed:
            if not any(late.peers & other.peers for other in self._waiting) and self._are_here(late.peers):
                return begin()
            self._waiting.append(late)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="late-peers", daemon=True)
                self._thread.start()
        return late

    def close(self) -> None:
        """Fail what still waits."""
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, []
            self._changed.notify_all()
        for late in waiting:
            late.fail(RuntimeError("the group has ended before the other rank began an operation of the host path"))

    def _are_here(self, peers: frozenset[int]) -> bool:
        missing = peers - self._here
        if missing and self._store.check([_key(rank) for rank in missing]):
            self._here |= missing
        return peers <= self._here

    def _run(self) -> None:
        with self._changed:
            while self._waiting and not self._closed:
                self._begin_those_that_can()
                if self._waiting:
                    self._changed.wait(_GLANCE_S)
            self._thread = None

    def _begin_those_that_can(self) -> None:
        # Operations with one rank begin in the order of the program, as Gloo matches them.
        behind: set[int] = set()
        waiting = []
        for late in self._waiting:
            try:
                can_begin = not late.peers & behind and self._are_here(late.peers)
            except RuntimeError as error:  # The store is gone.
                late.fail(error)
                continue
            if can_begin:
                late.begin()
            else:
                waiting.append(late)
                behind |= late.peers
        self._waiting = waiting


class LateWork:
    """What stands in for Gloo's work until that has begun, with those of its methods that are used."""

    def __init__(self, peers: frozenset[int], begin: Callable[[], Any], timeout: timedelta) -> None:
        self.peers, self._begin, self._timeout = peers, begin, timeout
        self._has_begun = threading.Event()
        self._inner: Any = None
        self._error: RuntimeError | None = None

    def begin(self) -> None:
        """Begin it."""
        try:
            self._inner = self._begin()
        except RuntimeError as error:
            self._error = error
        self._has_begun.set()

    def fail(self, error: RuntimeError) -> None:
        """End it, since it cannot begin any more."""
        self._error = error
        self._has_begun.set()

    def wait(self, timeout: timedelta) -> bool:
        """Wait for the end, the group's timeout long if none is given."""
        seconds = (timeout or self._timeout).total_seconds()
        if not self._has_begun.wait(seconds):
            ranks = ", ".join(map(str, sorted(self.peers)))
            have = f"not all of ranks {ranks} have" if len(self.peers) > 1 else f"rank {ranks} has not"
            raise RuntimeError(
                f"timed out after {seconds:g} s: {have} begun a send, a receive or another operation of this group's "
                "host path"
            )
        if self._error is not None:
            raise self._error
        return bool(self._inner.wait(timeout))

    def is_completed(self) -> bool:
        """Whether it has ended."""
        return self._error is not None or (self._inner is not None and self._inner.is_completed())

    def get_future(self) -> Any:
        """Raise, as Gloo's sends and receives do."""
        raise RuntimeError("a send or a receive has no future")

    def _source_rank(self) -> int:
        return int(self._inner._source_rank())


def _key(rank: int) -> str:
    return f"host-path/{rank}"

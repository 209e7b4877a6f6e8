"""How the ranks of a group find their switch: through the group's Store, with nothing to configure."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import threading
import time
from dataclasses import asdict, dataclass, replace
from datetime import timedelta

import torch.distributed as dist

import tributary
from tributary import _core
from tributary.errors import ConnectError
from tributary.torch.options import Options

#: How long rank 0 keeps its switch for ranks that have not left yet: they may have died.
GRACE_S = 5.0

#: The most letters of a job's name.
MOST_LETTERS = 128

_KEY = "tributary"


@dataclass(frozen=True)
class Meeting:
    """What the ranks of one group agreed on."""

    #: Differs from the nonce of any other group at any time, since the Store may outlive the group.
    nonce: str
    #: The job's name at the switch.
    job: str
    #: "HOST:PORT" of each switch.
    switches: list[str]
    #: The switch runs in rank 0's process.
    embedded: bool

    def named(self, suffix: str) -> Meeting:
        """The meeting for another job of the group."""
        safe = _safe(suffix)
        return replace(self, job=f"{self.job[: MOST_LETTERS - len(safe)]}{safe}")


class Rendezvous:
    """One group's meeting: rank 0 publishes where the switch is, and starts one if there is none."""

    def __init__(
        self, store: dist.Store, rank: int, size: int, name: str, options: Options, patience: timedelta
    ) -> None:
        self._store, self._rank, self._size = store, rank, size
        self._embedded = False
        if rank == 0:
            self.meeting = self._invite(name, options)
        else:
            self.meeting = self._receive(options, patience)
        try:
            self._await_all(patience)
        except BaseException:
            self.leave(orderly=False)
            raise

    def _invite(self, name: str, options: Options) -> Meeting:
        nonce = secrets.token_hex(6)
        try:
            switches = options.switches or [self._embed(options)]
        except Exception as error:
            # The other ranks wait for rank 0: let them fail at once.
            self._store.set(_KEY, json.dumps({"error": f"rank 0 could not start its switch: {error}"}))
            raise
        job = f"torch-{nonce}-{_safe(name)}"[:MOST_LETTERS]
        meeting = Meeting(nonce, job, switches, self._embedded)
        self._store.set(_KEY, json.dumps(asdict(meeting)))
        return meeting

    def _receive(self, options: Options, patience: timedelta) -> Meeting:
        try:
            self._store.wait([_KEY], patience)
        except RuntimeError as error:  # Not every Store has an error of its own.
            raise ConnectError(
                f"timed out after {patience.total_seconds():g} s: rank 0 has not said where the switch is ({error})"
            ) from error
        answer = json.loads(self._store.get(_KEY))
        if "error" in answer:
            raise ConnectError(answer["error"])
        meeting = Meeting(**answer)
        own, first = options.switches, meeting.switches
        if meeting.embedded or not own or not _core.processed_at_every_hop(options.protocol):
            return meeting
        # In a fabric every rank exchanges packets with the switch next to it.
        if len(own) != len(first):
            raise ConnectError(
                f"rank 0 names {len(first)} switches ({','.join(first)}) and this rank {len(own)} ({','.join(own)}): "
                f"under {options.protocol} each names its own host's, of the same fabrics in the same order"
            )
        return replace(meeting, switches=own)

    def _await_all(self, patience: timedelta) -> None:
        """Wait until every rank is here: the steps that follow cannot tell which rank is missing."""
        here = [f"{_KEY}/{self.meeting.nonce}/here/{rank}" for rank in range(self._size)]
        self._store.set(here[self._rank], "1")
        try:
            self._store.wait(here, patience)
        except RuntimeError as error:  # Not every Store has an error of its own.
            away = [rank for rank, key in enumerate(here) if not self._store.check([key])]
            who = f"rank {away[0]} has" if len(away) == 1 else f"ranks {', '.join(map(str, away))} have"
            raise ConnectError(
                f"timed out after {patience.total_seconds():g} s: {who} not come, of {self._size}"
            ) from error

    def _embed(self, options: Options) -> str:
        self._embedded = True
        return _Embedded.acquire(options.listen)

    def all_have_met(self) -> None:
        """Delete the invitation once every rank has joined: a later group with this Store and name must not use it."""
        if self._rank == 0:
            # Not every Store can delete keys.
            with contextlib.suppress(RuntimeError, NotImplementedError):
                self._store.delete_key(_KEY)

    def leave(self, orderly: bool) -> None:
        """Announce that this rank no longer needs the switch; rank 0 waits for all ranks before it stops its own."""
        try:
            if orderly:
                self._wait_for_others()
        except (RuntimeError, OSError):
            pass  # The Store may be gone by now, with the process that served it.
        finally:
            if self._embedded:
                self._embedded = False
                _Embedded.release()

    def _wait_for_others(self) -> None:
        key = f"{_KEY}/{self.meeting.nonce}/left"
        left = self._store.add(key, 1)
        deadline = time.monotonic() + GRACE_S
        while self._embedded and left < self._size and time.monotonic() < deadline:
            time.sleep(0.005)
            left = self._store.add(key, 0)


class _Embedded:
    """The switch of this process: only one, whichever of its groups need it."""

    _lock = threading.Lock()
    _switch: tributary.Switch | None = None
    _users = 0

    @classmethod
    def acquire(cls, listen: str | None) -> str:
        with cls._lock:
            if cls._switch is None:
                address = listen or _own_address()
                cls._switch = tributary.Switch(address if _has_port(address) else f"{address}:0")
            cls._users += 1
            return cls._switch.address

    @classmethod
    def release(cls) -> None:
        with cls._lock:
            cls._users -= 1
            switch = cls._switch if cls._users == 0 else None
            if switch is not None:
                cls._switch = None
        if switch is not None:
            switch.close()


def _safe(name: str) -> str:
    """The name in letters that a job's name may have."""
    return re.sub(r"[^A-Za-z0-9_.:@+=-]", "_", name)


def _has_port(address: str) -> bool:
    return re.search(r":\d+$", address) is not None and (address.count(":") == 1 or "]" in address)


def _own_address() -> str:
    """The address by which others reach this host: the one that leads to MASTER_ADDR, which is rank 0's host."""
    master = os.environ.get("MASTER_ADDR") or socket.gethostname()
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)  # Sends nothing: the kernel chooses the address.
            address = str(probe.getsockname()[0])
    except OSError as error:
        raise ConnectError(
            f"cannot find the address of this host from the name {master} ({error}); set TRIBUTARY_LISTEN, or "
            "TRIBUTARY_SWITCH to a running switch"
        ) from error
    return f"[{address}]" if ":" in address else address

"""How the members of a group change: the handle of each, and how a new set of members comes to agree.

PyTorch's reconfiguration (``torch.distributed._reconfigure``): each process has a handle; the program brings the
handles of those that are to be members, and a number that no reconfiguration had before, to each of them, by a way of
its own.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass

import torch.distributed as dist

from tributary.errors import ConnectError

_PREFIX = "tributary/reconfigure"
_HANDLE = re.compile(r"tributary:\d{6}:[0-9a-f]{16}:[0-9a-f]{16}")


@dataclass(frozen=True)
class Assignment:
    """One process's rank among new members, and the store in which they meet."""

    store: dist.Store
    rank: int
    size: int


class Membership:
    """This process in the group's store, whichever members the group has."""

    def __init__(self, store: dist.Store, first_rank: int) -> None:
        self._store = store
        nonce = secrets.token_hex(8)
        # The first process names the store, so that a handle of another store differs from one of a process that has
        # ended.
        named = store.compare_set(f"{_PREFIX}/store", "", secrets.token_hex(8)).decode()
        self._of_store = named
        #: Handles sort by the ranks with which processes began.
        self.handle = f"tributary:{first_rank:06}:{nonce}:{named}"
        self._used: set[int] = set()

    def assign(self, uuid: int, handles: Collection[str]) -> Assignment:
        """Find this process's rank among the handles; a set is sorted, a list is in the order of ranks.

        Raises:
            ConnectError: with what is wrong with the handles or the number.

        """
        ordered = sorted(handles) if isinstance(handles, (set, frozenset)) else list(handles)
        what = f"reconfiguration {uuid}"
        for handle in ordered:
            self._check(handle, what)
        if len(set(ordered)) < len(ordered):
            raise ConnectError(f"{what}: a handle is there twice; each member has one")
        if self.handle not in ordered:
            raise ConnectError(
                f"{what}: this process's handle is not among the {len(ordered)}; only those that are to be members "
                "call it, with what get_reconfigure_handle says now"
            )
        if uuid in self._used:
            raise ConnectError(f"{what}: the number was already used; every reconfiguration needs a new one")
        roster = hashlib.sha256("\n".join(ordered).encode()).hexdigest()[:16]
        store = dist.PrefixStore(f"{_PREFIX}/{uuid}", self._store)
        if store.compare_set("roster", "", roster).decode() != roster:
            raise ConnectError(
                f"{what}: the number was already used for other members; every reconfiguration needs a new one, and "
                "the same handles in the same order on all members"
            )
        self._used.add(uuid)
        return Assignment(store, ordered.index(self.handle), len(ordered))

    def _check(self, handle: str, what: str) -> None:
        if not _HANDLE.fullmatch(handle):
            raise ConnectError(f"{what}: '{handle}' is not a handle of a tributary group")
        if not handle.endswith(f":{self._of_store}"):
            raise ConnectError(
                f"{what}: the handle {handle} is of a process that uses another store; the members of a group share one"
            )

"""The memory of one host that all ranks of a group share, in place of the network."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import tributary
from tributary._core import LocalGroup
from tributary.errors import SharedMemoryError
from tributary.torch.join_steps import OtherRankError
from tributary.torch.network import Network
from tributary.torch.options import AUTO, Options
from tributary.torch.rendezvous import Meeting, Rendezvous

#: What the sentence of a rank that cannot share memory begins with, here and in the other ranks' errors.
_SEPARATE = "no memory to share"


class LocalNetwork(Network):
    """One rank's way to the others through memory. It starts the same collectives as a network."""

    is_local = True

    def __init__(self, core: LocalGroup, size: int) -> None:
        self.size = size
        self._core = core

    def _count(self) -> int:
        return 1

    def _next(self) -> LocalGroup:
        return self._core

    def _sums(self, elements: int) -> list[tuple[LocalGroup, int, int]]:
        return [(self._core, 0, elements)]

    def go_on(self) -> None:
        """Let the group's own thread bring collectives to their end for which nobody waits."""
        self._core.go_on()

    def stats(self) -> tributary.GroupStats | None:
        """None: there are no packets."""
        return None

    def finish(self) -> None:
        """Wait until the operations under way have ended, successfully or not."""
        self._core.finish()

    def close(self, orderly: bool = True) -> None:
        """Leave; operations under way fail. No rank needs this one for what has ended here."""
        self._core.close()


def share_memory(
    rendezvous: Rendezvous, suffix: str, rank: int, size: int, given: Options, patience: timedelta
) -> LocalNetwork | str:
    """Meet the other ranks in memory, which all ranks do or none; or the sentence why they cannot share any.

    Raises:
        ConnectError: when some ranks do not come, or cannot join for another reason.

    """
    if len(set(rendezvous.meeting.hosts)) > 1:
        return "the ranks run on several hosts, or in several network namespaces"
    if given.protocol != AUTO:
        return f"TRIBUTARY_PROTOCOL={given.protocol} is about sums in the network"
    if given.options:
        return f"TRIBUTARY_OPTIONS={given.options} are about sums in the network"

    def meet(meeting: Meeting, poll: Callable[[], None]) -> LocalGroup:
        if given.local == "off":
            raise SharedMemoryError(f"{_SEPARATE}: TRIBUTARY_LOCAL is off")
        name = f"tributary/{meeting.nonce}/{meeting.job}"
        try:
            return LocalGroup.meet(name, rank, size, patience.total_seconds(), poll)
        except SharedMemoryError as error:
            raise SharedMemoryError(f"{_SEPARATE}: {error}") from error

    try:
        return LocalNetwork(rendezvous.join(f"{suffix}-memory", meet, LocalGroup.close), size)
    except (SharedMemoryError, OtherRankError) as error:
        if _SEPARATE not in str(error):
            raise
        return str(error).replace(f"could not join: {_SEPARATE}", _SEPARATE).removeprefix(f"{_SEPARATE}: ")

"""The memory that ranks of one host share: in place of the network, or before it where a group spans hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import tributary
from tributary._core import HostMemory, LocalGroup
from tributary.errors import SharedMemoryError
from tributary.torch.join_steps import OtherRankError
from tributary.torch.network import Network
from tributary.torch.options import AUTO, Options
from tributary.torch.rendezvous import Meeting, Rendezvous

#: What the sentence of a rank that cannot share memory begins with, here and in the other ranks' errors.
_SEPARATE = "no memory to share"

#: Memory that a host's ranks share: of a group on one host, or of one that spans hosts.
Shared = LocalGroup | HostMemory


class LocalNetwork(Network):
    """One rank's way to the others through memory."""

    is_local = True

    def __init__(self, core: LocalGroup, size: int) -> None:
        super().__init__(size)
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


def why_separate(hosts: list[int], given: Options) -> str | None:
    """Why ranks on these hosts do not share their hosts' memory, as far as options and hosts say; None if they may."""
    ranks = sorted(Counter(hosts).values())
    if len(ranks) > 1 and ranks[-1] == 1:
        return "the ranks run on several hosts, or in several network namespaces"
    if ranks[0] != ranks[-1]:
        return f"the hosts have different numbers of ranks, {ranks[0]} to {ranks[-1]}: each rank sends its own tensors"
    if given.protocol != AUTO:
        return f"TRIBUTARY_PROTOCOL={given.protocol} is about sums in the network"
    # Codes are what travels between hosts; whatever else is chosen is about the sums of all ranks.
    is_between_hosts = len(ranks) > 1 and given.codes is not None and set(given.protocol_options) <= {"numbers", "down"}
    if given.options and not is_between_hosts:
        return f"TRIBUTARY_OPTIONS={given.options} are about sums in the network"
    return None


def share_memory(
    rendezvous: Rendezvous, suffix: str, rank: int, size: int, given: Options, patience: timedelta
) -> Shared | str:
    """Meet the other ranks of this host in memory, which all ranks of all hosts do or none; or why they cannot.

    Raises:
        ConnectError: when some ranks do not come, or cannot join for another reason.

    """
    hosts = rendezvous.meeting.hosts
    reason = why_separate(hosts, given)
    if reason:
        return reason

    def meet(meeting: Meeting, poll: Callable[[], None]) -> Shared:
        if given.local == "off":
            raise SharedMemoryError(f"{_SEPARATE}: TRIBUTARY_LOCAL is off")
        name, seconds = f"tributary/{meeting.nonce}/{meeting.job}", patience.total_seconds()
        try:
            if len(set(hosts)) > 1:
                return HostMemory.meet(name, hosts, rank, seconds, poll)
            return LocalGroup.meet(name, rank, size, seconds, poll)
        except SharedMemoryError as error:
            raise SharedMemoryError(f"{_SEPARATE}: {error}") from error

    try:
        return rendezvous.join(f"{suffix}-memory", meet, lambda memory: memory.close())
    except (SharedMemoryError, OtherRankError) as error:
        if _SEPARATE not in str(error):
            raise
        return str(error).replace(f"could not join: {_SEPARATE}", _SEPARATE).removeprefix(f"{_SEPARATE}: ")

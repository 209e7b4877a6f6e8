"""The c10d backend: one process group of ``torch.distributed``, from its rendezvous to its end."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Backend, ErrorType

from tributary.errors import UnsupportedError
from tributary.info import GroupStats
from tributary.torch import flight
from tributary.torch.callbacks import Callbacks, is_in_callback
from tributary.torch.gathers import Gathers
from tributary.torch.health import Health
from tributary.torch.host_only import HostOnly
from tributary.torch.ledger import Stats
from tributary.torch.members import Members
from tributary.torch.membership import Assignment, Membership
from tributary.torch.options import Options
from tributary.torch.reductions import Reductions
from tributary.torch.switches import together
from tributary.torch.transit import entitle
from tributary.torch.untraced import untraced
from tributary.torch.work import DoneWork

NAME = "tributary"
#: PyTorch counts its own abort hooks from 0.
_FLIGHT_HOOK = -1

log = logging.getLogger("tributary.torch")


@untraced
class TributaryBackend(Reductions, Gathers, HostOnly):
    """One process group. Made by PyTorch, through :func:`tributary.torch.register`."""

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        size: int,
        *,
        name: str = "0",
        timeout: timedelta = timedelta(minutes=30),
        options: Options | None = None,
        global_ranks: Sequence[int] = (),
        reconfigurable: bool = False,
        on_end: Callable[[bool], object] = lambda orderly: None,
        on_split: Callable[[TributaryBackend, dist.Store, Sequence[int], Any], TributaryBackend | None] | None = None,
    ) -> None:
        """Meet the other ranks; a `reconfigurable` group meets none before its members are named."""
        super().__init__(rank, size, name)
        self._on_end, self._on_split = on_end, on_split
        self._given = options or Options.from_environment()
        self._options = Backend.Options(NAME, timeout=timeout)
        self._options.global_ranks_in_group = list(global_ranks)
        self._options.group_name = name
        #: The counts of the workers of former members.
        self._past: list[GroupStats] = []
        #: Held while the ranks meet again because a switch or a parameter server is lost.
        self._replanning = threading.Lock()
        self._membership = Membership(store, rank) if reconfigurable else None
        if flight.writes_at_failure() and not reconfigurable:
            global_rank = global_ranks[rank] if global_ranks else rank
            self._hooks.register(_FLIGHT_HOOK, lambda: flight.write_flight_record(global_rank))
        if not reconfigurable:
            self._members = self._meet(Assignment(store, rank, size), None)

    def _meet(self, assignment: Assignment, patience: timedelta | None) -> Members:
        return Members(
            assignment.store,
            assignment.rank,
            assignment.size,
            name=self._name,
            given=self._given,
            common=self._options,
            health=self._health,
            patience=patience,
        )

    # Answers to c10d's questions about the group.

    # Each must be answered here: c10d asks the class, and its own answer would ask the class again, without end.
    supports_coalescing = False
    supports_shrinking = False
    supports_abort_hooks = True
    supports_window = False
    _supports_time_estimate = False
    supports_time_estimate = False  # Its name in PyTorch 2.14.

    def getBackendName(self) -> str:  # noqa: N802 - c10d's name; without it the first barrier hits an assertion.
        """The name in ``init_process_group``."""
        return NAME

    @property
    def options(self) -> Backend.Options:
        """The options as c10d knows them."""
        return self._options

    def set_timeout(self, timeout: timedelta) -> None:
        """Change the timeout of later operations."""
        self._options._timeout = timeout
        with self._order:
            lanes = [] if self._members is None else self._members.all_lanes()
        for lane in lanes:
            lane.host.set_timeout(timeout)

    _set_default_timeout = set_timeout

    @property
    def supports_splitting(self) -> bool:
        """Whether :meth:`split` makes groups of some ranks."""
        return self._on_split is not None and self._membership is None

    def split(self, store: dist.Store, ranks: Sequence[int], opts: Any) -> TributaryBackend | None:
        """Make a group of these ranks of this group, in this order; None for a rank that is not among them."""
        assert self._on_split is not None, "PyTorch asks supports_splitting first"
        return self._on_split(self, store, ranks, opts)

    @property
    def supports_reconfigure(self) -> bool:
        """Whether the group was made with ``enable_reconfigure``."""
        return self._membership is not None

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: every rank counts from zero."""

    def _get_sequence_number_for_group(self) -> int:
        return self._members.main.number if self._members is not None else 0

    def get_error(self) -> ErrorType:
        """The first error since the group has had these members; SUCCESS if there was none."""
        return self._health.error

    def register_abort_hook(self, hook_id: int, hook: Callable[[], None]) -> None:
        """Call this at the first failure among the same members, and before an abort."""
        self._hooks.register(hook_id, hook)

    def unregister_abort_hook(self, hook_id: int) -> None:
        """Remove the hook with this id."""
        self._hooks.unregister(hook_id)

    # The names that C++ calls.
    registerAbortHook = register_abort_hook  # noqa: N815
    unregisterAbortHook = unregister_abort_hook  # noqa: N815

    # Other members.

    def _reconfigurable(self) -> Membership:
        if self._membership is None:
            raise UnsupportedError(
                f"the group {self._name} keeps its members; init_process_group(..., enable_reconfigure=True) makes one "
                "that can change them"
            )
        return self._membership

    def get_reconfigure_handle(self) -> str:
        """The handle by which others make this process a member."""
        return self._reconfigurable().handle

    def reconfigure(self, opts: Any) -> Any:
        """Leave the members that there are, and meet those of the handles; returns once all have met.

        What is under way among the former members fails. Where the new ones do not come together the group has no
        members, and can be reconfigured again with another number.

        Raises:
            ConnectError: when some do not come in time; or when handles or number are of no use, and then nothing has
                changed.

        """
        membership = self._reconfigurable()
        what = f"reconfiguration {opts.uuid}"
        self._home.refuse_fork(f"{what}: the group {self._name}")
        self._refuse_closed(what)
        assignment = membership.assign(opts.uuid, opts.handles)
        former = self._release(f"since {what} failed")
        self._health = Health(self._hooks)
        self._options.global_ranks_in_group = []
        try:
            members = self._meet(assignment, opts.timeout)
        except Exception as error:
            self._health.note(error)
            entitle(error, f"{what} of group {self._name}, rank {assignment.rank} of {assignment.size}")
            raise
        finally:
            # After the new members have met, so that a switch in this process goes on if they use it too.
            if former is not None:
                former.release_switch(orderly=False)
        with self._order:
            self._members = members
        return DoneWork(f"{what} of group {self._name}", self._callbacks, self._health)

    def _present(self, name: str) -> Members:
        """The present members: after the loss of a switch or a parameter server, the same ranks without it."""
        # Asked for several times by each operation, of which some come by the thousand.
        if self._health.lost_in is None and (present := self._members) is not None:
            return present
        if self._health.lost_in is not None and Callbacks.current() is None and not is_in_callback():
            with self._replanning:
                title, members = self._health.lost_in, self._members
                if title is not None and members is not None and members.replans:
                    self._replan(name, title, members)
        return super()._present(name)

    def _replan(self, name: str, title: str, members: Members) -> None:
        """Meet the same ranks without what is lost. If that fails, the group has no members any more, on all ranks."""
        self._refuse_closed(name)
        what = f"{name}: the plan of group {self._name} after the loss in {title}"
        try:
            store, self._given = members.without_the_lost(title, self._options._timeout)
            self._release(f"since {title} failed")
            self._health = Health(self._hooks)
            again = self._meet(Assignment(store, members.rank, members.size), None)
        except Exception as error:
            self._release(f"since the ranks could not plan around the loss in {title}")
            if self._membership is None:
                self._remedy = "destroy it, and make a new one"
            self._health.note(error)
            entitle(error, what)
            raise
        finally:
            members.release_switch(orderly=False)
        if members.rank == 0:
            log.warning("%s: it goes on at %s", what, ", ".join(again.switches) or "the ranks' own hosts")
        with self._order:
            self._members = again

    def _release(self, why: str) -> Members | None:
        """Remove all members; what is under way fails."""
        with self._order:
            former, self._members = self._members, None
            self._why_alone = why
        if former is not None:
            former.leave()
            self._past += former.stats()
            former.close_hosts(orderly=False)
        return former

    @property
    def codes(self) -> str | None:
        """What floats are summed as in the network, if that is codes."""
        return self._present("codes").chosen.codes

    @property
    def ranks_of_a_sum(self) -> int:
        """How many ranks a member of the job in the network brings the sum of: those of a host, or one."""
        return self._present("ranks of a sum").ranks_of_a_sum

    # The end.

    def stats(self) -> Stats:
        """Which bytes were summed where so far."""
        members = self._members
        known = self._past + ([] if members is None else members.stats())
        packets = together(known) if known else None
        if members is None:
            return self._ledger.stats(packets)
        network = members.main.network
        return self._ledger.stats(packets, members.why_network, network.shares if network else ())

    def shutdown(self) -> None:
        """Leave the job. What all ranks have started ends before. Calling it again has no effect."""
        self._end("has destroyed the group", orderly=True)

    def abort(self) -> None:
        """End what is under way: it fails on this rank, and times out on the others.

        A group that can be reconfigured can have members again after it; any other is of no use any more.
        """
        if self._membership is None or self._closed:
            self._end("has aborted the group", orderly=False)
        elif self._home.is_here():
            self._health.note_abort()
            former = self._release("since it was aborted")
            if former is not None:
                former.release_switch(orderly=False)

    def end(self) -> None:
        """Leave at once and for good, since the process ends."""
        # The interpreter keeps an exception that has ended the program.
        failed = getattr(sys, "last_value", None) is not None
        self._end("ended with an error" if failed else "has ended its process", orderly=False)

    def _end(self, reason: str, orderly: bool) -> None:
        if not self._home.is_here():
            return  # The group is the parent's, and goes on there.
        with self._order:
            if self._closed:
                return
            self._closed = True
            members = self._members
        if members is not None:
            if orderly:
                members.finish()
            members.say_why(reason)
            members.leave()
        self._completer.close()
        if members is not None:
            members.close_hosts(orderly)
        self._callbacks.close()
        if members is not None:
            members.release_switch(orderly)
        self._on_end(orderly)

    def is_default(self) -> bool:
        """Whether this is the group of all ranks that ``init_process_group`` made."""
        return not self._options.global_ranks_in_group

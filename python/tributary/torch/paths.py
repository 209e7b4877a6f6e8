"""The two paths of an operation: through the network, or over the host path. All operations share this code."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import torch
from torch._C._distributed_c10d import Backend

from tributary import _core
from tributary.errors import ClosedError, ConnectError, MismatchError, UnsupportedError
from tributary.torch import claims, operators, profile, spread
from tributary.torch.agreement import Agreement
from tributary.torch.callbacks import Callbacks, is_in_callback
from tributary.torch.claims import Claim
from tributary.torch.health import AbortHooks, Health
from tributary.torch.host_work import HostWork
from tributary.torch.lane import Lane
from tributary.torch.ledger import Ledger
from tributary.torch.members import Members
from tributary.torch.network import Network
from tributary.torch.operands import Operands
from tributary.torch.process import ForkGuard
from tributary.torch.tensors import Tensors, size_in_bytes
from tributary.torch.transit import Finish, Handle, Transit, entitle
from tributary.torch.work import Completer, NetworkWork

log = logging.getLogger("tributary.torch")

#: How an operation starts its collectives: called with a network, and with the timeout as a keyword.
Start = Callable[..., list[Handle]]

#: Why a group of one rank takes the host path.
ALONE = "a group of one rank has nothing to sum"


class Begun(NamedTuple):
    """An operation whose collectives have begun."""

    members: Members
    lane: Lane
    title: str
    #: Its number in its lane.
    number: int
    pending: list[Handle]
    timeout: float


class Paths(Backend):
    """The state of one process group, and how its operations begin."""

    _options: Backend.Options

    def __init__(self, rank: int, size: int, name: str) -> None:
        super().__init__(rank, size)
        self._first = rank, size
        #: The present ranks; None in a group whose members are not named yet.
        self._members: Members | None = None
        self._why_alone, self._remedy = "yet", "torch.distributed._reconfigure gives it some"
        self._home = ForkGuard()
        self._name = name
        self._ledger = Ledger()
        self._completer = Completer(f"tributary-{name}")
        self._callbacks = Callbacks(name)
        self._hooks = AbortHooks()
        self._health = Health(self._hooks)
        #: Held while an operation is numbered and submitted, so that all ranks see one order.
        self._order = threading.Lock()
        self._closed = False

    def rank(self) -> int:
        """This process's rank among the present members."""
        members = self._members
        return self._first[0] if members is None else members.rank

    def size(self) -> int:
        """How many members there are at present."""
        members = self._members
        return self._first[1] if members is None else members.size

    def _present(self, name: str) -> Members:
        """The present members."""
        members = self._members
        if members is None:
            self._refuse_closed(name)
            raise ClosedError(f"{name}: the group {self._name} has no members {self._why_alone}; {self._remedy}")
        return members

    def _rooted_is_unicast(self, name: str) -> bool:
        """Whether a reduce for each rank, or a broadcast from each rank, moves less data than one for all."""
        members, network = self._present(name), self._lane(name).network
        if network is not None and (network.is_local or network.is_of_hosts):
            return True
        return _core.rooted_is_unicast(members.chosen.protocol)

    def _spread(self, name: str, tensors: Tensors, size: int, opts: Any) -> None:
        """Settle who makes large sums, at the lane's first large operation and now and then, alike on all ranks."""
        if size < spread.LEAST_BYTES:
            return
        lane, members = self._lane(name), self._present(name)
        if not members.may_spread(lane):
            return
        with self._order:
            lane.until_measured -= size
            if lane.until_measured < 0:
                lane.until_measured = spread.AGAIN_BYTES
                self._measure(name, tensors, opts, lane, members)

    def _measure(self, name: str, tensors: Tensors, opts: Any, lane: Lane, members: Members) -> None:
        """Measure, and spread large sums as it turns out."""
        level = logging.DEBUG if lane.network and lane.network.has_hosts else logging.INFO
        try:
            shares = members.spread(lane)
        except ConnectError as error:
            # The switch has refused all ranks alike, so no rank tries again soon.
            log.warning("large sums %s are not spread any further: %s", lane.title, error)
            return
        except Exception as error:
            title = self._next_title(name, lane)
            if isinstance(error, MismatchError):
                own = partial(claims.brought, name, tensors, opts)
                error.args = (members.everyones(lane, lane.number, own) or error.args[0],)
            lane.health.note(error, title)
            entitle(error, title)
            raise
        if members.rank == 0:
            log.log(level, "large sums %s: %s", lane.title, shares)
        if lane.network is not None:
            lane.until_measured = lane.network.again_bytes

    def _is_alone(self, name: str) -> bool:
        """Whether this rank is alone."""
        return self._present(name).main.network is None

    def _lane(self, name: str) -> Lane:
        """The lane of this thread's operations: callbacks wait neither for the program nor for another group's."""
        self._refuse_fork(name)
        if is_in_callback():
            raise UnsupportedError(
                f"{name}: ranks would not agree on the order of collectives that are started in this callback; attach "
                "the callback with then() to the future of one operation"
            )
        members = self._present(name)
        callbacks = Callbacks.current()
        if callbacks is None or members.size == 1:
            return members.main
        # Only the thread that calls these callbacks gets here.
        if callbacks.name not in members.lanes:
            self._refuse_closed(name)
            lane = members.open_lane(callbacks.name)
            with self._order:
                members.lanes[callbacks.name] = lane
            if self._closed or self._members is not members:
                lane.leave()
                lane.host.close(orderly=False)
        return members.lanes[callbacks.name]

    def _why_not(self, name: str, tensors: Tensors, reduce_op: Any) -> str | None:
        """Why the network cannot make this reduction, or None; raises an error if there is no fallback."""
        members = self._present(name)
        if members.main.network is None:
            return ALONE
        reason = operators.why_not(tensors, reduce_op, None if members.is_local else members.chosen)
        if reason:
            operators.refuse_unknown(reason, tensors)
        if reason and members.chosen.fallback == "error":
            raise UnsupportedError(f"{reason}; TRIBUTARY_FALLBACK=gloo would send it over the host path")
        return reason

    def _codes(self, tensors: Tensors) -> str | None:
        """What the elements of a sum travel as in the network, if not as themselves."""
        codes = self._present("sum").chosen.codes
        return codes if codes and all(tensor.is_floating_point() for tensor in tensors) else None

    def _why_not_words(self, name: str) -> str | None:
        """Why the network cannot move words unchanged, or bring a result to one rank alone; None if it can."""
        members = self._present(name)
        if members.main.network is None:
            return ALONE
        return None if members.is_local else operators.why_not_words(members.chosen)

    def _through_network(
        self,
        name: str,
        tensors: Tensors,
        starts: Sequence[Start],
        finish: Finish | None,
        opts: Any,
        network: Network | None = None,
        codes: str | None = None,
    ) -> NetworkWork:
        """Start collectives in a network, by default that of the sums; `codes` is for the ledger."""
        size = size_in_bytes(tensors)
        if network is None:
            self._spread(name, tensors, size, opts)
        lane = self._lane(name)
        network = network or lane.network
        assert network is not None, "groups of one rank take the host path"
        timeout = self._timeout_of(opts).total_seconds()
        with profile.spanning(name) as event:
            begun = self._begin(name, self._present(name), lane, network, starts or [Network.barrier], timeout)
            if getattr(opts, "asyncOp", True):
                network.go_on()
            self._ledger.network(name, size, network.is_local, codes)
            work = self._work(name, tensors, opts, begun, finish)
            if event is not None:
                self._note(name, tensors, "memory" if network.is_local else "network")
                event._call_end_callbacks_on_future(work.get_future())
        if finish is not None and getattr(opts, "asyncOp", True):
            # The caller may look at the tensors after a later barrier, without ever waiting for this work.
            self._completer.complete_later(work)
        return work

    def _begin(
        self, name: str, members: Members, lane: Lane, network: Network, starts: Sequence[Start], timeout: float
    ) -> Begun:
        """Number an operation, and start its collectives."""
        with self._order:
            title = self._next_title(name, lane)
            pending: list[Handle] = []
            try:
                for start in starts:
                    pending += start(network, timeout=timeout)
            except Exception as error:
                lane.health.note(error, title)
                entitle(error, title)
                raise
            return Begun(members, lane, title, lane.number, pending, timeout)

    def _work(self, name: str, tensors: Tensors, opts: Any, begun: Begun, finish: Finish | None) -> NetworkWork:
        """What a caller waits for, of an operation that has begun."""
        members, lane, title, number, pending, timeout = begun
        everyones = partial(members.everyones, lane, number, partial(claims.brought, name, tensors, opts))
        transit = Transit(title, pending, timeout, lane.hints, everyones)
        return NetworkWork(title, tensors, transit, finish, self._completer, self._callbacks, lane.health, self._ledger)

    def _moving(self, name: str) -> Network:
        """The lane's job for operations that only move data, which all ranks join at the same operation.

        Shards that hosts bring each other go through the job in which these sum.
        """
        lane = self._lane(name)
        assert lane.network is not None, "groups of one rank take the host path"
        if lane.network.is_local or lane.network.has_shards_at_hosts:
            return lane.network
        if lane.moves is None:
            try:
                self._present(name).join_moves(lane)
            except ConnectError as error:
                # The switch has refused all ranks alike, so no rank tries again.
                log.warning("operations that only move data %s wait for the sums before them: %s", lane.title, error)
                lane.moves = lane.network
        assert lane.moves is not None, "joined, or the way of the sums"
        return lane.moves

    def _over_host(
        self,
        name: str,
        reason: str,
        tensors: Tensors,
        method: str,
        arguments: list[Any],
        claim: Claim | None,
        *,
        op: Any = None,
        scaled: Sequence[torch.Tensor] = (),
        beside: Network | None = None,
    ) -> HostWork:
        """Start an operation of Gloo, and the agreement on what it is, by default in the network of the sums.

        Args:
            name: the operation's.
            reason: why it takes this way.
            tensors: those that count as this rank's.
            method: Gloo's.
            arguments: Gloo's; the first one is what it writes.
            claim: what the ranks agree on; None if the operation may end on some ranks before others begin.
            op: the operator of a reduction; None if the operation only moves data.
            scaled: the tensors to scale where the operator is one that Gloo does not have.
            beside: another network through which other ranks may bring this operation.

        """
        lane = self._lane(name)
        opts = arguments[-1]
        if hasattr(opts, "timeout"):
            opts.timeout = self._timeout_of(opts)
        as_bytes = op is None or lane.network is None
        operands = Operands.of(arguments, scaled, writes=method != "send", as_bytes=as_bytes)
        with self._order:
            title = self._next_title(name, lane)
            agreement = None if claim is None else self._agree(name, claim, opts, title, lane, beside)

            def start() -> tuple[Any, Finish | None]:
                try:
                    inner, finish = lane.host.start(method, operands.arguments, operands.scaled, op)
                except RuntimeError as error:
                    lane.health.note(error)
                    raise type(error)(f"{title}: {error}") from error
                return inner, operands.after(finish)

            work = HostWork(
                title,
                list(tensors),
                start,
                lane.host.order,
                self._completer,
                self._callbacks,
                lane.health,
                self._ledger,
                agreement,
                lane.host.abort,
            )
        self._ledger.host(name, reason, size_in_bytes(list(tensors)))
        if profile.is_on():
            self._note(name, tensors, "host path")
        if agreement is not None and getattr(opts, "asyncOp", True):
            # Other ranks may wait for this operation while nobody here does.
            self._completer.complete_later(work)
        return work

    def _agree(
        self, name: str, claim: Claim | None, opts: Any, title: str, lane: Lane, beside: Network | None
    ) -> Agreement | None:
        """Start the sum by which the other ranks learn which operation this rank brings, or that it refuses its own."""
        if lane.network is None or self._why_not_words(name):
            return None
        agreement = Agreement(claim, self.rank(), self.size())
        own = "an operation that it refuses" if claim is None else f"{claim.what} to the host path"
        try:
            agreement.start(
                lane.network,
                beside,
                title,
                self._timeout_of(opts).total_seconds(),
                lane.hints,
                partial(self._present(name).everyones, lane, lane.number, lambda: own),
            )
        except Exception as error:
            lane.health.note(error)
            entitle(error, title)
            raise
        return agreement

    @contextmanager
    def _announced(self, name: str, opts: Any, network: Callable[[], Network | None] = lambda: None) -> Iterator[None]:
        """Tell the other ranks if this rank refuses an operation before it has begun: they would wait for it."""
        try:
            yield
        except (MismatchError, UnsupportedError) as error:
            self._announce(error, name, opts, network())
            raise

    def _announce(self, error: Exception, name: str, opts: Any, beside: Network | None = None) -> None:
        """Tell the other ranks that this rank refuses the operation for this error."""
        lane = self._lane(name)
        with self._order:
            title = self._next_title(name, lane)
            entitle(error, title)
            self._agree(name, None, opts, title, lane, beside)

    def _note(self, name: str, tensors: Sequence[torch.Tensor], path: str) -> None:
        """Record an operation's arguments for the profiler."""
        ranks = self._options.global_ranks_in_group or range(self.size())
        profile.note(profile.arguments(name, tensors, path, self._name, ranks, self.rank()))

    def _refuse_fork(self, name: str) -> None:
        if not self._home.is_here():
            self._home.refuse_fork(f"{name}: the group {self._name}")

    def _refuse_closed(self, name: str) -> None:
        if self._closed:
            raise ClosedError(f"{name}: the group {self._name} was shut down; make a new one")

    def _next_title(self, name: str, lane: Lane) -> str:
        self._refuse_closed(name)
        lane.number += 1
        return f"{name} {lane.number} {lane.title}"

    def _timeout_of(self, opts: Any) -> timedelta:
        # An operation without its own timeout has -1 ms.
        own: timedelta = opts.timeout
        return own if own > timedelta(0) else self._options._timeout

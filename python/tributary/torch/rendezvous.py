"""How the ranks of a group find their switch: through the group's Store, with nothing to configure."""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist

from tributary.errors import ConnectError, RankLostError
from tributary.torch import addresses, job_name
from tributary.torch.embedded import EmbeddedSwitch
from tributary.torch.join_steps import JoinSteps, OtherRankError
from tributary.torch.options import Options

#: How long rank 0 keeps its switch for ranks that have not left yet: they may have died.
GRACE_S = 5.0
#: How long ranks that disagree wait for what the others say.
ANSWER_S = 1.0

_KEY = "tributary"
#: The steps in which ranks meet.
MEETING = ("here", "switches")

T = TypeVar("T")


@dataclass(frozen=True)
class Meeting:
    """What the ranks of one group agreed on."""

    #: Differs from the nonce of any other group at any time, since the Store may outlive the group.
    nonce: str
    #: The job's name at the switch.
    job: str
    #: "HOST:PORT" of each switch, as this rank reaches it; if none is named, of none before `Rendezvous.find_switch`.
    switches: list[str]
    #: The switch runs in rank 0's process, if there is one.
    embedded: bool
    #: The address by which the other ranks reach this one.
    address: str
    #: The number of each rank's host.
    hosts: list[int]

    def named(self, suffix: str) -> Meeting:
        """The meeting for another job of the group."""
        return replace(self, job=job_name.extended(self.job, suffix))


class Rendezvous:
    """One group's meeting: rank 0 publishes where the switch is, and starts one if there is none and it is needed."""

    def __init__(
        self, store: dist.Store, rank: int, size: int, name: str, options: Options, patience: timedelta
    ) -> None:
        self._store, self._rank, self._size, self._patience = store, rank, size, patience
        self._switch: EmbeddedSwitch | None = None
        self._network = addresses.own_network()
        #: The switches of each rank; none yet if none is named and ranks of one host may need none.
        self._switches: list[list[str]] = []
        self._listen = options.listen
        #: The hosts towards which a switch in this process listens, and whether ranks run on several hosts.
        self._ways: tuple[list[str], bool] = ([], False)
        self._own: str | None = None
        self._finding = threading.Lock()
        invitation = self._invite(name, options) if rank == 0 else self._await_invitation()
        self._nonce = invitation["nonce"]
        steps = self._steps("meet", *MEETING)
        try:
            with steps.in_common():
                self.meeting = self._meet(steps, invitation, options)
        except BaseException:
            self.leave(orderly=False)
            raise

    def _steps(self, name: str, *waits: str) -> JoinSteps:
        return JoinSteps(self._store, _steps_of(self._nonce, name), self._rank, self._size, self._patience, waits)

    def _invite(self, name: str, options: Options) -> dict[str, str]:
        invitation = _invitation(options.job or job_name.default_job(), name, self._network)
        self._store.set(_KEY, json.dumps(invitation))
        return invitation

    def _await_invitation(self) -> dict[str, str]:
        try:
            self._store.wait([_KEY], self._patience)
        except RuntimeError as error:  # Not every Store has an error of its own.
            raise ConnectError(
                f"timed out after {self._patience.total_seconds():g} s: rank 0 has not come ({error})"
            ) from error
        invitation: dict[str, str] = json.loads(self._store.get(_KEY))
        return invitation

    def _meet(self, steps: JoinSteps, invitation: dict[str, str], options: Options) -> Meeting:
        if self._size == 1:
            return Meeting(self._nonce, invitation["job"], [], False, "127.0.0.1", [0])
        store_host = addresses.store_host(self._store)
        steps.publish(f"rank/{self._rank}", json.dumps({"network": self._network, "switches": options.switches}))
        # Loopback addresses are of use only if all ranks share rank 0's network.
        if invitation["network"] != self._network:
            steps.publish("elsewhere", addresses.address_towards([store_host], is_spread=True))
        # The steps that follow cannot tell which rank is missing.
        steps.gather("here")
        elsewhere = steps.published("elsewhere")
        is_spread = elsewhere is not None
        ways = [store_host] if elsewhere is None else [store_host, elsewhere]
        self._ways = ways, is_spread
        if self._rank == 0:
            ranks = [json.loads(steps.published(f"rank/{rank}") or "") for rank in range(self._size)]
            named = of_all_ranks([rank["switches"] for rank in ranks])
            numbers: dict[str, int] = {}
            hosts = [numbers.setdefault(rank["network"], len(numbers)) for rank in ranks]
            own = [self._embed(ways, is_spread)] if len(numbers) > 1 and not named else []
            of_ranks = named or [own] * self._size
            agreed = {"switches": of_ranks, "embedded": not named, "hosts": hosts, "listen": options.listen}
            steps.publish("switches", json.dumps(agreed))
        said = json.loads(steps.receive("switches", "rank 0 has not said where the switch is"))
        self._switches = said["switches"]
        switches = self._switches[self._rank]
        first = switches[:1] or [listen for listen in [said["listen"]] if listen]
        address = addresses.address_towards([*map(addresses.host_of, first), *ways], is_spread)
        return Meeting(self._nonce, invitation["job"], switches, said["embedded"], address, said["hosts"])

    def find_switch(self) -> None:
        """Have a switch before the first job in the network, which all ranks join: rank 0 starts it."""
        with self._finding:
            if self.meeting.switches or self._size == 1:
                return
            steps = self._steps("switch", "embedded")
            with steps.in_common():
                if self._rank == 0:
                    steps.publish("embedded", self._embed([addresses.store_host(self._store)], is_spread=False))
                switch = steps.receive("embedded", "rank 0 has not said where the switch is")
            self._switches = [[switch]] * self._size
            self.meeting = replace(self.meeting, switches=[switch])

    def own_switch(self) -> str:
        """Where a switch in rank 0's process listens beside those that are named; all ranks call it then."""
        with self._finding:
            if self._own is None:
                steps = self._steps("own", "own")
                with steps.in_common():
                    if self._rank == 0:
                        steps.publish("own", self._embed(*self._ways))
                    self._own = steps.receive("own", "rank 0 has not said where its switch is")
            return self._own

    def _embed(self, ways: list[str], is_spread: bool) -> str:
        """Start a switch, by default at this rank's own address; where the others reach it."""
        address = self._listen or addresses.address_towards(ways, is_spread)
        try:
            self._switch = EmbeddedSwitch.acquire(addresses.with_port(address))
        except Exception as error:
            raise ConnectError(f"cannot start the switch of this rank: {error}") from error
        port = addresses.port_everywhere(self._switch.address)
        if port is None:
            return self._switch.address
        return addresses.with_port(addresses.address_towards(ways, is_spread), port)

    def join(self, suffix: str, connect: Callable[[Meeting, Callable[[], None]], T], undo: Callable[[T], object]) -> T:
        """Join a job of the group, which all ranks do or none.

        `connect` calls its second argument while it waits, and `undo` leaves what it returned.
        """
        steps = self._steps(f"join{suffix}", "joined")
        with steps.in_common():
            try:
                joined = connect(self.meeting.named(suffix), steps.poll_failure)
            except OtherRankError:
                raise
            except ConnectError as error:
                raise type(error)(f"{error}{_no_switch(str(error))}{_unlike(self._switches)}") from error
            try:
                steps.gather("joined")
            except BaseException:
                undo(joined)
                raise
            return joined

    def all_have_met(self) -> None:
        """Delete the invitation once every rank has joined: a later group with this Store and name must not use it."""
        if self._rank == 0:
            # Not every Store can delete keys.
            with contextlib.suppress(RuntimeError, NotImplementedError):
                self._store.delete_key(_KEY)

    def _said_by(self, number: int, what: str) -> str:
        return _steps_of(self._nonce, f"{what}/{number}")

    def say_why(self, reason: str) -> None:
        """Say to the other ranks why this one leaves the group: "rank 1 " and the reason."""
        with contextlib.suppress(RuntimeError, OSError):  # The Store may be gone, with the process that served it.
            self._store.set(self._said_by(self._rank, "why"), reason)

    def say_failure(self, suffix: str, host: int, message: str) -> None:
        """Say to the leaders of the other hosts why this host gives up a job."""
        with contextlib.suppress(RuntimeError, OSError):
            self._store.set(self._said_by(host, f"failed{suffix}"), message)

    def failure_of(self, suffix: str, host: int) -> str | None:
        """What the leader of a host has said."""
        with contextlib.suppress(RuntimeError, OSError):
            if self._store.check([said := self._said_by(host, f"failed{suffix}")]):
                return self._store.get(said).decode()
        return None

    def say_and_ask(self, what: str, own: str) -> list[str] | None:
        """Say something to the other ranks; what each rank says of the same, unless some say nothing for a while."""
        deadline = time.monotonic() + ANSWER_S
        with contextlib.suppress(RuntimeError, OSError):
            self._store.set(self._said_by(self._rank, what), own)
            keys = [self._said_by(rank, what) for rank in range(self._size)]
            while not self._store.check(keys):
                if time.monotonic() >= deadline:
                    return None
                time.sleep(0.005)
            return [self._store.get(key).decode() for key in keys]
        return None

    def with_reasons(self, error: RankLostError, sentence: str) -> str:
        """The sentence of an error, with the reasons that the ranks which have left have given."""
        reasons = {}
        with contextlib.suppress(RuntimeError, OSError):
            for rank in error.missing:
                if self._store.check([why := self._said_by(rank, "why")]):
                    reasons[rank] = self._store.get(why).decode()
        if len(reasons) == 1:
            [(rank, reason)] = reasons.items()
            return sentence.replace(f"rank {rank} has left the job", f"rank {rank} {reason}")
        said = ", ".join(f"rank {rank} {reason}" for rank, reason in reasons.items())
        return f"{sentence} ({said})" if said else sentence

    def leave(self, orderly: bool, lost: Collection[int] = ()) -> None:
        """Say that this rank needs the switch no longer; rank 0 waits for all but the lost ones, and stops its own."""
        try:
            self._store.set(self._said_by(self._rank, "left"), "1")
            if orderly and self._switch is not None:
                self._wait_for_others(lost)
        except (RuntimeError, OSError):
            pass  # The Store may be gone by now, with the process that served it.
        finally:
            switch, self._switch = self._switch, None
            if switch is not None:
                switch.release()

    def _wait_for_others(self, lost: Collection[int]) -> None:
        others = [self._said_by(rank, "left") for rank in range(1, self._size) if rank not in lost]
        deadline = time.monotonic() + GRACE_S
        while others and not self._store.check(others) and time.monotonic() < deadline:
            time.sleep(0.005)


def refuse(store: dist.Store, rank: int, size: int, error: Exception) -> None:
    """Let the other ranks know that this one cannot even begin to meet them: its options are wrong."""
    patience = timedelta(seconds=GRACE_S)
    with contextlib.suppress(RuntimeError):  # Rank 0 has not come yet, and waits for this rank then.
        if rank == 0:
            invitation = _invitation("refused", "", addresses.own_network())
            store.set(_KEY, json.dumps(invitation))
        else:
            store.wait([_KEY], patience)
            invitation = json.loads(store.get(_KEY))
        JoinSteps(store, _steps_of(invitation["nonce"], "meet"), rank, size, patience, MEETING).fail(error)


def _invitation(job: str, group: str, network: str) -> dict[str, str]:
    nonce = secrets.token_hex(6)
    return {"nonce": nonce, "job": job_name.of_group(job, nonce, group), "network": network}


def _steps_of(nonce: str, what: str) -> str:
    return f"{_KEY}/{nonce}/{what}"


def of_all_ranks(named: Sequence[Sequence[str]]) -> list[list[str]]:
    """Each rank's switches, from those that each names: a rank names its own rack's or host's, or rank 0's count.

    Empty if no rank names a switch. Raises `ConnectError` if what the ranks name is not a choice of them all.
    """
    first = list(named[0])
    for rank, own in enumerate(named):
        if own and not first:
            raise ConnectError(
                f"rank {rank} names the switch {','.join(own)} and rank 0 none: set TRIBUTARY_SWITCH on every rank or "
                "on none"
            )
        if own and len(own) != len(first):
            raise ConnectError(
                f"rank 0 names {_count(first)} and rank {rank} {_count(own)}: each rank names as many, its own rack's "
                "or host's, in the same order"
            )
    return [list(own) or first for own in named] if first else []


def _count(switches: Sequence[str]) -> str:
    return f"{len(switches)} {'switch' if len(switches) == 1 else 'switches'} ({','.join(switches)})"


def _no_switch(sentence: str) -> str:
    """A hint for the error of an address where no switch is."""
    if "nothing listens" not in sentence:
        return ""
    return (
        " A parameter server is not a switch: name the switch to which it offers itself, and it takes a share of "
        "large sums"
    )


def _unlike(switches: Sequence[Sequence[str]]) -> str:
    """A hint for an error, if ranks name different switches."""
    other = next((rank for rank, own in enumerate(switches) if own != switches[0]), None)
    if other is None:
        return ""
    return (
        f"; rank 0 names {','.join(switches[0])} and rank {other} {','.join(switches[other])}, which form one job only "
        "if these are switches of one tree (tributary switch --parent) or of one fabric"
    )

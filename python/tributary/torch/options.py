"""The options of a group: ``TRIBUTARY_*`` variables, or ``pg_options`` in their place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from tributary import _core
from tributary.torch import job_name, variables

#: PyTorch's timeout for a group whose script gives none.
TORCH_DEFAULT = timedelta(minutes=30)

#: What the option "numbers" calls codes, by their bits.
CODES = {8: "int8", 4: "thc4"}

FALLBACKS = ("gloo", "error")
LOCALS = ("on", "off")
FAIL, REPLAN = "fail", "replan"

#: The default protocol's name, and the protocols that it stands for, by who sums.
AUTO, AT_SWITCH, AROUND = "auto", "switchml", "ring"
AT_HOSTS = next(protocol for protocol in _core.protocols() if _core.summed_by_servers(protocol))


@dataclass(frozen=True)
class Options:
    """How a group reaches its switch, and which path other operations take. The same on every rank."""

    #: "HOST:PORT" of a running switch, or of several with commas between, over which tensors are spread; rank 0 runs
    #: one in its own process if None.
    switch: str | None = None
    #: "ADDR" or "ADDR:PORT" where rank 0's own switch listens; the address from which it reaches the store if None.
    listen: str | None = None
    #: "gloo": what the network cannot sum goes over the host path. "error": it is an error.
    fallback: str = "gloo"
    #: Seconds after which missing ranks are given up, for groups whose script gives no timeout.
    timeout: float | None = None
    #: "switchml", "flare" or "panama" (the switch sums), "canary", "atp" or "pa-atp" (a switch or those of a fabric
    #: do), "ring" or "sparcml" (the hosts do), or "ps" (parameter servers do: those on offer, or one beside each rank).
    #: "auto": "switchml" at switches that are named and among ranks of one host; without a switch "ps" or "ring",
    #: whichever brings fewer bytes over the hosts' links (:mod:`tributary.torch.protocol_choice`).
    protocol: str = AUTO
    #: Options of the protocol: "name=value", several with commas between.
    options: str = ""
    #: What people call the job, in status, logs and metrics; rank 0's counts. The program and its user if None.
    job: str | None = None
    #: "on": ranks that share a host sum in its memory. "off": they sum in the network; one rank's "off" counts for all.
    local: str = "on"
    #: Threads that drive this rank at a switch, 1 to 16, each with a socket and a share of its slots, under protocols
    #: whose slots can be divided ("switchml", "flare"); jobs of others have one. If None, one for each 20 Gbit/s of the
    #: link, as far as half of the processors go, for a rank that is alone on its host, and one for others.
    cores: int | None = None
    #: "fail": a group that loses a switch or a parameter server is lost. "replan": its next operation does without.
    on_loss: str = FAIL

    def __post_init__(self) -> None:
        """Check the options that can be checked before any rank is asked."""
        if self.fallback not in FALLBACKS:
            raise ValueError(f"TRIBUTARY_FALLBACK is {' or '.join(FALLBACKS)}, not '{self.fallback}'")
        if self.local not in LOCALS:
            raise ValueError(f"TRIBUTARY_LOCAL is {' or '.join(LOCALS)}, not '{self.local}'")
        if self.on_loss not in (FAIL, REPLAN):
            raise ValueError(f"TRIBUTARY_ON_LOSS is {FAIL} or {REPLAN}, not '{self.on_loss}'")
        if self.cores is not None and not 1 <= self.cores <= _core.MAX_CORES:
            raise ValueError(f"TRIBUTARY_CORES is 1 to {_core.MAX_CORES}, not {self.cores}")
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"TRIBUTARY_TIMEOUT is a number of seconds above 0, not {self.timeout}")
        protocols = _core.protocols()
        if self.protocol not in (AUTO, *protocols):
            raise ValueError(f"TRIBUTARY_PROTOCOL is {' or '.join((AUTO, *protocols))}, not '{self.protocol}'")
        protocol = AT_SWITCH if self.protocol == AUTO else self.protocol
        try:
            _core.check_options(protocol, self.protocol_options)
        except ValueError as error:
            raise ValueError(f"TRIBUTARY_OPTIONS: {error}") from None
        if (self.cores or 1) > 1 and not _core.divides_slots(protocol, self.protocol_options):
            raise ValueError(f"TRIBUTARY_CORES is 1 under such a job of {protocol}, whose slots cores cannot divide")
        if self.job is not None and (self.job != job_name.safe(self.job) or len(self.job) > job_name.MOST_CHOSEN):
            raise ValueError(
                f"TRIBUTARY_JOB is at most {job_name.MOST_CHOSEN} letters, digits and _.:@+=-, not '{self.job}'"
            )
        switches = self.switches
        if self.switch is not None and not all(switches):
            raise ValueError(f"TRIBUTARY_SWITCH is HOST:PORT[,HOST:PORT...], not '{self.switch}'")
        if len(set(switches)) < len(switches):
            raise ValueError(f"TRIBUTARY_SWITCH names a switch twice: {self.switch}")

    @property
    def protocol_options(self) -> dict[str, str]:
        """The protocol's options by name."""
        given = [option.strip() for option in self.options.split(",") if option.strip()]
        wrong = [option for option in given if "=" not in option]
        if wrong:
            raise ValueError(f"TRIBUTARY_OPTIONS is NAME=VALUE[,NAME=VALUE...], not '{wrong[0]}'")
        return {name.strip(): value.strip() for name, _, value in (option.partition("=") for option in given)}

    @cached_property
    def codes(self) -> str | None:
        """What floats are summed as where that is codes: "int8" or "thc4"; None where it is not."""
        numbers = self.protocol_options.get("numbers")
        return numbers if numbers in CODES.values() else None

    @property
    def switches(self) -> list[str]:
        """The running switches, one by one."""
        return [] if self.switch is None else [switch.strip() for switch in self.switch.split(",")]

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> Options:
        """The options as the ``TRIBUTARY_*`` variables have them; an empty variable counts as none."""
        values = variables.of_groups(environment)
        timeout, cores = values.pop("timeout", None), values.pop("cores", None)
        return Options(**values, timeout=_seconds(timeout), cores=_count(cores))


def _count(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        raise ValueError(f"TRIBUTARY_CORES is a number, not '{text}'") from None


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise ValueError(f"TRIBUTARY_TIMEOUT is a number of seconds, not '{text}'") from None


def effective_timeout(given: timedelta, options: Options, parent: timedelta | None) -> timedelta:
    """A group's timeout.

    PyTorch gives 30 minutes to every group whose script says nothing, even to a subgroup of one with a timeout of its
    own: such a group takes TRIBUTARY_TIMEOUT, or else its parent's.
    """
    if given > timedelta(0) and given != TORCH_DEFAULT:
        return given
    if options.timeout is not None:
        return timedelta(seconds=options.timeout)
    return parent or TORCH_DEFAULT

"""Which protocol a group has whose options choose none: from the hosts of its ranks and their links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tributary import _core
from tributary.torch.options import AROUND, AT_HOSTS, AT_SWITCH, AUTO, Options


def choose(given: Options, hosts: Sequence[int]) -> tuple[Options, str]:
    """Options with a protocol, and why this one: for ranks on these hosts, which are numbered from 0."""
    if given.protocol != AUTO:
        return given, f"{given.protocol}, which was chosen"
    at_switch = replace(given, protocol=AT_SWITCH)
    if given.switches:
        return at_switch, f"{AT_SWITCH} at {', '.join(given.switches)}"
    if len(set(hosts)) < 2:
        return at_switch, f"{AT_SWITCH} in rank 0's process: all ranks are on one host"
    protocol, tensors = _over_hosts(hosts)
    own = Counter(hosts)[hosts[0]]
    why = (
        f"{protocol}, {tensors:.2f} tensors over each host's link; a switch in rank 0's process would take "
        f"{len(hosts) - own:.2f} over rank 0's"
    )
    try:
        _core.check_options(protocol, given.protocol_options)
    except ValueError as error:
        return at_switch, f"{AT_SWITCH}, whose options were chosen, though {why}: {error}"
    options = of_shared_links(given.protocol_options) if protocol == AT_HOSTS else given.protocol_options
    _core.check_options(protocol, options)
    return replace(given, protocol=protocol, options=",".join(f"{name}={options[name]}" for name in options)), why


def of_shared_links(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a job whose blocks share the hosts' links with results for other ranks, or with another job.

    The window that a host measures is too short there: it is for a link that carries the job's own blocks alone.
    """
    return {"congestion_control": "fixed", **options}


def _over_hosts(hosts: Sequence[int]) -> tuple[str, float]:
    """The protocol that needs no switch, for equal links; and how many tensors the busiest link then carries."""
    ranks, exits = Counter(hosts), Counter[int]()
    for here, following in zip(hosts, [*hosts[1:], hosts[0]], strict=True):
        exits[here] += here != following
    # Hosts sum equal shares for each rank, which the plan has only where they are alike.
    may_sum = len(set(ranks.values())) == 1
    plan = _core.plan_sums([(1.0, ranks[host], exits[host], may_sum) for host in sorted(ranks)])
    assert plan is not None, "there are ranks"
    shares, tensors = plan
    return AT_HOSTS if shares else AROUND, tensors

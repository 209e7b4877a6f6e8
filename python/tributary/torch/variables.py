"""The ``TRIBUTARY_*`` variables: those of a group, of the program and its tests, and those that Kubernetes makes."""

from __future__ import annotations

import re
from collections.abc import Mapping

PREFIX = "TRIBUTARY_"

#: The variables that a group's options come from, each with its option.
OF_GROUPS = {
    "TRIBUTARY_SWITCH": "switch",
    "TRIBUTARY_LISTEN": "listen",
    "TRIBUTARY_FALLBACK": "fallback",
    "TRIBUTARY_TIMEOUT": "timeout",
    "TRIBUTARY_PROTOCOL": "protocol",
    "TRIBUTARY_OPTIONS": "options",
    "TRIBUTARY_JOB": "job",
    "TRIBUTARY_LOCAL": "local",
    "TRIBUTARY_CORES": "cores",
    "TRIBUTARY_ON_LOSS": "on_loss",
}

#: Those that others read: the program, its service, and the tests of this repository. A page names each of them.
OF_OTHERS = {
    "TRIBUTARY_BLESS",
    "TRIBUTARY_LOG",
    "TRIBUTARY_LOG_FORMAT",
    "TRIBUTARY_RENEW_TIDY",
    "TRIBUTARY_RENEW_TRACES",
    "TRIBUTARY_SWITCH_FLAGS",
    "TRIBUTARY_TOKEN",
}

#: What Kubernetes puts into every pod for a Service `tributary` or `tributary-NAME`: the form of Docker's links.
_SERVICE = re.compile(
    r"TRIBUTARY(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)"
)
_SERVICE_PORT = re.compile(r"TRIBUTARY(_[A-Z0-9_]+)?_PORT")
_URL = re.compile(r"(tcp|udp|sctp)://\S+:\d+")


def is_of_service(name: str, value: str) -> bool:
    """Whether Kubernetes makes such a variable for a Service, which nobody has set."""
    is_port = _SERVICE_PORT.fullmatch(name) and _URL.fullmatch(value)
    return bool(is_port or _SERVICE.fullmatch(name))


def of_groups(environment: Mapping[str, str]) -> dict[str, str]:
    """The group's options in an environment; an empty variable counts as none, and an unknown one is an error."""
    given = {name: value for name, value in environment.items() if name.startswith(PREFIX) and value}
    for name, value in sorted(given.items()):
        if name not in OF_GROUPS and name not in OF_OTHERS and not is_of_service(name, value):
            raise ValueError(f"there is no variable {name}; there are {', '.join(OF_GROUPS)}")
    return {option: given[name] for name, option in OF_GROUPS.items() if name in given}

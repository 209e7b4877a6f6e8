"""The address by which other ranks reach this process, whatever its host's own name leads to."""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import socket

import torch.distributed as dist

from tributary.errors import ConnectError

#: Addresses of documentation (RFC 5737, RFC 3849): the route to them is the default one.
_ELSEWHERE = ("192.0.2.1", "2001:db8::1")


def own_network() -> str:
    """Name what processes share that reach each other by loopback: a boot of a host, and a network namespace there.

    The host's name would not do: many hosts have the same, and containers of one host have different ones.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        # As if the process were on a host of its own: it then uses no loopback address, which is always right.
        return secrets.token_hex(16)


def source_towards(host: str) -> str | None:
    """The address from which this process reaches a host; None if no route leads there."""
    try:
        # Bytes need no codec, whose import takes longer than the rest.
        name = host.encode() if host.isascii() else host
        family, kind, protocol, _, target = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)  # Sends nothing: the kernel chooses the address.
            return str(probe.getsockname()[0])
    except OSError:
        return None


def is_loopback(address: str) -> bool:
    """Whether only processes of this host reach the address."""
    return ipaddress.ip_address(address.split("%")[0]).is_loopback


def store_host(store: dist.Store) -> str:
    """The host that serves the store, which every rank reaches; for a store of files the one of MASTER_ADDR."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    if isinstance(store, dist.TCPStore):
        return str(store.host)
    return os.environ.get("MASTER_ADDR") or socket.gethostname()


def address_towards(hosts: list[str], is_spread: bool) -> str:
    """The address from which this process reaches the first of these hosts that leads to one.

    If ranks are spread over several hosts, it is not a loopback address.
    """
    for host in (*hosts, *_ELSEWHERE) if is_spread else hosts:
        address = source_towards(host)
        if address is not None and not (is_spread and is_loopback(address)):
            return address
    names = " and ".join(hosts)
    whose = "an address of this host that other hosts reach" if is_spread else "the address of this host"
    raise ConnectError(
        f"cannot find {whose} on the way to {names}; set TRIBUTARY_LISTEN, or TRIBUTARY_SWITCH to a running switch"
    )


def host_of(address: str) -> str:
    """The host of "HOST:PORT", "[HOST]:PORT" or "HOST"."""
    bracketed = re.match(r"\[(.*)\]", address)
    if bracketed is not None:
        return bracketed[1]
    return address.rsplit(":", 1)[0] if address.count(":") == 1 else address


def port_everywhere(listening: str) -> int | None:
    """The port of a listener at "ADDR:PORT" if it listens at every address: others need one of them."""
    return int(listening.rsplit(":", 1)[1]) if host_of(listening) in ("0.0.0.0", "::") else None


def with_port(address: str, port: int = 0) -> str:
    """The address with its port, or with this one; 0 is one that the system chooses."""
    has_port = re.search(r":\d+$", address) is not None and (address.count(":") == 1 or "]" in address)
    if has_port:
        return address
    return f"[{address}]:{port}" if ":" in address and "[" not in address else f"{address}:{port}"

"""Hostile clients of a soak's switches: packets and requests of nobody, random ones and ones that look right, and ranks
that join and vanish."""

from __future__ import annotations

import json
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable

#: Of packets: docs/wire.md.
MAGIC, WIRE_VERSION = 0x5442, 2

#: Packets at each switch, and requests, in a second.
PACKETS_PER_S, REQUESTS_PER_S = 40, 4

#: Connections that are kept open without a word.
SILENT = 4


def packet(draw: random.Random) -> bytes:
    """A packet of nobody: nothing, random bytes, or a header of ours with a key that nobody has."""
    rest = draw.randbytes(draw.choice((0, 1, 20, 100, 1400)))
    if draw.random() < 0.3:
        return rest
    version = WIRE_VERSION if draw.random() < 0.8 else draw.randrange(256)
    fields = (MAGIC, version, draw.randrange(12), draw.randrange(32), 0, draw.randrange(64), draw.getrandbits(64))
    return struct.pack("!HBBBBHQ", *fields)[: draw.choice((3, 16, 16, 16, 16))] + rest


def request(draw: random.Random) -> bytes:
    """A request that no switch should obey, whole or cut off."""
    body = draw.choice((b"{}", b'{"rank": 1' + b"0" * 60, draw.randbytes(300), b"[" * 5000))
    path = draw.choice(("/jobs/pulse-0/join", "/jobs/pulse-0/leave", "/jobs/x/watch", "/nothing", "/jobs/%00/standing"))
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    whole = draw.choice((head.encode() + body, draw.randbytes(500), b"GET /status HTTP/1.1\r\n" + b"A: b\r\n" * 300))
    return whole[: draw.randrange(1, len(whole) + 1)]


def join(draw: random.Random) -> bytes:
    """A join without a fault, of a rank that answers no packet and whose others never come."""
    body: dict[str, object] = {"wire_version": WIRE_VERSION, "rank": 0, "world_size": 2, "protocol": "switchml"}
    body |= {"udp_port": draw.randrange(1, 65536), "max_elements_per_packet": 358, "suggested_slots": 128}
    body |= {"incarnation": draw.randbytes(8).hex(), "timeout_s": 20.0}
    text, job = json.dumps(body), f"absent-{draw.randrange(1000)}"
    return f"POST /jobs/{job}/join HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


def knock(switches: list[str], done: Callable[[], bool], counts: Counter[str]) -> None:
    """Bother all switches until the end."""
    draw = random.Random(13)
    addresses = [(host, int(port)) for host, port in (switch.rsplit(":", 1) for switch in switches)]
    silent: list[socket.socket] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        while not done():
            for address in addresses:
                for _ in range(PACKETS_PER_S // REQUESTS_PER_S):
                    udp.sendto(packet(draw), address)
                    counts["forged packets"] += 1
                joins = draw.random() < 0.25
                try:
                    knocked = socket.create_connection(address, timeout=5)
                    knocked.sendall(join(draw) if joins else request(draw))
                    counts["joins that vanished" if joins else "forged requests"] += 1
                except OSError:
                    continue  # The switch is being restarted, or has hung up.
                silent.append(knocked)
            while len(silent) > SILENT:
                silent.pop(0).close()
            time.sleep(1 / REQUESTS_PER_S)
    for knocked in silent:
        knocked.close()

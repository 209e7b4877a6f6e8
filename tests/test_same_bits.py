"""What docs/reproducibility.md says comes out the same to the bit: every cell of its table."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rank_bits
import tributary
from program import Daemon
from tributary import _core

ROOT = Path(__file__).parent.parent
WORLD_SIZE = 5
_jobs = itertools.count()


def table() -> dict[str, dict[str, str]]:
    """The page's table: for each protocol what it says of each circumstance."""
    rows = [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in (ROOT / "docs" / "reproducibility.md").read_text().splitlines()
        if line.startswith("| `") or line.startswith("| protocol |")
    ]
    head, *body = rows
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in body}


TABLE = table()


@pytest.fixture(scope="module")
def racks() -> Iterator[Callable[[int], list[str]]]:
    """Two switches below a third; the addresses of ranks of which this many are at the first."""
    parent = Daemon("--cores", "1")
    below = [Daemon("--cores", "1", "--parent", parent.address) for _ in range(2)]
    yield lambda first: [below[own >= first].address for own in range(WORLD_SIZE)]
    for daemon in [*below, parent]:
        daemon.kill()


@pytest.fixture(scope="module")
def alone() -> Iterator[str]:
    """A switch with one thread."""
    daemon = Daemon("--cores", "1")
    yield daemon.address
    daemon.kill()


def bits(protocol: str, switches: str | list[str], **circumstances: object) -> str:
    """The bits that all ranks have received."""
    at = [switches] * WORLD_SIZE if isinstance(switches, str) else switches
    job = f"bits-{os.getpid()}-{next(_jobs)}"
    with ThreadPoolExecutor(WORLD_SIZE) as pool:
        ranks = [
            pool.submit(rank_bits.digest, own, WORLD_SIZE, at[own], job, protocol, **circumstances)  # type: ignore[arg-type]
            for own in range(WORLD_SIZE)
        ]
        digests = {future.result(timeout=120) for future in ranks}
    assert len(digests) == 1, "all ranks receive the same"
    return digests.pop()


def check(said: str, first: str, others: list[str]) -> None:
    """The others are as the page says."""
    if said == "same":
        assert set(others) == {first}
    else:
        assert said in ("differs", "chance")
        # With chance, somebody comes in another order in some of them.
        assert set(others) != {first}


def test_the_table_has_every_protocol() -> None:
    assert {row.split()[0] for row in TABLE} == set(_core.protocols())


@pytest.mark.parametrize("protocol", TABLE)
def test_bits_in_different_circumstances_are_as_the_page_says(
    protocol: str, alone: str, daemon: Daemon, racks: Callable[[int], list[str]]
) -> None:
    said = TABLE[protocol]
    first = bits(protocol, alone)
    late = range(12 if said["arrival"] == "chance" else 3)
    check(said["arrival"], first, [bits(protocol, alone, late=number) for number in late])
    if said["bucket"] != "chance":
        check(said["bucket"], first, [bits(protocol, alone, cuts=[1, 1_000, 1_007, 20_011])])
        check(said["packet"], first, [bits(protocol, alone, elements_per_packet=96)])
        check(said["shards"], first, [bits(protocol, daemon.address)])
    if said["racks"] == "none":
        with pytest.raises(tributary.ConnectError, match="stands alone or in a fabric"):
            bits(protocol, racks(2))
    elif said["racks"] != "chance":
        check(said["racks"], first, [bits(protocol, racks(2)), bits(protocol, racks(3))])


def test_bits_on_links_that_lose_packets_are_as_the_page_says() -> None:
    if os.geteuid() != 0 or shutil.which("nft") is None or shutil.which("ip") is None:
        pytest.skip("network namespaces need root, iproute2 and nftables")
    protocols = [protocol for protocol, said in TABLE.items() if said["loss"] != "chance"]
    assert {TABLE[protocol]["loss"] for protocol in protocols} == {"same"}

    def star(*flags: str) -> dict[str, str]:
        command = [sys.executable, "-m", "tributary", "lab", "star", "--hosts", "4", *flags, "--"]
        ran = subprocess.run(
            [*command, sys.executable, rank_bits.__file__, *protocols],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert ran.returncode == 0, ran.stderr
        found = re.search(r"\{.*\}", ran.stdout)
        assert found is not None, ran.stdout
        return dict(json.loads(found[0]))

    assert star("--loss", "2%") == star()

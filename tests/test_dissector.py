"""docs/tributary.lua names the fields of every packet: Wireshark's tshark reads the golden packets with it."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import program

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"
DISSECTOR = ROOT / "docs" / "tributary.lua"
WIRE = (ROOT / "docs" / "wire.md").read_text()


@pytest.fixture(scope="session")
def tshark() -> str:
    """Give tshark, installed with apt where it is missing."""
    said = subprocess.run([ROOT / "scripts" / "apt-install", "tshark"], capture_output=True, text=True, check=False)
    found = shutil.which("tshark")
    if found is None and os.geteuid() != 0:
        pytest.skip(said.stderr.strip())
    assert found is not None, said.stderr
    return found


def packets(path: Path) -> Iterator[tuple[str, bytes]]:
    """Give the packets of a golden file: what a comment line says, and the bytes below it."""
    what, digits = "", ""
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            if digits:
                yield what, bytes.fromhex(digits)
            what, digits = line.removeprefix("# "), ""
        else:
            digits += line.split("#")[0]
    yield what, bytes.fromhex(digits)


def pcap(payloads: list[bytes]) -> bytes:
    """Make a capture of UDP datagrams with these payloads."""
    file = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    for payload in payloads:
        udp = struct.pack(">HHHH", 40000, 40001, 8 + len(payload), 0)
        ip = struct.pack(">BBHHHBBHII", 0x45, 0, 28 + len(payload), 0, 0x4000, 64, 17, 0, 0x0A000001, 0x0A000002)
        frame = bytes(12) + b"\x08\x00" + ip + udp + payload
        file += struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame
    return file


def shown(tshark: str, file: Path, *columns: str) -> list[list[str]]:
    """Give for each packet what tshark finds in these fields, and in the protocol list."""
    command = [tshark, "-X", f"lua_script:{DISSECTOR}", "-r", str(file), "-T", "fields", "-E", "separator=;"]
    for column in ("frame.protocols", "tributary.strange", *columns):
        command += ["-e", column]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "Error" not in ran.stderr, ran.stderr
    return [line.split(";") for line in ran.stdout.splitlines()]


def tree(tshark: str, file: Path) -> str:
    """Give all that tshark shows of the packets below UDP."""
    command = [tshark, "-X", f"lua_script:{DISSECTOR}", "-r", str(file), "-O", "tributary"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("*.hex")))
def test_every_golden_packet_is_known_by_its_kind(tshark: str, tmp_path: Path, name: str) -> None:
    golden = list(packets(GOLDEN / name))
    file = tmp_path / "golden.pcap"
    file.write_bytes(pcap([payload for _, payload in golden]))
    for (what, _), (protocols, strange, kind) in zip(golden, shown(tshark, file, "tributary.kind_name"), strict=True):
        assert "udp:tributary" in protocols, what
        assert strange == "", what
        assert kind, what
        # "# REDUCE of rank 1 ..."
        if what.split()[0].rstrip(":").isupper():
            assert kind == what.split()[0].rstrip(":"), what


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("*.fields.json")))
def test_fields_have_the_values_that_the_golden_packets_were_made_of(tshark: str, tmp_path: Path, name: str) -> None:
    expected: list[dict[str, str]] = json.loads((GOLDEN / name).read_text())
    golden = list(packets(GOLDEN / name.replace(".fields.json", ".hex")))
    assert len(expected) <= len(golden)
    for values, (what, payload) in zip(expected, golden, strict=False):
        file = tmp_path / "packet.pcap"
        file.write_bytes(pcap([payload]))
        ((_, _, *found),) = shown(tshark, file, *(f"tributary.{field}" for field in values))
        assert dict(zip(values, found, strict=True)) == values, what


Fields = list[tuple[int, int]]


def tables_of_the_page() -> dict[str, Fields]:
    """Give each table of docs/wire.md with offsets by its first row: offset and bytes of each field.

    Collective headers have a list of their own, and vectors have no bytes.
    """
    tables: dict[str, Fields] = {}
    first = None
    for line in WIRE.splitlines():
        row = re.match(r"\| (\d+) \| (\d+) \| ", line)
        if row is None:
            first = first if line.startswith("|") else None
        elif "collective header" not in line:
            first = first or line
            tables.setdefault(first, []).append((int(row[1]), int(row[2])))
    return tables


def lists_of_the_dissector() -> list[Fields]:
    """Give the lists of fields in docs/tributary.lua: offset and bytes of each field."""
    sections = DISSECTOR.read_text().split("\nlocal ")
    rows = [re.findall(r'\{ "[a-z_.]+", (\d+), (\d+), ', section) for section in sections]
    return [[(int(at), int(length)) for at, length in found] for found in rows if found]


def test_the_dissector_has_the_fields_of_the_wires_page_at_their_offsets() -> None:
    lists = lists_of_the_dissector()
    tables = tables_of_the_page()
    assert len(tables) >= 9
    for first, fields in tables.items():
        start = fields[0][0]
        from_zero = [(at - start, length) for at, length in fields]
        # Two ranks that disagree come at different places.
        assert fields in lists or from_zero in lists, first


def test_a_simulated_capture_is_read_and_another_version_is_said_to_be_strange(tshark: str, tmp_path: Path) -> None:
    capture = tmp_path / "run.pcapng"
    ran = program.run(
        "sim", "trace", str(ROOT / "experiments" / "first.toml"), "--to", "30 us", "--pcapng", str(capture)
    )
    assert ran.returncode == 0, ran.stderr
    kinds = {row[2] for row in shown(tshark, capture, "tributary.kind_name")}
    assert {"UPDATE", "RESULT"} <= kinds
    (_, ping), *_ = packets(GOLDEN / "common.hex")
    old = tmp_path / "old.pcap"
    old.write_bytes(pcap([ping[:2] + b"\x01" + ping[3:]]))
    assert "Not of this wire format" in tree(tshark, old)

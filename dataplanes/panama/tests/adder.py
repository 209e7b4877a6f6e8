"""Proves the adder: `adder.py` for what takes a minute, `adder.py --full` for all."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from run import HERE, TARGET, tools

#: Exponent and fraction bits, and what is run. A small format has all the cases of a large one.
SHORT = [((4, 3), ["all"]), ((8, 23), ["random", "2000000", "1"])]
FULL = [
    *SHORT,
    ((3, 4), ["all"]),
    ((5, 4), ["all"]),
    ((5, 6), ["all"]),
    ((5, 10), ["random", "20000000", "2"]),
    ((8, 7), ["random", "20000000", "3"]),
    ((8, 23), ["random", "50000000", "4"]),
]


def build(exponent: int, fraction: int, rtl: Path, name: str = "") -> Path:
    """Compiles the adder of a format with the program that holds it against other arithmetic."""
    folder = TARGET / f"adder{name}-{exponent}-{fraction}"
    folder.mkdir(parents=True, exist_ok=True)
    command = ["verilator", "--cc", "--exe", "--build", "-Wall", "-O3", f"-GEXP={exponent}", f"-GMAN={fraction}"]
    command += ["-CFLAGS", f"-O2 -DEXP={exponent} -DMAN={fraction}", "--Mdir", str(folder), "-o", "fp_add"]
    command += ["--top-module", "fp_add", str(rtl / "fp_add.sv"), str(HERE / "fp_add.cpp")]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "fp_add"


def softfloat(program: Path, pairs: int) -> None:
    """Compares with Berkeley's SoftFloat, which is John Hauser's and not the processor's."""
    import random

    import softfloatpy as sf

    draw = random.Random(7)
    edges = [0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x34000000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001]
    edges += [edge | 1 << 31 for edge in edges]
    chosen = [(a, b) for a in edges for b in edges]
    while len(chosen) < pairs:
        a = draw.getrandbits(32)
        near = (a >> 23) + draw.randint(-26, 26) & 255
        chosen.append((a, draw.getrandbits(1) << 31 | near << 23 | draw.getrandbits(23)))
    text = "".join(f"{a:08x} {b:08x}\n" for a, b in chosen)
    sums = subprocess.run([program, "pairs"], input=text, capture_output=True, text=True, check=True).stdout.split()
    assert len(sums) == len(chosen)
    for (a, b), mine in zip(chosen, sums, strict=True):
        theirs = sf.f32_add(sf.Float32.from_bytes(a.to_bytes(4, "big")), sf.Float32.from_bytes(b.to_bytes(4, "big")))
        bits = int.from_bytes(theirs.to_bytes(), "big")
        if bits & 0x7FFFFFFF > 0x7F800000:
            bits = 0x7FC00000
        assert int(mine, 16) == bits, f"{a:08x} + {b:08x} = {bits:08x} by SoftFloat, and not {mine}"
    print(f"SoftFloat: {len(chosen)} pairs, 0 wrong")


def main() -> int:
    """Builds and runs; 0 if every sum is right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--rtl", type=Path, default=HERE.parent / "rtl")
    parser.add_argument("--name", default="")
    options = parser.parse_args()
    tools()
    failed = 0
    for (exponent, fraction), what in FULL if options.full else SHORT:
        program = build(exponent, fraction, options.rtl, options.name)
        failed |= subprocess.run([program, *what], check=False).returncode
    if not options.name:
        softfloat(build(8, 23, options.rtl), 200_000 if options.full else 20_000)
    return failed


if __name__ == "__main__":
    sys.exit(main())

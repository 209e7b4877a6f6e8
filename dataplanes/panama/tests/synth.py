"""What each module costs on a Xilinx 7-series chip, by yosys: tables, flip-flops, memory, and the longest path.

`synth.py` for the prototype's size; `synth.py --ports 8 --width 128 ...` for another."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

RTL = Path(__file__).parent.parent / "rtl"
#: The rows of the paper's table 2, and those modules of ours that have no row there.
MODULES = [
    "header_parser", "packet_buffer", "fp_add", "agg_control", "adder_tree", "agg_datapath", "job_table", "egress",
    "cpu_queue", "cpu_mux",
]  # fmt: skip


def parameters(module: str, options: argparse.Namespace) -> dict[str, int]:
    """The parameters of a module as the top sets them."""
    tree_bits, slot_bits = max(1, (options.trees - 1).bit_length()), (options.slots - 1).bit_length()
    values = {
        "W": options.width, "PORTS": options.ports, "TREES": options.trees, "SLOTS": options.slots,
        "CAPACITY": options.capacity,
        "FRAME_BEATS": 2048 * 8 // options.width, "FIELDS": tree_bits + 125, "POSITIONS": options.ports,
        "ORDER": tree_bits + 116 + options.ports * slot_bits, "DEPTH": 2 * 2048 * 8 // options.width,
    }  # fmt: skip
    text = (RTL / f"{module}.sv").read_text().split(") (")[0]
    names = re.findall(r"^ +parameter int (\w+)", text, re.M)
    return {name: values[name] for name in names if name in values}


def cells(module: str, options: argparse.Namespace) -> dict[str, int]:
    """Counts the cells of a module."""
    sources = [RTL / "panama.sv", *sorted(path for path in RTL.glob("*.sv") if path.name != "panama.sv")]
    sets = " ".join(f"-set {name} {value}" for name, value in parameters(module, options).items())
    script = f"read_verilog -sv {' '.join(map(str, sources))}; "
    script += f"chparam {sets} {module}; " if sets else ""
    script += f"synth_xilinx -family xc7 -top {module} -flatten -noiopad; stat; sta"
    done = subprocess.run(["yosys", "-p", script], capture_output=True, text=True, check=True).stdout
    stat = done.rsplit("Number of cells:", 1)[1]
    found = {kind: int(count) for kind, count in re.findall(r"^ +([A-Z][A-Z0-9_]+) +(\d+)$", stat, re.M)}
    # Cells alone, without wires: only place and route knows those.
    path = re.search(r"Latest arrival time in '\w+' is (\d+)", done)
    memory = {"RAM32M": 4, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4, "SRL16E": 1, "SRLC32E": 1}
    return {
        "luts": sum(count for kind, count in found.items() if re.fullmatch(r"LUT\d|INV", kind)),
        "luts_as_memory": sum(count * memory.get(kind, 0) for kind, count in found.items()),
        "ffs": sum(count for kind, count in found.items() if kind.startswith("FD")),
        "carry4": found.get("CARRY4", 0),
        "bram18": sum(count * (2 if kind == "RAMB36E1" else 1) for kind, count in found.items() if "RAMB" in kind),
        "dsp": found.get("DSP48E1", 0),
        "path_ps": int(path[1]) if path else 0,
    }


def main() -> None:
    """Prints a line for each module, and all as JSON if a file is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("ports", 4), ("width", 64), ("trees", 4), ("slots", 32), ("capacity", 16)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", type=Path)
    parser.add_argument("modules", nargs="*", default=MODULES)
    options = parser.parse_args()
    counted = {}
    for module in options.modules:
        counted[module] = cells(module, options)
        print(f"{module:16}", *(f"{name} {count:6}" for name, count in counted[module].items()), flush=True)
    if options.json:
        options.json.write_text(json.dumps(counted, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
